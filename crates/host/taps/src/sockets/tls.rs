//! Lookup of a server's TLS library and its functions.
//!
//! TLS traffic can be captured if the library is a file that exports its functions.

use super::elf;
use std::path::{Path, PathBuf};

/// Functions that are probed: the two that transfer bytes.
pub const FUNCTIONS: [&str; 2] = ["SSL_read", "SSL_write"];

/// The library that a server has loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsLibrary {
    /// As the server names it.
    pub name: String,
    /// The same file, as it is reached from here.
    pub path: PathBuf,
    /// File offset of each of [`FUNCTIONS`].
    pub offsets: [u64; 2],
}

impl TlsLibrary {
    /// Of process `pid`.
    ///
    /// # Errors
    /// TLS traffic cannot be captured. The text is half a sentence.
    pub fn find(pid: u32) -> Result<Self, String> {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"))
            .map_err(|error| format!("the server's memory map cannot be read: {error}"))?;
        Self::find_among(&candidates(&maps), Path::new(&format!("/proc/{pid}/root")))
    }

    fn find_among(names: &[String], root: &Path) -> Result<Self, String> {
        for name in names {
            if name.ends_with(" (deleted)") {
                return Err(format!("{name} was replaced since the server has started: restart the server"));
            }
            let path = root.join(name.trim_start_matches('/'));
            if let Some(offsets) = elf::function_offsets(&path, FUNCTIONS) {
                return Ok(Self { name: name.clone(), path, offsets });
            }
        }
        Err("the server has its TLS library built in, or one that is not OpenSSL's".into())
    }
}

/// Files of a memory map that may hold a TLS library: those that are named like one, then the program itself, which
/// is mapped first.
fn candidates(maps: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in maps.lines() {
        // Range, rights, offset, device, inode, then the path with whatever blanks it has.
        let Some((_, path)) = line.split_once('/') else { continue };
        let path = format!("/{path}");
        let is_first = names.is_empty();
        if (is_first || path.contains("libssl")) && !names.contains(&path) {
            names.push(path);
        }
    }
    if names.len() > 1 {
        names.rotate_left(1);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_come_before_the_program_and_each_once() {
        let maps = "55d0-55d1 r--p 00000000 fe:00 12  /usr/sbin/mariadbd\n\
            55d1-55d2 r-xp 00001000 fe:00 12  /usr/sbin/mariadbd\n\
            7f00-7f01 rw-p 00000000 00:00 0 \n\
            7f01-7f02 r-xp 00000000 fe:00 13  /usr/lib/libc.so.6\n\
            7f02-7f03 r--p 00000000 fe:00 14  /opt/my sql/libssl.so.3\n\
            7f03-7f04 r-xp 00000000 fe:00 14  /opt/my sql/libssl.so.3\n";
        assert_eq!(candidates(maps), ["/opt/my sql/libssl.so.3", "/usr/sbin/mariadbd"]);
        assert!(candidates("").is_empty());
    }

    #[test]
    fn why_nothing_can_be_read_is_said() {
        let root = Path::new("/");
        let none = TlsLibrary::find_among(&["/bin/sh".to_owned()], root).unwrap_err();
        assert_eq!(none, "the server has its TLS library built in, or one that is not OpenSSL's");
        let replaced =
            TlsLibrary::find_among(&["/usr/lib/libssl.so.3 (deleted)".to_owned()], root).unwrap_err();
        assert!(replaced.contains("restart the server"), "{replaced}");
    }
}
