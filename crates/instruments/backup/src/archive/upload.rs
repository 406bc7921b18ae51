//! Uploader of pieces to a store, each only once.
//!
//! A few threads name, seal and store pieces while the dump continues. Existing pieces are left alone, so a
//! backup after a killed one stores only the missing ones; some are read again ([`super::reread`]). Never holds more
//! than a few pieces.

use super::reread::Reread;
use crate::archive::chunker::{ChunkSizes, Chunker};
use crate::archive::content::{FileName, FileSink, FileSummary};
use crate::archive::{ContentHash, PieceDecoder, PieceEncoder, StoredFile, StoredPiece};
use nix::time::{ClockId, clock_gettime};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use toll_store::{Error, Result, Store};

pub(crate) const FOLDER: &str = "pieces";
/// Each waits for the store most of the time, and holds a piece meanwhile.
const WORKERS: usize = 8;

/// Progress of an upload.
#[derive(Debug, Default)]
pub struct UploadProgress {
    pub pieces: AtomicU64,
    pub new_pieces: AtomicU64,
    pub new_stored_bytes: AtomicU64,
    pub cpu_ns: AtomicU64,
}

/// Puts a dump's pieces into a store.
pub struct Uploader {
    chunker: Chunker,
    jobs: Option<SyncSender<(usize, Vec<u8>)>>,
    workers: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
    sent: usize,
    /// Where in the order of pieces each file begins.
    file_starts: Vec<usize>,
}

struct Shared {
    store: Arc<Store>,
    encoder: PieceEncoder,
    /// What the store holds, and how many bytes each takes there.
    existing: Mutex<HashMap<ContentHash, u32>>,
    reread: Reread,
    stored: Mutex<Vec<Option<StoredPiece>>>,
    first_error: Mutex<Option<Error>>,
    progress: Arc<UploadProgress>,
}

/// Result of an upload.
#[derive(Debug)]
pub struct UploadSummary {
    pub files: Vec<StoredFile>,
    pub new_pieces: u64,
    pub new_stored_bytes: u64,
    pub stored_bytes: u64,
    /// Of the pieces that were there, those that were read again.
    pub reread_pieces: u64,
    /// Pieces that were damaged in the store, in a sentence.
    pub damage: Option<String>,
    /// Why pieces could not be read again, in a sentence.
    pub unread: Option<String>,
}

impl Uploader {
    /// `trusted`: which of the pieces that lie there may be relied on; see [`crate::archive::ActivityMarker::trusts_unreferenced`].
    /// One of `reread_one_of` of these is read again, where `decoder` can.
    pub fn start(
        store: Arc<Store>,
        sealing: PieceEncoder,
        decoder: PieceDecoder,
        reread_one_of: u64,
        trusted: impl Fn(&ContentHash) -> bool,
        progress: Arc<UploadProgress>,
    ) -> Result<Self> {
        let (mut known, reread) = (HashMap::new(), Reread::new(decoder, reread_one_of));
        for_each_piece(&store, |name, bytes| {
            if trusted(&name) {
                known.insert(name, bytes);
                reread.choose(name, &sealing);
            }
        })?;
        let shared = Arc::new(Shared {
            store,
            encoder: sealing,
            existing: Mutex::new(known),
            reread,
            stored: Mutex::default(),
            first_error: Mutex::default(),
            progress,
        });
        let (jobs, work) = sync_channel(WORKERS);
        let work = Arc::new(Mutex::new(work));
        let start = |_| {
            let (shared, work) = (shared.clone(), work.clone());
            std::thread::Builder::new().name("upload".into()).spawn(move || shared.run_worker(&work))
        };
        let workers = (0..WORKERS)
            .map(start)
            .collect::<std::io::Result<_>>()
            .map_err(|cause| Error::Write { what: "a thread", cause })?;
        let cutter = Chunker::new(ChunkSizes::OBJECT);
        Ok(Self { chunker: cutter, jobs: Some(jobs), workers, shared, sent: 0, file_starts: Vec::new() })
    }

    /// Waits until all pieces are in the store, and looks whether they are there with the length that was put.
    pub fn finish(mut self, seen: Vec<FileSummary>) -> Result<UploadSummary> {
        self.join_workers();
        let shared = &self.shared;
        // What the store is listed for below takes as much room.
        let existing = std::mem::take(&mut *lock(&shared.existing));
        if let Some(error) = lock(&shared.first_error).take() {
            return Err(error);
        }
        let mut kept: Vec<StoredPiece> =
            std::mem::take(&mut *lock(&shared.stored)).into_iter().flatten().collect();
        // One that was stored again may have another length than it had where it came before.
        kept.iter_mut().for_each(|piece| piece.2 = existing.get(&piece.0).copied().unwrap_or(piece.2));
        drop(existing);
        if kept.len() != self.sent || seen.len() != self.file_starts.len() {
            return Err(Error::Incomplete("a piece was not uploaded".into()));
        }
        shared.store.sync_to_disk()?;
        let stored_bytes = check_stored(&shared.store, &kept)?;
        let ends = self.file_starts.iter().skip(1).copied().chain([kept.len()]);
        let files = seen.into_iter().zip(self.file_starts.iter().zip(ends));
        Ok(UploadSummary {
            files: files
                .map(|(seen, (&from, to))| StoredFile { summary: seen, pieces: kept[from..to].to_vec() })
                .collect(),
            new_pieces: shared.progress.new_pieces.load(Ordering::Relaxed),
            new_stored_bytes: shared.progress.new_stored_bytes.load(Ordering::Relaxed),
            stored_bytes,
            reread_pieces: shared.reread.read_pieces(),
            damage: shared.reread.damage(),
            unread: shared.reread.unread(),
        })
    }

    fn join_workers(&mut self) {
        drop(self.jobs.take());
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl FileSink for Uploader {
    fn begin(&mut self, _file: &FileName) -> Result<()> {
        self.file_starts.push(self.sent);
        Ok(())
    }

    fn part(&mut self, bytes: &[u8], ends: bool) -> Result<()> {
        let Self { chunker: cutter, jobs, sent, shared, .. } = self;
        cutter.push(bytes, ends, |piece| submit_piece(jobs.as_ref(), sent, shared, piece))
    }

    fn end(&mut self) -> Result<()> {
        let Self { chunker: cutter, jobs, sent, shared, .. } = self;
        cutter.finish(|piece| submit_piece(jobs.as_ref(), sent, shared, piece))
    }
}

impl Drop for Uploader {
    /// On the way out of an error: what is on its way still arrives, and is there for the next backup.
    fn drop(&mut self) {
        self.join_workers();
    }
}

fn submit_piece(
    jobs: Option<&SyncSender<(usize, Vec<u8>)>>,
    sent: &mut usize,
    shared: &Shared,
    piece: Vec<u8>,
) -> Result<()> {
    if let Some(error) = lock(&shared.first_error).take() {
        return Err(error);
    }
    let taken = jobs.is_some_and(|jobs| jobs.send((*sent, piece)).is_ok());
    if !taken {
        let error = lock(&shared.first_error).take();
        return Err(error.unwrap_or(Error::Incomplete("the upload threads have stopped".into())));
    }
    *sent += 1;
    Ok(())
}

impl Shared {
    fn run_worker(&self, jobs: &Mutex<Receiver<(usize, Vec<u8>)>>) {
        loop {
            let Ok((number, piece)) = lock(jobs).recv() else { break };
            // After a failure what is still waiting is only taken, so that the sender is not held up.
            if lock(&self.first_error).is_some() {
                continue;
            }
            match self.store_piece(&piece) {
                Ok(piece) => {
                    let mut kept = lock(&self.stored);
                    if kept.len() <= number {
                        kept.resize(number + 1, None);
                    }
                    kept[number] = Some(piece);
                }
                Err(error) => {
                    lock(&self.first_error).get_or_insert(error);
                }
            }
        }
        if let Ok(used) = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) {
            let ns = used.tv_sec() as u64 * 1_000_000_000 + used.tv_nsec() as u64;
            self.progress.cpu_ns.fetch_add(ns, Ordering::Relaxed);
        }
    }

    fn store_piece(&self, piece: &[u8]) -> Result<StoredPiece> {
        let name = self.encoder.hash_piece(piece);
        self.progress.pieces.fetch_add(1, Ordering::Relaxed);
        let known = lock(&self.existing).get(&name).copied();
        let stored = match known {
            Some(bytes) if self.reread.is_intact(&self.store, &self.encoder, name, bytes) => bytes,
            _ => self.put_piece(name, piece)?,
        };
        Ok(StoredPiece(name, piece.len() as u32, stored))
    }

    fn put_piece(&self, name: ContentHash, piece: &[u8]) -> Result<u32> {
        let sealed = self.encoder.encode(piece)?;
        let bytes = sealed.len() as u32;
        self.store.put(&piece_object(&name), sealed)?;
        // Two threads may have put the same one at once: it counts once, and it is as long either way.
        match lock(&self.existing).entry(name) {
            Entry::Vacant(entry) => {
                entry.insert(bytes);
                self.progress.new_pieces.fetch_add(1, Ordering::Relaxed);
                self.progress.new_stored_bytes.fetch_add(bytes.into(), Ordering::Relaxed);
            }
            Entry::Occupied(mut entry) => {
                entry.insert(bytes);
            }
        }
        Ok(bytes)
    }
}

/// `pieces/ab/abcdef...`: folders of a few thousand files each, where the store is a folder.
pub(crate) fn piece_object(name: &ContentHash) -> String {
    piece_object_named(&name.to_string())
}

pub(crate) fn piece_object_named(name: &str) -> String {
    format!("{FOLDER}/{}/{name}", name.get(..2).unwrap_or_default())
}

/// Every piece in the store, with the bytes that it takes there.
pub(crate) fn for_each_piece(store: &Store, mut take: impl FnMut(ContentHash, u32)) -> Result<()> {
    store.list(FOLDER, |object| {
        let name = object.path.rsplit('/').next().and_then(ContentHash::parse);
        // No piece is empty: such a file is what a full disk or a power failure left.
        if let (Some(name), Ok(bytes @ 1..)) = (name, u32::try_from(object.bytes)) {
            take(name, bytes);
        }
        Ok(())
    })
}

/// How many bytes they take in the store, each counted once.
fn check_stored(store: &Store, kept: &[StoredPiece]) -> Result<u64> {
    let mut wanted: HashMap<ContentHash, u32> = kept.iter().map(|piece| (piece.0, piece.2)).collect();
    let total = wanted.values().map(|&bytes| u64::from(bytes)).sum();
    let mut damaged = None;
    for_each_piece(store, |name, bytes| {
        if wanted.remove(&name).is_some_and(|put| put != bytes) {
            damaged = Some(name);
        }
    })?;
    match (damaged, wanted.keys().next()) {
        (None, None) => Ok(total),
        (Some(name), _) => Err(Error::Damaged {
            name: name.to_string(),
            object: piece_object(&name),
            reason: "its length differs from the upload".into(),
        }),
        (None, Some(name)) => Err(Error::Damaged {
            name: name.to_string(),
            object: piece_object(name),
            reason: "it was uploaded, but the store does not list it".into(),
        }),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every update under these locks is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
