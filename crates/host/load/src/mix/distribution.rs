//! Distributions of row ids and digits, as sysbench draws them.

use toll_stats::random::Rng;

/// How ids are spread over a table (`--rand-type`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Distribution {
    /// sysbench's default: three draws in four fall, uniformly, into the middle 1% of the table; the
    /// others are the mean of twelve uniform draws, bell-shaped around the same middle.
    #[default]
    Special,
    Uniform,
}

/// sysbench's --rand-spec-pct, --rand-spec-res and --rand-spec-iter as they are by default.
const SPECIAL_PCT: u64 = 1;
const SPECIAL_RES: u64 = 75;
const SPECIAL_ITER: u64 = 12;

impl Distribution {
    /// A value of `1..=n`; 1 for an empty table.
    #[inline]
    pub fn draw(self, rng: &mut Rng, n: u64) -> u64 {
        let n = n.max(1);
        match self {
            Self::Uniform => 1 + rng.below(n),
            Self::Special if rng.below(100) < SPECIAL_RES => {
                let width = (n * SPECIAL_PCT / 100).max(1);
                let first = n / 2 - n * SPECIAL_PCT / 200;
                1 + (first + rng.below(width)).min(n - 1)
            }
            Self::Special => 1 + (0..SPECIAL_ITER).map(|_| rng.below(n)).sum::<u64>() / SPECIAL_ITER,
        }
    }
}

/// Appends `groups` groups of 11 random digits, joined by dashes: sysbench's `c` has 10, `pad` 5.
pub fn write_digits(out: &mut Vec<u8>, rng: &mut Rng, groups: usize) {
    for group in 0..groups {
        if group > 0 {
            out.push(b'-');
        }
        // 10^11 < 2^37: one draw holds a whole group.
        let mut rest = rng.below(100_000_000_000);
        let mut digits = [0; 11];
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        out.extend_from_slice(&digits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_draws_in_four_fall_into_the_middle_percent() {
        let mut rng = Rng::new(1, 0);
        let n = 1_000_000;
        let draws: Vec<u64> = (0..200_000).map(|_| Distribution::Special.draw(&mut rng, n)).collect();
        assert!(draws.iter().all(|d| (1..=n).contains(d)));
        let middle = draws.iter().filter(|d| (495_000..=505_000).contains(*d)).count() as f64 / 200_000.0;
        // 75%, and the share of the bell (sd 1/12 of the table) that falls there too: 4.8% of 25%.
        assert!((middle - 0.762).abs() < 0.005, "{middle}");
    }

    #[test]
    fn uniform_draws_reach_both_ends_and_no_further() {
        let mut rng = Rng::new(2, 0);
        let draws: Vec<u64> = (0..10_000).map(|_| Distribution::Uniform.draw(&mut rng, 10)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&1), Some(&10)));
        for n in [0, 1, 2, 50] {
            let d = Distribution::Special.draw(&mut rng, n);
            assert!((1..=n.max(1)).contains(&d));
        }
    }

    #[test]
    fn digits_come_in_dashed_groups() {
        let mut out = Vec::new();
        write_digits(&mut out, &mut Rng::new(3, 0), 10);
        assert_eq!(out.len(), 119);
        assert!(out.iter().enumerate().all(|(i, b)| if i % 12 == 11 {
            *b == b'-'
        } else {
            b.is_ascii_digit()
        }));
    }
}
