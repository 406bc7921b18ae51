//! Estimator of the number of distinct values in constant memory.
//!
//! HyperLogLog (Flajolet, Fusy, Gandouet and Meunier, 2007): each register stores the longest run of leading
//! zeros of its hashes.

/// 2^14 registers: the standard error is 1.04 / sqrt(2^14) = 0.8%.
const INDEX_BITS: u32 = 14;
const REGISTERS: usize = 1 << INDEX_BITS;

#[derive(Debug)]
pub(super) struct HyperLogLog(Box<[u8]>);

impl Default for HyperLogLog {
    fn default() -> Self {
        HyperLogLog(vec![0; REGISTERS].into())
    }
}

impl HyperLogLog {
    /// `hash`: all 64 bits well mixed.
    #[inline]
    pub(super) fn add(&mut self, hash: u64) {
        let register = &mut self.0[(hash >> (64 - INDEX_BITS)) as usize];
        // The bit behind those that are looked at ends every run.
        let run = (hash << INDEX_BITS | 1 << (INDEX_BITS - 1)).leading_zeros() as u8 + 1;
        *register = run.max(*register);
    }

    pub(super) fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let sum: f64 = self.0.iter().map(|&run| 0.5f64.powi(i32::from(run))).sum();
        let raw = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        let empty = self.0.iter().filter(|&&run| run == 0).count();
        // Where registers are empty, counting those is closer (linear counting).
        if raw <= 2.5 * registers && empty > 0 {
            return (registers * (registers / empty as f64).ln()).round() as u64;
        }
        raw.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_within_three_standard_errors_and_repeats_do_not_count() {
        for count in [0u64, 1, 100, 10_000, 50_000, 1_000_000] {
            let mut distinct = HyperLogLog::default();
            for _ in 0..2 {
                let mut state = 1u64;
                for _ in 0..count {
                    // SplitMix64.
                    state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                    let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
                    distinct.add(z ^ z >> 31);
                }
            }
            let off = distinct.estimate().abs_diff(count) as f64;
            assert!(off <= 0.025 * count as f64, "{count}: {}", distinct.estimate());
        }
    }
}
