//! Drift estimate per window from the windows before and after it (nearest-neighbour adjustment).
//!
//! An untouched host drifts, and windows near each other in time share most of that drift. The residuals of
//! neighbouring windows, each less the effect of its own variant, predict part of a window's value.
//! Subtracting that part leaves less noise in the pairs. Sources: J. Papadakis, "Methode statistique pour des
//! experiences sur champ", 1937; J. Bartlett, "Nearest neighbour models in the analysis of field
//! experiments", JRSS B 40 (1978).
//!
//! Neighbours are weighted by their distance in time, exp(-distance / memory) on either side. This weighting
//! suits a level that follows a random walk under white noise. The memory is the one that predicts each
//! window best from the others. The subtracted share of the prediction is the one that leaves the least
//! variance in the pairs. With few variants it may be zero: a window and the one it is compared with are then
//! each other's nearest neighbours.
//!
//! The variant of a window is used only to subtract that variant's median. Swapping two variants of a round
//! would subtract the same drift from the same positions. The remaining difference then changes its sign, as
//! the plain one does. So the sign flips behind the interval stay valid by the random order, whatever the
//! noise.
//!
//! # Invariants
//! Never estimates the effect of a variant: the pairs do, from what remains.

use std::collections::BTreeMap;

/// A window of any arm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedWindow {
    pub arm: usize,
    /// Pairs are of one round.
    pub round: usize,
    /// Its middle, from any fixed moment, in seconds.
    pub midpoint_s: f64,
    /// What is compared: ln of the outcome.
    pub y: f64,
}

/// Drift predicted from the neighbours.
#[derive(Debug, Clone, PartialEq)]
pub struct Drift {
    /// Value to subtract from each window, in the order given, in the unit of `y`.
    pub by_window: Vec<f64>,
    /// Distance at which a neighbour counts 1/e, seconds.
    pub decay_s: f64,
    /// Share of the windows' variance that the neighbours predict, 0..=1.
    pub explained_share: f64,
}

/// Iterations of subtracting effects from windows and drift from effects. The changes at least halve each
/// time.
const ITERATIONS: usize = 8;
/// Memories that are tried, in median distances of neighbouring windows.
const DECAY_CANDIDATES: [f64; 8] = [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0];
/// With fewer windows of each arm its middle takes too much of the drift with it.
const MIN_ROUNDS: usize = 6;
/// With fewer in all, memory and share would be fitted to chance.
const MIN_WINDOWS: usize = 60;
/// Residuals are clipped at this many robust standard deviations: a stalled window predicts nothing about the
/// next one.
const CLIP_SDS: f64 = 4.0;

/// The drift under `windows`, in any order, of which there is one at most for each arm in a round; `against`
/// names for each arm the one it is compared with. `None` where neighbours predict nothing of the pairs:
/// fewer than six windows for each arm, fewer than 60 in all, values that are not finite, noise without
/// memory.
#[must_use]
pub fn estimate_drift(windows: &[TimedWindow], against: &[Option<usize>]) -> Option<Drift> {
    let arms = windows.iter().map(|w| w.arm + 1).max()?.max(against.len());
    let enough = windows.len() >= MIN_WINDOWS.max(MIN_ROUNDS * arms);
    if !enough || windows.iter().any(|w| !w.y.is_finite() || !w.midpoint_s.is_finite()) {
        return None;
    }
    let mut order: Vec<usize> = (0..windows.len()).collect();
    order.sort_by(|&a, &b| windows[a].midpoint_s.total_cmp(&windows[b].midpoint_s));
    let sorted: Vec<TimedWindow> = order.iter().map(|&i| windows[i]).collect();
    let distances: Vec<f64> = sorted.windows(2).map(|pair| pair[1].midpoint_s - pair[0].midpoint_s).collect();
    let step = crate::median(&distances);
    if step <= 0.0 {
        return None;
    }
    let mut taken = vec![0.0; sorted.len()];
    let mut best = None;
    for pass in 0..ITERATIONS {
        let residuals = residuals(&sorted, &taken, arms);
        // The first passes see the drift still in the arms' middles.
        if pass < 3 {
            best = DECAY_CANDIDATES
                .iter()
                .filter_map(|memory| predict_drift(&sorted, &residuals, memory * step))
                .max_by(|a, b| a.explained_share.total_cmp(&b.explained_share));
        }
        let memory_s = best.as_ref()?.decay_s;
        best = predict_drift(&sorted, &residuals, memory_s);
        taken.clone_from(&best.as_ref()?.by_window);
    }
    let mut found = best?;
    let share = best_share(&sorted, &taken, against);
    if share <= 0.0 {
        return None;
    }
    for (&place, drift) in order.iter().zip(&taken) {
        found.by_window[place] = share * drift;
    }
    Some(found)
}

/// Share of the drift whose subtraction leaves the least variance in the pairs, 0..=1. It is the slope of the
/// pairs' differences on the predicted differences, within arms. Turning the arms of a round about turns
/// both, and the slope stays.
fn best_share(windows: &[TimedWindow], predicted_drift: &[f64], against: &[Option<usize>]) -> f64 {
    let mut at = BTreeMap::new();
    for (i, window) in windows.iter().enumerate() {
        at.insert((window.arm, window.round), i);
    }
    let (mut products, mut squares) = (0.0, 0.0);
    for (arm, other) in against.iter().enumerate().filter_map(|(arm, other)| Some((arm, (*other)?))) {
        let pairs = at.range((arm, 0)..=(arm, usize::MAX));
        let pairs = pairs.filter_map(|(&(_, round), &i)| Some((i, *at.get(&(other, round))?)));
        let (d, g): (Vec<f64>, Vec<f64>) = pairs
            .map(|(i, j)| (windows[i].y - windows[j].y, predicted_drift[i] - predicted_drift[j]))
            .unzip();
        let spread = crate::sd(&d).powi(2);
        // An arm that is wild has no more to say than one that is not.
        if spread > 0.0 {
            let (d_mean, g_mean) = (crate::mean(&d), crate::mean(&g));
            products += d.iter().zip(&g).map(|(d, g)| (d - d_mean) * (g - g_mean)).sum::<f64>() / spread;
            squares += g.iter().map(|g| (g - g_mean).powi(2)).sum::<f64>() / spread;
        }
    }
    if squares > 0.0 { (products / squares).clamp(0.0, 1.0) } else { 0.0 }
}

/// What is left of each window after its arm's median, that taken after the drift. Not the mean: one stalled
/// window would lift all others of its arm, and their neighbours.
fn residuals(windows: &[TimedWindow], taken: &[f64], arms: usize) -> Vec<f64> {
    let mut of_arm = vec![Vec::new(); arms];
    for (window, drift) in windows.iter().zip(taken) {
        of_arm[window.arm].push(window.y - drift);
    }
    let middles: Vec<f64> = of_arm.iter().map(|values| crate::median(values)).collect();
    windows.iter().map(|w| w.y - middles[w.arm]).collect()
}

/// Predicts each residual from the others, with the share of variance predicted. `None` where the others
/// predict nothing.
fn predict_drift(windows: &[TimedWindow], residuals: &[f64], memory_s: f64) -> Option<Drift> {
    let bound = CLIP_SDS * 1.4826 * crate::median(&residuals.iter().map(|r| r.abs()).collect::<Vec<_>>());
    let clipped: Vec<f64> = residuals.iter().map(|r| r.clamp(-bound, bound)).collect();
    let mut sums = vec![(0.0, 0.0); windows.len()];
    accumulate_one_way(windows, &clipped, memory_s, &mut sums, 0..windows.len());
    accumulate_one_way(windows, &clipped, memory_s, &mut sums, (0..windows.len()).rev());
    let near: Vec<f64> =
        sums.iter().map(|&(sum, weight)| if weight > 0.0 { sum / weight } else { 0.0 }).collect();
    let product: f64 = near.iter().zip(&clipped).map(|(near, r)| near * r).sum();
    let squares: f64 = near.iter().map(|near| near * near).sum();
    let all: f64 = clipped.iter().map(|r| r * r).sum();
    if !(product > 0.0 && squares > 0.0 && all > 0.0) {
        return None;
    }
    let share = (product / squares).min(1.0);
    let explained_share = (2.0 * share * product - share * share * squares) / all;
    Some(Drift {
        by_window: near.iter().map(|near| share * near).collect(),
        decay_s: memory_s,
        explained_share,
    })
}

/// Adds to each window the weighted sum of those that came before it on the way, and the weights.
fn accumulate_one_way(
    windows: &[TimedWindow],
    residuals: &[f64],
    memory_s: f64,
    sums: &mut [(f64, f64)],
    way: impl Iterator<Item = usize>,
) {
    let (mut sum, mut weight, mut last) = (0.0, 0.0, None::<usize>);
    for at in way {
        if let Some(last) = last {
            let distance: f64 = windows[at].midpoint_s - windows[last].midpoint_s;
            let kept = (-distance.abs() / memory_s).exp();
            sum = (sum + residuals[last]) * kept;
            weight = (weight + 1.0) * kept;
            sums[at].0 += sum;
            sums[at].1 += weight;
        }
        last = Some(at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeded_rng::SeededRng;

    /// Arms in random order, a second each; arm k has effect k. `walk` a second, and white noise besides.
    fn run(arms: usize, rounds: usize, walk: f64, white: f64, seed: u64) -> Vec<TimedWindow> {
        let mut draws = SeededRng::new(seed, 50);
        let mut near =
            |width: f64| width * (draws.next_fraction() + draws.next_fraction() - 1.0) * 6.0_f64.sqrt();
        let mut level = 0.0;
        let orders = crate::draw_orders(seed, arms, rounds).concat().into_iter().enumerate();
        orders
            .map(|(place, arm)| {
                level += near(walk);
                TimedWindow {
                    arm,
                    round: place / arms,
                    midpoint_s: place as f64,
                    y: level + near(white) + arm as f64,
                }
            })
            .collect()
    }

    /// All against the first.
    fn found(windows: &[TimedWindow]) -> Option<Drift> {
        let arms = windows.iter().map(|w| w.arm + 1).max().unwrap_or(0);
        estimate_drift(windows, &(0..arms).map(|arm| (arm > 0).then_some(0)).collect::<Vec<_>>())
    }

    /// Mean squared error of the effects, of `runs`, as they are and with the drift taken.
    fn errors(arms: usize, rounds: usize, walk: f64, white: f64) -> (f64, f64) {
        let runs = 40;
        let (mut plain, mut taken) = (0.0, 0.0);
        for seed in 0..runs {
            let windows = run(arms, rounds, walk, white, seed);
            let drift = found(&windows).map_or(vec![0.0; windows.len()], |drift| drift.by_window);
            let error = |of: &dyn Fn(usize) -> f64| {
                let mean_of = |arm: usize| {
                    let its = (0..windows.len()).filter(|&i| windows[i].arm == arm).map(of);
                    its.sum::<f64>() / rounds as f64
                };
                (1..arms).map(|arm| (mean_of(arm) - mean_of(0) - arm as f64).powi(2)).sum::<f64>()
            };
            plain += error(&|i| windows[i].y);
            taken += error(&|i| windows[i].y - drift[i]);
        }
        (plain, taken)
    }

    #[test]
    fn a_level_that_walks_is_taken_out_and_white_noise_is_left_alone() {
        let (plain, taken) = errors(16, 20, 0.03, 0.03);
        assert!(taken < 0.6 * plain, "{taken} {plain}");
        let (plain, taken) = errors(8, 20, 0.0, 0.03);
        assert!(taken < 1.05 * plain, "{taken} {plain}");
    }

    #[test]
    fn effects_are_not_taken_for_drift() {
        // Effects of 100 standard deviations, and no noise that could hide a mistake.
        let windows = run(6, 40, 0.01, 0.001, 3);
        let drift = found(&windows).unwrap();
        let (most, walked) =
            (drift.by_window.iter().fold(0.0_f64, |m, v| m.max(v.abs())), 0.01 * 240_f64.sqrt());
        assert!(most < 4.0 * walked, "{most}");
        assert!(drift.explained_share > 0.8 && drift.decay_s <= 4.0, "{drift:?}");
    }

    #[test]
    fn drift_stands_in_the_order_given_and_arms_may_change_names() {
        let windows = run(5, 12, 0.02, 0.02, 9);
        let once = found(&windows).unwrap();
        let mut turned: Vec<TimedWindow> = windows.iter().rev().copied().collect();
        turned.iter_mut().for_each(|w| w.arm = 4 - w.arm);
        let against = [Some(4), Some(4), Some(4), Some(4), None];
        let again = estimate_drift(&turned, &against).unwrap();
        for (a, b) in once.by_window.iter().zip(again.by_window.iter().rev()) {
            assert!((a - b).abs() < 1e-9, "{a} {b}");
        }
    }

    #[test]
    fn one_window_that_stood_still_says_little_of_the_next() {
        let mut windows = run(16, 20, 0.02, 0.02, 4);
        let before = found(&windows).unwrap().by_window;
        windows[50].y -= 8.0;
        let after = found(&windows).unwrap().by_window;
        let moved = before.iter().zip(&after).fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(moved < 0.12, "{moved}");
    }

    #[test]
    fn too_little_is_no_drift() {
        assert!(found(&[]).is_none() && found(&run(12, 5, 0.02, 0.02, 4)).is_none());
        assert!(found(&run(5, 11, 0.02, 0.02, 4)).is_none());
        let mut windows = run(6, 11, 0.02, 0.02, 4);
        windows.iter_mut().for_each(|w| w.midpoint_s = 1.0);
        assert!(found(&windows).is_none(), "all at once");
        windows.iter_mut().for_each(|w| w.y = 1.0);
        assert!(found(&windows).is_none(), "nothing varies");
        windows[0].y = f64::NAN;
        assert!(found(&windows).is_none());
    }
}
