//! Hasher for maps whose keys carry their own hash. Never hashes.

use std::hash::{BuildHasherDefault, Hasher};

/// For maps whose keys write one `u64`, which is their hash.
pub(crate) type BuildPrehashed = BuildHasherDefault<PrehashedHasher>;

/// Hands on the hash that a key brings.
#[derive(Default)]
pub(crate) struct PrehashedHasher(u64);

impl Hasher for PrehashedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        // Keys write one u64 and nothing else.
        debug_assert!(false);
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}
