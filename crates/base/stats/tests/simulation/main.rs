//! Simulation tests of intervals and verdicts, with fixed seeds.
//!
//! `cargo test -p toll-stats --test simulation -- --nocapture` prints the figures of docs/explain/statistics.md.

#![allow(clippy::unwrap_used, reason = "a simulation that cannot go on has failed")]

mod any_stop;
mod coverage;
mod family;
mod looks;
mod naive_designs;
mod observed;
mod power;
mod simulated_host;
mod speed;

/// Runs `simulate` once for each seed, counts how often it holds, prints and returns the share in percent.
fn share_pct(what: &str, seeds: std::ops::Range<u64>, mut holds: impl FnMut(u64) -> bool) -> f64 {
    let runs = seeds.end - seeds.start;
    let count = seeds.filter(|&seed| holds(seed)).count();
    let share = 100.0 * count as f64 / runs as f64;
    println!("{what}: {share:.1}% of {runs} runs");
    share
}

/// Asserts that `share_pct` of `runs` may well come from a true share of `expected_pct`: within 3.5 binomial
/// standard deviations, which a correct method leaves once in 2,000 seeds.
#[track_caller]
fn is_about(share_pct: f64, expected_pct: f64, runs: u64) {
    let off = (share_pct - expected_pct).abs();
    let most = 3.5 * (expected_pct * (100.0 - expected_pct) / runs as f64).sqrt();
    assert!(off <= most, "{share_pct}% is not within {most:.1} points of {expected_pct}%");
}
