//! New directories for their owner alone, of names that nobody can predict, for temporary files.
//!
//! # Invariants
//! Never takes a directory that is there, and never follows a link in its place: in a shared directory both may be
//! another user's.

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::geteuid;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Root's own place for temporary directories. Nobody else can make or list anything in it; names in it can be reached by
/// whoever knows them, as a server under another user must.
const ROOT_PLACE: &str = "/run/toll";
const ROOT_PLACE_MODE: Mode = Mode::S_IRWXU.union(Mode::S_IXGRP).union(Mode::S_IXOTH);
const ONLY_OWNER: Mode = Mode::S_IRWXU;

/// A directory that this process has made. Removing it is the caller's business (the undo journal's).
#[derive(Debug)]
pub struct PrivateDir {
    path: PathBuf,
    directory: OwnedFd,
}

impl PrivateDir {
    /// Makes the directory.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name, and all that the kernel may refuse.
    pub fn create(path: &Path) -> io::Result<Self> {
        let (parent, name) = open_parent(path)?;
        mkdirat(&parent, name, ONLY_OWNER)?;
        let directory = open_directory(&parent, Path::new(name))?;
        // Another user may have put his own in its place, where the directory above is his.
        check_owner(&directory)?;
        // Whatever the umask.
        fchmod(&directory, ONLY_OWNER)?;
        Ok(Self { path: path.to_owned(), directory })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of an entry by way of the open directory: the same one, whatever has its name now. Shorter than most, too, for
    /// a socket. For this process alone.
    pub fn entry(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.directory.as_raw_fd())).join(name)
    }

    /// Creates a file in it, for its owner alone. Never opens one that is there, nor follows a link.
    ///
    /// # Errors
    /// `AlreadyExists` if anything has the name, and all that the kernel may refuse.
    pub fn create_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?))
    }

    /// Writes a new file in it, for its owner alone. Returns its path.
    ///
    /// # Errors
    /// As [`PrivateDir::create_file`].
    pub fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path.join(name);
        self.create_file(name)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Path in `place` of a name that is not in use and that nobody can predict: `PREFIX-` and 128 random bits.
///
/// # Errors
/// The kernel gives no random bytes.
pub fn unpredictable_path(place: &Path, prefix: &str) -> Result<PathBuf> {
    Ok(place.join(format!("{prefix}-{}", random_hex()?)))
}

/// 128 bits from the kernel, in hex: no quoting in option files or SQL.
///
/// # Errors
/// /dev/urandom cannot be read.
pub fn random_hex() -> Result<String> {
    Ok(random_bytes()?.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// 128 bits from the kernel: a name that nothing else has.
///
/// # Errors
/// /dev/urandom cannot be read.
pub fn random_bytes() -> Result<[u8; 16]> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    Ok(bytes)
}

/// Directory for temporary directories: for root `/run/toll`, where nobody else can make anything, else `TMPDIR` or /tmp.
///
/// # Errors
/// `/run/toll` is there and is not root's alone to write.
pub fn temporary_place() -> Result<PathBuf> {
    if !geteuid().is_root() {
        return Ok(std::env::temp_dir());
    }
    let place = Path::new(ROOT_PLACE);
    match open_root_place(place) {
        Ok(()) => Ok(place.to_owned()),
        // A container whose /run is missing or cannot be written.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::ReadOnlyFilesystem
                    | io::ErrorKind::PermissionDenied
                    | io::ErrorKind::StorageFull
            ) =>
        {
            Ok(std::env::temp_dir())
        }
        Err(error) => {
            Err(error).with_context(|| format!("cannot use {ROOT_PLACE} for temporary files: remove it"))
        }
    }
}

fn open_root_place(place: &Path) -> io::Result<()> {
    let (parent, name) = open_parent(place)?;
    match mkdirat(&parent, name, ROOT_PLACE_MODE) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(error) => return Err(error.into()),
    }
    let directory = open_directory(&parent, Path::new(name))?;
    check_owner(&directory)?;
    Ok(fchmod(&directory, ROOT_PLACE_MODE)?)
}

/// Fails unless a directory, or whatever else is open, is this user's.
///
/// # Errors
/// It is another user's.
pub fn check_owner(open: impl AsFd) -> io::Result<()> {
    let owner = fstat(open)?.st_uid;
    if owner == geteuid().as_raw() {
        return Ok(());
    }
    Err(io::Error::other(format!("it belongs to another user (uid {owner})")))
}

fn open_parent(path: &Path) -> io::Result<(OwnedFd, &std::ffi::OsStr)> {
    let name = path.file_name().ok_or_else(|| io::Error::other("it names no directory"))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok((nix::fcntl::open(parent, flags, Mode::empty())?, name))
}

fn open_directory(parent: &OwnedFd, name: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(openat(parent, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_that_is_there_is_never_taken_and_no_link_is_followed() {
        let place = tempfile::tempdir().unwrap();
        let (theirs, link, victim) =
            (place.path().join("theirs"), place.path().join("link"), place.path().join("victim"));
        std::fs::create_dir(&theirs).unwrap();
        std::fs::set_permissions(&theirs, Permissions::from_mode(0o777)).unwrap();
        std::fs::write(&victim, "precious").unwrap();
        symlink(&theirs, &link).unwrap();
        for taken in [&theirs, &link, &victim] {
            let refused = PrivateDir::create(taken).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{}", taken.display());
        }
        assert_eq!(std::fs::metadata(&theirs).unwrap().permissions().mode() & 0o777, 0o777);

        let own = PrivateDir::create(&place.path().join("own")).unwrap();
        assert_eq!(std::fs::metadata(own.path()).unwrap().permissions().mode() & 0o777, 0o700);
        symlink(&victim, own.path().join("planted")).unwrap();
        assert_eq!(own.create_file("planted").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(own.write("planted", "x").unwrap_err().to_string().contains("own/planted"));
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        let written = own.write("file", "text").unwrap();
        assert_eq!(std::fs::metadata(&written).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn entries_are_those_of_the_directory_that_was_made_whatever_has_its_name_now() {
        let place = tempfile::tempdir().unwrap();
        let own = PrivateDir::create(&place.path().join("own")).unwrap();
        std::fs::rename(own.path(), place.path().join("moved")).unwrap();
        std::fs::create_dir(place.path().join("own")).unwrap();
        own.write("a", "1").unwrap();
        std::fs::write(own.entry("b"), "2").unwrap();
        for name in ["a", "b"] {
            assert!(place.path().join("moved").join(name).is_file());
            assert!(!place.path().join("own").join(name).exists());
        }
    }

    #[test]
    fn names_differ_and_roots_place_is_closed_to_others() {
        let place = Path::new("/tmp");
        let [a, b] = [(); 2].map(|()| unpredictable_path(place, "toll").unwrap());
        assert!(a != b && a.starts_with("/tmp") && a.to_string_lossy().len() == "/tmp/toll-".len() + 32);
        if !geteuid().is_root() {
            toll_testkit::skip!("/run/toll is root's");
            return;
        }
        let above = tempfile::tempdir().unwrap();
        let own = above.path().join("toll");
        for _ in 0..2 {
            open_root_place(&own).unwrap();
            assert_eq!(std::fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o711);
        }
        std::os::unix::fs::chown(&own, Some(65_534), None).unwrap();
        assert!(open_root_place(&own).unwrap_err().to_string().contains("another user (uid 65534)"));
        let link = above.path().join("link");
        symlink(above.path(), &link).unwrap();
        assert!(open_root_place(&link).is_err());
    }
}
