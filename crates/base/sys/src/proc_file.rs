//! Reader of the files of /proc that hold `Name: value` lines: status and io of a process, meminfo.

use crate::read_trimmed;
use std::fmt::Display;

/// Status of a process, by its pid or as `self`; empty if it cannot be read.
pub fn status(pid: impl Display) -> String {
    read_trimmed(&format!("/proc/{pid}/status"))
}

/// What a process read and wrote; empty if it cannot be read, as of another user's process.
pub fn io(pid: impl Display) -> String {
    read_trimmed(&format!("/proc/{pid}/io"))
}

/// Value of a line.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Value of a line with a decimal number.
pub fn number(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.parse().ok()
}

/// Value of a line with a set of bits.
pub fn bits(text: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(field(text, name)?, 16).ok()
}

/// Value of a line in bytes; the files write `kB` and mean KiB.
pub fn bytes(text: &str, name: &str) -> Option<u64> {
    let kib: u64 = field(text, name)?.strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_their_whole_name() {
        let text = "Name:\ttoll\nVmHWM:\t  123 kB\nSwapCached:    7 kB\nCached:    8 kB\n\
                    SigIgn:\t0000000000001001\nwchar: 300000\n";
        assert_eq!((field(text, "Name"), field(text, "Nam"), field(text, "ame")), (Some("toll"), None, None));
        assert_eq!((bytes(text, "VmHWM"), bytes(text, "Cached")), (Some(123 << 10), Some(8 << 10)));
        assert_eq!((bytes(text, "Dirty"), bytes(text, "wchar")), (None, None));
        assert_eq!((bits(text, "SigIgn"), number(text, "wchar")), (Some(0x1001), Some(300_000)));
        assert_eq!((number(text, "Name"), bits(text, "Name")), (None, None));
        assert_eq!(bytes("a: 18446744073709551615 kB", "a"), None);
    }

    #[test]
    fn a_process_has_a_status_until_it_is_gone() {
        let own = status("self");
        assert_eq!(number(&own, "Pid"), Some(std::process::id().into()));
        assert!(bytes(&own, "VmRSS") > Some(0) && number(&io(std::process::id()), "wchar").is_some());
        assert_eq!((status(i32::MAX), io(i32::MAX)), (String::new(), String::new()));
    }
}
