//! Conversion of a backup back into a dump.
//!
//! A few threads prefetch pieces and check them against their names. Pieces are returned in the order of the
//! dump. Never returns data that differs from the backup. Never holds more than a few pieces.

use crate::archive::content::{Content, FileSeen};
use crate::archive::name::key;
use crate::archive::seal::SEALED_MOST;
use crate::archive::sections::Kind;
use crate::archive::upload::object;
use crate::archive::{FileKept, Manifest, Opening, PieceKept};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use toll_store::{Error, Result, Store};

/// Pieces under way or waiting at a time.
const AHEAD: usize = 16;
const WORKERS: usize = 8;

/// Hands each stretch of a file's bytes to `take`, file by file.
pub fn read<'m>(
    store: &Store,
    opening: &Opening,
    manifest: &'m Manifest,
    mut take: impl FnMut(&'m FileKept, &[u8]) -> Result<()>,
) -> Result<()> {
    let name_key = manifest.name_key.as_deref().map(key).transpose()?;
    let pieces: Vec<(&FileKept, &PieceKept)> =
        manifest.files.iter().flat_map(|file| file.pieces.iter().map(move |piece| (file, piece))).collect();
    let fetch = |piece: &PieceKept| {
        let stored = store.get_at_most(&object(&piece.0), SEALED_MOST)?;
        opening.open(piece.0, name_key.as_ref(), stored)
    };
    let line = Line { state: Mutex::default(), changed: Condvar::new() };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS.min(pieces.len()) {
            scope.spawn(|| {
                while let Some(number) = line.next(pieces.len()) {
                    line.done(number, fetch(pieces[number].1));
                }
            });
        }
        let handed = pieces.iter().enumerate().try_for_each(|(number, (file, _))| {
            let piece = line.take(number)?;
            take(file, &piece)
        });
        line.close();
        handed
    })
}

/// Reads a whole backup, splits it again, and compares each file with its manifest entry. `seen` is called
/// with the length of each chunk.
pub fn check(
    store: &Store,
    opening: &Opening,
    manifest: &Manifest,
    mut seen: impl FnMut(usize) -> Result<()>,
) -> Result<()> {
    let mut content = Content::new(Vec::new());
    let mut was_body = false;
    read(store, opening, manifest, |file, bytes| {
        seen(bytes.len())?;
        let is_body = file.seen.file.kind == Kind::Bodies;
        if is_body && !was_body {
            content.end_dump()?;
            content.begin_bodies()?;
        }
        was_body = is_body;
        if is_body { content.feed_bodies(bytes) } else { content.feed(bytes) }
    })?;
    if was_body {
        content.end_bodies()?;
    } else {
        content.end_dump()?;
    }
    let found = content.finish()?;
    let expected: Vec<&FileSeen> = manifest.files.iter().map(|file| &file.seen).collect();
    let differing = expected.iter().zip(&found).find(|(expected, found)| *expected != found);
    match differing {
        None if expected.len() == found.len() => Ok(()),
        None => Err(mismatch(manifest, format!("it holds {} files of {}", found.len(), expected.len()))),
        Some((expected, _)) => {
            Err(mismatch(manifest, format!("{} is not what was dumped", expected.file.path)))
        }
    }
}

fn mismatch(manifest: &Manifest, reason: String) -> Error {
    Error::Mismatch { id: manifest.id.clone(), reason }
}

/// Pieces on their way, in order.
struct Line {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The next that nobody fetches yet, and the next that is to be handed on.
    next: usize,
    wanted: usize,
    arrived: BTreeMap<usize, Result<Vec<u8>>>,
    closed: bool,
}

impl Line {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, count: usize) -> Option<usize> {
        let mut state = self.state();
        while !state.closed && state.next < count && state.next >= state.wanted + AHEAD {
            state = self.wait(state);
        }
        let number = state.next;
        if state.closed || number >= count {
            return None;
        }
        state.next += 1;
        Some(number)
    }

    fn done(&self, number: usize, piece: Result<Vec<u8>>) {
        self.state().arrived.insert(number, piece);
        self.changed.notify_all();
    }

    fn take(&self, number: usize) -> Result<Vec<u8>> {
        let mut state = self.state();
        loop {
            if let Some(piece) = state.arrived.remove(&number) {
                state.wanted = number + 1;
                self.changed.notify_all();
                return piece;
            }
            state = self.wait(state);
        }
    }

    fn close(&self) {
        self.state().closed = true;
        self.changed.notify_all();
    }
}
