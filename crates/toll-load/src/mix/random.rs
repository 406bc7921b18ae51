//! Which numbers does a workload draw? Seeded, cheap, and distributed as sysbench draws its ids.

/// xoshiro256++ (Blackman and Vigna, 2019): 2 ns a draw, period 2^256 - 1.
#[derive(Debug, Clone)]
pub struct Rng([u64; 4]);

impl Rng {
    /// Seeded through SplitMix64, as its authors advise; `stream` separates threads of one seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut state = seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95);
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ (z >> 31)
        }))
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform in `0..n` (Lemire's multiplication; the bias is below n / 2^64).
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in (0, 1]: a logarithm of it is finite.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        ((self.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }
}

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
pub fn put_digits(out: &mut Vec<u8>, rng: &mut Rng, groups: usize) {
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
    fn a_seed_repeats_itself_and_its_streams_differ() {
        let draw = |seed, stream| Rng::new(seed, stream).next_u64();
        assert_eq!(draw(7, 3), draw(7, 3));
        assert_ne!(draw(7, 3), draw(7, 4));
        assert_ne!(draw(7, 3), draw(8, 3));
    }

    #[test]
    fn digits_come_in_dashed_groups() {
        let mut out = Vec::new();
        put_digits(&mut out, &mut Rng::new(3, 0), 10);
        assert_eq!(out.len(), 119);
        assert!(out.iter().enumerate().all(|(i, b)| if i % 12 == 11 {
            *b == b'-'
        } else {
            b.is_ascii_digit()
        }));
    }
}
