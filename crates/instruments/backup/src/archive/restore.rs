//! Conversion of a backup back into a dump.
//!
//! A few threads prefetch pieces and check them against their names. Pieces are returned in the order of the
//! dump. Never returns data that differs from the backup. Never holds more than a few pieces.

use crate::archive::content::{ContentSplitter, FileSummary};
use crate::archive::content_hash::parse_key;
use crate::archive::piece_codec::STORED_PIECE_MAX;
use crate::archive::sections::SectionKind;
use crate::archive::upload::piece_object;
use crate::archive::{Manifest, PieceDecoder, StoredFile, StoredPiece};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use toll_store::{Error, Result, Store};

/// Pieces under way or waiting at a time.
const PREFETCH: usize = 16;
const WORKERS: usize = 8;

/// Hands each stretch of a file's bytes to `take`, file by file.
pub fn read_pieces<'m>(
    store: &Store,
    opening: &PieceDecoder,
    manifest: &'m Manifest,
    mut take: impl FnMut(&'m StoredFile, &[u8]) -> Result<()>,
) -> Result<()> {
    let name_key = manifest.name_key.as_deref().map(parse_key).transpose()?;
    let pieces: Vec<(&StoredFile, &StoredPiece)> =
        manifest.files.iter().flat_map(|file| file.pieces.iter().map(move |piece| (file, piece))).collect();
    let fetch = |piece: &StoredPiece| {
        let stored = store.get(&piece_object(&piece.0), STORED_PIECE_MAX)?;
        opening.decode(piece.0, name_key.as_ref(), stored)
    };
    let line = PrefetchQueue { state: Mutex::default(), changed: Condvar::new() };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS.min(pieces.len()) {
            scope.spawn(|| {
                while let Some(number) = line.next_to_fetch(pieces.len()) {
                    line.deliver(number, fetch(pieces[number].1));
                }
            });
        }
        let handed = pieces.iter().enumerate().try_for_each(|(number, (file, _))| {
            let piece = line.wait_for(number)?;
            take(file, &piece)
        });
        line.close();
        handed
    })
}

/// Comparison of a dump that is read again with what was said of its files when it was taken.
pub struct ContentCheck {
    content: ContentSplitter<'static>,
    in_bodies: bool,
}

impl ContentCheck {
    pub fn begin() -> Self {
        Self { content: ContentSplitter::new(Vec::new()), in_bodies: false }
    }

    /// The next bytes, which the backup says are of this file.
    pub fn feed(&mut self, file: &FileSummary, bytes: &[u8]) -> Result<()> {
        let is_body = file.file.kind == SectionKind::Bodies;
        if is_body && !self.in_bodies {
            self.content.end_dump()?;
            self.content.begin_bodies()?;
        }
        self.in_bodies = is_body;
        if is_body { self.content.feed_bodies(bytes) } else { self.content.feed(bytes) }
    }

    /// Fails unless these were the files. `id`: of the backup.
    pub fn finish(mut self, id: &str, expected: &[&FileSummary]) -> Result<()> {
        if self.in_bodies {
            self.content.end_bodies()?;
        } else {
            self.content.end_dump()?;
        }
        let found = self.content.finish()?;
        let mismatch = |reason| Err(Error::Mismatch { id: id.to_owned(), reason });
        match expected.iter().zip(&found).find(|(expected, found)| **expected != *found) {
            None if expected.len() == found.len() => Ok(()),
            None => mismatch(format!("it holds {} files of {}", found.len(), expected.len())),
            Some((expected, _)) => mismatch(format!("{} differs from the dump", expected.file.path)),
        }
    }
}

/// Pieces on their way, in order.
struct PrefetchQueue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The next that nobody fetches yet, and the next that is to be handed on.
    next: usize,
    wanted: usize,
    fetched: BTreeMap<usize, Result<Vec<u8>>>,
    closed: bool,
}

impl PrefetchQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    fn next_to_fetch(&self, count: usize) -> Option<usize> {
        let mut state = self.state();
        while !state.closed && state.next < count && state.next >= state.wanted + PREFETCH {
            state = self.wait(state);
        }
        let number = state.next;
        if state.closed || number >= count {
            return None;
        }
        state.next += 1;
        Some(number)
    }

    fn deliver(&self, number: usize, piece: Result<Vec<u8>>) {
        self.state().fetched.insert(number, piece);
        self.changed.notify_all();
    }

    fn wait_for(&self, number: usize) -> Result<Vec<u8>> {
        let mut state = self.state();
        loop {
            if let Some(piece) = state.fetched.remove(&number) {
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
