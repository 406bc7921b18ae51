//! Reproducible random draws from a seed (ChaCha8). Never uses the operating system's randomness.
//!
//! ChaCha8 is a published cipher with fixed test vectors. Every step from its words to an index or a fraction
//! is implemented here. `rand` documents that its range and shuffle functions may change between versions. A
//! plan must give the same order forever.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// A reproducible stream of draws.
#[derive(Debug, Clone)]
pub struct SeededRng {
    rng: ChaCha8Rng,
}

impl SeededRng {
    /// The stream that belongs to `seed` and `stream`. Distinct streams of one seed are independent,
    /// so that a further kind of draw never shifts those that were there before.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        let mut words = ChaCha8Rng::from_seed(key);
        words.set_stream(stream);
        SeededRng { rng: words }
    }

    /// 64 fair bits.
    pub fn next_u64(&mut self) -> u64 {
        self.rng.next_u64()
    }

    /// Uniform on 0..bound, without the bias of a plain remainder (Lemire, "Fast random integer
    /// generation in an interval", ACM TOMACS 2019). A bound of 0 gives 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        let threshold = if bound == 0 { 0 } else { bound.wrapping_neg() % bound };
        loop {
            let wide = u64::from(self.rng.next_u32()) * u64::from(bound);
            if wide as u32 >= threshold {
                return (wide >> 32) as u32;
            }
        }
    }

    /// Uniform on [0, 1), in steps of 2^-53.
    pub fn next_fraction(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Every order equally likely (Fisher and Yates, from the end).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let bound = u32::try_from(last + 1).unwrap_or(u32::MAX);
            items.swap(last, self.below(bound) as usize);
        }
    }
}

/// Numbers of the streams in use; a number is never given a second meaning.
pub(crate) mod stream {
    pub const ORDER: u64 = 1;
    pub const JITTER: u64 = 2;
    pub const SIGNS: u64 = 3;
    pub const PAIRS: u64 = 4;
    pub const BLOCKS: u64 = 5;
    pub const PERMUTATION: u64 = 6;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_never_reached_and_every_value_below_it_is() {
        let mut draws = SeededRng::new(7, 0);
        let mut seen = [0_u32; 6];
        for _ in 0..60_000 {
            seen[draws.below(6) as usize] += 1;
        }
        // 10,000 each; 4.5 standard deviations of a binomial are 411.
        assert!(seen.iter().all(|&n| n.abs_diff(10_000) < 411), "{seen:?}");
        assert_eq!(draws.below(0), 0);
        assert_eq!(draws.below(1), 0);
    }

    #[test]
    fn a_bound_that_does_not_divide_the_words_is_still_fair() {
        // Three quarters of all words: a plain product would give every third value twice its share.
        let mut draws = SeededRng::new(5, 0);
        let mut thirds = [0_u32; 3];
        for _ in 0..30_000 {
            thirds[(draws.below(3 << 30) % 3) as usize] += 1;
        }
        assert!(thirds.iter().all(|n| n.abs_diff(10_000) < 370), "{thirds:?}");
    }

    #[test]
    fn streams_of_one_seed_differ_and_repeat() {
        assert_ne!(SeededRng::new(7, 1).next_u64(), SeededRng::new(7, 2).next_u64());
        assert_ne!(SeededRng::new(7, 1).next_u64(), SeededRng::new(8, 1).next_u64());
        assert_eq!(SeededRng::new(7, 1).next_u64(), SeededRng::new(7, 1).next_u64());
    }

    #[test]
    fn fractions_stay_below_one_and_average_one_half() {
        let mut draws = SeededRng::new(1, 0);
        let all: Vec<f64> = (0..10_000).map(|_| draws.next_fraction()).collect();
        assert!(all.iter().all(|u| (0.0..1.0).contains(u)));
        assert!((crate::mean(&all) - 0.5).abs() < 0.013);
    }
}
