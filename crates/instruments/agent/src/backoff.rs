//! Pauses between attempts to reach a peer: each twice as long as the last one, up to a bound.

use std::time::Duration;

/// The pauses of one caller. Callers with different seeds do not come back at the same moments.
pub struct Backoff {
    range: (Duration, Duration),
    next: Duration,
    seed: u64,
}

impl Backoff {
    /// `range`: the first pause, and the longest.
    pub fn new(range: (Duration, Duration), seed: u64) -> Self {
        Self { range, next: range.0, seed }
    }

    pub fn reset(&mut self) {
        self.next = self.range.0;
    }

    /// Between half of what is due and one and a half of it.
    pub fn next_pause(&mut self) -> Duration {
        let due = self.next;
        self.next = (due * 2).min(self.range.1);
        // Knuth's MMIX generator; its upper bits are the good ones.
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        due.mul_f64(0.5 + (self.seed >> 11) as f64 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

    #[test]
    fn pauses_grow_to_a_bound_and_differ_between_callers() {
        let pauses = |seed: u64| {
            let mut pauses = Backoff::new(RANGE, seed);
            std::array::from_fn::<Duration, 12, _>(|_| pauses.next_pause())
        };
        let (one, another) = (pauses(1), pauses(2));
        assert_ne!(one, another);
        for (at, pause) in one.into_iter().chain(another).enumerate() {
            let due = (RANGE.0 * (1 << (at % 12))).min(RANGE.1);
            assert!(due / 2 <= pause && pause <= due * 3 / 2, "{at}: {pause:?}");
        }
        let mut again = Backoff::new(RANGE, 1);
        for _ in 0..9 {
            again.next_pause();
        }
        again.reset();
        assert!(again.next_pause() <= RANGE.0 * 3 / 2);
    }
}
