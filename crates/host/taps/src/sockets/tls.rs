//! Lookup of a server's TLS library and its functions.
//!
//! TLS traffic can be captured if the library is a file that exports its functions.

use super::elf;
use std::os::unix::fs::MetadataExt;
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
        let process = PathBuf::from(format!("/proc/{pid}"));
        let maps = std::fs::read_to_string(process.join("maps"))
            .map_err(|error| format!("the server's memory map cannot be read: {error}"))?;
        Self::find_among(&candidates(&maps), &process)
    }

    /// `process`: its directory of `proc(5)`.
    fn find_among(files: &[MappedFile], process: &Path) -> Result<Self, String> {
        for file in files {
            if file.name.ends_with(" (deleted)") {
                return Err(format!(
                    "{} was replaced since the server has started: restart the server",
                    file.name
                ));
            }
            let path = file.path_from_here(process);
            if let Some(offsets) = elf::function_offsets(&path, FUNCTIONS) {
                return Ok(Self { name: file.name.clone(), path, offsets });
            }
        }
        Err("the server has its TLS library built in, or one that is not OpenSSL's".into())
    }
}

/// A file of a process's memory map.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MappedFile {
    /// Its first mapping, as `map_files` names it.
    range: String,
    name: String,
    /// Numbers of the device, major and minor.
    device: (u32, u32),
    inode: u64,
}

impl MappedFile {
    /// Range, rights, offset, device, inode, then the path with whatever blanks it has.
    fn parse(line: &str) -> Option<Self> {
        let (numbers, path) = line.split_once('/')?;
        let mut fields = numbers.split_ascii_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let range = format!("{}-{}", begin.trim_start_matches('0'), end.trim_start_matches('0'));
        let mut fields = fields.skip(2);
        let (major, minor) = fields.next()?.split_once(':')?;
        let number = |hex| u32::from_str_radix(hex, 16).ok();
        let device = (number(major)?, number(minor)?);
        Some(Self { range, name: format!("/{path}"), device, inode: fields.next()?.parse().ok()? })
    }

    /// The same file, as it is reached from here. `process`: directory of the process.
    ///
    /// Its link in `map_files` leads to it wherever it lies, and takes CAP_CHECKPOINT_RESTORE. Without: in another mount
    /// namespace the name begins at the root of the process; in a chroot it begins at our own root, and includes the
    /// chroot. Both names may lead to a file, but only one to this file; in a chroot of another namespace neither does.
    fn path_from_here(&self, process: &Path) -> PathBuf {
        let mapped = process.join("map_files").join(&self.range);
        if std::fs::metadata(&mapped).is_ok() {
            return mapped;
        }
        let root = process.join("root");
        let below_root = root.join(self.name.trim_start_matches('/'));
        let as_named = PathBuf::from(&self.name);
        // btrfs and overlayfs have other numbers in the map than in stat: there only the first name remains.
        if !self.is_at(&below_root) && self.is_at(&as_named) { as_named } else { below_root }
    }

    fn is_at(&self, path: &Path) -> bool {
        std::fs::metadata(path).is_ok_and(|found| {
            let device = (libc::major(found.dev()), libc::minor(found.dev()));
            device == self.device && found.ino() == self.inode
        })
    }
}

/// Files of a memory map that may hold a TLS library: those that are named like one, then the program itself, which
/// is mapped first.
fn candidates(maps: &str) -> Vec<MappedFile> {
    let mut files: Vec<MappedFile> = Vec::new();
    for file in maps.lines().filter_map(MappedFile::parse) {
        let is_first = files.is_empty();
        if (is_first || file.name.contains("libssl")) && files.iter().all(|known| known.name != file.name) {
            files.push(file);
        }
    }
    if files.len() > 1 {
        files.rotate_left(1);
    }
    files
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
        let found = candidates(maps);
        let names: Vec<_> = found.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, ["/opt/my sql/libssl.so.3", "/usr/sbin/mariadbd"]);
        assert_eq!((found[0].device, found[0].inode), ((0xfe, 0), 14));
        assert_eq!(found[0].range, "7f02-7f03");
        let low = MappedFile::parse("00400000-00452000 r-xp 00000000 fe:00 12  /usr/sbin/mysqld").unwrap();
        assert_eq!(low.range, "400000-452000");
        assert!(candidates("").is_empty());
    }

    #[test]
    fn a_library_is_found_in_a_chroot_and_in_a_container() {
        let dir = tempfile::tempdir().unwrap();
        let process = dir.path();
        let (root, name) = (process.join("root"), "lib/libssl.so.3");
        let inside = root.join(name);
        std::fs::create_dir_all(inside.parent().unwrap()).unwrap();
        std::fs::write(&inside, "").unwrap();
        let numbers = std::fs::metadata(&inside).unwrap();
        let device = (libc::major(numbers.dev()), libc::minor(numbers.dev()));
        let range = "7f02-7f03".to_owned();
        let mapped = |name: String| MappedFile { range: range.clone(), name, device, inode: numbers.ino() };
        // Container: the map's name begins at the server's root.
        assert_eq!(mapped(format!("/{name}")).path_from_here(process), inside);
        // Chroot: it includes the server's root.
        let in_chroot = mapped(inside.display().to_string());
        assert_eq!(in_chroot.path_from_here(process), inside);
        // The same name inside, and another file.
        let other = root.join(inside.strip_prefix("/").unwrap());
        std::fs::create_dir_all(other.parent().unwrap()).unwrap();
        std::fs::write(&other, "").unwrap();
        assert_eq!(in_chroot.path_from_here(process), inside);
        // Numbers that fit neither.
        let unknown = MappedFile { inode: 0, ..in_chroot };
        assert_eq!(unknown.path_from_here(process), other);
        // The link that the kernel keeps needs no name.
        let link = process.join("map_files").join(&range);
        std::fs::create_dir(process.join("map_files")).unwrap();
        std::os::unix::fs::symlink(&inside, &link).unwrap();
        assert_eq!(unknown.path_from_here(process), link);
    }

    #[test]
    fn why_nothing_can_be_read_is_said() {
        let root = Path::new("/proc/self");
        let mapped = |name: &str| {
            [MappedFile { range: "0-1".to_owned(), name: name.to_owned(), device: (0, 0), inode: 0 }]
        };
        let none = TlsLibrary::find_among(&mapped("/bin/sh"), root).unwrap_err();
        assert_eq!(none, "the server has its TLS library built in, or one that is not OpenSSL's");
        let replaced = TlsLibrary::find_among(&mapped("/usr/lib/libssl.so.3 (deleted)"), root).unwrap_err();
        assert!(replaced.contains("restart the server"), "{replaced}");
    }
}
