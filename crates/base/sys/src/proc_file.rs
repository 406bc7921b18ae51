//! Reader of files of /proc: those that are read often, and those that hold `Name: value` lines.

use crate::read_trimmed;
use std::fmt::Display;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// A /proc file that is read repeatedly through one descriptor and one buffer.
#[derive(Debug)]
pub struct ProcFile {
    file: Option<File>,
    buffer: Vec<u8>,
    len: usize,
}

impl ProcFile {
    /// A missing file reads as empty.
    pub fn open(path: &str) -> Self {
        Self { file: File::open(path).ok(), buffer: vec![0; 4096], len: 0 }
    }

    /// What it holds now.
    pub fn read_text(&mut self) -> &str {
        self.len = 0;
        if let Some(file) = &self.file {
            while let Ok(n) = file.read_at(&mut self.buffer[self.len..], self.len as u64) {
                self.len += n;
                if n == 0 {
                    break;
                }
                if self.len == self.buffer.len() {
                    self.buffer.resize(self.buffer.len() * 2, 0);
                }
            }
        }
        std::str::from_utf8(&self.buffer[..self.len]).unwrap_or("")
    }
}

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
