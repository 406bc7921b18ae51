//! Tests that the controller keeps its limits for any probe latency.

use super::baseline::Answer;
use super::decision::{Allow, Limits, Why};
use super::steering::Steering;
use super::tuning::Tuning;

const STEP_S: f64 = 0.1;
const PER_STEP: usize = 20;
const LIMITS: Limits = Limits {
    floor: 131_072.0,
    floor_is_asked: false,
    trickle: 2_097_152.0 / 20.0,
    ceiling: None,
    longest_pause_s: 20.0,
};

/// Simulated probe with a latency of a millisecond, times a factor while the dump runs.
struct Bench {
    steering: Steering,
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

impl Bench {
    fn begin(limits: Limits, harm: f64, dump_at_most: f64) -> Self {
        let before = (0..100).flat_map(|step| answers(f64::from(step) * STEP_S, 1.0, 1.0));
        let before: Vec<Answer> = before.map(|(sent_s, us)| Answer { sent_s, ln_us: us.ln() }).collect();
        let steering = Steering::begin(Tuning::default(), limits, 0.1, &before, 10.0);
        Self {
            steering,
            now_s: 10.0,
            moved: 0.0,
            rate: 0.0,
            dump_at_most,
            harm,
            harm_of_quick: 1.0,
            host: 1.0,
        }
    }

    fn step(&mut self, held: bool) -> (Allow, Why) {
        let (factor, of_quick) = if self.rate > 0.0 { (self.harm, self.harm_of_quick) } else { (1.0, 1.0) };
        for (sent_s, us) in answers(self.now_s, factor, of_quick) {
            self.steering.answered(sent_s, self.host * us);
        }
        self.moved += self.rate * STEP_S;
        self.now_s += STEP_S;
        let decision = self.steering.decide(self.now_s, self.moved as u64, 0.0, held);
        self.rate = match decision.allow {
            Allow::Open => self.dump_at_most,
            Allow::Rate(rate) => rate.min(self.dump_at_most),
            Allow::Still => 0.0,
        };
        (decision.allow, decision.why)
    }

    fn steps(&mut self, seconds: f64, held: bool) -> Vec<(Allow, Why)> {
        (0..(seconds / STEP_S) as usize).map(|_| self.step(held)).collect()
    }
}

#[test]
fn a_promise_that_cannot_be_kept_never_lets_the_server_take_its_reader_for_dead() {
    let mut bench = Bench::begin(LIMITS, 3.0, 1e9);
    let (mut still_s, mut longest_s, mut unkept) = (0.0, 0.0_f64, false);
    let mut moved = Vec::new();
    for _ in 0..6_000 {
        let (allow, why) = bench.step(false);
        unkept |= why == Why::Unkept;
        still_s = if allow == Allow::Still { still_s + STEP_S } else { 0.0 };
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
    let limits = Limits { floor: 20e6, floor_is_asked: true, ..LIMITS };
    let mut bench = Bench::begin(limits, 3.0, 1e9);
    let said = bench.steps(120.0, false);
    assert!(said.iter().any(|(_, why)| *why == Why::Unkept), "it is told");
    assert!(bench.moved > 0.8 * 120.0 * 20e6, "{}", bench.moved / 120.0);
}

#[test]
fn a_ceiling_holds_at_once_where_the_dump_is_not_felt_and_slower_than_allowed() {
    let mut bench = Bench::begin(LIMITS, 1.0, 3e6);
    bench.steps(60.0, false);
    bench.steering.set_ceiling(Some(5e5));
    for (allow, _) in bench.steps(10.0, false) {
        assert!(matches!(allow, Allow::Rate(rate) if rate <= 5e5) || allow == Allow::Still, "{allow:?}");
    }
}

#[test]
fn a_dump_that_was_freed_is_still_held_by_hand_and_by_its_ceiling() {
    let mut bench = Bench::begin(LIMITS, 1.0, 1e9);
    bench.steps(20.0, false);
    bench.steering.free();
    assert_eq!(bench.step(false), (Allow::Open, Why::Freed));
    assert_eq!(bench.step(true), (Allow::Still, Why::ByHand));
    // As long as the server bears; then what it needs, and no more.
    assert_eq!(bench.steps(21.0, true).last(), Some(&(Allow::Rate(LIMITS.trickle), Why::Trickling)));
    assert_eq!(bench.step(false), (Allow::Open, Why::Freed));
    bench.steering.set_ceiling(Some(4e6));
    assert_eq!(bench.step(false), (Allow::Rate(4e6), Why::Freed));
}

#[test]
fn a_p99_that_does_not_move_is_no_leave_to_slow_every_query() {
    let rate = |harm_of_quick| {
        let mut bench = Bench::begin(LIMITS, 1.0, 1e9);
        bench.harm_of_quick = harm_of_quick;
        bench.steps(60.0, false);
        bench.moved / 60.0
    };
    let (unfelt, felt) = (rate(1.0), rate(1.4));
    assert!(felt < 0.05 * unfelt, "{felt} of {unfelt}");
}

#[test]
fn a_host_that_has_become_quieter_is_not_held_against_the_dump() {
    let mut bench = Bench::begin(LIMITS, 1.0, 20e6);
    bench.steps(20.0, false);
    // From half-way between two pauses the host is three times as slow; then it is as it was.
    bench.host = 3.0;
    bench.steps(40.0, false);
    bench.host = 1.0;
    let said = bench.steps(40.0, false);
    let looked = said.iter().position(|(_, why)| *why == Why::Looking).unwrap();
    let after = &said[looked..];
    assert!(after.iter().all(|(_, why)| !matches!(why, Why::Easing | Why::Braking)), "{after:?}");
}
