//! False-positive rate of verdicts on noise recorded on real hosts.
//!
//! Each record beside this file is a baseline without any treatment. A test lays a design over it: 24
//! variants with windows of half a second or more, in fresh random order. Some variants get a known effect.
//! Any effect found beyond it is an error.
//!
//! `cargo test --release -p toll-stats --test noise -- --ignored --nocapture` prints the figures of
//! docs/explain/statistics.md, 1,000 designs for each record. Without `--ignored`, a test runs fewer of them.

#![allow(clippy::unwrap_used, reason = "a simulation that cannot go on has failed")]

use toll_stats::{TimedWindow, draw_orders, estimate_drift, mean, sd, sign_flip, simultaneous_sign_flips};

const RECORDS: [(&str, &str); 4] = [
    ("read-only, closed loop, 4 cores", include_str!("read-only-closed.txt")),
    ("read-write, closed loop, 4 cores", include_str!("read-write.txt")),
    ("read-only, open loop, 4 cores", include_str!("read-only-open.txt")),
    ("read-only, closed loop, 2 cores", include_str!("read-only-2-cores.txt")),
];
/// Arms whose own intervals are looked at too, one by one: half of them have an effect.
const ALONE: usize = 4;
const BIN_S: f64 = 0.1;
/// ln of what every other arm costs.
const EFFECT: f64 = 0.048_790_164_169_432;

/// Events and summed response times of each bin.
fn bins(record: &str) -> Vec<(f64, f64)> {
    let rows = record.lines().filter(|line| !line.starts_with('#'));
    let one = |line: &str| {
        let (events, mean_us) = line.split_once(' ').unwrap();
        let events: f64 = events.parse().unwrap();
        (events, events * mean_us.parse::<f64>().unwrap())
    };
    rows.map(one).collect()
}

/// How windows are laid over a record, in bins.
#[derive(Clone, Copy)]
struct Design {
    /// The baseline among them.
    arms: usize,
    window: usize,
    gap: usize,
}

/// ln of the mean response time; in a closed loop that of the throughput is its opposite.
fn ln_of(bins: &[(f64, f64)]) -> Option<f64> {
    let (events, us) = bins.iter().fold((0.0, 0.0), |sum, bin| (sum.0 + bin.0, sum.1 + bin.1));
    (events > 0.0).then(|| (us / events).ln())
}

fn effect(arm: usize) -> f64 {
    if arm % 2 == 1 { EFFECT } else { 0.0 }
}

/// Differences from the baseline by arm (without the baseline) and round, effects included: plain, and with the
/// drift taken away.
fn lay_windows(bins: &[(f64, f64)], design: Design, seed: u64) -> [Vec<Vec<Option<f64>>>; 2] {
    let arms = design.arms;
    let slot = design.window + design.gap;
    let count = bins.len() / (arms * slot);
    let mut at = vec![vec![None; arms]; count];
    let mut placed = Vec::new();
    for (round, order) in draw_orders(seed, arms, count).iter().enumerate() {
        for (place, &arm) in order.iter().enumerate() {
            let begin = (round * arms + place) * slot + design.gap;
            if let Some(y) = ln_of(&bins[begin..begin + design.window]) {
                at[round][arm] = Some(placed.len());
                placed.push(TimedWindow { arm, round, midpoint_s: begin as f64 * BIN_S, y: y + effect(arm) });
            }
        }
    }
    let against: Vec<Option<usize>> = (0..arms).map(|arm| (arm > 0).then_some(0)).collect();
    let taken = estimate_drift(&placed, &against).map_or(vec![0.0; placed.len()], |drift| drift.by_window);
    let differences = |of: &dyn Fn(usize) -> f64| {
        (1..arms).map(|arm| at.iter().map(|round| Some(of(round[arm]?) - of(round[0]?))).collect()).collect()
    };
    [differences(&|i| placed[i].y), differences(&|i| placed[i].y - taken[i])]
}

/// What came of many designs, for one estimator.
#[derive(Default)]
struct Tally {
    designs: f64,
    /// Designs in which an interval that all arms share missed its arm's truth.
    any_missed: f64,
    /// Share of intervals of single arms that held the truth, summed.
    held: f64,
    half_width: f64,
    alone_half_width: f64,
    /// Of the estimates about the truth, and of the differences.
    errors: Vec<f64>,
    skewness: f64,
}

impl Tally {
    fn add(&mut self, arms: &[Vec<Option<f64>>], seed: u64) {
        let slices: Vec<&[Option<f64>]> = arms.iter().map(Vec::as_slice).collect();
        let together = simultaneous_sign_flips(&slices, 0.05, seed);
        let truth = |k: usize| effect(k + 1);
        let missed = |(k, found): (usize, &toll_stats::SignFlip)| !found.interval.unwrap().contains(truth(k));
        self.any_missed += f64::from(together.iter().enumerate().any(missed));
        for (k, (arm, found)) in arms.iter().zip(&together).enumerate().take(ALONE) {
            let d: Vec<f64> = arm.iter().flatten().copied().collect();
            let alone = sign_flip(&d, 0.05, seed).interval.unwrap();
            let share = 1.0 / arms.len().min(ALONE) as f64;
            self.held += share * f64::from(alone.contains(truth(k)));
            self.alone_half_width += share * (alone.high - alone.low) / 2.0;
            let shared = found.interval.unwrap();
            self.half_width += share * (shared.high - shared.low) / 2.0;
            self.errors.push(found.mean - truth(k));
            let cubes: f64 = d.iter().map(|v| ((v - mean(&d)) / sd(&d)).powi(3)).sum();
            self.skewness += share * cubes / d.len() as f64;
        }
        self.designs += 1.0;
    }

    fn pct(&self, sum: f64) -> f64 {
        100.0 * sum / self.designs
    }

    fn summarise(&self, what: &str) -> String {
        format!(
            "{what}: any arm wrong {:.1}%; an arm's own 95% interval holds {:.1}%; standard error {:.2}%, \
             half-width alone {:.2}, together {:.2}; skewness {:+.2}",
            self.pct(self.any_missed),
            self.pct(self.held),
            100.0 * (self.errors.iter().map(|e| e * e).sum::<f64>() / self.errors.len() as f64).sqrt(),
            self.pct(self.alone_half_width),
            self.pct(self.half_width),
            self.skewness / self.designs,
        )
    }
}

fn tally_designs(record: &str, design: Design, designs: u64) -> [Tally; 2] {
    let bins = bins(record);
    let mut tallies = [Tally::default(), Tally::default()];
    for seed in 0..designs {
        for (tally, arms) in tallies.iter_mut().zip(lay_windows(&bins, design, seed)) {
            tally.add(&arms, seed);
        }
    }
    tallies
}

const MANY: Design = Design { arms: 24, window: 5, gap: 5 };
const FEW: Design = Design { arms: 3, window: 10, gap: 6 };

/// A correct method passes: 3.5 binomial standard deviations beside what is promised.
#[track_caller]
fn assert_coverage(what: &str, tally: &Tally) {
    println!("{}", tally.summarise(what));
    let beyond = |pct: f64, of: f64| 3.5 * (pct * (100.0 - pct) / of).sqrt();
    let wrong = tally.pct(tally.any_missed);
    assert!(wrong <= 5.0 + beyond(5.0, tally.designs), "{what}: {wrong}% of designs have a wrong interval");
    let held = tally.pct(tally.held);
    // Intervals of one design share its baseline: they count as little more than one.
    assert!(held >= 95.0 - beyond(5.0, tally.designs), "{what}: {held}% of intervals hold the truth");
}

/// All records at once, each in a thread of its own.
fn check_every_record(what: &str, design: Design, designs: u64) {
    std::thread::scope(|scope| {
        let spawned = |(record, lines)| (record, scope.spawn(move || tally_designs(lines, design, designs)));
        for (record, tallies) in RECORDS.map(spawned) {
            let [pairs, neighbours] = tallies.join().unwrap();
            assert_coverage(&format!("{record}, {what}, pairs"), &pairs);
            assert_coverage(&format!("{record}, {what}, drift taken out"), &neighbours);
        }
    });
}

#[test]
fn on_every_record_false_verdicts_are_as_rare_as_promised() {
    check_every_record("24 arms, 60 designs", MANY, 60);
    check_every_record("3 arms, 60 designs", FEW, 60);
}

#[test]
#[ignore = "a thousand designs for each record; --release -- --ignored --nocapture prints the rates"]
fn a_thousand_designs_on_each_record() {
    check_every_record("24 arms, 1,000 designs", MANY, 1_000);
    check_every_record("3 arms, 1,000 designs", FEW, 1_000);
}
