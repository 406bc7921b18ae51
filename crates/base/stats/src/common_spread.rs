//! Intervals for arms whose windows all spread alike: one spread of all of them, and Student's t.
//!
//! A clock that counts instructions has no neighbours, no drift and no memory. What is left of a window's noise is the same
//! whatever is measured. So the residuals of all arms and rounds about (arm + round) estimate one variance (two-way
//! analysis of variance without replication), with (arms - 1)(rounds - 1) degrees of freedom, and two rounds are enough.
//! Arms that stand out (a reader whose share of the CPU varies) have a spread of their own, all of them together. Arms
//! judged together have each their share of alpha, by Bonferroni.
//!
//! Never for the real clock, whose noise has a memory and differs between arms: see [`crate::sign_flip`].

use crate::interval::{self, Interval};
use crate::moments::{mean, median, sd};
use crate::quantiles::{student_t_cdf, student_t_quantile};
use crate::signflip::SignFlip;

/// With fewer, nothing says which arm is an ordinary one.
const MIN_ARMS_TO_COMPARE: usize = 6;
/// Rounds that a residual needs.
pub const MIN_COMMON_ROUNDS: usize = 2;

/// Standard deviation of one window, in the scale of its values, and what it is known by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CommonSpread {
    pub sd: f64,
    pub freedom: u32,
}

/// The spread of each arm's windows: one that most have in common, and a wider one for those that stand out.
/// `arms[k][i]` is the value of arm k in round i (its logarithm, where ratios are compared), absent where the round gave
/// none; an arm without any takes no part, nor does a round that is not whole.
///
/// All `None`: fewer than two arms, or than two whole rounds; or values that are not finite.
#[must_use]
pub fn common_spreads(arms: &[Vec<Option<f64>>]) -> Vec<Option<CommonSpread>> {
    let mut spreads = vec![None; arms.len()];
    let present: Vec<usize> = (0..arms.len()).filter(|&k| arms[k].iter().any(Option::is_some)).collect();
    let length = arms.iter().map(Vec::len).max().unwrap_or(0);
    let rounds: Vec<Vec<f64>> = (0..length)
        .filter_map(|i| present.iter().map(|&k| arms[k].get(i).copied().flatten()).collect())
        .collect();
    let of_arm: Vec<Vec<f64>> =
        (0..present.len()).map(|k| rounds.iter().map(|round| round[k]).collect()).collect();
    if of_arm.len() < 2 || rounds.len() < MIN_COMMON_ROUNDS || of_arm.iter().flatten().any(|y| !y.is_finite())
    {
        return spreads;
    }
    let everyone: Vec<usize> = (0..of_arm.len()).collect();
    let freedom = rounds.len() - 1;
    let wild = wild(&squares(&of_arm, &everyone, median), freedom);
    let calm: Vec<usize> = everyone.iter().copied().filter(|&k| !wild[k]).collect();
    let outstanding = outstanding(&squares(&of_arm, &calm, mean), freedom);
    let (wide, alike): (Vec<usize>, Vec<usize>) = everyone.into_iter().partition(|&k| outstanding[k]);
    let squares = squares(&of_arm, &alike, mean);
    for (members, arms_free) in [(&alike, alike.len() - 1), (&wide, wide.len())] {
        let freedom = arms_free * (rounds.len() - 1);
        let sum: f64 = members.iter().map(|&k| squares[k]).sum();
        for &k in members {
            spreads[present[k]] =
                Some(CommonSpread { sd: (sum / freedom as f64).sqrt(), freedom: freedom as u32 });
        }
    }
    spreads
}

/// For each arm, the sum of squares of its values about (arm + round). A round's level is the `centre` of what it adds to
/// the arms in `alike`.
fn squares(of_arm: &[Vec<f64>], alike: &[usize], centre: fn(&[f64]) -> f64) -> Vec<f64> {
    let added = |arm: &Vec<f64>| {
        let own = mean(arm);
        arm.iter().map(|y| y - own).collect::<Vec<_>>()
    };
    let added: Vec<Vec<f64>> = of_arm.iter().map(added).collect();
    let rounds = added.first().map_or(0, Vec::len);
    let of_round: Vec<f64> =
        (0..rounds).map(|i| centre(&alike.iter().map(|&k| added[k][i]).collect::<Vec<_>>())).collect();
    added.iter().map(|arm| arm.iter().zip(&of_round).map(|(y, round)| (y - round).powi(2)).sum()).collect()
}

/// The arms that are off by so much that the mean of a round with them is off by an ordinary arm's noise: with them in it,
/// none of the others would stand out. The squares are about medians.
fn wild(squares: &[f64], freedom: usize) -> Vec<bool> {
    beyond(squares, freedom, (squares.len() as f64).powi(2))
}

/// The arms whose squares are larger than chance makes those of one in a thousand.
fn outstanding(squares: &[f64], freedom: usize) -> Vec<bool> {
    beyond(squares, freedom, chi_square_quantile(0.999, freedom))
}

/// The arms whose squares are beyond `limit` variances of an ordinary arm. The median arm is an ordinary one.
fn beyond(squares: &[f64], freedom: usize, limit: f64) -> Vec<bool> {
    if squares.len() < MIN_ARMS_TO_COMPARE {
        return vec![false; squares.len()];
    }
    let ordinary = median(squares) / chi_square_quantile(0.5, freedom);
    squares.iter().map(|square| *square > ordinary * limit).collect()
}

/// By the approximation of E. Wilson and M. Hilferty (1931), within 4%.
fn chi_square_quantile(p: f64, freedom: usize) -> f64 {
    let (n, z) = (freedom as f64, crate::quantiles::normal_quantile(p));
    n * (1.0 - 2.0 / (9.0 * n) + z * (2.0 / (9.0 * n)).sqrt()).powi(3)
}

impl CommonSpread {
    /// Mean of the paired differences `d`, its test against zero and its interval, of `together` arms judged at once.
    #[must_use]
    pub fn test(self, d: &[f64], alpha: f64, together: usize) -> SignFlip {
        let centre = mean(d);
        let missing = |reason| SignFlip { mean: centre, p: 1.0, interval: Err(reason) };
        if let Err(reason) = interval::check_sample(d, MIN_COMMON_ROUNDS, alpha) {
            return missing(reason);
        }
        let arms = together.max(1) as f64;
        let error = self.difference_sd(d) / (d.len() as f64).sqrt();
        let half = student_t_quantile(1.0 - alpha / (2.0 * arms), self.freedom) * error;
        let p = if error > 0.0 {
            2.0 * (1.0 - student_t_cdf(centre.abs() / error, self.freedom))
        } else {
            f64::from(centre == 0.0)
        };
        let interval = Interval { low: centre - half, high: centre + half };
        SignFlip { mean: centre, p: (p * arms).min(1.0), interval: Ok(interval) }
    }

    /// Of the difference of two windows: the common one, or that of `d` where it is wider.
    #[must_use]
    pub fn difference_sd(self, d: &[f64]) -> f64 {
        let common = self.sd * std::f64::consts::SQRT_2;
        if d.len() < 2 { common } else { common.max(sd(d)) }
    }

    /// The smallest true effect that `rounds` pairs of windows find with that power.
    #[must_use]
    pub fn detectable_effect(self, rounds: usize, alpha: f64, together: u32, power: f64) -> f64 {
        let share = alpha / f64::from(together.max(1));
        let multiplier =
            student_t_quantile(1.0 - share / 2.0, self.freedom) + student_t_quantile(power, self.freedom);
        multiplier * self.sd * (2.0 / rounds.max(1) as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded_rng::SeededRng;

    fn normal(draws: &mut SeededRng) -> f64 {
        crate::normal_quantile(draws.next_fraction().clamp(1e-12, 1.0 - 1e-12))
    }

    /// Arms with effects of their own, rounds with levels of their own, windows with noise `sd`.
    fn run(draws: &mut SeededRng, arms: usize, rounds: usize, sd: f64) -> Vec<Vec<Option<f64>>> {
        let levels: Vec<f64> = (0..rounds).map(|_| normal(draws)).collect();
        (0..arms)
            .map(|k| levels.iter().map(|level| Some(k as f64 + level + sd * normal(draws))).collect())
            .collect()
    }

    fn differences(arms: &[Vec<Option<f64>>], k: usize) -> Vec<f64> {
        arms[k].iter().zip(&arms[0]).map(|(a, b)| a.unwrap() - b.unwrap()).collect()
    }

    #[test]
    fn arms_and_rounds_may_differ_as_they_like() {
        let exact: Vec<Vec<Option<f64>>> =
            (0..5).map(|k| (0..3).map(|i| Some(f64::from(k * k + 7 * i))).collect()).collect();
        let spread = common_spreads(&exact)[0].unwrap();
        assert!(spread.sd < 1e-12);
        assert_eq!(spread.freedom, 8);
        let mut draws = SeededRng::new(1, 0);
        let spread = common_spreads(&run(&mut draws, 30, 40, 0.002))[3].unwrap();
        assert!((spread.sd / 0.002 - 1.0).abs() < 0.05, "{spread:?}");
    }

    #[test]
    fn what_is_missing_takes_its_round_and_no_more() {
        let arms =
            [vec![Some(1.0), Some(2.0), Some(3.0)], vec![Some(1.0), None, Some(3.5)], vec![None, None, None]];
        let freedoms: Vec<_> =
            common_spreads(&arms).iter().map(|spread| spread.map(|spread| spread.freedom)).collect();
        assert_eq!(freedoms, [Some(1), Some(1), None]);
        assert_eq!(common_spreads(&arms[..1]), [None]);
        assert_eq!(common_spreads(&[vec![Some(1.0)], vec![Some(2.0)]]), [None; 2]);
        assert_eq!(common_spreads(&[vec![Some(f64::NAN); 2], vec![Some(2.0); 2]]), [None; 2]);
        let spread = CommonSpread { sd: 1.0, freedom: 5 };
        assert!(spread.test(&[1.0], 0.05, 1).interval.is_err());
    }

    #[test]
    fn intervals_of_all_arms_at_once_hold_as_often_as_they_say() {
        const RUNS: usize = 2_000;
        let mut draws = SeededRng::new(7, 0);
        for (arms, rounds) in [(4, 2), (12, 2), (12, 5)] {
            let mut wrong = 0;
            for _ in 0..RUNS {
                let found = run(&mut draws, arms, rounds, 0.1);
                let spreads = common_spreads(&found);
                let misses = |k: usize| {
                    let test = spreads[k].unwrap().test(&differences(&found, k), 0.05, arms - 1);
                    let holds = test.interval.unwrap().contains(k as f64);
                    assert_eq!(test.interval.unwrap().contains(0.0), test.p > 0.05);
                    !holds
                };
                wrong += usize::from((1..arms).any(misses));
            }
            let share = wrong as f64 / RUNS as f64;
            assert!(share < 0.06, "{arms} arms, {rounds} rounds: {share} of the runs have a wrong interval");
        }
    }

    #[test]
    fn arms_that_stand_out_are_known_by_each_other_and_widen_no_other_interval() {
        let mut draws = SeededRng::new(5, 0);
        let mut arms = run(&mut draws, 20, 4, 0.001);
        for arm in &mut arms[..3] {
            arm.iter_mut().flatten().for_each(|y| *y += 0.05 * normal(&mut draws));
        }
        let spreads: Vec<CommonSpread> = common_spreads(&arms).into_iter().flatten().collect();
        assert!((spreads[10].sd / 0.001 - 1.0).abs() < 0.3, "{:?}", spreads[10]);
        assert_eq!((spreads[10].freedom, spreads[0].freedom), (16 * 3, 3 * 3));
        assert!((spreads[0].sd / 0.05 - 1.0).abs() < 0.6, "{:?}", spreads[0]);
        for (freedom, median) in [(1, 0.455), (5, 4.351), (20, 19.337)] {
            assert!((chi_square_quantile(0.5, freedom) / median - 1.0).abs() < 0.04);
        }
    }

    #[test]
    fn two_wild_arms_of_two_rounds_widen_no_other_interval() {
        let mut draws = SeededRng::new(11, 0);
        let mut arms = run(&mut draws, 30, 2, 0.001);
        arms[7][1] = arms[7][1].map(|y| y + 3.0);
        arms[8][0] = arms[8][0].map(|y| y + 1.0);
        // Ten times the others, and a hundredth of the wild ones.
        arms[9][0] = arms[9][0].map(|y| y + 0.03);
        let spreads: Vec<CommonSpread> = common_spreads(&arms).into_iter().flatten().collect();
        assert!((spreads[0].sd / 0.001 - 1.0).abs() < 0.4, "{:?}", spreads[0]);
        assert_eq!([0, 7, 8, 9].map(|k| spreads[k].freedom), [26, 3, 3, 3]);
    }

    #[test]
    fn an_arm_that_spreads_wider_is_given_its_own_spread() {
        let spread = CommonSpread { sd: 0.1, freedom: 20 };
        let half = |d: &[f64]| {
            let interval = spread.test(d, 0.05, 1).interval.unwrap();
            (interval.high - interval.low) / 2.0
        };
        assert!((half(&[0.0, 0.01]) - half(&[5.0, 5.0])).abs() < 1e-12);
        assert!(half(&[0.0, 1.0]) > 4.0 * half(&[0.0, 0.01]));
    }

    #[test]
    fn an_effect_that_is_called_detectable_is_found_as_often_as_was_asked() {
        let mut draws = SeededRng::new(3, 0);
        let spread = CommonSpread { sd: 1.0, freedom: 60 };
        let effect = spread.detectable_effect(4, 0.05, 1, 0.8);
        let found = (0..2_000)
            .filter(|_| {
                let d: Vec<f64> = (0..4).map(|_| effect + normal(&mut draws) - normal(&mut draws)).collect();
                // By the common spread alone: a wider one of its own would cost power.
                let error = spread.sd * (2.0_f64 / 4.0).sqrt();
                mean(&d).abs() > student_t_quantile(0.975, 60) * error
            })
            .count();
        assert!((found as f64 / 2_000.0 - 0.8).abs() < 0.04, "{found}");
    }
}
