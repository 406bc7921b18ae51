//! Uploader of pieces to a store, each only once.
//!
//! A few threads name, seal and store pieces while the dump continues. Existing pieces are left alone, so a
//! backup after a killed one stores only the missing ones. Never holds more than a few pieces.

use crate::archive::content::{FileName, FileSeen, Keep};
use crate::archive::cut::{Cutter, Sizes};
use crate::archive::{FileKept, Name, PieceKept, Sealing};
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
pub struct Progress {
    pub pieces: AtomicU64,
    pub new_pieces: AtomicU64,
    pub new_stored_bytes: AtomicU64,
    pub cpu_ns: AtomicU64,
}

/// Puts a dump's pieces into a store.
pub struct Upload {
    cutter: Cutter,
    jobs: Option<SyncSender<(usize, Vec<u8>)>>,
    workers: Vec<JoinHandle<()>>,
    shared: Arc<Shared>,
    sent: usize,
    /// Where in the order of pieces each file begins.
    files: Vec<usize>,
}

struct Shared {
    store: Arc<Store>,
    sealing: Sealing,
    /// What the store holds, and how many bytes each takes there.
    known: Mutex<HashMap<Name, u32>>,
    kept: Mutex<Vec<Option<PieceKept>>>,
    failed: Mutex<Option<Error>>,
    progress: Arc<Progress>,
}

/// Result of an upload.
#[derive(Debug)]
pub struct Uploaded {
    pub files: Vec<FileKept>,
    pub new_pieces: u64,
    pub new_stored_bytes: u64,
    pub stored_bytes: u64,
}

impl Upload {
    /// `trusted`: which of the pieces that lie there may be relied on; see [`crate::archive::Running::trusts`].
    pub fn begin(
        store: Arc<Store>,
        sealing: Sealing,
        trusted: impl Fn(&Name) -> bool,
        progress: Arc<Progress>,
    ) -> Result<Self> {
        let mut known = HashMap::new();
        each_piece(&store, |name, bytes| {
            if trusted(&name) {
                known.insert(name, bytes);
            }
        })?;
        let shared = Arc::new(Shared {
            store,
            sealing,
            known: Mutex::new(known),
            kept: Mutex::default(),
            failed: Mutex::default(),
            progress,
        });
        let (jobs, work) = sync_channel(WORKERS);
        let work = Arc::new(Mutex::new(work));
        let start = |_| {
            let (shared, work) = (shared.clone(), work.clone());
            std::thread::Builder::new().name("upload".into()).spawn(move || shared.work(&work))
        };
        let workers = (0..WORKERS)
            .map(start)
            .collect::<std::io::Result<_>>()
            .map_err(|cause| Error::Write { what: "a thread", cause })?;
        let cutter = Cutter::new(Sizes::OBJECT);
        Ok(Self { cutter, jobs: Some(jobs), workers, shared, sent: 0, files: Vec::new() })
    }

    /// Waits until all pieces are in the store, and looks whether they are there with the length that was put.
    pub fn finish(mut self, seen: Vec<FileSeen>) -> Result<Uploaded> {
        self.end_workers();
        let shared = &self.shared;
        // What the store is listed for below takes as much room.
        *locked(&shared.known) = HashMap::new();
        if let Some(error) = locked(&shared.failed).take() {
            return Err(error);
        }
        let kept: Vec<PieceKept> = std::mem::take(&mut *locked(&shared.kept)).into_iter().flatten().collect();
        if kept.len() != self.sent || seen.len() != self.files.len() {
            return Err(Error::Incomplete("a piece was lost on its way to the store".into()));
        }
        shared.store.settle()?;
        let stored_bytes = check_stored(&shared.store, &kept)?;
        let ends = self.files.iter().skip(1).copied().chain([kept.len()]);
        let files = seen.into_iter().zip(self.files.iter().zip(ends));
        Ok(Uploaded {
            files: files
                .map(|(seen, (&from, to))| FileKept { seen, pieces: kept[from..to].to_vec() })
                .collect(),
            new_pieces: shared.progress.new_pieces.load(Ordering::Relaxed),
            new_stored_bytes: shared.progress.new_stored_bytes.load(Ordering::Relaxed),
            stored_bytes,
        })
    }

    fn end_workers(&mut self) {
        drop(self.jobs.take());
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

impl Keep for Upload {
    fn begin(&mut self, _file: &FileName) -> Result<()> {
        self.files.push(self.sent);
        Ok(())
    }

    fn part(&mut self, bytes: &[u8], ends: bool) -> Result<()> {
        let Self { cutter, jobs, sent, shared, .. } = self;
        cutter.part(bytes, ends, |piece| send(jobs.as_ref(), sent, shared, piece))
    }

    fn end(&mut self) -> Result<()> {
        let Self { cutter, jobs, sent, shared, .. } = self;
        cutter.finish(|piece| send(jobs.as_ref(), sent, shared, piece))
    }
}

impl Drop for Upload {
    /// On the way out of an error: what is on its way still arrives, and is there for the next backup.
    fn drop(&mut self) {
        self.end_workers();
    }
}

fn send(
    jobs: Option<&SyncSender<(usize, Vec<u8>)>>,
    sent: &mut usize,
    shared: &Shared,
    piece: Vec<u8>,
) -> Result<()> {
    if let Some(error) = locked(&shared.failed).take() {
        return Err(error);
    }
    let taken = jobs.is_some_and(|jobs| jobs.send((*sent, piece)).is_ok());
    if !taken {
        let error = locked(&shared.failed).take();
        return Err(error.unwrap_or(Error::Incomplete("nobody puts pieces into the store any more".into())));
    }
    *sent += 1;
    Ok(())
}

impl Shared {
    fn work(&self, jobs: &Mutex<Receiver<(usize, Vec<u8>)>>) {
        loop {
            let Ok((number, piece)) = locked(jobs).recv() else { break };
            // After a failure what is still waiting is only taken, so that the sender is not held up.
            if locked(&self.failed).is_some() {
                continue;
            }
            match self.keep(&piece) {
                Ok(piece) => {
                    let mut kept = locked(&self.kept);
                    if kept.len() <= number {
                        kept.resize(number + 1, None);
                    }
                    kept[number] = Some(piece);
                }
                Err(error) => {
                    locked(&self.failed).get_or_insert(error);
                }
            }
        }
        if let Ok(used) = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID) {
            let ns = used.tv_sec() as u64 * 1_000_000_000 + used.tv_nsec() as u64;
            self.progress.cpu_ns.fetch_add(ns, Ordering::Relaxed);
        }
    }

    fn keep(&self, piece: &[u8]) -> Result<PieceKept> {
        let name = self.sealing.name(piece);
        self.progress.pieces.fetch_add(1, Ordering::Relaxed);
        let known = locked(&self.known).get(&name).copied();
        let stored = match known {
            Some(bytes) => bytes,
            None => self.put(name, piece)?,
        };
        Ok(PieceKept(name, piece.len() as u32, stored))
    }

    fn put(&self, name: Name, piece: &[u8]) -> Result<u32> {
        let sealed = self.sealing.seal(piece)?;
        let bytes = sealed.len() as u32;
        self.store.put(&object(&name), sealed)?;
        // Two threads may have put the same one at once: it counts once, and it is as long either way.
        if let Entry::Vacant(entry) = locked(&self.known).entry(name) {
            entry.insert(bytes);
            self.progress.new_pieces.fetch_add(1, Ordering::Relaxed);
            self.progress.new_stored_bytes.fetch_add(bytes.into(), Ordering::Relaxed);
        }
        Ok(bytes)
    }
}

/// `pieces/ab/abcdef...`: folders of a few thousand files each, where the store is a folder.
pub(crate) fn object(name: &Name) -> String {
    object_named(&name.to_string())
}

pub(crate) fn object_named(name: &str) -> String {
    format!("{FOLDER}/{}/{name}", name.get(..2).unwrap_or_default())
}

/// Every piece in the store, with the bytes that it takes there.
pub(crate) fn each_piece(store: &Store, mut take: impl FnMut(Name, u32)) -> Result<()> {
    store.list(FOLDER, |object| {
        let name = object.path.rsplit('/').next().and_then(Name::parse);
        // No piece is empty: such a file is what a full disk or a power failure left.
        if let (Some(name), Ok(bytes @ 1..)) = (name, u32::try_from(object.bytes)) {
            take(name, bytes);
        }
        Ok(())
    })
}

/// How many bytes they take in the store, each counted once.
fn check_stored(store: &Store, kept: &[PieceKept]) -> Result<u64> {
    let mut wanted: HashMap<Name, u32> = kept.iter().map(|piece| (piece.0, piece.2)).collect();
    let total = wanted.values().map(|&bytes| u64::from(bytes)).sum();
    let mut damaged = None;
    each_piece(store, |name, bytes| {
        if wanted.remove(&name).is_some_and(|put| put != bytes) {
            damaged = Some(name);
        }
    })?;
    match (damaged, wanted.keys().next()) {
        (None, None) => Ok(total),
        (Some(name), _) => Err(Error::Damaged {
            name: name.to_string(),
            object: object(&name),
            reason: "it is not as long as what was put".into(),
        }),
        (None, Some(name)) => Err(Error::Damaged {
            name: name.to_string(),
            object: object(name),
            reason: "it was put, and is not there".into(),
        }),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every update under these locks is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
