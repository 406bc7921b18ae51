//! Writer of the "newc" cpio format, which the kernel unpacks as its first root.
//!
//! Format: `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel. Several archives in a row are
//! unpacked one after the other.

/// Ends an archive.
const TRAILER: &str = "TRAILER!!!";
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// An archive that is being written.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

impl Archive {
    /// Its parents must have been added before.
    pub fn add_directory(&mut self, path: &str) {
        self.add(path, DIRECTORY, &[]);
    }

    /// A file that may be executed.
    pub fn add_file(&mut self, path: &str, content: &[u8]) {
        self.add(path, PROGRAM, content);
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.add(TRAILER, 0, &[]);
        self.bytes
    }

    fn add(&mut self, path: &str, mode: u32, content: &[u8]) {
        // Two entries with one inode would be links of each other.
        self.entries += 1;
        let (size, name_size) = (content.len() as u32, path.len() as u32 + 1);
        // ino mode uid gid nlink mtime filesize devmajor devminor rdevmajor rdevminor namesize check
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    /// Header with name, and content, end at a multiple of four bytes.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_archive_has_headers_names_and_contents_at_multiples_of_four() {
        let mut archive = Archive::default();
        archive.add_file("a", b"12345");
        let bytes = archive.finish();
        assert_eq!(&bytes[..14], b"07070100000001");
        assert_eq!(&bytes[14..22], b"000081ed", "a file with mode 755");
        assert_eq!(&bytes[54..62], b"00000005", "its size");
        assert_eq!(&bytes[110..120], b"a\x0012345\0\0\0");
        assert_eq!(&bytes[120..126], b"070701");
        assert_eq!(bytes.len() % 4, 0);
    }

    #[test]
    fn busybox_unpacks_what_was_written() {
        let Some(busybox) = toll_testkit::find_program("busybox") else {
            toll_testkit::skip!("busybox is not installed");
            return;
        };
        let mut archive = Archive::default();
        archive.add_directory("modules");
        let content: Vec<u8> = (0..=255).collect();
        archive.add_file("modules/some.ko", &content);
        archive.add_file("empty", b"");
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("archive");
        std::fs::write(&file, archive.finish()).unwrap();
        let cpio = |option: &str| {
            let input = std::fs::File::open(&file).unwrap();
            let mut command = Command::new(&busybox);
            command.args(["cpio", option]).current_dir(dir.path()).stdin(input).stderr(Stdio::null());
            command.output().unwrap()
        };
        assert_eq!(String::from_utf8(cpio("-t").stdout).unwrap(), "modules\nmodules/some.ko\nempty\n");
        assert!(cpio("-i").status.success());
        assert_eq!(std::fs::read(dir.path().join("modules/some.ko")).unwrap(), content);
        assert_eq!(std::fs::read(dir.path().join("empty")).unwrap(), b"");
    }
}
