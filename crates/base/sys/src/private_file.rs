//! Files and directories that only their owner can read, for secrets and for what people's queries hold.

use crate::atomic_file::AtomicFile;
use crate::private_dir::check_owner;
use anyhow::{Context, Result, bail};
use nix::fcntl::OFlag;
use nix::unistd::geteuid;
use std::fs::{DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Passphrases and keys are far shorter.
const SECRET_MAX_BYTES: u64 = 64 << 10;

/// Writes the file, or replaces it, whole or not at all.
pub fn write(path: &Path, text: &str) -> Result<()> {
    AtomicFile::begin(path)
        .and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.replace()
        })
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Creates a file that is read under its name while it grows. Never opens one that is there, nor follows a link.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Creates the directory, or removes all permissions of other users from one of this user's that is there.
///
/// For places that the user names, or below them: a name in a directory that others may write to is
/// [`crate::private_dir`]'s business.
pub fn create_dir(path: &Path) -> Result<()> {
    let create = || -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let flags = (OFlag::O_DIRECTORY | OFlag::O_NONBLOCK).bits();
        let directory = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        // Root may change the mode of anybody's directory, whose owner could then still read what is in it.
        check_owner(&directory)?;
        directory.set_permissions(Permissions::from_mode(0o700))
    };
    create().with_context(|| format!("cannot create {} for its owner alone", path.display()))
}

/// Reads a file with a secret: a passphrase or a key. `what` names it in errors.
///
/// # Errors
/// It cannot be read or is too long. Or others could have read or replaced the secret: the file is another
/// user's, everybody has access, or its group may write. Reading by a group is the administrator's decision.
pub fn read_secret(path: &Path, what: &str) -> Result<String> {
    read_checked(path, what, 0o027)
}

/// As [`read_secret`], and refuses a file that its group may read: for keys that toll made itself.
///
/// The exception are credentials of a systemd unit (`LoadCredential=`), which have mode 0440, belong to root, and are
/// readable for the unit's user alone by an access list and by their directory.
///
/// # Errors
/// As of [`read_secret`].
pub fn read_own_secret(path: &Path, what: &str) -> Result<String> {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY");
    let forbidden = if is_below(path, credentials.as_deref().map(Path::new)) { 0o027 } else { 0o077 };
    read_checked(path, what, forbidden)
}

fn is_below(path: &Path, directory: Option<&Path>) -> bool {
    let directory = directory.and_then(|directory| directory.canonicalize().ok());
    directory.zip(path.canonicalize().ok()).is_some_and(|(directory, path)| path.starts_with(directory))
}

/// `forbidden`: permissions that the file must not have.
fn read_checked(path: &Path, what: &str, forbidden: u32) -> Result<String> {
    let mut text = String::new();
    let mut read = || -> Result<()> {
        let file = File::open(path)?;
        // Of what was opened, which may have another name by now.
        check_secret(&file.metadata()?, geteuid().as_raw(), forbidden)?;
        if file.take(SECRET_MAX_BYTES + 1).read_to_string(&mut text)? as u64 > SECRET_MAX_BYTES {
            bail!("it has more than {} KiB", SECRET_MAX_BYTES >> 10);
        }
        Ok(())
    };
    read().with_context(|| format!("cannot use {what} {}", path.display()))?;
    Ok(text)
}

fn check_secret(meta: &Metadata, own: u32, forbidden: u32) -> Result<()> {
    // A pipe or a terminal: nothing lies there for others.
    if !meta.is_file() {
        return Ok(());
    }
    if ![0, own].contains(&meta.uid()) {
        bail!("it belongs to user {}. Run chown, or use a file of your own.", meta.uid());
    }
    let mode = meta.mode() & 0o777;
    if mode & forbidden != 0 {
        bail!("other users have access to it (mode {mode:03o}). Run chmod 600, and replace the secret.");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_others_can_read_or_replace_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "geheim\n").unwrap();
        for (mode, taken) in [
            (0o600, true),
            (0o400, true),
            (0o640, true),
            (0o644, false),
            (0o660, false),
            (0o602, false),
            (0o601, false),
        ] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let read = read_secret(&path, "the passphrase file");
            assert_eq!(read.is_ok(), taken, "{mode:o}: {read:?}");
            if let Err(error) = read {
                let text = format!("{error:#}");
                assert!(text.contains(&format!("{mode:o}")) && text.contains("chmod 600"), "{text}");
                assert!(!text.contains("geheim"), "{text}");
            }
        }
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let (meta, own) = (std::fs::metadata(&path).unwrap(), geteuid().as_raw());
        assert!(check_secret(&meta, own, 0o077).is_ok());
        if own != 0 {
            assert!(check_secret(&meta, own + 1, 0o077).is_err());
        }
        std::fs::write(&path, vec![b'x'; SECRET_MAX_BYTES as usize + 1]).unwrap();
        assert!(format!("{:#}", read_secret(&path, "the key").unwrap_err()).contains("64 KiB"));
        assert!(read_secret(&dir.path().join("none"), "the key").is_err());
    }

    #[test]
    fn an_own_secret_is_not_for_a_group_unless_systemd_handed_it_out() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("key"), dir.path().join("link"));
        std::fs::write(&path, "geheim\n").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for (mode, taken) in [(0o600, true), (0o400, true), (0o440, false), (0o640, false), (0o604, false)] {
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(read_own_secret(&path, "the key file").is_ok(), taken, "{mode:o}");
        }
        let elsewhere = tempfile::tempdir().unwrap();
        assert!(is_below(&path, Some(dir.path())) && is_below(&link, Some(dir.path())));
        assert!(!is_below(&path, Some(elsewhere.path())) && !is_below(&path, None));
        assert!(
            !is_below(&path, Some(Path::new(""))) && !is_below(&dir.path().join("none"), Some(dir.path()))
        );
    }

    #[test]
    fn a_directory_of_another_users_is_not_taken() {
        let place = tempfile::tempdir().unwrap();
        let dir = place.path().join("a/b");
        create_dir(&dir).unwrap();
        std::fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
        create_dir(&dir).unwrap();
        assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
        if std::os::unix::fs::chown(&dir, Some(65_534), None).is_err() {
            toll_testkit::skip!("making another user's directory needs root");
            return;
        }
        let refused = format!("{:#}", create_dir(&dir).unwrap_err());
        assert!(refused.contains("a/b") && refused.contains("another user (uid 65534)"), "{refused}");
    }
}
