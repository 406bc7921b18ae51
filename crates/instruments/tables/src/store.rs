//! Place of tables: a directory, or a bucket of an S3 server.

use super::s3::S3Store;
use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use std::fmt::Debug;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

/// Where tables lie, as users write it: `DIRECTORY`, or `s3://BUCKET/PREFIX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Directory(PathBuf),
    Bucket { name: String, prefix: String },
}

impl FromStr for Location {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some(rest) = text.strip_prefix("s3://") else {
            ensure!(!text.contains("://"), "it is a directory, or s3://BUCKET/PREFIX");
            return Ok(Self::Directory(text.into()));
        };
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        ensure!(!name.is_empty(), "it names no bucket: s3://BUCKET/PREFIX");
        Ok(Self::Bucket { name: name.into(), prefix: prefix.trim_end_matches('/').into() })
    }
}

impl std::fmt::Display for Location {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::Bucket { name, prefix } if prefix.is_empty() => write!(f, "s3://{name}"),
            Self::Bucket { name, prefix } => write!(f, "s3://{name}/{prefix}"),
        }
    }
}

impl Location {
    /// Opens it. Endpoint and credentials of a bucket come from the environment or the profile, as for the AWS command line.
    ///
    /// # Errors
    /// There are no credentials.
    pub fn open(&self) -> Result<Arc<dyn Store>> {
        Ok(match self {
            Self::Directory(root) => Arc::new(DirectoryStore { root: root.clone() }),
            Self::Bucket { name, prefix } => Arc::new(S3Store::open(name, prefix)?),
        })
    }

    /// Makes a directory that is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(&self) -> Result<()> {
        let Self::Directory(root) = self else { return Ok(()) };
        std::fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))
    }

    /// The directory; `None`: it is a bucket.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Self::Directory(root) => Some(root),
            Self::Bucket { .. } => None,
        }
    }
}

/// Files by their paths, with `/`.
pub trait Store: Debug + Send + Sync {
    /// As users write it.
    fn location(&self) -> Location;

    /// Writes a file that is whole or not there, and there after a crash once this returns.
    ///
    /// # Errors
    /// There is no room, or no way to it.
    fn put(&self, path: &str, bytes: &[u8]) -> Result<()>;

    /// `None`: it is not there.
    ///
    /// # Errors
    /// It cannot be read.
    fn get(&self, path: &str) -> Result<Option<Vec<u8>>>;

    /// Each of these, as [`Self::get`] has it.
    ///
    /// # Errors
    /// One cannot be read.
    fn get_all(&self, paths: &[String]) -> Result<Vec<Option<Vec<u8>>>> {
        paths.iter().map(|path| self.get(path)).collect()
    }

    /// Names of the files and of the directories in a directory; none, where it is not there.
    ///
    /// # Errors
    /// It cannot be read.
    fn list(&self, dir: &str) -> Result<Listed>;

    /// Paths of all files below a directory; none, where it is not there.
    ///
    /// # Errors
    /// It cannot be read.
    fn list_all(&self, dir: &str) -> Result<Vec<String>>;

    /// Removes a file that may not be there.
    ///
    /// # Errors
    /// It cannot be removed.
    fn remove(&self, path: &str) -> Result<()>;

    /// Removes a directory and all that is below it.
    ///
    /// # Errors
    /// A file cannot be removed.
    fn remove_all(&self, dir: &str) -> Result<()> {
        self.list_all(dir)?.iter().try_for_each(|path| self.remove(path))
    }

    /// Sees that something can be written: known at the start, not after ten minutes.
    ///
    /// # Errors
    /// Nothing can.
    fn check_writable(&self) -> Result<()>;

    /// Held by what replaces or removes files.
    ///
    /// # Errors
    /// Another process holds it.
    fn lock(self: Arc<Self>) -> Result<Box<dyn Lock>>;
}

/// Held until it is dropped.
pub trait Lock {
    /// Says that its process lives; called between two steps of long work.
    ///
    /// # Errors
    /// Another process has taken it for a killed one.
    fn renew(&mut self) -> Result<()>;
}

/// What is in a directory.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Listed {
    pub files: Vec<String>,
    pub directories: Vec<String>,
}

/// A directory of this host.
#[derive(Debug)]
struct DirectoryStore {
    root: PathBuf,
}

impl Store for DirectoryStore {
    fn location(&self) -> Location {
        Location::Directory(self.root.clone())
    }

    fn put(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let path = self.root.join(path);
        let dir = path.parent().context("a file needs a directory")?;
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut file =
            tempfile_in(dir).with_context(|| format!("cannot make a file in {}", dir.display()))?;
        let written = file.1.write_all(bytes).and_then(|()| file.1.sync_all());
        let placed =
            written.and_then(|()| std::fs::rename(&file.0, &path)).and_then(|()| File::open(dir)?.sync_all());
        placed.inspect_err(|_| drop(std::fs::remove_file(&file.0))).with_context(|| {
            format!("cannot write {}: free space there, or name another place", path.display())
        })
    }

    fn get(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let path = self.root.join(path);
        match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some).with_context(|| format!("cannot read {}", path.display())),
        }
    }

    fn list(&self, dir: &str) -> Result<Listed> {
        let dir = self.root.join(dir);
        let entries = match std::fs::read_dir(&dir) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.root.is_dir() => {
                return Ok(Listed::default());
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("cannot read {}", self.root.display()));
            }
            read => read.with_context(|| format!("cannot read {}", dir.display()))?,
        };
        let mut listed = Listed::default();
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", dir.display()))?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if entry.path().is_dir() { listed.directories.push(name) } else { listed.files.push(name) }
        }
        Ok(listed)
    }

    fn list_all(&self, dir: &str) -> Result<Vec<String>> {
        let (mut open, mut paths) = (vec![dir.to_owned()], Vec::new());
        while let Some(dir) = open.pop() {
            let listed = self.list(&dir)?;
            paths.extend(listed.files.iter().map(|name| format!("{dir}/{name}")));
            open.extend(listed.directories.iter().map(|name| format!("{dir}/{name}")));
        }
        Ok(paths)
    }

    fn remove(&self, path: &str) -> Result<()> {
        let path = self.root.join(path);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot remove {}", path.display()))
            }
            _ => Ok(()),
        }
    }

    fn remove_all(&self, dir: &str) -> Result<()> {
        let dir = self.root.join(dir);
        std::fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()))
    }

    fn check_writable(&self) -> Result<()> {
        let needed = nix::unistd::AccessFlags::W_OK | nix::unistd::AccessFlags::X_OK;
        nix::unistd::access(&self.root, needed).with_context(|| {
            format!("cannot write in {}: give it to the user of this process", self.root.display())
        })
    }

    fn lock(self: Arc<Self>) -> Result<Box<dyn Lock>> {
        let dir = File::open(&self.root).with_context(|| format!("cannot open {}", self.root.display()))?;
        match Flock::lock(dir, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Box::new(DirectoryLock { _file: lock })),
            Err(_) => {
                bail!("another process compacts or prunes {}: wait for its end", self.root.display())
            }
        }
    }
}

/// Ends with its process, by the kernel.
struct DirectoryLock {
    _file: Flock<File>,
}

impl Lock for DirectoryLock {
    fn renew(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Under a name that readers take for no table.
fn tempfile_in(dir: &Path) -> Result<(PathBuf, File)> {
    let random = u128::from_le_bytes(toll_sys::private_dir::random_bytes()?);
    let path = dir.join(format!(".{random:032x}.tmp"));
    let file = File::options().write(true).create_new(true).open(&path)?;
    Ok((path, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_directory_or_a_bucket() {
        let bucket = |name: &str, prefix: &str| Location::Bucket { name: name.into(), prefix: prefix.into() };
        for (text, location) in [
            ("/var/lib/toll", Location::Directory("/var/lib/toll".into())),
            ("s3://shop", bucket("shop", "")),
            ("s3://shop/a/b/", bucket("shop", "a/b")),
        ] {
            let parsed: Location = text.parse().unwrap();
            assert_eq!(parsed, location);
            assert_eq!(parsed.to_string().parse::<Location>().unwrap(), location);
        }
        for text in ["s3://", "gs://shop/a"] {
            assert!(text.parse::<Location>().is_err(), "{text}");
        }
    }
}
