//! Journal of a stream: how far it is written, so that a receiver which was killed, or another in its place, goes on where it was.
//!
//! A hidden file beside the stream's files, with one record of fixed length that each chunk overwrites.
//!
//! # Invariants
//! A chunk is in the files once: what a file holds beyond its journal is cut off before the sender sends it again.

use anyhow::{Context, Result, ensure};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toll_sys::private_file;
use toll_wire::stream_protocol::StreamId;

/// Longer than any record; all of it is written at once, so that an overwriting needs no room.
const RECORD_BYTES: usize = 512;
/// A sender that was away for longer begins another file.
const MAX_AGE: Duration = Duration::from_secs(30 * 86_400);
const NAME_END: &str = ".stream";

#[derive(Debug)]
pub struct Journal {
    /// Once something is written.
    file: Option<File>,
    path: PathBuf,
    sender: String,
}

/// What a journal says.
#[derive(Debug, PartialEq, Eq)]
struct Record {
    next_chunk: u64,
    /// Length of the file that it was written to last.
    bytes: u64,
    sender: String,
    file: String,
}

impl Record {
    /// `None`: it is damaged, or of another version.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.trim_end_matches('\n').split('\t');
        let record = Self {
            next_chunk: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
            sender: words.next()?.to_owned(),
            file: words.next()?.to_owned(),
        };
        // It names a file of its own directory.
        (words.next().is_none() && !record.file.contains('/')).then_some(record)
    }

    fn render(&self) -> String {
        let Self { next_chunk, bytes, sender, file } = self;
        format!("{next_chunk}\t{bytes}\t{sender}\t{file}")
    }
}

impl Journal {
    /// The journal of a stream, and the chunk that it wants next if some are written.
    ///
    /// # Errors
    /// The stream is another sender's.
    pub fn open(dir: &Path, stream: StreamId, sender: Option<&str>) -> Result<(Self, Option<u64>)> {
        let path = dir.join(format!(".{:032x}{NAME_END}", u128::from_be_bytes(stream)));
        let sender = sender.unwrap_or_default().to_owned();
        let known = std::fs::read_to_string(&path).ok().and_then(|text| Record::parse(&text));
        ensure!(
            known.as_ref().is_none_or(|record| record.sender == sender),
            "it has the name of another sender's stream"
        );
        Ok((Self { file: None, path, sender }, known.map(|record| record.next_chunk)))
    }

    /// All chunks below `next_chunk` are written; the file of this name has so many bytes.
    ///
    /// # Errors
    /// There is no room: what the last chunk added is to be taken back.
    pub fn record(&mut self, next_chunk: u64, file: &Path, bytes: u64) -> Result<()> {
        let file = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let mut text = Record { next_chunk, bytes, sender: self.sender.clone(), file }.render().into_bytes();
        ensure!(text.len() < RECORD_BYTES, "{} is too long a name", self.path.display());
        text.resize(RECORD_BYTES, b'\n');
        let failed = || format!("cannot write {}", self.path.display());
        let file = match self.file.take() {
            Some(file) => file,
            None => open_or_create(&self.path).with_context(failed)?,
        };
        file.write_all_at(&text, 0).with_context(failed)?;
        self.file = Some(file);
        Ok(())
    }

    /// The stream has ended.
    pub fn remove(&self) {
        if let Err(error) = std::fs::remove_file(&self.path)
            && error.kind() != ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {error}", self.path.display());
        }
    }
}

fn open_or_create(path: &Path) -> std::io::Result<File> {
    match private_file::create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => File::options().write(true).open(path),
        made => made,
    }
}

/// Takes the directory for this receiver, and cuts off what earlier ones wrote and did not acknowledge.
///
/// `None`: another receiver has it, and its files are left as they are.
///
/// # Errors
/// It cannot be read, or a file cannot be cut.
pub fn recover(dir: &Path) -> Result<Option<Flock<File>>> {
    let open = File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    let Ok(lock) = Flock::lock(open, FlockArg::LockExclusiveNonblock) else { return Ok(None) };
    for entry in std::fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))? {
        let path = entry.with_context(|| format!("cannot read {}", dir.display()))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if !name.starts_with('.') || !name.ends_with(NAME_END) {
            continue;
        }
        let age = std::fs::metadata(&path).and_then(|meta| meta.modified()).map(|time| time.elapsed());
        if age.is_ok_and(|age| age.is_ok_and(|age| age > MAX_AGE)) {
            let _gone = std::fs::remove_file(&path);
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        if let Some(record) = Record::parse(&text) {
            cut(&dir.join(&record.file), record.bytes)?;
        }
    }
    Ok(Some(lock))
}

/// A file that is gone has nothing to cut.
fn cut(path: &Path, bytes: u64) -> Result<()> {
    let Ok(file) = File::options().write(true).open(path) else { return Ok(()) };
    let is_longer = file.metadata().is_ok_and(|meta| meta.is_file() && meta.len() > bytes);
    if is_longer {
        file.set_len(bytes).with_context(|| format!("cannot cut {}", path.display()))?;
        tracing::info!("{}: what was not acknowledged is cut off, and comes again", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_acknowledged_is_cut_off_and_the_stream_goes_on_after_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("db1.queries");
        let (mut journal, next) = Journal::open(dir.path(), [7; 16], Some("db1")).unwrap();
        assert_eq!(next, None);
        std::fs::write(&file, "written, and more").unwrap();
        journal.record(3, &file, 7).unwrap();
        assert!(Journal::open(dir.path(), [7; 16], Some("db2")).is_err(), "another sender's");
        let lock = recover(dir.path()).unwrap().expect("nobody else has it");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "written");
        assert!(recover(dir.path()).unwrap().is_none(), "it is taken");
        drop(lock);
        assert_eq!(Journal::open(dir.path(), [7; 16], Some("db1")).unwrap().1, Some(3));
        journal.remove();
        assert_eq!(Journal::open(dir.path(), [7; 16], Some("db1")).unwrap().1, None);
    }

    #[test]
    fn a_damaged_journal_says_nothing_and_reaches_no_other_directory() {
        let record = Record { next_chunk: 9, bytes: 1, sender: "db1".into(), file: "db1-1.queries".into() };
        assert_eq!(Record::parse(&format!("{}\n\n", record.render())), Some(record));
        for damaged in ["", "\n", "9\t1\tdb1", "x\t1\tdb1\ta", "9\t1\tdb1\t../a", "9\t1\tdb1\ta\tb"] {
            assert_eq!(Record::parse(damaged), None, "{damaged:?}");
        }
    }
}
