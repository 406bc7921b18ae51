//! Writer of a dump to a file.
//!
//! The file is readable by its owner only. It gets its name after it is complete and on disk. Never
//! overwrites an existing file.

use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is being written. Dropped unfinished, it is removed.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    path: PathBuf,
    /// Until it is whole.
    part: PathBuf,
}

impl NewFile {
    pub fn begin(path: &Path) -> Result<Self> {
        refuse_what_is_there(path)?;
        let mut part = OsString::from(path);
        part.push(".part");
        let part = PathBuf::from(part);
        let file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).with_context(|| {
                format!("cannot make {}: where a restore has left it behind, remove it", part.display())
            })?;
        Ok(Self { file, path: path.to_owned(), part })
    }

    pub fn finish(self) -> Result<()> {
        let failed = || format!("cannot write {}", self.path.display());
        self.file.sync_all().with_context(failed)?;
        refuse_what_is_there(&self.path)?;
        std::fs::rename(&self.part, &self.path).with_context(failed)
    }
}

fn refuse_what_is_there(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        bail!("cannot make {}: name a file that is not there yet", path.display());
    }
    Ok(())
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        // Gone already where it has its name.
        let _ = std::fs::remove_file(&self.part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_has_its_name_once_it_is_whole_and_takes_nobodys_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dump.sql");
        let mut broken = NewFile::begin(&path).unwrap();
        broken.write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(broken);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

        let mut whole = NewFile::begin(&path).unwrap();
        whole.write_all(b"whole").unwrap();
        whole.finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let refused = NewFile::begin(&path).unwrap_err().to_string();
        assert!(refused.contains("not there yet"), "{refused}");
        let other = NewFile::begin(&dir.path().join("x")).unwrap();
        std::fs::write(dir.path().join("x"), "somebody else's").unwrap();
        assert!(other.finish().is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
