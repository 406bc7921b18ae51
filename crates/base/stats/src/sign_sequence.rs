//! Confidence sequence that rests on the random order alone: valid however often it is looked at, and whenever the run
//! ends.
//!
//! A block holds one window with the treatment and one without, in an order that was drawn. If the treatment changes the
//! logarithm of the outcome by theta, then `d - theta` is as likely positive as negative, whatever its size. So
//! exp(l x) / cosh(l x), of x = (d - theta) / scale, has the mean 1 for every l, and the product over the blocks is a
//! martingale that starts at 1. A mixture over several l of either sign is one, too. It reaches 1 / alpha with a probability
//! of at most alpha (J. Ville, 1939): all theta for which it has stayed below are the interval.
//!
//! Nothing else is assumed: no normal distribution, no variance, no number of blocks. The scale decides how wide the
//! interval is and must be known before the first block, such as from the pilot. It need not be right.
//!
//! Source: the construction from symmetry is that of V. de la Pena (Annals of Probability 27 (1999), 537-564), with
//! cosh in the place of its bound exp(x^2 / 2). Mixtures: H. Robbins, Annals of Mathematical Statistics 41 (1970), 1397-1409.

use crate::interval::{self, Interval, IntervalError};
use crate::moments::mean;
use crate::seeded_rng::SeededRng;

/// Values of l: effects of a tenth of the scale up to four times it are found about as fast as can be.
const RATES: [f64; 9] = [0.1, 0.16, 0.256, 0.4096, 0.655, 1.049, 1.678, 2.684, 4.295];
/// The evidence changes over `scale / l`: steps of a quarter of that miss none of its turns.
const STEPS_A_SCALE: f64 = 4.0 * RATES[RATES.len() - 1];
const MAX_STEPS: f64 = 4_000.0;
/// Halvings of a step: a millionth of it.
const HALVINGS: usize = 20;

/// Fewest blocks that exclude anything: the evidence of n blocks is at most 2^(n-1).
#[must_use]
pub fn blocks_for_sequence(alpha: f64) -> usize {
    1 + (1.0 / alpha).log2().ceil() as usize
}

/// The effects that `d`, one difference a block, does not contradict. All looks together miss the true one with a
/// probability of at most alpha. `scale` is the usual size of a block's noise, in the unit of `d`. For several treatments
/// give each alpha / treatments.
///
/// # Errors
/// Too few blocks; a value or scale that is not finite, or a scale that is not above zero.
pub fn sign_sequence(d: &[f64], scale: f64, alpha: f64) -> Result<Interval, IntervalError> {
    interval::check_sample(d, blocks_for_sequence(alpha), alpha)?;
    if !(scale.is_finite() && scale > 0.0) {
        return Err(IntervalError::NotFinite);
    }
    let centre = mean(d);
    let units: Vec<f64> = d.iter().map(|d| (d - centre) / scale).collect();
    let mirrored: Vec<f64> = units.iter().map(|d| -d).collect();
    let [above, below] = [units, mirrored].map(|units| scale * upper_end(&units, alpha));
    Ok(Interval { low: centre - below, high: centre + above })
}

/// Probability, at most, that evidence against no effect ever comes to what `d` gives: p value at any look.
#[must_use]
pub fn sign_sequence_p(d: &[f64], scale: f64) -> f64 {
    let units: Vec<f64> = d.iter().map(|d| d / scale).collect();
    (-ln_evidence(&units, 0.0)).exp().min(1.0)
}

/// Smallest effect that so many blocks find with a probability of 80%, at one look or another, in units of the scale. The blocks'
/// noise is taken to be normal, and the scale to be its standard deviation.
///
/// `None`: so few blocks find nothing, or only with effects of more than a hundred times the scale.
#[must_use]
pub fn sequence_mde(blocks: usize, alpha: f64) -> Option<f64> {
    const RUNS: u64 = 200;
    const POWER: f64 = 0.8;
    const MOST: f64 = 100.0;
    /// To a hundredth of a factor.
    const BISECTIONS: usize = 14;
    if blocks < blocks_for_sequence(alpha) {
        return None;
    }
    let noise: Vec<Vec<f64>> = (0..RUNS)
        .map(|run| {
            let mut draws = SeededRng::new(run, 7);
            (0..blocks).map(|_| normal(&mut draws)).collect()
        })
        .collect();
    let power = |effect: f64| {
        let found = noise.iter().filter(|noise| is_ever_found(noise, effect, alpha)).count();
        found as f64 / RUNS as f64
    };
    if power(MOST) < POWER {
        return None;
    }
    let (mut low, mut high) = (0.0, MOST);
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        if power(middle) < POWER { low = middle } else { high = middle }
    }
    Some(high)
}

/// Whether the evidence against no effect comes to 1 / alpha after any block.
fn is_ever_found(noise: &[f64], effect: f64, alpha: f64) -> bool {
    let mut logs = [0.0; 2 * RATES.len()];
    let threshold = (logs.len() as f64 / alpha).ln();
    noise.iter().any(|noise| {
        for (i, ln) in logs.iter_mut().enumerate() {
            let rate = RATES[i / 2] * if i % 2 == 0 { 1.0 } else { -1.0 };
            *ln += ln_factor(rate * (noise + effect));
        }
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        most + logs.iter().map(|ln| (ln - most).exp()).sum::<f64>().ln() >= threshold
    })
}

/// By G. Box and M. Muller.
fn normal(draws: &mut SeededRng) -> f64 {
    let radius = (-2.0 * (1.0 - draws.next_fraction()).ln()).sqrt();
    radius * (std::f64::consts::TAU * draws.next_fraction()).cos()
}

/// The largest theta whose evidence is below 1 / alpha, for values about zero. Zero, their mean, always is one:
/// there the sum of l x is zero, and no factor is left but 1 / cosh.
fn upper_end(d: &[f64], alpha: f64) -> f64 {
    let threshold = -alpha.ln();
    let is_held = |theta: f64| ln_evidence(d, theta) < threshold;
    let most = d.iter().copied().fold(0.0, f64::max);
    // Beyond all values the evidence grows with theta.
    let (mut held, mut beyond) = if is_held(most) {
        let mut step = 1.0;
        while is_held(most + step) {
            step *= 2.0;
        }
        (most, most + step)
    } else {
        let steps = (most * STEPS_A_SCALE).ceil().clamp(1.0, MAX_STEPS);
        let step = most / steps;
        let found = (1..steps as u32).map(|i| most - step * f64::from(i)).find(|&theta| is_held(theta));
        let found = found.unwrap_or(0.0);
        (found, found + step)
    };
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(held, beyond);
        if is_held(middle) { held = middle } else { beyond = middle }
    }
    // The end that is surely outside: never too narrow.
    beyond
}

/// ln of the mixture martingale against the effect `theta`.
fn ln_evidence(d: &[f64], theta: f64) -> f64 {
    let of_rate = |rate: f64| d.iter().map(|d| ln_factor(rate * (d - theta))).sum::<f64>();
    let logs: Vec<f64> = RATES.iter().flat_map(|&rate| [of_rate(rate), of_rate(-rate)]).collect();
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logs.iter().map(|ln| (ln - most).exp()).sum();
    most + (sum / logs.len() as f64).ln()
}

/// ln of exp(y) / cosh(y) = 2 / (1 + exp(-2 y)).
fn ln_factor(y: f64) -> f64 {
    std::f64::consts::LN_2 - ln_one_plus_exp(-2.0 * y)
}

/// Without an overflow, and exact for small exponentials.
fn ln_one_plus_exp(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_all_orders_the_evidence_is_one_on_average() {
        // Six blocks of quite different size: every sign vector is as likely as any other.
        let sizes: [f64; 6] = [0.3, 2.0, 0.0, 1.1, 25.0, 0.7];
        let of_signs = |signs: u32| {
            let d: Vec<f64> =
                sizes.iter().enumerate().map(|(i, d)| if signs >> i & 1 == 0 { *d } else { -d }).collect();
            ln_evidence(&d, 0.0).exp()
        };
        let average = (0..64).map(of_signs).sum::<f64>() / 64.0;
        assert!((average - 1.0).abs() < 1e-12, "{average}");
    }

    #[test]
    fn six_blocks_on_one_side_are_the_fewest_that_say_anything() {
        assert_eq!([0.05, 0.01, 0.5].map(blocks_for_sequence), [6, 8, 2]);
        let few = sign_sequence(&[1.0; 5], 1.0, 0.05);
        assert_eq!(few, Err(IntervalError::TooFewRounds { have: 5, need: 6 }));
        let far: Vec<f64> = (0..6).map(|i| 100.0 + f64::from(i)).collect();
        let interval = sign_sequence(&far, 1.0, 0.05).unwrap();
        assert!(interval.low > 90.0 && interval.high < 115.0, "{interval:?}");
        assert!((sign_sequence_p(&far, 1.0) - 1.0 / 32.0).abs() < 1e-9);
    }

    #[test]
    fn more_blocks_find_smaller_effects_and_too_few_find_none() {
        assert_eq!(sequence_mde(5, 0.05), None);
        let found = [8, 20, 80].map(|blocks| sequence_mde(blocks, 0.05).unwrap());
        assert!(found.is_sorted_by(|a, b| a > b), "{found:?}");
        // As `is_as_narrow_as_its_page_says` has it: 1 sd after 12 blocks in half of the runs, by 20 in nine of ten.
        assert!((0.8..1.0).contains(&found[1]) && (0.35..0.5).contains(&found[2]), "{found:?}");
    }

    #[test]
    fn units_and_signs_change_nothing() {
        let mut draws = SeededRng::new(4, 0);
        let d: Vec<f64> = (0..15).map(|_| draws.next_fraction() - 0.3).collect();
        let plain = sign_sequence(&d, 0.3, 0.05).unwrap();
        let moved: Vec<f64> = d.iter().map(|d| 5.0 - 10.0 * d).collect();
        let moved = sign_sequence(&moved, 3.0, 0.05).unwrap();
        assert!((moved.high - (5.0 - 10.0 * plain.low)).abs() < 1e-4, "{plain:?} {moved:?}");
        assert!((moved.low - (5.0 - 10.0 * plain.high)).abs() < 1e-4, "{plain:?} {moved:?}");
        assert_eq!(plain.contains(0.0), sign_sequence_p(&d, 0.3) > 0.05);
    }

    #[test]
    fn equal_values_and_values_that_are_not_finite() {
        let interval = sign_sequence(&[0.25; 12], 0.1, 0.05).unwrap();
        assert!(interval.contains(0.25) && interval.high - interval.low < 0.2, "{interval:?}");
        for (d, scale) in [(f64::NAN, 1.0), (1.0, 0.0), (1.0, f64::NAN), (f64::INFINITY, 1.0)] {
            assert_eq!(sign_sequence(&[d; 12], scale, 0.05), Err(IntervalError::NotFinite));
        }
    }
}
