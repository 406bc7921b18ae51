//! File system and block device under a path.

use crate::read_trimmed;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// `ext4 on vda (270 GB, not rotational)`; unknown parts are left out.
pub fn describe_device(path: &Path) -> String {
    // A path that is yet to be made lies where its nearest ancestor does.
    let there = path.ancestors().find_map(|p| std::fs::metadata(p).ok());
    let Some(about) = there else { return "unknown".to_owned() };
    let (major, minor) = (nix::sys::stat::major(about.dev()), nix::sys::stat::minor(about.dev()));
    let mounts = read_trimmed("/proc/self/mountinfo");
    let (kind, source) = find_mount(&mounts, &format!("{major}:{minor}")).unwrap_or(("unknown", ""));
    let Some(device) = source.strip_prefix("/dev/") else { return kind.to_owned() };
    match describe_block_device(major, minor) {
        Some(details) => format!("{kind} on {device} ({details})"),
        None => format!("{kind} on {device}"),
    }
}

/// File system type and source of the mount with this device number (proc_pid_mountinfo(5): type
/// and source follow the lone hyphen).
fn find_mount<'a>(mountinfo: &'a str, device: &str) -> Option<(&'a str, &'a str)> {
    let line = mountinfo.lines().find(|line| line.split(' ').nth(2) == Some(device))?;
    let mut after = line.split_once(" - ")?.1.split(' ');
    Some((after.next()?, after.next()?))
}

/// Size and kind, from the disk itself or from the disk that the partition is on.
fn describe_block_device(major: u64, minor: u64) -> Option<String> {
    let own = format!("/sys/dev/block/{major}:{minor}");
    let sectors: u64 = read_trimmed(&format!("{own}/size")).parse().ok()?;
    let rotational = [
        read_trimmed(&format!("{own}/queue/rotational")),
        read_trimmed(&format!("{own}/../queue/rotational")),
    ];
    let kind = match rotational.iter().find(|text| !text.is_empty())?.as_str() {
        "0" => "not rotational",
        _ => "rotational",
    };
    Some(format!("{} GB, {kind}", sectors * 512 / 1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_is_found_by_its_device_number() {
        let text = "27 1 254:0 / / rw shared:1 - ext4 /dev/vda rw\n30 27 0:25 / /tmp rw - tmpfs tmpfs rw";
        assert_eq!(find_mount(text, "254:0"), Some(("ext4", "/dev/vda")));
        assert_eq!(find_mount(text, "0:25"), Some(("tmpfs", "tmpfs")));
        assert_eq!(find_mount(text, "9:9"), None);
    }

    #[test]
    fn a_path_that_is_not_there_yet_is_described_by_its_parent() {
        assert_eq!(describe_device(Path::new("/tmp/not/there/yet")), describe_device(Path::new("/tmp")));
    }
}
