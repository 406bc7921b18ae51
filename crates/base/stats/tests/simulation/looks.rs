//! Cost of checking the result after every round: false stops of a t interval, width of the confidence
//! sequence.

use crate::share_pct;
use crate::simulated_host::SimulatedHost;
use toll_stats::{confidence_sequence, mean, sd, student_t_quantile};

const RUNS: u64 = 1_000;
const FIRST_LOOK: usize = 10;
const LAST_LOOK: usize = 100;

fn ever_misses(d: &[f64], misses: impl Fn(&[f64]) -> bool) -> bool {
    (FIRST_LOOK..=d.len()).any(|n| misses(&d[..n]))
}

fn sequence_misses(d: &[f64]) -> bool {
    !confidence_sequence(d, 0.05).unwrap().contains(0.0)
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

#[test]
fn the_confidence_sequence_may_be_looked_at_after_every_round() {
    let normal = share_pct("confidence sequence after every round, 10 to 100, normal", 0..RUNS, |seed| {
        ever_misses(&SimulatedHost::new(seed).normals(LAST_LOOK, 0.0, 1.0), sequence_misses)
    });
    assert!(normal <= 5.0 + 3.5 * 0.69, "{normal}");
    let fat = share_pct("confidence sequence after every round, 10 to 100, fat tails", 0..RUNS, |seed| {
        // The difference of two windows with long right tails: symmetric, and far from normal.
        let mut world = SimulatedHost::new(seed);
        let (arm, baseline) = (world.skewed(LAST_LOOK), world.skewed(LAST_LOOK));
        let d: Vec<f64> = arm.iter().zip(&baseline).map(|(arm, baseline)| arm - baseline).collect();
        ever_misses(&d, sequence_misses)
    });
    assert!(fat <= 5.0 + 3.5 * 0.69, "{fat}");
}

#[test]
fn a_strong_skew_costs_the_confidence_sequence_its_promise() {
    let skewed =
        share_pct("confidence sequence after every round, 10 to 100, exponential", 0..RUNS, |seed| {
            ever_misses(&SimulatedHost::new(seed).skewed(LAST_LOOK), sequence_misses)
        });
    // It holds only for many rounds. Differences of like windows are not skewed; those of an arm
    // that stalls now and then are.
    assert!((8.0..=18.0).contains(&skewed), "{skewed}");
}
