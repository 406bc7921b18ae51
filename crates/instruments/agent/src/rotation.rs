//! Rotation of output files: when the next one begins, and which of them stay.
//!
//! Only files that this process made are ever removed.

use std::collections::VecDeque;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Condition for the next file; empty: never.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rotate {
    /// Maximum length of a file.
    pub bytes: Option<u64>,
    /// Maximum age of a file.
    pub every: Option<Duration>,
}

impl Rotate {
    pub fn rotates(self) -> bool {
        self.bytes.is_some() || self.every.is_some()
    }

    /// True if a file must end before it has this length, or at this age.
    pub fn is_due(self, bytes: u64, age: Duration) -> bool {
        self.bytes.is_some_and(|most| bytes > most) || self.every.is_some_and(|most| age >= most)
    }
}

/// Files that are remembered where all stay. A writer may run for years.
const MAX_REMEMBERED: usize = 1_000;

/// Files that one writer made and did not remove, oldest first.
#[derive(Debug, Default)]
pub struct Series {
    made: VecDeque<Made>,
    /// Older ones that are not remembered.
    forgotten: u64,
}

#[derive(Debug)]
struct Made {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Series {
    /// Adds the newest file.
    ///
    /// # Errors
    /// Its identity cannot be read.
    pub fn add(&mut self, path: &Path, file: &File) -> io::Result<()> {
        let meta = file.metadata()?;
        self.made.push_back(Made { path: path.to_owned(), device: meta.dev(), inode: meta.ino() });
        Ok(())
    }

    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.made.iter().map(|made| made.path.as_path())
    }

    /// Files beyond those of [`Self::paths`], older and still there.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Removes the oldest files beyond `keep`, but never the newest. `None`: all stay, and the newest are remembered.
    pub fn keep_newest(&mut self, keep: Option<usize>) {
        while self.made.len() > keep.unwrap_or(MAX_REMEMBERED).max(1)
            && let Some(made) = self.made.pop_front()
        {
            match keep {
                Some(_) => made.remove(),
                None => self.forgotten += 1,
            }
        }
    }

    /// Removes the newest file, in which nothing could be written.
    pub fn remove_newest(&mut self) {
        if let Some(made) = self.made.pop_back() {
            made.remove();
        }
    }
}

impl Made {
    /// Somebody may have moved it away, and another be there by now: that one stays.
    fn remove(&self) {
        let is_it = |meta: Metadata| (meta.dev(), meta.ino()) == (self.device, self.inode);
        if std::fs::symlink_metadata(&self.path).is_ok_and(is_it)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_due_past_its_length_or_at_its_age() {
        let (short, long) = (Duration::from_secs(9), Duration::from_secs(10));
        let both = Rotate { bytes: Some(8), every: Some(long) };
        assert_eq!(
            [(8, short), (9, short), (0, long)].map(|(n, age)| both.is_due(n, age)),
            [false, true, true]
        );
        assert!(!Rotate::default().is_due(u64::MAX, Duration::MAX) && !Rotate::default().rotates());
    }

    #[test]
    fn the_newest_files_stay_and_what_is_anothers() {
        let dir = tempfile::tempdir().unwrap();
        let mut series = Series::default();
        let path = |n: usize| dir.path().join(n.to_string());
        for n in 0..4 {
            series.add(&path(n), &File::create(path(n)).unwrap()).unwrap();
        }
        std::fs::rename(path(0), dir.path().join("moved")).unwrap();
        std::fs::write(path(0), "another's").unwrap();
        std::fs::remove_file(path(1)).unwrap();
        series.keep_newest(Some(0));
        let there = |n: usize| path(n).exists();
        assert_eq!([0, 1, 2, 3].map(there), [true, false, false, true]);
        assert!(series.paths().eq([path(3)]) && dir.path().join("moved").exists());
        series.remove_newest();
        assert!(!there(3) && series.paths().next().is_none());
    }

    #[test]
    fn where_all_files_stay_the_newest_are_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let (mut series, path) = (Series::default(), dir.path().join("file"));
        let file = File::create(&path).unwrap();
        for _ in 0..MAX_REMEMBERED + 3 {
            series.add(&path, &file).unwrap();
            series.keep_newest(None);
        }
        assert_eq!((series.paths().count(), series.forgotten()), (MAX_REMEMBERED, 3));
        assert!(path.exists());
    }
}
