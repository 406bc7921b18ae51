//! Duration of the analysis of a large run. Never asserted: it depends on the machine.

use crate::simulated_host::SimulatedHost;
use std::time::Instant;
use toll_stats::{WindowPair, bca_median, bootstrap_t, quantile_ratio, sign_flip};

const ARMS: u64 = 17;
const OUTCOMES: u64 = 15;

fn measure_time(what: &str, times: u64, mut once: impl FnMut(u64)) {
    let begin = Instant::now();
    (0..times).for_each(&mut once);
    println!("{what}: {:.0} ms for {times}", begin.elapsed().as_secs_f64() * 1e3);
}

#[test]
#[ignore = "prints durations only; --release -- --ignored --nocapture shows them"]
fn a_run_of_17_arms_with_15_outcomes() {
    for rounds in [8, 12, 16, 40] {
        measure_time(&format!("sign-flip, {rounds} rounds"), ARMS * OUTCOMES, |seed| {
            assert!(
                sign_flip(&SimulatedHost::new(seed).normals(rounds, 0.0, 1.0), 0.05, seed).interval.is_ok()
            );
        });
    }
    measure_time("bootstrap-t, 16 rounds", ARMS, |seed| {
        assert!(bootstrap_t(&SimulatedHost::new(seed).normals(16, 0.0, 1.0), 0.05, seed).is_ok());
    });
    measure_time("BCa median, 16 rounds", ARMS, |seed| {
        assert!(bca_median(&SimulatedHost::new(seed).normals(16, 0.0, 1.0), 0.05, seed).is_ok());
    });
    let window: Vec<(u64, u64)> = (1..=4_000).map(|value| (value, value % 7 + 1)).collect();
    let pairs = vec![WindowPair { arm: &window, baseline: &window }; 16];
    measure_time("BCa p99 ratio of 4,000 buckets, 16 rounds", ARMS, |seed| {
        assert!(quantile_ratio(&pairs, 0.99, 0.05, seed).is_ok_and(|ratio| ratio.interval.is_ok()));
    });
}
