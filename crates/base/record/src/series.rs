//! Series file of a run: append-only lines, zstd-compressed, readable up to the last flush.
//!
//! Plain files are read as well: the steps of trials are plain, and so are all series of format 2.
//!
//! # Invariants
//! Never reads more into memory than a bounded multiple of the file's length.

use serde::Serialize;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use zstd::stream::read::Decoder;
use zstd::stream::write::Encoder;

/// Of the 97,840 sample lines of an hour (19.2 MB, 3,627 flushes) it leaves 2.80 MB at 0.57 us of CPU a line, 15 us a
/// second. Level 3 leaves 3.24 MB at 1.89 us, level 9 2.75 MB at 5.98 us.
/// A frame of its own for each flush, which forgets all before, comes to 5.05 MB.
const ZSTD_LEVEL: i32 = 1;

/// The largest window that a reader makes room for, as a power of two: 128 MB, what `zstd -d` allows by itself and
/// `zstd --long` uses.
const MAX_WINDOW_LOG: u32 = 27;

/// Maximum expansion of a file as a multiple of its length, if that is more than [`EXPANSION_ALLOWANCE`]. A
/// recorded line has its time at least, which takes some bytes however alike all else is: real series expand 8 to
/// 20 times.
const MAX_EXPANSION_RATIO: u64 = 256;
const EXPANSION_ALLOWANCE: u64 = 64 << 20;

/// A longer line was not written by toll: a latency line takes 100 kB at most, an artefact's losses some more.
const MAX_LINE: u64 = 16 << 20;

/// Under which names a series may lie in a run directory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SeriesFiles {
    pub(crate) plain: &'static str,
    pub(crate) compressed: &'static str,
}

pub(crate) const TRIALS: SeriesFiles =
    SeriesFiles { plain: "trials.ndjson", compressed: "trials.ndjson.zst" };
pub(crate) const SAMPLES: SeriesFiles =
    SeriesFiles { plain: "samples.ndjson", compressed: "samples.ndjson.zst" };
pub(crate) const LATENCIES: SeriesFiles =
    SeriesFiles { plain: "latency.hlog", compressed: "latency.hlog.zst" };
pub(crate) const ARTEFACTS: SeriesFiles =
    SeriesFiles { plain: "artefacts.ndjson", compressed: "artefacts.ndjson.zst" };
/// No series, but read with the same bounds.
pub(crate) const PROFILES: SeriesFiles =
    SeriesFiles { plain: "captures.json", compressed: "captures.json.zst" };

impl SeriesFiles {
    /// Opens the compressed file, else the plain one. `None`: there is neither.
    ///
    /// # Errors
    /// With the path of the file that cannot be opened.
    pub(crate) fn open(self, root: &Path) -> Result<Option<SeriesReader>, (PathBuf, io::Error)> {
        for (name, is_compressed) in [(self.compressed, true), (self.plain, false)] {
            let path = root.join(name);
            let input = match File::open(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err((path, e)),
                Ok(file) => SeriesInput::new(file, is_compressed).map_err(|e| (path.clone(), e))?,
            };
            return Ok(Some(SeriesReader {
                path,
                name,
                input,
                line: Vec::with_capacity(1024),
                is_complete: true,
            }));
        }
        Ok(None)
    }
}

/// Whole lines of a series, one after the other.
pub(crate) struct SeriesReader {
    pub(crate) path: PathBuf,
    pub(crate) name: &'static str,
    input: SeriesInput,
    line: Vec<u8>,
    is_complete: bool,
}

impl SeriesReader {
    /// The next line with its end; `None` after the last whole one.
    ///
    /// # Errors
    /// The file cannot be read, its compressed data is damaged, or it holds more than a series can.
    pub(crate) fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        match &mut self.input {
            SeriesInput::Empty => {}
            SeriesInput::Plain(file) => read_line(file, &mut self.line)?,
            SeriesInput::Compressed(file) => read_line(file, &mut self.line)?,
        }
        if self.line.last() == Some(&b'\n') {
            return Ok(Some(&self.line));
        }
        // The writer died inside this line, or inside what is compressed.
        let is_whole = match &self.input {
            SeriesInput::Compressed(file) => file.get_ref().is_complete,
            _ => true,
        };
        self.is_complete = is_whole && self.line.is_empty();
        Ok(None)
    }

    /// True if the series is complete; known after `next_line` has reached the end.
    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }
}

fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    let read = input.take(MAX_LINE).read_until(b'\n', line)?;
    if read as u64 == MAX_LINE && line.last() != Some(&b'\n') {
        return Err(corrupt_error(format!("a line is longer than {} MB", MAX_LINE >> 20)));
    }
    Ok(())
}

fn corrupt_error(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

enum SeriesInput {
    /// Its writer was killed before the first flush: there is no frame yet.
    Empty,
    Plain(BufReader<File>),
    Compressed(BufReader<BoundedDecoder>),
}

impl SeriesInput {
    fn new(file: File, is_compressed: bool) -> io::Result<Self> {
        const BUFFER: usize = 1 << 18;
        if !is_compressed {
            return Ok(Self::Plain(BufReader::with_capacity(BUFFER, file)));
        }
        let length = file.metadata()?.len();
        if length == 0 {
            return Ok(Self::Empty);
        }
        let mut decoder = Decoder::new(file)?;
        decoder.window_log_max(MAX_WINDOW_LOG)?;
        let most = EXPANSION_ALLOWANCE.max(length.saturating_mul(MAX_EXPANSION_RATIO));
        let expanded = BoundedDecoder { decoder, remaining: most, limit: most, is_complete: true };
        Ok(Self::Compressed(BufReader::with_capacity(BUFFER, expanded)))
    }
}

/// What a compressed file holds, as far as it is whole.
struct BoundedDecoder {
    decoder: Decoder<'static, BufReader<File>>,
    remaining: u64,
    limit: u64,
    is_complete: bool,
}

impl Read for BoundedDecoder {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = match self.decoder.read(buf) {
            // Inside a frame: its writer was killed, or the file was cut since. All blocks before were handed out.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
                self.is_complete = false;
                0
            }
            Err(e) if e.kind() == io::ErrorKind::Other => {
                return Err(corrupt_error(format!("the compressed data is damaged ({e})")));
            }
            other => other?,
        };
        self.remaining = self.remaining.checked_sub(read as u64).ok_or_else(|| {
            corrupt_error(format!(
                "it expands to more than {} MB, which no series of its length does",
                self.limit >> 20
            ))
        })?;
        Ok(read)
    }
}

/// A compressed series being written: one zstd frame, a block of it for each flush.
pub(crate) struct SeriesWriter {
    encoder: Encoder<'static, File>,
    line: Vec<u8>,
    /// Something was added since the last flush: else there is no block to end.
    is_pending: bool,
}

impl std::fmt::Debug for SeriesWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SeriesWriter").field("file", self.encoder.get_ref()).finish_non_exhaustive()
    }
}

impl SeriesWriter {
    /// Begins the file anew: what is there is of a run that ended before it had a plan.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let mut encoder = Encoder::new(File::create(path)?, ZSTD_LEVEL)?;
        // A flipped bit is an error then, not another figure.
        encoder.include_checksum(true)?;
        Ok(Self { encoder, line: Vec::new(), is_pending: false })
    }

    /// Adds bytes that end a line.
    pub(crate) fn add(&mut self, lines: &[u8]) -> io::Result<()> {
        self.is_pending = true;
        self.encoder.write_all(lines)
    }

    pub(crate) fn add_json<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        // In one piece: zstd is called once a line, not once a token.
        let mut line = std::mem::take(&mut self.line);
        line.clear();
        serde_json::to_writer(&mut line, value)?;
        line.push(b'\n');
        let added = self.add(&line);
        self.line = line;
        added
    }

    /// Hands all that was added to the kernel, readable even if the writer is killed right after.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.is_pending) {
            self.encoder.flush()?;
        }
        Ok(())
    }

    /// Ends the frame: a reader then knows that nothing is missing.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.encoder.do_finish()
    }
}

impl Drop for SeriesWriter {
    /// For writers that were given up for another error; [`SeriesWriter::finish`] tells of its own.
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u32) -> String {
        format!("{{\"mono_us\":{number}}}\n")
    }

    /// A file of 20 lines, flushed after every fifth, and how its writer ended.
    fn written(root: &Path, finish: bool) -> Vec<u8> {
        let path = root.join(SAMPLES.compressed);
        let mut writer = SeriesWriter::create(&path).unwrap();
        for number in 0..20 {
            writer.add(line(number).as_bytes()).unwrap();
            if number % 5 == 4 {
                writer.flush().unwrap();
            }
        }
        if finish {
            writer.finish().unwrap();
        }
        // As a killed writer leaves it: nothing more is written.
        std::mem::forget(writer);
        std::fs::read(path).unwrap()
    }

    /// The lines of the samples in `root`, and whether they end whole.
    fn read(root: &Path) -> io::Result<(Vec<String>, bool)> {
        let mut reader = SAMPLES.open(root).unwrap().unwrap();
        let mut lines = Vec::new();
        while let Some(line) = reader.next_line()? {
            lines.push(String::from_utf8(line.to_owned()).unwrap());
        }
        Ok((lines, reader.is_complete()))
    }

    fn put(root: &Path, bytes: &[u8]) {
        std::fs::write(root.join(SAMPLES.compressed), bytes).unwrap();
    }

    #[test]
    fn lines_up_to_the_last_flush_survive_a_writer_that_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path(), false);
        let (lines, whole) = read(dir.path()).unwrap();
        assert_eq!(lines, (0..20).map(line).collect::<Vec<_>>());
        assert!(!whole, "nothing says that no line followed");
        written(dir.path(), true);
        assert_eq!(read(dir.path()).unwrap(), (lines, true));
    }

    #[test]
    fn a_file_cut_anywhere_holds_its_first_lines_and_is_not_whole() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = written(dir.path(), true);
        let mut most = 0;
        for keep in 1..bytes.len() {
            put(dir.path(), &bytes[..keep]);
            let (lines, whole) = read(dir.path()).unwrap();
            assert_eq!(lines, (0..lines.len() as u32).map(line).collect::<Vec<_>>());
            assert!(!whole && lines.len() >= most, "{keep} bytes");
            most = lines.len();
        }
        assert_eq!(most, 20);
        put(dir.path(), &[]);
        assert_eq!(read(dir.path()).unwrap(), (Vec::new(), true), "killed before the first flush");
    }

    #[test]
    fn zeros_that_a_lost_page_left_are_a_cut_and_no_lines() {
        let dir = tempfile::tempdir().unwrap();
        let mut bytes = written(dir.path(), false);
        bytes.extend([0; 4096]);
        put(dir.path(), &bytes);
        let (lines, whole) = read(dir.path()).unwrap();
        assert_eq!((lines.len(), whole), (20, false));
    }

    #[test]
    fn a_bit_that_flips_never_gives_other_lines() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = written(dir.path(), true);
        let whole = read(dir.path()).unwrap();
        let mut errors = 0;
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            put(dir.path(), &flipped);
            match read(dir.path()) {
                Ok(found) => assert!(found == whole || !found.1, "bit {bit}: {found:?}"),
                Err(e) => {
                    assert_eq!(e.kind(), io::ErrorKind::InvalidData, "{e}");
                    errors += 1;
                }
            }
        }
        assert!(errors > bytes.len() * 4, "{errors} errors");
    }

    #[test]
    fn a_plain_file_is_read_and_a_compressed_one_beside_it_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(SAMPLES.plain), "a\nb\nc").unwrap();
        assert_eq!(read(dir.path()).unwrap(), (vec!["a\n".to_owned(), "b\n".to_owned()], false));
        // Several frames are one file, as after `cat`.
        let frame = |text: &str| zstd::encode_all(text.as_bytes(), 19).unwrap();
        put(dir.path(), &[frame("d\n"), frame("e\n")].concat());
        assert_eq!(read(dir.path()).unwrap(), (vec!["d\n".to_owned(), "e\n".to_owned()], true));
    }

    #[test]
    fn a_hostile_file_is_refused_before_it_fills_the_memory() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |bytes: &[u8]| {
            put(dir.path(), bytes);
            let error = read(dir.path()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            error.to_string()
        };
        let mut short = vec![b' '; 1 << 20];
        short[0] = b'\n';
        let mut lines = Encoder::new(Vec::new(), 1).unwrap();
        for _ in 0..=EXPANSION_ALLOWANCE >> 20 {
            lines.write_all(&short).unwrap();
        }
        assert!(refused(&lines.finish().unwrap()).contains("expands to more than 64 MB"));
        let long = zstd::encode_all(vec![b' '; MAX_LINE as usize + 1].as_slice(), 1).unwrap();
        assert!(refused(&long).contains("a line is longer than 16 MB"));
        // A frame's head, its window one of 2 TB, and one block of one byte.
        let window = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xf8, 0x09, 0x00, 0x00, b'x'];
        assert!(refused(&window).contains("too much memory"));
    }
}
