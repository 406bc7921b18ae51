//! Maps of texts, and a fast text hash for caches. Callers always verify equality afterwards.

use foldhash::fast::RandomState;
use std::collections::HashMap;

/// With a seed of its own, so that no sender of texts can make it slow.
pub type TextMap<V> = HashMap<Box<[u8]>, V, RandomState>;

const K0: u64 = 0xa076_1d64_78bd_642f;
const K1: u64 = 0xe703_7ed1_a0b4_28db;

fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Place of a text in a cache, where another one costs its place alone: whoever knows this function finds texts that
/// share their hash. Multiply and fold, after wyhash (Wang Yi, public domain); the constants are its own.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn texts_that_share_their_hash_do_not_share_it_in_a_map() {
        // A block that begins with a constant of the hash makes it forget the blocks before, whatever the seed.
        let crafted = |number: u64| {
            let blocks = [number, number, K1, 0];
            blocks.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>().into_boxed_slice()
        };
        let texts: Vec<_> = (0..10_000).map(crafted).collect();
        let fixed: HashSet<u64> = texts.iter().map(|text| hash_text(text, 7)).collect();
        assert_eq!(fixed.len(), 1, "not what a sender would choose");
        let map = TextMap::<()>::default();
        let hashes: HashSet<u64> = texts.iter().map(|text| map.hasher().hash_one(text)).collect();
        assert_eq!(hashes.len(), texts.len());
    }
}
