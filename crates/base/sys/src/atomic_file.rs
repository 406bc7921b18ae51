//! Atomic writer of a file, for its owner only: the file gets its name whole, or not at all.
//!
//! It is written beside the target, as `NAME.RANDOM.part`, and its bytes are on the disk before it is renamed.
//! Never follows a link at the target. A killed writer leaves the part behind, and the target as it was.

use crate::private_file;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A file that is being written. Dropped unfinished, it is removed.
#[derive(Debug)]
pub struct AtomicFile {
    part: NamedTempFile,
    target: PathBuf,
}

impl AtomicFile {
    /// Begins the file that `replace` or `create` will name `target`.
    ///
    /// # Errors
    /// `target` names no file, or nothing can be written beside it.
    pub fn begin(target: &Path) -> io::Result<Self> {
        let name = target.file_name();
        let name = name.ok_or_else(|| io::Error::new(ErrorKind::InvalidInput, "it names no file"))?;
        let mut prefix = OsString::from(name);
        prefix.push(".");
        let mut builder = tempfile::Builder::new();
        builder.prefix(&prefix).suffix(".part");
        let part = builder.make_in(directory(target), private_file::create)?;
        Ok(Self { part, target: target.to_owned() })
    }

    /// Gives the file its name, in the place of a file that has it.
    ///
    /// # Errors
    /// It cannot be written to the disk or renamed. What was there stays, and the new file is removed.
    pub fn replace(self) -> io::Result<()> {
        self.part.as_file().sync_all()?;
        self.part.persist(&self.target).map_err(|failed| failed.error)?;
        sync_directory(&self.target)
    }

    /// Gives the file its name, which nothing may have: no file, and no link to nothing.
    ///
    /// # Errors
    /// As `replace`; `AlreadyExists` if something has the name.
    pub fn create(self) -> io::Result<()> {
        self.part.as_file().sync_all()?;
        self.part.persist_noclobber(&self.target).map_err(|failed| failed.error)?;
        sync_directory(&self.target)
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Past `NamedTempFile`, whose errors name the part: the caller names the target.
        self.part.as_file().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.part.as_file().flush()
    }
}

fn directory(target: &Path) -> &Path {
    match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Writes the directory of `target` to the disk. Without it a crash of the host may take a new name back.
///
/// # Errors
/// There is no such directory, or it cannot be written to the disk.
pub fn sync_directory(target: &Path) -> io::Result<()> {
    match File::open(directory(target)).and_then(|directory| directory.sync_all()) {
        // One that may be written but not read, and file systems that sync no directory.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::PermissionDenied | ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::Command;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn begun(target: &Path, text: &str) -> AtomicFile {
        let mut file = AtomicFile::begin(target).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file
    }

    #[test]
    fn a_file_has_its_name_once_it_is_whole_and_one_that_is_dropped_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a.sql");
        let file = begun(&target, "half");
        let [part] = &names(dir.path())[..] else { panic!("{:?}", names(dir.path())) };
        assert!(part.starts_with("a.sql.") && part.ends_with(".part"), "{part}");
        drop(file);
        assert!(names(dir.path()).is_empty());
        begun(&target, "whole").create().unwrap();
        assert_eq!(names(dir.path()), ["a.sql"]);
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "whole");
    }

    #[test]
    fn a_file_is_its_owners_whatever_the_one_that_it_replaces_was() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a");
        std::fs::write(&target, "open").unwrap();
        std::fs::set_permissions(&target, Permissions::from_mode(0o644)).unwrap();
        let file = begun(&target, "closed");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(file.part.path()), 0o600);
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "open");
        file.replace().unwrap();
        assert_eq!((mode(&target), names(dir.path())), (0o600, vec!["a".to_owned()]));
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "closed");
    }

    #[test]
    fn a_name_that_is_taken_meanwhile_stays_another_s() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a");
        let file = begun(&target, "mine");
        std::fs::write(&target, "theirs").unwrap();
        assert_eq!(file.create().unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "theirs");
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn a_link_in_the_way_is_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (link, precious) = (dir.path().join("link"), dir.path().join("precious"));
        std::fs::write(&precious, "precious").unwrap();
        symlink(&precious, &link).unwrap();
        assert_eq!(begun(&link, "new").create().unwrap_err().kind(), ErrorKind::AlreadyExists);
        begun(&link, "new").replace().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_file());
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!((read(&precious), read(&link)), ("precious".into(), "new".into()));

        let nowhere = dir.path().join("nowhere");
        symlink(dir.path().join("nothing"), &nowhere).unwrap();
        assert_eq!(begun(&nowhere, "new").create().unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(names(dir.path()), ["link", "nowhere", "precious"]);
    }

    #[test]
    fn a_rename_that_fails_leaves_what_was_there_and_no_part() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("a");
        std::fs::create_dir(&target).unwrap();
        assert!(begun(&target, "new").replace().is_err());
        assert!(begun(&target, "new").create().is_err());
        assert_eq!(names(dir.path()), ["a"]);
    }

    #[test]
    fn a_place_where_nothing_can_be_written_is_an_error_at_the_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let missing = AtomicFile::begin(&dir.path().join("no/a")).unwrap_err();
        assert_eq!(missing.raw_os_error(), Some(2), "the error names no part: {missing}");
        for path in ["", "/", "a/.."] {
            assert_eq!(AtomicFile::begin(Path::new(path)).unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        assert_eq!(directory(Path::new("a")), Path::new("."));
    }

    /// Runs itself again in a mount namespace, with a file system of one page.
    #[test]
    fn a_full_disk_keeps_the_old_file_and_leaves_no_part() {
        const TINY: &str = "TOLL_TEST_TINY_DIR";
        let Some(tiny) = std::env::var_os(TINY) else {
            let dir = tempfile::tempdir().unwrap();
            let script = "mount -t tmpfs -o size=4k none \"$1\" || exit 77; exec \"$2\" --exact \"$3\"";
            let again = Command::new("unshare")
                .args(["--map-root-user", "--mount", "sh", "-c", script, "sh"])
                .args([dir.path().as_os_str(), std::env::current_exe().unwrap().as_os_str()])
                .arg("atomic_file::tests::a_full_disk_keeps_the_old_file_and_leaves_no_part")
                .env(TINY, dir.path())
                .output();
            match again.as_ref().map(|again| (again.status.code(), &again.stdout)) {
                Ok((Some(0), out)) => assert!(String::from_utf8_lossy(out).contains("1 passed")),
                Ok((Some(101), _)) => panic!("{again:?}"),
                _ => toll_testkit::skip!("no mount namespace: {again:?}"),
            }
            return;
        };
        let target = Path::new(&tiny).join("a");
        std::fs::write(&target, "").unwrap();
        let mut file = begun(&target, &"x".repeat(4096));
        let full = file.write_all(b"x").unwrap_err();
        assert_eq!((full.kind(), full.raw_os_error()), (ErrorKind::StorageFull, Some(28)));
        drop(file);
        assert_eq!(names(Path::new(&tiny)), ["a"]);
    }
}
