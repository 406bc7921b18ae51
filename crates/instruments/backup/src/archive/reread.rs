//! Re-reading of some of the pieces that a store holds already, while a backup relies on them.
//!
//! A listing says that a piece is there, and how long it is. Its content is known only once it is read: a disk may have
//! damaged it, or somebody else put it there. The backup holds what the piece should be, and so can put it again.

use super::piece_codec::{PieceDecoder, PieceEncoder, STORED_PIECE_MAX};
use super::upload::piece_object;
use crate::archive::ContentHash;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use toll_store::{Error, Store};

/// Each backup reads one of so many again. With a backup each day, two of three pieces are read within 100 days, and
/// the requests are a hundredth of those of `toll backup verify`.
pub const REREAD_ONE_OF: u64 = 100;

/// The pieces that this backup reads again, each once, and what came of it.
pub(crate) struct Reread {
    decoder: PieceDecoder,
    one_of: u64,
    /// Another choice in each backup, and none that the writer of a piece could know.
    seed: RandomState,
    waiting: Mutex<HashSet<ContentHash>>,
    read: AtomicU64,
    damaged: Mutex<Vec<ContentHash>>,
    unread: Mutex<Option<Error>>,
}

impl Reread {
    pub fn new(decoder: PieceDecoder, one_of: u64) -> Self {
        Self {
            decoder,
            one_of: one_of.max(1),
            seed: RandomState::new(),
            waiting: Mutex::default(),
            read: AtomicU64::new(0),
            damaged: Mutex::default(),
            unread: Mutex::default(),
        }
    }

    /// To be called once for each piece in the store. Pieces that this host cannot decrypt are left out.
    pub fn choose(&self, name: ContentHash, encoder: &PieceEncoder) {
        let is_readable = !encoder.encrypts() || self.decoder.has_identity();
        if is_readable && self.seed.hash_one(name).is_multiple_of(self.one_of) {
            lock(&self.waiting).insert(name);
        }
    }

    /// False if the piece was chosen, and is not in the store as it should be.
    /// `listed_bytes`: its length in the store.
    pub fn is_intact(
        &self,
        store: &Store,
        encoder: &PieceEncoder,
        name: ContentHash,
        listed_bytes: u32,
    ) -> bool {
        if !lock(&self.waiting).remove(&name) {
            return true;
        }
        let is_too_long = u64::from(listed_bytes) > STORED_PIECE_MAX;
        let fetched =
            if is_too_long { Ok(None) } else { store.get_if_exists(&piece_object(&name), STORED_PIECE_MAX) };
        let stored = match fetched {
            Ok(stored) => stored,
            // Credentials may allow only to put: then nothing can be said of the piece.
            Err(error) => {
                lock(&self.unread).get_or_insert(error);
                return true;
            }
        };
        self.read.fetch_add(1, Ordering::Relaxed);
        let is_intact =
            stored.is_some_and(|stored| self.decoder.decode(name, encoder.piece_key(), stored).is_ok());
        if !is_intact {
            lock(&self.damaged).push(name);
        }
        is_intact
    }

    pub fn read_pieces(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Pieces that were damaged, in a sentence.
    pub fn damage(&self) -> Option<String> {
        let damaged = lock(&self.damaged);
        damaged.first().map(|name| {
            format!(
                "{} of {} pieces that were read again were damaged in the store, and have been stored again (the first: \
                 {}). There may be more: run toll backup verify, and check the disk and who can write to the store.",
                damaged.len(),
                self.read_pieces(),
                piece_object(name)
            )
        })
    }

    /// Why pieces could not be read again, in a sentence.
    pub fn unread(&self) -> Option<String> {
        lock(&self.unread).as_ref().map(|error| {
            format!("pieces of earlier backups could not be read again, and so were not checked: {error}")
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every update under these locks is one step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
