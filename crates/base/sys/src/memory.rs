//! How much memory is there for a server to take?
//!
//! Reads /proc and cgroup limits; never allocates to find out.

/// All memory of the machine.
pub fn total_bytes() -> u64 {
    meminfo("MemTotal:").unwrap_or(0)
}

/// What a new process can use without swapping, or the control group's head room where that is less.
pub fn available_bytes() -> u64 {
    let machine = meminfo("MemAvailable:").unwrap_or(0);
    match cgroup_room() {
        Some(room) => machine.min(room),
        None => machine,
    }
}

/// What programs have written and the disk has not: dirty pages, and those on their way.
pub fn unwritten_bytes() -> u64 {
    meminfo("Dirty:").unwrap_or(0) + meminfo("Writeback:").unwrap_or(0)
}

fn meminfo(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    parse_meminfo(&text, field)
}

/// A field of /proc/meminfo in bytes; the file writes `kB` and means KiB.
pub fn parse_meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line[field.len()..].trim().split(' ').next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Limit less use in the version 2 hierarchy; none where there is no limit.
fn cgroup_room() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let dir = format!("/sys/fs/cgroup{path}");
    let limit: u64 = std::fs::read_to_string(format!("{dir}/memory.max")).ok()?.trim().parse().ok()?;
    let used: u64 = std::fs::read_to_string(format!("{dir}/memory.current")).ok()?.trim().parse().ok()?;
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kibibytes_become_bytes_and_a_missing_field_is_none() {
        let text = "MemTotal:       24604036 kB\nMemAvailable:   23988112 kB\n";
        assert_eq!(parse_meminfo(text, "MemAvailable:"), Some(23_988_112 * 1024));
        assert_eq!(parse_meminfo(text, "Dirty:"), None);
    }
}
