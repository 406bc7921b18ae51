//! Coverage of the intervals, over a thousand seeds and more for each kind.

use crate::simulated_host::SimulatedHost;
use crate::{is_about, share_pct};
use toll_stats::{
    WindowPair, bca_median, bootstrap_t, quantile_ratio, sign_flip, smallest_p, stationary_bootstrap,
};

const RUNS: u64 = 1_000;
const TRUTH: f64 = -0.04;

#[test]
fn sign_flip_interval_covers_exactly_as_often_as_it_says() {
    for (rounds, runs) in [(6, 4_000), (8, 4_000), (10, 4_000), (16, RUNS), (40, RUNS)] {
        let what = format!("sign-flip, normal, {rounds} rounds");
        // Other seeds for each number of rounds, or one unlucky seed would count five times.
        let first = 10_000 * rounds as u64;
        let share = share_pct(&what, first..first + runs, |seed| {
            let d = SimulatedHost::new(seed).normals(rounds, TRUTH, 0.03);
            sign_flip(&d, 0.05, seed).interval.unwrap().contains(TRUTH)
        });
        // p takes only multiples of the smallest p, so that few rounds cover a little more than 95%.
        let smallest = smallest_p(rounds);
        is_about(share, 100.0 - 100.0 * smallest * (0.05 / smallest + 1e-9).floor(), runs);
    }
}

#[test]
fn sign_flip_interval_does_not_mind_fat_tails() {
    let share = share_pct("sign-flip, one round in ten 10 times as wild, 12 rounds", 0..RUNS, |seed| {
        let mut world = SimulatedHost::new(seed);
        let d: Vec<f64> = (0..12)
            .map(|_| {
                let wild = if world.draws.below(10) == 0 { 0.3 } else { 0.03 };
                TRUTH + wild * world.normal()
            })
            .collect();
        sign_flip(&d, 0.05, seed).interval.unwrap().contains(TRUTH)
    });
    is_about(share, 95.0, RUNS);
}

/// Each statistic on what it is meant for, and where it is known to fall short; the bands say how far.
#[test]
fn bootstrap_intervals_cover_nearly_as_often_as_they_say() {
    type Covers = fn(&mut SimulatedHost, u64, usize) -> bool;
    let cases: [(&str, usize, Covers, (f64, f64)); 6] = [
        ("bootstrap-t, mean, normal", 12, |w, s, n| covers_mean(&w.normals(n, 0.0, 1.0), s), (92.5, 97.5)),
        ("bootstrap-t, mean, normal", 30, |w, s, n| covers_mean(&w.normals(n, 0.0, 1.0), s), (92.5, 97.5)),
        ("bootstrap-t, mean, exponential", 12, |w, s, n| covers_mean(&w.skewed(n), s), (90.0, 97.5)),
        ("sign-flip, mean, exponential", 12, |w, s, n| sign_flip_covers(&w.skewed(n), s), (85.0, 97.5)),
        ("BCa, median, normal", 12, |w, s, n| covers_median(&w.normals(n, 0.0, 1.0), 0.0, s), (90.0, 98.0)),
        (
            "BCa, median, exponential",
            30,
            |w, s, n| covers_median(&w.skewed(n), std::f64::consts::LN_2 - 1.0, s),
            (91.0, 98.0),
        ),
    ];
    for (what, rounds, covers, (low, high)) in cases {
        let what = format!("{what}, {rounds} rounds");
        let share = share_pct(&what, 0..RUNS, |seed| covers(&mut SimulatedHost::new(seed), seed, rounds));
        assert!((low..=high).contains(&share), "{what}: {share}% is not in {low}..{high}");
    }
}

fn covers_mean(d: &[f64], seed: u64) -> bool {
    bootstrap_t(d, 0.05, seed).unwrap().contains(0.0)
}

fn sign_flip_covers(d: &[f64], seed: u64) -> bool {
    sign_flip(d, 0.05, seed).interval.unwrap().contains(0.0)
}

fn covers_median(d: &[f64], truth: f64, seed: u64) -> bool {
    bca_median(d, 0.05, seed).unwrap().contains(truth)
}

/// Lognormal latencies whose level wanders from window to window, 10% slower under the treatment: of whole
/// windows, of thin ones that are put together four at a time, and of so few blocks that their signs are flipped.
#[test]
fn quantile_ratio_of_merged_histograms_covers_the_true_ratio() {
    for (what, rounds, events, blocks) in [
        ("BCa, p99 ratio, 16 rounds", 16, 1_000, 16),
        ("BCa, p99 ratio, 64 rounds in 16 blocks", 64, 250, 16),
        ("sign-flip, p99 ratio, 32 rounds in 8 blocks", 32, 250, 8),
    ] {
        let share = share_pct(what, 0..300, |seed| {
            let mut world = SimulatedHost::new(seed);
            let mut window = |slower: f64| -> Vec<(u64, u64)> {
                let level = 2_000.0 * slower * (0.05 * world.normal()).exp();
                // Two digits of a value are enough for a grid; events beyond need none of the detail.
                (0..events)
                    .map(|_| {
                        let latency_us = level * (0.5 * world.normal()).exp();
                        ((latency_us / 50.0).round() as u64 * 50, 1)
                    })
                    .collect()
            };
            let windows: Vec<_> = (0..rounds).map(|_| (window(1.1), window(1.0))).collect();
            let pairs: Vec<_> = windows.iter().map(|(arm, baseline)| WindowPair { arm, baseline }).collect();
            let found = quantile_ratio(&pairs, 0.99, 0.05, seed).unwrap();
            assert_eq!((found.blocks.count, found.used_sign_flips), (blocks, blocks < 12));
            found.interval.unwrap().contains(1.1_f64.ln())
        });
        assert!((90.0..=98.5).contains(&share), "{what}: {share}");
    }
}

#[test]
fn blocks_repair_most_of_what_dependence_breaks() {
    let chain = |seed: u64| {
        let mut world = SimulatedHost::new(seed);
        let mut level = world.normal() / (1.0_f64 - 0.25).sqrt();
        let step = |_| {
            level = 0.5 * level + world.normal();
            level
        };
        (0..40).map(step).collect::<Vec<f64>>()
    };
    let naive = share_pct("sign-flip, AR(1) .5 between rounds, 40 rounds", 0..RUNS, |seed| {
        sign_flip(&chain(seed), 0.05, seed).interval.unwrap().contains(0.0)
    });
    let blocks = share_pct("stationary bootstrap, AR(1) .5 between rounds, 40 rounds", 0..RUNS, |seed| {
        stationary_bootstrap(&chain(seed), 0.05, seed).unwrap().contains(0.0)
    });
    assert!(naive < 85.0 && blocks > naive + 5.0, "{naive} {blocks}");
}
