//! Destination files of a stream: one, or several in sequence.
//!
//! They are readable by their owner only. Never overwrites an existing file. A file always holds whole items:
//! a partial write is rolled back.

use super::file_names::{QUERIES, elsewhere_mark, file_name};
use super::journal::Journal;
use crate::rotation::{Rotate, Series};
use anyhow::{Context, Result, bail, ensure};
use std::fs::File;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use toll_sys::{atomic_file, private_file};
use toll_wire::stream_protocol::{StreamContent, StreamId};

/// Streams of hosts with one name that begin within a second: there are no more of them.
const MAX_SAME_NAME: u32 = 10_000;

/// Where streams are written.
#[derive(Debug, Clone)]
pub enum StreamDestination {
    /// A file a stream, or several.
    Directory { path: PathBuf, rotation: Rotation },
    /// The one stream there is.
    File(PathBuf),
    /// The one stream there is, into what is open already, such as standard output.
    Open(Arc<File>),
}

impl StreamDestination {
    /// Where files are made.
    pub fn places_written(&self) -> Vec<PathBuf> {
        match self {
            Self::Directory { path, .. } => vec![path.clone()],
            Self::File(path) => toll_taps::places_of(path),
            Self::Open(_) => Vec::new(),
        }
    }

    /// Sees beforehand that there will be a place to write to; makes a directory that is not there, for its owner alone.
    ///
    /// # Errors
    /// There will be none.
    pub fn prepare(&self) -> Result<()> {
        match self {
            Self::Directory { path, .. } if path.is_dir() => Ok(()),
            Self::Directory { path, .. } => private_file::create_dir(path),
            Self::File(path) if path.exists() => {
                bail!("{} exists. Choose another file.", path.display())
            }
            Self::File(path) => {
                let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
                let there = dir.is_none_or(Path::is_dir);
                ensure!(there, "there is no directory for {}: make it", path.display());
                Ok(())
            }
            Self::Open(output) if output.is_terminal() => {
                bail!("a terminal cannot show a capture: name a file, or pipe it on")
            }
            Self::Open(_) => Ok(()),
        }
    }
}

/// Rotation of a stream's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rotation {
    /// By the length of the file, and by the times of the first item in it and of the next.
    pub limits: Rotate,
    /// Files of a stream, the newest.
    pub keep: Option<usize>,
}

/// A stream's file, or files.
#[derive(Debug)]
pub struct StreamFiles {
    destination: StreamDestination,
    /// What the file's name begins with, and its end.
    host: String,
    extension: &'static str,
    open: Option<OpenFile>,
    /// The open one last.
    files: Series,
    /// Of files in a directory.
    journal: Option<Journal>,
    /// Other receivers have chunks between those written here and the next.
    was_elsewhere: bool,
}

#[derive(Debug)]
struct OpenFile {
    /// Absent: the place is open already.
    file: Option<File>,
    bytes: u64,
    /// Of the first item in it, Unix nanoseconds.
    first_ns: u64,
    begun: Instant,
    has_items: bool,
    /// What the stream ends with is in it.
    is_finished: bool,
}

impl StreamFiles {
    pub fn new(place: StreamDestination, host: &str, holds: StreamContent) -> Self {
        let extension = match holds {
            StreamContent::Pcapng => "pcapng",
            StreamContent::Queries => QUERIES,
        };
        Self {
            destination: place,
            host: file_name(host),
            extension,
            open: None,
            files: Series::default(),
            journal: None,
            was_elsewhere: false,
        }
    }

    /// The next chunk is not the one after those written here: others have them, or nobody.
    pub fn goes_on_from_elsewhere(&mut self) {
        self.was_elsewhere = true;
    }

    /// From now on keeps the journal of this stream, if its files are in a directory. The answer: the chunk that it wants
    /// next, if an earlier receiver has written some.
    ///
    /// # Errors
    /// The stream is another sender's.
    pub fn keep_journal(&mut self, stream: StreamId, sender: Option<&str>) -> Result<Option<u64>> {
        let StreamDestination::Directory { path, .. } = &self.destination else { return Ok(None) };
        let (journal, next_chunk) = Journal::open(path, stream, sender)?;
        self.journal = Some(journal);
        Ok(next_chunk)
    }

    /// The file that is being written.
    pub fn open_file(&self) -> Option<&Path> {
        self.open.as_ref().and_then(|_| self.files.paths().last())
    }

    /// Files that were written and are still there: the newest, and how many are older.
    pub fn files(&self) -> (Vec<PathBuf>, u64) {
        (self.files.paths().map(Path::to_owned).collect(), self.files.forgotten())
    }

    /// Forgets all files: nothing more is written.
    pub fn forget(&mut self) {
        self.files = Series::default();
    }

    /// Appends the whole items of the chunk before `next_chunk`, seen from `first_ns` on; a file that is begun for them begins
    /// with `opening`. The answer: bytes that were written.
    ///
    /// # Errors
    /// They could not be written, and nothing of them is in the file.
    pub fn append(&mut self, opening: &[u8], items: &[u8], first_ns: u64, next_chunk: u64) -> Result<u64> {
        if self.is_full(items.len(), first_ns) {
            self.close()?;
        }
        let mut written = 0;
        if self.open.is_none() {
            written += self.start_recorded_file(opening, first_ns, next_chunk)?;
        }
        let begin = self.open.as_ref().map_or(0, |open| open.bytes);
        written += self.write_whole(items)?;
        self.record(next_chunk).inspect_err(|_| self.take_back(begin))?;
        if let Some(open) = &mut self.open {
            open.has_items = true;
        }
        Ok(written)
    }

    /// The stream has ended: its last file ends with `closing`, and is on the disk. A stream without items has a file
    /// all the same. The answer: bytes that were written.
    ///
    /// # Errors
    /// They could not be written. Called again, it goes on with the same file.
    pub fn finish(&mut self, opening: &[u8], closing: &[u8], begun_ns: u64) -> Result<u64> {
        let mut written = 0;
        if self.open.is_none() {
            written += self.start_file(opening, begun_ns)?;
        }
        if !self.open.as_ref().is_some_and(|open| open.is_finished) {
            written += self.write_whole(closing)?;
        }
        if let Some(open) = &mut self.open {
            open.is_finished = true;
        }
        self.close()?;
        self.end_journal();
        Ok(written)
    }

    /// The stream has ended, here or at an earlier receiver.
    pub fn end_journal(&mut self) {
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
    }

    /// A file for the chunk before `next_chunk`. If the receiver is killed before that is recorded, its items are cut off this
    /// file, and not off the one before.
    fn start_recorded_file(&mut self, opening: &[u8], first_ns: u64, next_chunk: u64) -> Result<u64> {
        let written = self.start_file(opening, first_ns)?;
        self.record(next_chunk.saturating_sub(1)).inspect_err(|_| self.drop_new_file())?;
        Ok(written)
    }

    fn record(&mut self, next_chunk: u64) -> Result<()> {
        match (&mut self.journal, &self.open, self.files.paths().last()) {
            (Some(journal), Some(open), Some(path)) => journal.record(next_chunk, path, open.bytes),
            _ => Ok(()),
        }
    }

    /// Of a chunk that comes again, nothing may stay.
    fn take_back(&mut self, bytes: u64) {
        if let Some(open) = &mut self.open {
            open.bytes = bytes;
            let _unchanged = open.file.as_ref().map(|file| file.set_len(bytes));
        }
    }

    /// No more comes, as far as is known: what there is, is on the disk, and so is its name.
    ///
    /// # Errors
    /// It is not. The file stays open, for another attempt.
    pub fn close(&mut self) -> Result<()> {
        if let Some(file) = self.open.as_ref().and_then(|open| open.file.as_ref()) {
            let name = self.files.paths().last();
            file.sync_data()
                .and_then(|()| name.map_or(Ok(()), atomic_file::sync_directory))
                .with_context(|| format!("cannot write {} to its disk", self.name()))?;
        }
        self.open = None;
        Ok(())
    }

    /// Closes a file with items that was begun so long ago, by this host's clock, as a file may last.
    ///
    /// # Errors
    /// As [`Self::close`].
    pub fn close_if_old(&mut self) -> Result<()> {
        let StreamDestination::Directory { rotation, .. } = &self.destination else { return Ok(()) };
        let is_old = |open: &OpenFile| open.has_items && rotation.limits.is_due(0, open.begun.elapsed());
        if self.open.as_ref().is_some_and(is_old) { self.close() } else { Ok(()) }
    }

    fn is_full(&self, more: usize, now_ns: u64) -> bool {
        let StreamDestination::Directory { rotation, .. } = &self.destination else { return false };
        let Some(open) = self.open.as_ref().filter(|open| open.has_items) else { return false };
        let age = Duration::from_nanos(now_ns.saturating_sub(open.first_ns));
        rotation.limits.is_due(open.bytes + more as u64, age)
    }

    fn start_file(&mut self, opening: &[u8], first_ns: u64) -> Result<u64> {
        let created = match &self.destination {
            StreamDestination::Open(_) => None,
            StreamDestination::File(path) => {
                let file = private_file::create(path);
                Some((path.clone(), file.with_context(|| format!("cannot make {}", path.display()))?))
            }
            StreamDestination::Directory { path, .. } => Some(self.create_in(path, first_ns)?),
        };
        if let Some((path, file)) = &created {
            self.files.add(path, file)?;
            // Of packets nobody counts what is missing.
            if self.was_elsewhere && self.extension == QUERIES {
                let mark = elsewhere_mark(path);
                if let Err(error) = private_file::create(&mark) {
                    self.drop_new_file();
                    return Err(error).with_context(|| format!("cannot make {}", mark.display()));
                }
            }
            self.was_elsewhere = false;
        }
        let file = created.map(|(_, file)| file);
        let begun = Instant::now();
        self.open = Some(OpenFile { file, bytes: 0, first_ns, begun, has_items: false, is_finished: false });
        let written = match self.write_whole(opening) {
            Ok(written) => written,
            Err(error) => {
                self.drop_new_file();
                return Err(error);
            }
        };
        if let StreamDestination::Directory { rotation: Rotation { keep, .. }, .. } = self.destination {
            self.files.keep_newest(keep);
        }
        Ok(written)
    }

    /// Nothing is in it, and another attempt makes another.
    fn drop_new_file(&mut self) {
        self.open = None;
        self.files.remove_newest();
    }

    fn create_in(&self, dir: &Path, first_ns: u64) -> Result<(PathBuf, File)> {
        let time = jiff::Timestamp::from_nanosecond(first_ns.into()).context("a capture of no known time")?;
        let time = time.strftime("%Y%m%d-%H%M%S");
        let mut number = 1;
        loop {
            let again = if number == 1 { String::new() } else { format!("-{number}") };
            let path = dir.join(format!("{}-{time}{again}.{}", self.host, self.extension));
            match private_file::create(&path) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MAX_SAME_NAME => {
                    number += 1
                }
                Err(error) => return Err(error).with_context(|| format!("cannot make {}", path.display())),
            }
        }
    }

    /// All of it, or nothing.
    fn write_whole(&mut self, bytes: &[u8]) -> Result<u64> {
        let Some(open) = &mut self.open else { return Ok(0) };
        let put = match (&open.file, &self.destination) {
            (None, StreamDestination::Open(output)) => output.as_ref().write_all(bytes),
            (None, _) => return Ok(0),
            (Some(file), _) => file.write_all_at(bytes, open.bytes).inspect_err(|_| {
                // A part of an item would make the rest of the file unreadable.
                let _ = file.set_len(open.bytes);
            }),
        };
        match put {
            Ok(()) => {
                open.bytes += bytes.len() as u64;
                Ok(bytes.len() as u64)
            }
            Err(error) => Err(error).with_context(|| format!("cannot write {}", self.name())),
        }
    }

    fn name(&self) -> String {
        self.files.paths().last().map_or_else(|| "standard output".into(), |file| file.display().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    /// 2023-11-14 22:13:20 UTC.
    const BEGUN: u64 = 1_700_000_000 * SECOND;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn writing(dir: &Path, rotation: Rotation) -> StreamFiles {
        StreamFiles::new(
            StreamDestination::Directory { path: dir.into(), rotation },
            "web/../1",
            StreamContent::Pcapng,
        )
    }

    #[test]
    fn each_file_of_a_stream_is_whole_and_only_the_newest_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let when = Rotate { bytes: Some(8), every: Some(Duration::from_secs(60)) };
        let rotation = Rotation { limits: when, keep: Some(2) };
        let mut writing = writing(dir.path(), rotation);
        // Full by bytes, then by time.
        for (items, at) in [("aaa", 0), ("bbb", 1), ("ccc", 2), ("d", 3), ("e", 62)] {
            assert!(writing.append(b"<", items.as_bytes(), BEGUN + at * SECOND, at + 1).unwrap() > 0);
        }
        assert_eq!(writing.finish(b"<", b">", BEGUN).unwrap(), 1);
        let expected = ["web_.._1-20231114-221322.pcapng", "web_.._1-20231114-221422.pcapng"];
        assert_eq!(names(dir.path()), expected);
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(expected.map(read), ["<cccd", "<e>"]);
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(dir.path().join(expected[0])).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_is_old_is_closed_though_nothing_more_comes() {
        let dir = tempfile::tempdir().unwrap();
        let every = |age| Rotation { limits: Rotate { bytes: Some(1 << 20), every: Some(age) }, keep: None };
        let mut young = writing(dir.path(), every(Duration::from_secs(3_600)));
        young.append(b"<", b"aaa", BEGUN, 1).unwrap();
        young.close_if_old().unwrap();
        assert!(young.open_file().is_some());
        let mut old = writing(dir.path(), every(Duration::ZERO));
        old.append(b"<", b"bbb", BEGUN + SECOND, 1).unwrap();
        old.close_if_old().unwrap();
        assert_eq!(old.open_file(), None);
        old.append(b"<", b"ccc", BEGUN + 2 * SECOND, 2).unwrap();
        assert_eq!(names(dir.path()).len(), 3);
    }

    #[test]
    fn items_of_a_new_file_that_are_not_recorded_are_cut_off_it() {
        let dir = tempfile::tempdir().unwrap();
        let rotation = Rotation { limits: Rotate { bytes: Some(4), every: None }, keep: None };
        let mut files = writing(dir.path(), rotation);
        assert_eq!(files.keep_journal([7; 16], None).unwrap(), None);
        files.append(b"<", b"aaa", BEGUN, 1).unwrap();
        files.close().unwrap();
        files.start_recorded_file(b"<", BEGUN + SECOND, 2).unwrap();
        let second = files.open_file().unwrap().to_owned();
        // Killed behind this.
        std::fs::write(&second, "<bbb").unwrap();
        drop(files);
        let _lock = crate::receive::journal::recover(dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&second).unwrap(), "<");
        assert_eq!(writing(dir.path(), rotation).keep_journal([7; 16], None).unwrap(), Some(1));
        let first = dir.path().join("web_.._1-20231114-221320.pcapng");
        assert_eq!(std::fs::read_to_string(first).unwrap(), "<aaa");
    }

    #[test]
    fn no_file_is_written_over_and_a_stream_of_nothing_has_one_too() {
        let dir = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            writing(dir.path(), Rotation::default()).finish(b"<", b">", BEGUN).unwrap();
        }
        let expected = ["web_.._1-20231114-221320-2.pcapng", "web_.._1-20231114-221320.pcapng"];
        assert_eq!(names(dir.path()), expected);
        let there = StreamDestination::File(dir.path().join(expected[0]));
        assert!(there.prepare().unwrap_err().to_string().contains("exists. Choose another file."));
        assert!(StreamDestination::File(dir.path().join("no/where")).prepare().is_err());
    }

    #[test]
    fn a_file_whose_directory_is_not_on_the_disk_is_not_closed_and_has_one_end() {
        let dir = tempfile::tempdir().unwrap();
        let (here, away) = (dir.path().join("captures"), dir.path().join("away"));
        std::fs::create_dir(&here).unwrap();
        let mut writing = writing(&here, Rotation::default());
        writing.append(b"<", b"items", BEGUN, 1).unwrap();
        std::fs::rename(&here, &away).unwrap();
        let refused = writing.finish(b"<", b">", BEGUN).unwrap_err();
        assert!(format!("{refused:#}").contains("to its disk"), "{refused:#}");
        std::fs::rename(&away, &here).unwrap();
        // The sender did not hear that it was done, and says the end again.
        writing.finish(b"<", b">", BEGUN).unwrap();
        let names = names(&here);
        assert_eq!(names.len(), 1, "{names:?}");
        assert_eq!(std::fs::read_to_string(here.join(&names[0])).unwrap(), "<items>");
    }

    #[test]
    fn what_the_disk_has_no_room_for_is_taken_back() {
        let mut writing =
            StreamFiles::new(StreamDestination::File("/dev/full".into()), "host", StreamContent::Queries);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let begun = Instant::now();
        let file = Some(full);
        writing.open =
            Some(OpenFile { file, bytes: 0, first_ns: 0, begun, has_items: true, is_finished: false });
        let refused = writing.append(b"<", b"items", 0, 1).unwrap_err();
        assert!(format!("{refused:#}").contains("No space left"), "{refused:#}");
        assert_eq!(writing.open.as_ref().unwrap().bytes, 0);
    }
}
