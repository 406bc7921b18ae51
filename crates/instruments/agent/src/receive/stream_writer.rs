//! Writer of one stream to its file, across all its connections.
//!
//! Each chunk is written once, in the order of the numbers.
//!
//! # Invariants
//! Never acknowledges a chunk that is not written.

use super::destination::{StreamDestination, StreamFiles};
use super::link::Link;
use super::{StreamSummary, strip_control};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use toll_wire::stream_protocol::{Chunk, End, Hello};
use zstd::bulk::Decompressor;

/// One stream.
pub struct ReceivedStream {
    /// Name by the sender's key; `None`: there are no keys.
    sender: Option<String>,
    state: Mutex<State>,
}

struct State {
    summary: StreamSummary,
    files: StreamFiles,
    opening: Vec<u8>,
    begun_ns: u64,
    /// The number of the chunk that comes next.
    next_chunk: u64,
    /// The connection that it comes over, counted from 1.
    connection: u64,
    link: Option<Arc<Link>>,
    /// When its last connection broke.
    disconnected_at: Option<Instant>,
    has_ended: bool,
    /// Nobody has been told yet how it ended.
    is_unreported: bool,
}

impl ReceivedStream {
    /// A stream that this receiver does not know yet. It has the name of its sender's key, whatever the sender says of itself.
    ///
    /// # Errors
    /// Its journal says that it is another sender's.
    pub fn new(hello: &Hello<'_>, sender: Option<&str>, destination: StreamDestination) -> Result<Self> {
        let host = sender.unwrap_or(hello.host);
        let mut writing = StreamFiles::new(destination, host, hello.content);
        // Chunks that are gone at both ends are not waited for.
        let known = writing.keep_journal(hello.stream, sender)?;
        let next_chunk = known.map_or(hello.first, |next| next.max(hello.first));
        if known.unwrap_or(0) < next_chunk {
            writing.goes_on_from_elsewhere();
        }
        let host = match strip_control(host) {
            host if host.is_empty() => "a host without a name".into(),
            host => host,
        };
        let mut account = StreamSummary::new(host, hello.content);
        account.chunks_before = next_chunk;
        Ok(Self {
            sender: sender.map(str::to_owned),
            state: Mutex::new(State {
                summary: account,
                files: writing,
                opening: hello.file_header.to_vec(),
                begun_ns: hello.begun_ns,
                next_chunk,
                connection: 0,
                link: None,
                disconnected_at: None,
                has_ended: false,
                is_unreported: false,
            }),
        })
    }

    /// The file that is being written.
    pub fn open_file(&self) -> Option<PathBuf> {
        self.lock().files.open_file().map(Path::to_owned)
    }

    pub fn sender(&self) -> Option<&str> {
        self.sender.as_deref()
    }

    /// Binds the stream to this connection alone. Returns the connection's number, and that of the first
    /// chunk wanted.
    ///
    /// # Errors
    /// It is not the stream that it was.
    pub fn attach(&self, hello: &Hello<'_>, link: &Arc<Link>) -> Result<(u64, u64)> {
        let mut state = self.lock();
        ensure!(
            state.opening == hello.file_header && state.summary.holds == hello.content,
            "it has the name of another stream"
        );
        ensure!(
            hello.first <= state.next_chunk,
            "it has only chunks from {} on, where {} is due: start the capture again",
            hello.first,
            state.next_chunk
        );
        if let Some(before) = state.link.replace(Arc::clone(link)) {
            before.close();
        }
        state.disconnected_at = None;
        state.connection += 1;
        state.summary.connections = state.connection;
        Ok((state.connection, state.next_chunk))
    }

    /// This connection broke.
    pub fn detach(&self, connection: u64) {
        let mut state = self.lock();
        if state.connection == connection {
            state.link = None;
            state.disconnected_at = Some(Instant::now());
        }
    }

    /// When its last connection broke; `None`: it has one, or has ended.
    pub fn disconnected_at(&self) -> Option<Instant> {
        let state = self.lock();
        state.disconnected_at.filter(|_| !state.has_ended)
    }

    pub fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// The stream was abandoned and reported: if its sender returns, it starts another one.
    pub fn was_abandoned(&self) -> bool {
        let state = self.lock();
        state.has_ended && !state.summary.whole && !state.is_unreported
    }

    /// Writes a chunk that arrived over this connection in `received` bytes. Returns the number below which
    /// all chunks are written.
    ///
    /// # Errors
    /// The chunk is not the next one, or could not be written.
    pub fn write_chunk(
        &self,
        connection: u64,
        chunk: &Chunk<'_>,
        received: u64,
        inflate: &mut ChunkDecompressor,
    ) -> Result<u64> {
        let mut state = self.lock();
        ensure!(state.connection == connection, "it goes on over another connection");
        ensure!(!state.has_ended, "it has ended");
        state.summary.received_bytes += received;
        if chunk.number < state.next_chunk {
            state.summary.chunks_again += 1;
            return Ok(state.next_chunk);
        }
        ensure!(
            chunk.number == state.next_chunk,
            "chunk {} came where {} was due",
            chunk.number,
            state.next_chunk
        );
        let plain = inflate.decompress(chunk)?;
        let State { files: writing, opening, summary: account, next_chunk: next, .. } = &mut *state;
        account.written_bytes += writing.append(opening, plain, chunk.first_ns, *next + 1)?;
        account.chunks += 1;
        account.items += chunk.items;
        account.lost = account.lost.max(chunk.lost);
        if chunk.items > 0 {
            account.first_ns.get_or_insert(chunk.first_ns);
            account.last_ns = Some(chunk.last_ns);
        }
        *next += 1;
        Ok(*next)
    }

    /// Closes the file if it is full by its age.
    pub fn close_old_file(&self) {
        let mut state = self.lock();
        // What cannot be closed now stays open, for the next attempt.
        if let Err(error) = state.files.close_if_old() {
            tracing::warn!("{}: {error:#}", state.summary.host);
        }
    }

    /// All that is written so far is below this.
    pub fn next_chunk(&self) -> u64 {
        self.lock().next_chunk
    }

    /// Handles the end of the stream.
    ///
    /// # Errors
    /// It was not, or the rest could not be written.
    pub fn finish(&self, connection: u64, end: &End<'_>) -> Result<()> {
        let mut state = self.lock();
        ensure!(state.connection == connection, "it goes on over another connection");
        if state.has_ended {
            // It was not heard the first time.
            return Ok(());
        }
        ensure!(
            end.chunks == state.next_chunk,
            "the end was said after {} chunks of {}",
            state.next_chunk,
            end.chunks
        );
        let State { files: writing, opening, summary: account, begun_ns, .. } = &mut *state;
        let elsewhere = account.chunks == 0 && account.chunks_before > 0;
        if !elsewhere {
            account.written_bytes += writing.finish(opening, end.file_footer, *begun_ns)?;
        }
        writing.end_journal();
        account.lost = account.lost.max(end.lost);
        account.whole = true;
        (state.has_ended, state.is_unreported) = (true, true);
        Ok(())
    }

    /// Nothing more is waited for.
    pub fn abandon(&self) {
        let mut state = self.lock();
        if state.has_ended {
            return;
        }
        if let Some(link) = state.link.take() {
            link.close();
        }
        // What is not on the disk yet is there as far as the kernel goes, and nobody can do more about it.
        if let Err(error) = state.files.close() {
            tracing::warn!("{}: {error:#}", state.summary.host);
        }
        (state.has_ended, state.is_unreported) = (true, true);
    }

    /// The result of the stream; returned once.
    pub fn take_summary(&self) -> Option<StreamSummary> {
        let mut state = self.lock();
        if !std::mem::take(&mut state.is_unreported) {
            return None;
        }
        // Not with each chunk: there may be many files.
        let (files, older_files) = state.files.files();
        state.files.forget();
        Some(StreamSummary { files, older_files, ..state.summary.clone() })
    }

    /// A thread that panicked was between two chunks, or in one that is then taken again.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Inflates chunks, one after the other, in the same memory.
pub struct ChunkDecompressor {
    zstd: Decompressor<'static>,
    plain: Vec<u8>,
}

impl ChunkDecompressor {
    pub fn new() -> Result<Self> {
        Ok(Self { zstd: Decompressor::new().context("cannot set up zstd")?, plain: Vec::new() })
    }

    /// # Errors
    /// It inflates to anything but what it says; never to more.
    fn decompress(&mut self, chunk: &Chunk<'_>) -> Result<&[u8]> {
        let said = chunk.plain_len as usize;
        self.plain.clear();
        // There may be room from an earlier chunk for more than is said: then the length tells.
        self.plain.reserve_exact(said);
        let inflated = match self.zstd.decompress_to_buffer(chunk.frame, &mut self.plain) {
            Ok(inflated) => inflated,
            Err(error) => bail!("chunk {} is no zstd frame of {said} bytes: {error}", chunk.number),
        };
        ensure!(inflated == said, "chunk {} inflates to {inflated} bytes and not {said}", chunk.number);
        Ok(&self.plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receive::Rotation;
    use crate::rotation::Rotate;
    use toll_wire::stream_protocol::{MAX_CHUNK, StreamContent};

    fn chunk(frame: &[u8], plain: usize) -> Chunk<'_> {
        Chunk { number: 0, items: 1, first_ns: 0, last_ns: 0, lost: 0, plain_len: plain as u32, frame }
    }

    #[test]
    fn files_are_listed_once_the_stream_has_ended_and_not_with_each_chunk() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Rotate { bytes: Some(1), every: None };
        let rotation = Rotation { limits, keep: None };
        let hello = Hello {
            stream: [0; 16],
            content: StreamContent::Queries,
            begun_ns: 1,
            first: 0,
            host: "db1",
            file_header: b"<",
        };
        let destination = StreamDestination::Directory { path: dir.path().into(), rotation };
        let stream = ReceivedStream::new(&hello, None, destination).unwrap();
        let frame = zstd::bulk::compress(b"items", 1).unwrap();
        let mut inflate = ChunkDecompressor::new().unwrap();
        for number in 0..3 {
            stream.write_chunk(0, &Chunk { number, ..chunk(&frame, 5) }, 9, &mut inflate).unwrap();
        }
        assert!(stream.lock().summary.files.is_empty() && stream.take_summary().is_none());
        stream.finish(0, &End { chunks: 3, items: 3, lost: 0, file_footer: b">" }).unwrap();
        let summary = stream.take_summary().unwrap();
        assert_eq!((summary.files.len(), summary.chunks), (3, 3));
        assert_eq!(std::fs::read(&summary.files[2]).unwrap(), b"<items>");
    }

    #[test]
    fn a_chunk_inflates_to_what_it_says_or_not_at_all() {
        let mut inflate = ChunkDecompressor::new().unwrap();
        let frame = zstd::bulk::compress(&[7; 1_000], 1).unwrap();
        assert_eq!(inflate.decompress(&chunk(&frame, 1_000)).unwrap(), [7; 1_000]);
        let bomb = zstd::bulk::compress(&vec![0; MAX_CHUNK * 8], 1).unwrap();
        assert!(bomb.len() < 100_000);
        let (frame, bomb, none) = (&frame[..], &bomb[..], &b"no frame"[..]);
        for (frame, plain) in
            [(frame, 999), (frame, 1_001), (bomb, 1_000), (bomb, MAX_CHUNK), (none, 8), (&none[..0], 1)]
        {
            assert!(inflate.decompress(&chunk(frame, plain)).is_err(), "{} bytes as {plain}", frame.len());
            assert!(inflate.plain.capacity() <= MAX_CHUNK);
        }
    }
}
