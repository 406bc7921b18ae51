//! Fast text hash, eight bytes per step. Callers always verify equality afterwards.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub type TextMap<V> = HashMap<Box<[u8]>, V, BuildHasherDefault<TextHasher>>;

/// Multiply and fold, after wyhash (Wang Yi, public domain); the constants are its own.
#[derive(Default)]
pub struct TextHasher(u64);

const K0: u64 = 0xa076_1d64_78bd_642f;
const K1: u64 = 0xe703_7ed1_a0b4_28db;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

pub fn hash_text(text: &[u8], seed: u64) -> u64 {
    let mut state = seed ^ K0;
    let (words, rest) = text.as_chunks::<16>();
    for word in words {
        let (low, high) = word.split_at(8);
        state = fold(number(low) ^ K1, number(high) ^ state);
    }
    let mut last = [0; 16];
    last[..rest.len()].copy_from_slice(rest);
    let (low, high) = last.split_at(8);
    fold(fold(number(low) ^ K1, number(high) ^ state), text.len() as u64 ^ K1)
}

fn number(eight: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(eight);
    u64::from_le_bytes(bytes)
}

impl Hasher for TextHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash_text(bytes, self.0);
    }

    fn write_usize(&mut self, number: usize) {
        self.0 = fold(self.0 ^ K0, number as u64 ^ K1);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
