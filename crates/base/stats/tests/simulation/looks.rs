//! Cost of checking the result after every round: false stops of a t interval. `any_stop.rs` has the sequence that may be.

use crate::share_pct;
use crate::simulated_host::SimulatedHost;
use toll_stats::{mean, sd, student_t_quantile};

const RUNS: u64 = 1_000;
const FIRST_LOOK: usize = 10;
const LAST_LOOK: usize = 100;

fn ever_misses(d: &[f64], misses: impl Fn(&[f64]) -> bool) -> bool {
    (FIRST_LOOK..=d.len()).any(|n| misses(&d[..n]))
}

#[test]
fn looking_again_and_again_at_a_t_interval_misses_the_truth_far_too_often() {
    let quantiles: Vec<f64> =
        (0..=LAST_LOOK).map(|n| student_t_quantile(0.975, (n as u32).saturating_sub(1))).collect();
    let share = share_pct("t interval after every round, 10 to 100", 0..RUNS, |seed| {
        ever_misses(&SimulatedHost::new(seed).normals(LAST_LOOK, 0.0, 1.0), |d| {
            mean(d).abs() > quantiles[d.len()] * sd(d) / (d.len() as f64).sqrt()
        })
    });
    assert!(share > 15.0, "{share}");
}
