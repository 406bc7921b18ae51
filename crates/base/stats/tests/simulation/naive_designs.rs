//! False positives of naive before/after comparisons on an unchanged host.

use crate::share_pct;
use crate::simulated_host::{Job, ROUNDS, SimulatedHost, WINDOW_S, windows};
use toll_stats::{draw_orders, mean, pct_to_log_ratio, sd, sign_flip, student_t_quantile};

const RUNS: u64 = 1_000;

/// Which windows the treatment (that does nothing) is on in.
type Design = fn(u64) -> Vec<bool>;

fn off_then_on(_: u64) -> Vec<bool> {
    (0..2 * ROUNDS).map(|window| window >= ROUNDS).collect()
}

fn alternating(_: u64) -> Vec<bool> {
    (0..2 * ROUNDS).map(|window| window % 2 == 1).collect()
}

fn random_pairs(seed: u64) -> Vec<bool> {
    draw_orders(seed, 2, ROUNDS).concat().iter().map(|&arm| arm == 1).collect()
}

/// Welch's test at 5%, with the degrees of freedom of the smaller sample: it errs on the safe side.
fn t_test_finds(on: &[f64], off: &[f64]) -> bool {
    let error = (sd(on).powi(2) / on.len() as f64 + sd(off).powi(2) / off.len() as f64).sqrt();
    let df = on.len().min(off.len()) as u32 - 1;
    (mean(on) - mean(off)).abs() > error * student_t_quantile(0.975, df)
}

/// (on, off), each in the order of time.
fn split(values: &[f64], on: &[bool]) -> (Vec<f64>, Vec<f64>) {
    let of = |wanted| values.iter().zip(on).filter(|&(_, &on)| on == wanted).map(|(&v, _)| v).collect();
    (of(true), of(false))
}

fn by_seconds(seconds: &[f64], on: &[bool]) -> bool {
    let on: Vec<bool> = on.iter().flat_map(|&on| [on; WINDOW_S]).collect();
    let (on, off) = split(seconds, &on);
    t_test_finds(&on, &off)
}

fn window_means(seconds: &[f64]) -> Vec<f64> {
    windows(seconds).into_iter().map(mean).collect()
}

fn by_windows(seconds: &[f64], on: &[bool]) -> bool {
    let (on, off) = split(&window_means(seconds), on);
    t_test_finds(&on, &off)
}

fn by_sign_flips(seconds: &[f64], on: &[bool]) -> bool {
    let (on, off) = split(&window_means(seconds), on);
    let d: Vec<f64> = on.iter().zip(&off).map(|(on, off)| on - off).collect();
    sign_flip(&d, 0.05, 0).p <= 0.05
}

fn false_positives(what: &str, design: Design, test: fn(&[f64], &[bool]) -> bool, job: Job) -> f64 {
    share_pct(what, 0..RUNS, |seed| test(&SimulatedHost::new(seed).seconds(job), &design(seed)))
}

#[test]
fn one_after_the_other_finds_effects_that_are_not_there() {
    let seconds =
        false_positives("A/A, all off then all on, t test of seconds", off_then_on, by_seconds, Job::None);
    assert!(seconds > 70.0);
    let means =
        false_positives("A/A, all off then all on, t test of windows", off_then_on, by_windows, Job::None);
    assert!(means > 20.0);
}

#[test]
fn seconds_are_not_independent_however_windows_are_ordered() {
    let share = false_positives("A/A, random pairs, t test of seconds", random_pairs, by_seconds, Job::None);
    assert!(share > 20.0);
}

#[test]
fn strict_alternation_falls_in_step_with_a_job_of_the_host() {
    false_positives("A/A, strict alternation, sign flips", alternating, by_sign_flips, Job::None);
    let share = false_positives(
        "A/A, strict alternation, sign flips, 60 s job",
        alternating,
        by_sign_flips,
        Job::EveryMinute,
    );
    assert!(share > 20.0);
}

#[test]
fn random_order_within_rounds_errs_as_seldom_as_it_says() {
    for (what, job) in [
        ("A/A, random pairs, sign flips", Job::None),
        ("A/A, random pairs, sign flips, 60 s job", Job::EveryMinute),
    ] {
        crate::is_about(false_positives(what, random_pairs, by_sign_flips, job), 5.0, RUNS);
    }
}

/// The same host, the same windows, and a treatment that does cost something.
#[test]
fn random_order_within_rounds_finds_a_tenth_on_a_drifting_host() {
    for (lost_pct, at_least) in [(5.0, 30.0), (10.0, 90.0)] {
        let what = format!("{lost_pct}% lost on that host, random pairs, sign flips");
        let share = share_pct(&what, 0..RUNS, |seed| {
            let on = random_pairs(seed);
            let mut seconds = SimulatedHost::new(seed).seconds(Job::EveryMinute);
            for (second, value) in seconds.iter_mut().enumerate() {
                *value += if on[second / WINDOW_S] { pct_to_log_ratio(-lost_pct) } else { 0.0 };
            }
            by_sign_flips(&seconds, &on)
        });
        assert!(share > at_least, "{what}: {share}");
    }
}
