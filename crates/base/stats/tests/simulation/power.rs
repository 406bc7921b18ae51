//! Power of the tests: an effect of the minimum detectable size is found as often as predicted.

use crate::share_pct;
use crate::simulated_host::SimulatedHost;
use toll_stats::{Verdict, judge_interval, minimum_detectable_effect, rounds_needed, sign_flip};

const RUNS: u64 = 1_000;
const SD: f64 = 0.03;

fn verdict_of(seed: u64, rounds: usize, effect: f64, margin: f64) -> Verdict {
    let found = sign_flip(&SimulatedHost::new(seed).normals(rounds, effect, SD), 0.05, seed);
    judge_interval(found.interval.ok(), margin, true)
}

#[test]
fn the_minimal_detectable_effect_is_found_four_times_in_five() {
    for rounds in [8, 12, 20] {
        let effect = minimum_detectable_effect(SD, rounds as u32, 0.05, 1, 0.8).unwrap();
        let what = format!("costly at the minimal detectable effect, {rounds} rounds");
        let share =
            share_pct(&what, 0..RUNS, |seed| verdict_of(seed, rounds, -effect, 0.0) == Verdict::Worse);
        // The formula is that of a t test; flipping signs gives up a little of it at few rounds.
        assert!((73.0..=85.0).contains(&share), "{what}: {share}");
    }
}

#[test]
fn a_tenth_of_the_throughput_is_never_called_no_effect() {
    let missed = share_pct("10% lost, called no effect at a margin of 2%", 0..RUNS, |seed| {
        verdict_of(seed, 10, -0.105, 0.02) == Verdict::Equivalent
    });
    let found = share_pct("10% lost, called costly, 10 rounds", 0..RUNS, |seed| {
        verdict_of(seed, 10, -0.105, 0.02) == Verdict::Worse
    });
    assert!(missed == 0.0 && found > 99.0, "{missed} {found}");
}

#[test]
fn an_effect_at_the_margin_is_seldom_called_none_and_no_effect_needs_the_rounds() {
    // The truth on the very edge of the margin: "no effect" is wrong, and may be said 2.5% of the time.
    let wrong = share_pct("2% lost, called no effect at a margin of 2%, 60 rounds", 0..RUNS, |seed| {
        verdict_of(seed, 60, -0.02, 0.02) == Verdict::Equivalent
    });
    assert!(wrong <= 2.5 + 3.5 * 0.5, "{wrong}");
    let rounds = rounds_needed(SD, 0.02, 0.05, 1, 0.8).unwrap() as usize;
    let few = share_pct("nothing lost, called no effect at a margin of 2%, 6 rounds", 0..RUNS, |seed| {
        verdict_of(seed, 6, 0.0, 0.02) == Verdict::Equivalent
    });
    let what = format!("nothing lost, called no effect at a margin of 2%, {} rounds", 2 * rounds);
    let many =
        share_pct(&what, 0..RUNS, |seed| verdict_of(seed, 2 * rounds, 0.0, 0.02) == Verdict::Equivalent);
    assert!(few < 20.0 && many > 90.0, "{few} {many}");
}
