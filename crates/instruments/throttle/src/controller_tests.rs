//! Tests that the controller keeps its limits for any probe latency.

use super::baseline::ProbeSample;
use super::controller::RateController;
use super::decision::{Limits, ReadLimit, Reason};
use super::tuning::Tuning;

const STEP_S: f64 = 0.1;
const PER_STEP: usize = 20;
const LIMITS: Limits = Limits {
    floor: 131_072.0,
    floor_is_set_by_user: false,
    keepalive_rate: 2_097_152.0 / 20.0,
    ceiling: None,
    longest_pause_s: 20.0,
};

/// Simulated probe with a latency of a millisecond, times a factor while the dump runs.
struct Simulation {
    controller: RateController,
    now_s: f64,
    moved: f64,
    rate: f64,
    /// The dump gets no faster than this by itself.
    dump_at_most: f64,
    harm: f64,
    /// Of the quicker half, beside it.
    harm_of_quick: f64,
    /// What the host makes of every answer, dump or not.
    host: f64,
}

fn answers(now_s: f64, factor: f64, of_quick: f64) -> impl Iterator<Item = (f64, f64)> {
    (0..PER_STEP).map(move |i| {
        let at = i as f64 / PER_STEP as f64;
        let factor = if 2 * i < PER_STEP { factor * of_quick } else { factor };
        (now_s + STEP_S * at, 1_000.0 * factor * at.exp())
    })
}

impl Simulation {
    fn begin(limits: Limits, harm: f64, dump_at_most: f64) -> Self {
        let before = (0..100).flat_map(|step| answers(f64::from(step) * STEP_S, 1.0, 1.0));
        let before: Vec<ProbeSample> =
            before.map(|(sent_s, us)| ProbeSample { sent_s, ln_us: us.ln() }).collect();
        let controller = RateController::from_baseline_samples(Tuning::default(), limits, 0.1, &before, 10.0);
        Self {
            controller,
            now_s: 10.0,
            moved: 0.0,
            rate: 0.0,
            dump_at_most,
            harm,
            harm_of_quick: 1.0,
            host: 1.0,
        }
    }

    fn step(&mut self, held: bool) -> (ReadLimit, Reason) {
        let (factor, of_quick) = if self.rate > 0.0 { (self.harm, self.harm_of_quick) } else { (1.0, 1.0) };
        for (sent_s, us) in answers(self.now_s, factor, of_quick) {
            self.controller.add_sample(sent_s, self.host * us);
        }
        self.moved += self.rate * STEP_S;
        self.now_s += STEP_S;
        let decision = self.controller.decide(self.now_s, self.moved as u64, 0.0, held);
        self.rate = match decision.limit {
            ReadLimit::Unlimited => self.dump_at_most,
            ReadLimit::Rate(rate) => rate.min(self.dump_at_most),
            ReadLimit::Paused => 0.0,
        };
        (decision.limit, decision.reason)
    }

    fn steps(&mut self, seconds: f64, held: bool) -> Vec<(ReadLimit, Reason)> {
        (0..(seconds / STEP_S) as usize).map(|_| self.step(held)).collect()
    }
}

#[test]
fn an_unattainable_limit_never_lets_the_server_time_out_its_reader() {
    let mut bench = Simulation::begin(LIMITS, 3.0, 1e9);
    let (mut still_s, mut longest_s, mut unkept) = (0.0, 0.0_f64, false);
    let mut moved = Vec::new();
    for _ in 0..6_000 {
        let (allow, why) = bench.step(false);
        unkept |= why == Reason::Unkept;
        still_s = if allow == ReadLimit::Paused { still_s + STEP_S } else { 0.0 };
        longest_s = longest_s.max(still_s);
        moved.push(bench.moved);
    }
    assert!(unkept);
    assert!((15.0..=20.3).contains(&longest_s), "{longest_s}");
    // Whenever the server begins to wait: before its minute is over its buffers have been emptied.
    let least = moved.windows(600).map(|minute| minute[599] - minute[0]).fold(f64::INFINITY, f64::min);
    assert!(least >= 2_097_152.0, "{least}");
}

#[test]
fn a_rate_that_was_asked_for_is_given_however_much_users_feel() {
    let limits = Limits { floor: 20e6, floor_is_set_by_user: true, ..LIMITS };
    let mut bench = Simulation::begin(limits, 3.0, 1e9);
    let said = bench.steps(120.0, false);
    assert!(said.iter().any(|(_, why)| *why == Reason::Unkept), "it is told");
    assert!(bench.moved > 0.8 * 120.0 * 20e6, "{}", bench.moved / 120.0);
}

#[test]
fn a_ceiling_holds_at_once_where_the_dump_is_not_felt_and_slower_than_allowed() {
    let mut bench = Simulation::begin(LIMITS, 1.0, 3e6);
    bench.steps(60.0, false);
    bench.controller.set_ceiling(Some(5e5));
    for (allow, _) in bench.steps(10.0, false) {
        assert!(
            matches!(allow, ReadLimit::Rate(rate) if rate <= 5e5) || allow == ReadLimit::Paused,
            "{allow:?}"
        );
    }
}

#[test]
fn a_dump_that_was_freed_is_still_held_by_hand_and_by_its_ceiling() {
    let mut bench = Simulation::begin(LIMITS, 1.0, 1e9);
    bench.steps(20.0, false);
    bench.controller.suspend_limit();
    assert_eq!(bench.step(false), (ReadLimit::Unlimited, Reason::Freed));
    assert_eq!(bench.step(true), (ReadLimit::Paused, Reason::ByHand));
    // As long as the server bears; then what it needs, and no more.
    assert_eq!(
        bench.steps(21.0, true).last(),
        Some(&(ReadLimit::Rate(LIMITS.keepalive_rate), Reason::Trickling))
    );
    assert_eq!(bench.step(false), (ReadLimit::Unlimited, Reason::Freed));
    bench.controller.set_ceiling(Some(4e6));
    assert_eq!(bench.step(false), (ReadLimit::Rate(4e6), Reason::Freed));
}

#[test]
fn a_p99_that_does_not_move_is_no_leave_to_slow_every_query() {
    let rate = |harm_of_quick| {
        let mut bench = Simulation::begin(LIMITS, 1.0, 1e9);
        bench.harm_of_quick = harm_of_quick;
        bench.steps(60.0, false);
        bench.moved / 60.0
    };
    let (unfelt, felt) = (rate(1.0), rate(1.4));
    assert!(felt < 0.05 * unfelt, "{felt} of {unfelt}");
}

#[test]
fn a_host_that_has_become_quieter_is_not_held_against_the_dump() {
    let mut bench = Simulation::begin(LIMITS, 1.0, 20e6);
    bench.steps(20.0, false);
    // From half-way between two pauses the host is three times as slow; then it is as it was.
    bench.host = 3.0;
    bench.steps(40.0, false);
    bench.host = 1.0;
    let said = bench.steps(40.0, false);
    let looked = said.iter().position(|(_, why)| *why == Reason::Looking).unwrap();
    let after = &said[looked..];
    assert!(after.iter().all(|(_, why)| !matches!(why, Reason::Easing | Reason::Braking)), "{after:?}");
}
