//! Files of one merge in one temporary file: all are open at once, and may be more than memory, or a process, can hold.

use super::store::Store;
use anyhow::Context;
use bytes::Bytes;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A temporary file without a name, which is gone with its process.
pub struct Spool {
    dir: PathBuf,
    file: Arc<File>,
    length: u64,
}

impl Spool {
    /// Beside the tables, where there is room for what is made of them; of a bucket, in `TMPDIR`.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(store: &dyn Store) -> anyhow::Result<Self> {
        let location = store.location();
        let dir = location.directory().map_or_else(std::env::temp_dir, PathBuf::from);
        let file = tempfile::tempfile_in(&dir)
            .with_context(|| format!("cannot make a temporary file in {}", dir.display()))?;
        Ok(Self { dir, file: Arc::new(file), length: 0 })
    }

    /// # Errors
    /// There is no room.
    pub fn add(&mut self, bytes: &[u8]) -> anyhow::Result<Section> {
        (&*self.file).write_all(bytes).with_context(|| {
            format!("cannot write a temporary file in {}: free space there", self.dir.display())
        })?;
        let section =
            Section { file: Arc::clone(&self.file), begin: self.length, length: bytes.len() as u64 };
        self.length += section.length;
        Ok(section)
    }
}

/// One file of them.
#[derive(Clone)]
pub struct Section {
    file: Arc<File>,
    begin: u64,
    length: u64,
}

impl Length for Section {
    fn len(&self) -> u64 {
        self.length
    }
}

impl ChunkReader for Section {
    type T = BufReader<Rest>;

    fn get_read(&self, start: u64) -> Result<Self::T> {
        Ok(BufReader::new(Rest { section: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.length) {
            return Err(ParquetError::EOF(format!("it ends before byte {start} + {length}")));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, self.begin + start)?;
        Ok(bytes.into())
    }
}

/// What follows a byte of a section.
pub struct Rest {
    section: Section,
    at: u64,
}

impl Read for Rest {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let left = usize::try_from(self.section.length.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let length = left.min(into.len());
        let read = self.section.file.read_at(&mut into[..length], self.section.begin + self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Location;

    #[test]
    fn a_section_ends_where_the_next_begins() {
        let dir = tempfile::tempdir().unwrap();
        let store = Location::Directory(dir.path().into()).open().unwrap();
        let mut spool = Spool::new(&*store).unwrap();
        let [first, second] = [&b"first"[..], b"second"].map(|bytes| spool.add(bytes).unwrap());
        let rest = |section: &Section, start| {
            let mut read = String::new();
            section.get_read(start).unwrap().read_to_string(&mut read).unwrap();
            read
        };
        assert_eq!(
            (rest(&first, 0), rest(&second, 3), rest(&second, 9)),
            ("first".into(), "ond".into(), String::new())
        );
        assert_eq!(second.get_bytes(0, 6).unwrap(), &b"second"[..]);
        assert!(first.get_bytes(1, 5).is_err() && first.get_bytes(u64::MAX, 1).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
