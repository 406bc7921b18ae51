//! Random order of the variants within each round, and random delays of window starts.
//!
//! Each round is drawn afresh. Strict alternation falls into step with periodic work on the host. Beside a 60
//! s job it reports a false effect in about half of all runs. A fresh random order keeps the error at its
//! nominal rate. The sign-flip test depends on it.

use crate::seeded_rng::{SeededRng, stream};

/// One permutation of `0..arms` for each round. The same seed gives the same orders everywhere, and
/// more rounds begin with those that fewer rounds would have had.
#[must_use]
pub fn draw_orders(seed: u64, arms: usize, rounds: usize) -> Vec<Vec<usize>> {
    let mut draws = SeededRng::new(seed, stream::ORDER);
    (0..rounds)
        .map(|_| {
            let mut order: Vec<usize> = (0..arms).collect();
            draws.shuffle(&mut order);
            order
        })
        .collect()
}

/// Delays of `windows` window starts, uniform on [0, `most`), in the unit of `most`
/// (0.2 of the window's length keeps windows from falling in step with periodic jobs).
#[must_use]
pub fn draw_jitters(seed: u64, windows: usize, most: f64) -> Vec<f64> {
    let mut draws = SeededRng::new(seed, stream::JITTER);
    (0..windows).map(|_| most * draws.next_fraction()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_holds_every_arm_once() {
        for order in draw_orders(3, 17, 40) {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..17).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_seed_gives_this_very_order_for_ever() {
        // A changed line here breaks the promise that a stored plan can be drawn again.
        assert_eq!(draw_orders(42, 4, 4), ORDER_OF_SEED_42);
        let jittered: Vec<String> = draw_jitters(42, 3, 6.0).iter().map(|s| format!("{s:.6}")).collect();
        assert_eq!(jittered, JITTER_OF_SEED_42);
    }

    const ORDER_OF_SEED_42: [[usize; 4]; 4] = [[1, 0, 2, 3], [2, 1, 3, 0], [3, 1, 0, 2], [1, 0, 3, 2]];
    const JITTER_OF_SEED_42: [&str; 3] = ["1.363115", "3.257533", "3.318675"];

    #[test]
    fn more_rounds_extend_the_plan_without_changing_it() {
        assert_eq!(draw_orders(9, 5, 6), draw_orders(9, 5, 30)[..6]);
    }

    #[test]
    fn all_orders_of_three_arms_are_equally_likely() {
        let mut seen = std::collections::BTreeMap::new();
        for order in draw_orders(1, 3, 6_000) {
            *seen.entry(order).or_insert(0_u32) += 1;
        }
        assert_eq!(seen.len(), 6);
        // 1,000 each; 4.5 standard deviations are 130.
        assert!(seen.values().all(|n| n.abs_diff(1_000) < 130), "{seen:?}");
    }

    #[test]
    fn no_arms_and_no_rounds_are_empty_plans() {
        assert_eq!(draw_orders(1, 0, 2), [vec![], vec![]] as [Vec<usize>; 2]);
        assert!(draw_orders(1, 3, 0).is_empty());
    }
}
