//! Carry-over check: effect of a variant on the window of the next one.
//!
//! Never reports a variant whose carry-over chance could explain.

use crate::seeded_rng::{SeededRng, stream};
use std::collections::BTreeMap;

/// Redrawn orders, the real one among them.
const PERMUTATIONS: usize = 2_000;
/// With fewer rounds an arm follows another too seldom to tell.
const MIN_ROUNDS: usize = 6;

/// The arm whose successors stray furthest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CarryOver {
    /// Index of the arm that came before.
    pub after: usize,
    /// How much higher the next window is than its own arm and round explain; log scale.
    pub effect: f64,
    /// Chance of a stray this large after *any* arm, had orders not mattered.
    pub p: f64,
}

/// Looks for arms whose successors come out high or low.
///
/// `log_values[round][arm]` is ln of the outcome (absent: no window); `orders[round]` the order in which arms of the round
/// ran, all or some of them. What a window shows beyond the mean of its round and of its arm is set against the arm that ran just before.
/// Since orders were drawn at random, drawing them again (from `seed`) gives the exact distribution of
/// the largest stray that chance makes. Absent with fewer than two arms or six rounds, or where
/// `log_values` and `orders` do not match.
#[must_use]
pub fn carry_over(log_values: &[Vec<Option<f64>>], orders: &[Vec<usize>], seed: u64) -> Option<CarryOver> {
    let arms = log_values.first()?.len();
    let matched = log_values.len() == orders.len()
        && log_values.iter().all(|round| round.len() == arms)
        && orders.iter().flatten().all(|&arm| arm < arms);
    if !matched || arms < 2 || orders.len() < MIN_ROUNDS {
        return None;
    }
    let residuals = residuals(log_values, orders);
    let observed = largest_deviation(&residuals, orders, arms);
    let mut draws = SeededRng::new(seed, stream::PERMUTATION);
    let mut redrawn = orders.to_vec();
    let mut as_large = 1;
    for _ in 1..PERMUTATIONS {
        redrawn.iter_mut().for_each(|order| draws.shuffle(order));
        as_large += usize::from(largest_deviation(&residuals, &redrawn, arms).size >= observed.size);
    }
    Some(CarryOver {
        after: observed.after,
        effect: observed.effect,
        p: as_large as f64 / PERMUTATIONS as f64,
    })
}

struct Deviation {
    after: usize,
    effect: f64,
    /// |effect| in standard errors, up to a common factor.
    size: f64,
}

fn largest_deviation(residuals: &[Vec<Option<f64>>], orders: &[Vec<usize>], arms: usize) -> Deviation {
    let mut successors = vec![(0.0, 0_u32); arms];
    let mut before = None;
    for (round, order) in residuals.iter().zip(orders) {
        for &arm in order {
            if let (Some(before), Some(residual)) = (before, round[arm]) {
                let (sum, count): &mut (f64, u32) = &mut successors[before];
                *sum += residual;
                *count += 1;
            }
            before = Some(arm);
        }
    }
    let stray = |(after, &(sum, count)): (usize, &(f64, u32))| {
        let n = f64::from(count.max(1));
        Deviation { after, effect: sum / n, size: sum.abs() / n.sqrt() }
    };
    let none = Deviation { after: 0, effect: 0.0, size: -1.0 };
    successors
        .iter()
        .enumerate()
        .map(stray)
        .fold(none, |most, next| if next.size > most.size { next } else { most })
}

/// What is left of each window after the mean of its round, then of its arm in rounds of the same arms: beside another arm the
/// mean of the round is another.
fn residuals(log_values: &[Vec<Option<f64>>], orders: &[Vec<usize>]) -> Vec<Vec<Option<f64>>> {
    let mut left: Vec<Vec<Option<f64>>> = log_values.to_vec();
    for round in &mut left {
        for value in round.iter_mut() {
            *value = value.filter(|v| v.is_finite());
        }
        let centre = mean_of(round.iter());
        round.iter_mut().flatten().for_each(|value| *value -= centre);
    }
    let mut alike: BTreeMap<Vec<usize>, Vec<usize>> = BTreeMap::new();
    for (round, order) in orders.iter().enumerate() {
        let mut arms = order.clone();
        arms.sort_unstable();
        alike.entry(arms).or_default().push(round);
    }
    for (arms, rounds) in &alike {
        for &arm in arms {
            let centre = mean_of(rounds.iter().map(|&round| &left[round][arm]));
            rounds.iter().for_each(|&round| left[round][arm].iter_mut().for_each(|value| *value -= centre));
        }
    }
    left
}

fn mean_of<'a>(values: impl Iterator<Item = &'a Option<f64>>) -> f64 {
    let (sum, count) = values.flatten().fold((0.0, 0_u32), |(sum, count), v| (sum + v, count + 1));
    sum / f64::from(count.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows with noise, arm effects, and `leftover` added to whatever follows arm 2.
    fn run(rounds: usize, arms: usize, leftover: f64, seed: u64) -> (Vec<Vec<Option<f64>>>, Vec<Vec<usize>>) {
        let orders = crate::draw_orders(seed, arms, rounds);
        let mut draws = SeededRng::new(seed, 99);
        let mut before = None;
        let mut values = vec![vec![None; arms]; rounds];
        for (round, order) in orders.iter().enumerate() {
            for &arm in order {
                let noise = 0.1 * (draws.next_fraction() - 0.5) + 0.2 * arm as f64 + 0.05 * round as f64;
                values[round][arm] = Some(noise + if before == Some(2) { leftover } else { 0.0 });
                before = Some(arm);
            }
        }
        (values, orders)
    }

    #[test]
    fn a_leftover_is_traced_to_the_arm_that_left_it() {
        let (values, orders) = run(14, 4, -0.08, 1);
        let found = carry_over(&values, &orders, 1).unwrap();
        assert!(found.after == 2 && found.p < 0.01 && found.effect < -0.03, "{found:?}");
        // However large: the real order is one of those counted.
        let (values, orders) = run(14, 4, -5.0, 1);
        assert_eq!(carry_over(&values, &orders, 1).unwrap().p, 1.0 / PERMUTATIONS as f64);
    }

    /// Blocks of the baseline (arm 0) and, each fifth time, its A/A (arm 1), else a treatment (arm 2) with a leftover.
    fn run_of_blocks(blocks: usize, leftover: f64, seed: u64) -> (Vec<Vec<Option<f64>>>, Vec<Vec<usize>>) {
        let mut draws = SeededRng::new(seed, 99);
        let mut orders = crate::draw_orders(seed, 2, blocks);
        let mut values = vec![vec![None; 3]; blocks];
        let mut before = None;
        for (block, order) in orders.iter_mut().enumerate() {
            let other = if block % 5 == 4 { 1 } else { 2 };
            order.iter_mut().filter(|arm| **arm == 1).for_each(|arm| *arm = other);
            for &arm in order.iter() {
                let noise = 0.1 * (draws.next_fraction() - 0.5) + 0.2 * arm as f64;
                values[block][arm] = Some(noise + if before == Some(2) { leftover } else { 0.0 });
                before = Some(arm);
            }
        }
        (values, orders)
    }

    #[test]
    fn a_leftover_is_found_where_rounds_are_blocks_of_some_of_the_arms() {
        let (values, orders) = run_of_blocks(60, -0.08, 1);
        let found = carry_over(&values, &orders, 1).unwrap();
        assert!(found.after == 2 && found.p < 0.01 && found.effect < 0.0, "{found:?}");
        let suspected = (0..100)
            .filter(|&seed| {
                let (values, orders) = run_of_blocks(20, 0.0, seed);
                carry_over(&values, &orders, seed).unwrap().p <= 0.05
            })
            .count();
        // 5 expected; 3 standard deviations are 7.
        assert!(suspected <= 12, "{suspected} of 100");
    }

    #[test]
    fn without_a_leftover_one_run_in_twenty_is_suspected() {
        let suspected = (0..200)
            .filter(|&seed| {
                let (values, orders) = run(10, 3, 0.0, seed);
                carry_over(&values, &orders, seed).unwrap().p <= 0.05
            })
            .count();
        // 10 expected; 3 standard deviations are 9.
        assert!(suspected <= 19, "{suspected} of 200");
    }

    #[test]
    fn missing_windows_are_passed_over_and_a_mismatch_is_no_answer() {
        let (mut values, orders) = run(14, 4, -0.08, 1);
        values[3][1] = None;
        values[5] = vec![None; 4];
        assert_eq!(carry_over(&values, &orders, 1).unwrap().after, 2);
        assert!(carry_over(&values[..5], &orders[..5], 1).is_none());
        assert!(carry_over(&values, &orders[..13], 1).is_none());
        assert!(carry_over(&[], &[], 1).is_none());
        values[0].pop();
        assert!(carry_over(&values, &orders, 1).is_none());
    }
}
