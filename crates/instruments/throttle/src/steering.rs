//! Controller of the dump's rate, which keeps the probe's p99 within the latency limit.
//!
//! Two loops adjust one number, the logarithm of the rate. The fast loop uses a quantile that one second's
//! answers can estimate, and only slows down. The slow loop uses the p99 over some ten seconds, and quantiles
//! below it. It moves the rate by the distance of the worst of them from the limit, less a margin for
//! uncertainty. In between, short pauses measure the undisturbed latency (`baseline.rs`).
//!
//! CPU is never used: a dump on CPUs that nobody else needs harms nobody. A throttle that counts its own CPU
//! usage feeds back on itself. Knows no clock, no server and no thread: all input comes from the caller.

use super::baseline::{Answer, Baseline, SECOND_ANSWERS};
use super::beside::Beside;
use super::decision::{Allow, Decision, Limits, Meanwhile, Why};
use super::seconds::SlowSeconds;
use super::sketch::{Estimate, Sketch};
use super::tuning::Tuning;

/// Quantile of the latency limit.
pub const PROMISED: f64 = 0.99;

/// No quantile below the promised one may grow by more than it: where noise hides the p99, these still tell that every
/// query waits.
const GUARDED: [f64; 2] = [0.5, 0.9];
/// Of the promised quantile's margin, in errors of their own: nobody was promised these, and the least of three estimates lies
/// too low by itself.
const GUARDED_MARGIN: f64 = 0.7;

/// What the server has begun it does after its reader has stopped, until its buffers are full.
const DRAIN_S: f64 = 0.3;
/// After a pause, what had piled up comes at once.
const REFILL_S: f64 = 0.1;
/// The slow loop moves so often.
const TICK_S: f64 = 1.0;
/// A brake shows its effect only after the drain.
const BRAKE_APART_S: f64 = 1.0;
/// What a brake leaves of the rate.
const BRAKE: f64 = 0.5;
/// Five seconds of a slow start double the rate. So the rate is at most twice too high, not ten times, before
/// the probe reacts.
const START_GAIN: f64 = 0.15;
/// Below this share of the best rate so far, the way back is known: it is gone three times as fast.
const KNOWN_SHARE: f64 = 0.7;
const KNOWN_GAIN: f64 = 3.0;
/// The slow loop leaves alone what is so near, as a share of the promise.
const DEAD_BAND: f64 = 0.08;
/// Less of the rate was used than this: the dump itself is slow, and a higher rate means nothing.
const USED: f64 = 0.7;
/// What is left of the host's noise from second to second in the mean of those that the slow loop sees, and of
/// as many pauses.
const WOBBLE_LEFT: f64 = 0.5;
/// The fast loop wants so many answers.
const FAST_ANSWERS: f64 = 20.0;
/// A pause lasts no longer than this, how few answers there be.
const LOOK_LONGEST_S: f64 = 3.0;
/// After one that told of another regime the next comes so soon; then each time twice as late.
const LOOK_SOON_S: f64 = 5.0;
/// Two pauses lie so far apart at least.
const LOOK_APART_S: f64 = 3.0;
/// No answer for so long is blindness.
const BLIND_S: f64 = 3.0;
/// A question that waits so many times the undisturbed p99, and a quarter of a second, is a brake's worth.
const WAITING_TIMES: f64 = 20.0;
const WAITING_LEAST_US: f64 = 250_000.0;
/// Broken so often at the slowest rate, with a pause after each, the promise cannot be kept.
const UNKEPT_AFTER: u32 = 3;
/// First rate, if the floor is lower: 1 MiB/s, which no server of today feels.
const FIRST: f64 = 1_048_576.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Moving,
    Looking,
    Held,
}

#[derive(Debug, Clone)]
pub struct Steering {
    tuning: Tuning,
    limits: Limits,
    /// Logarithm of what the p99 may grow to.
    promise: f64,
    baseline: Baseline,
    beside: Beside,
    /// Seconds that call for the brake.
    braking: SlowSeconds,
    /// Undisturbed answers of the pause that goes on.
    pause: Vec<Answer>,
    phase: Phase,
    since_s: f64,
    /// Logarithms of the rate: now, and the best that was held.
    pace: f64,
    best: Option<f64>,
    starting: bool,
    /// Since when the slow loop has been at work.
    settling_s: f64,
    freed: bool,
    last_why: Why,
    /// Rate before the first brake since the last look: what the host does by itself is not the dump's doing.
    unbraked: Option<f64>,
    braked_s: f64,
    looked_s: f64,
    look_in_s: f64,
    broken_at_floor: u32,
    /// The pause that goes on is as long as the server bears.
    long: bool,
    /// What had passed when the last pause ended that may have been as long.
    moved_at_pause: u64,
    answered_s: f64,
    ticked_s: f64,
    moved_at_tick: u64,
}

impl Steering {
    /// `before` holds the probe answers from before the dump; `max_toll` is the latency limit, 0.1 for 10%.
    pub fn begin(tuning: Tuning, limits: Limits, max_toll: f64, before: &[Answer], now_s: f64) -> Self {
        let mut baseline = Baseline::default();
        baseline.learn(before);
        let mut steering = Self::new(tuning, limits, max_toll, baseline, now_s);
        steering.judge_undisturbed(before);
        steering
    }

    fn new(tuning: Tuning, limits: Limits, max_toll: f64, baseline: Baseline, now_s: f64) -> Self {
        let first = FIRST.max(limits.floor).min(limits.ceiling.unwrap_or(f64::INFINITY));
        Self {
            beside: Beside::new(&tuning),
            braking: SlowSeconds::default(),
            promise: max_toll.ln_1p(),
            baseline,
            pause: Vec::new(),
            phase: Phase::Moving,
            since_s: now_s,
            pace: first.ln(),
            best: None,
            starting: true,
            settling_s: now_s,
            freed: false,
            last_why: Why::Starting,
            unbraked: None,
            braked_s: now_s,
            looked_s: now_s,
            look_in_s: tuning.look_every_s,
            broken_at_floor: 0,
            long: false,
            moved_at_pause: 0,
            answered_s: now_s,
            ticked_s: now_s,
            moved_at_tick: 0,
            tuning,
            limits,
        }
    }

    pub fn baseline(&self) -> &Baseline {
        &self.baseline
    }

    /// The promised quantile of late over the undisturbed one.
    pub fn toll_of_late(&self) -> Option<Estimate> {
        self.toll_of_late_at(PROMISED)
    }

    fn toll_of_late_at(&self, quantile: f64) -> Option<Estimate> {
        let toll = self.toll(self.beside.of_late(), quantile)?;
        Some(Estimate { error: toll.error.hypot(WOBBLE_LEFT * self.baseline.wobble()), ..toll })
    }

    /// How far the worst of the promised and the guarded quantiles is from the promise less its margin; in promises, or in
    /// errors where those are larger. None before the promised one can be told.
    fn left(&self) -> Option<f64> {
        let Tuning { margin_errors, margin_most, .. } = self.tuning;
        let left = |toll: Estimate, margin_errors: f64| {
            let margin = (margin_errors * toll.error).min(margin_most * self.promise);
            (self.promise - margin - toll.ln) / self.promise.max(toll.error)
        };
        let promised = left(self.toll_of_late()?, margin_errors);
        let guarded = GUARDED.iter().filter_map(|quantile| self.toll_of_late_at(*quantile));
        Some(guarded.map(|toll| left(toll, GUARDED_MARGIN * margin_errors)).fold(promised, f64::min))
    }

    pub fn set_max_toll(&mut self, max_toll: f64) {
        self.promise = max_toll.ln_1p();
    }

    /// `None`: no limit except the latency limit.
    pub fn set_ceiling(&mut self, ceiling: Option<f64>) {
        self.limits.ceiling = ceiling;
        self.set_pace(self.pace);
    }

    /// Suspends the latency limit: only the ceiling limits the rate.
    pub fn free(&mut self) {
        self.freed = true;
    }

    /// True if the present probe latency counts as undisturbed by the dump.
    fn is_undisturbed(&self, sent_s: f64) -> bool {
        let still_s = sent_s - self.since_s;
        self.phase != Phase::Moving && (DRAIN_S..self.limits.longest_pause_s).contains(&still_s)
    }

    /// Records a probe answer: sent at `sent_s`, latency `latency_us`. Returns the state of the dump
    /// meanwhile.
    pub fn answered(&mut self, sent_s: f64, latency_us: f64) -> Meanwhile {
        self.answered_s = self.answered_s.max(sent_s + latency_us / 1e6);
        let answer = Answer { sent_s, ln_us: latency_us.max(1e-3).ln() };
        let disturbed = match self.phase {
            Phase::Moving => sent_s >= self.since_s + REFILL_S,
            _ => sent_s < self.since_s,
        };
        if self.is_undisturbed(sent_s) {
            self.pause.push(answer);
            return Meanwhile::Pause;
        }
        if !disturbed {
            return Meanwhile::Between;
        }
        if let Some(second) = self.beside.add(answer, &self.baseline) {
            let brakes = self.calls_for_brake(&second);
            self.braking.beside(brakes);
            if !brakes && second.first().is_some_and(|first| first.sent_s >= self.braked_s) {
                self.take_brake_back();
            }
        }
        Meanwhile::Dump
    }

    /// A second after the brake is as it should be: the one before was as likely the host's own as such seconds are
    /// without the dump.
    fn take_brake_back(&mut self) {
        if let Some(pace) = self.unbraked.take() {
            self.set_pace(self.pace + self.braking.part_of_host() * (pace - self.pace));
        }
    }

    /// What seconds without the dump are like.
    fn judge_undisturbed(&mut self, answers: &[Answer]) {
        for second in answers.chunks(SECOND_ANSWERS).filter(|second| 2 * second.len() >= SECOND_ANSWERS) {
            self.beside.saw_undisturbed(second, &self.baseline);
            self.braking.without(self.calls_for_brake(second));
        }
    }

    /// By the same measure as the brake.
    fn calls_for_brake(&self, second: &[Answer]) -> bool {
        let own = Sketch::of(second.iter().map(|answer| answer.ln_us));
        let toll = self.toll_of_second(&own, self.tuning.fast_quantile);
        toll.is_some_and(|toll| self.breaks_promise(toll, self.tuning.brake_errors))
    }

    fn breaks_promise(&self, toll: Estimate, errors: f64) -> bool {
        toll.ln - errors * toll.error > self.promise
    }

    /// Decision from `now_s` on. `moved`: bytes read since the start. `waiting_us`: wait of the oldest open
    /// probe query. `held`: the user requested a pause.
    pub fn decide(&mut self, now_s: f64, moved: u64, waiting_us: f64, held: bool) -> Decision {
        let why = self.why(now_s, moved, waiting_us, held);
        self.last_why = why;
        let allow = match why {
            Why::Freed => self.limits.ceiling.map_or(Allow::Open, Allow::Rate),
            Why::Trickling => Allow::Rate(self.limits.trickle),
            Why::Blind => Allow::Rate(self.limits.floor),
            Why::Looking | Why::ByHand => Allow::Still,
            Why::Unkept if self.phase == Phase::Looking => Allow::Still,
            _ => Allow::Rate(self.pace.exp()),
        };
        Decision { allow, why }
    }

    fn why(&mut self, now_s: f64, moved: u64, waiting_us: f64, held: bool) -> Why {
        match (self.phase, held) {
            (Phase::Held, true) => self.learn_while_held(),
            (_, true) => self.enter(Phase::Held, now_s, moved),
            (Phase::Looking, false) if self.freed => self.enter(Phase::Moving, now_s, moved),
            (Phase::Held, false) => {
                self.learn(now_s);
                self.enter(Phase::Moving, now_s, moved);
            }
            _ => {}
        }
        if self.freed && !held {
            return Why::Freed;
        }
        let still_s = now_s - self.since_s;
        match self.phase {
            Phase::Held if still_s >= self.limits.longest_pause_s => Why::Trickling,
            Phase::Held => Why::ByHand,
            Phase::Looking if !self.has_seen_enough(still_s) => {
                if self.long {
                    Why::Unkept
                } else {
                    Why::Looking
                }
            }
            Phase::Looking => {
                self.learn(now_s);
                self.enter(Phase::Moving, now_s, moved);
                self.move_on(now_s, moved, waiting_us)
            }
            Phase::Moving => self.move_on(now_s, moved, waiting_us),
        }
    }

    fn is_unkept(&self) -> bool {
        self.broken_at_floor >= UNKEPT_AFTER
    }

    fn enter(&mut self, phase: Phase, now_s: f64, moved: u64) {
        if self.phase == Phase::Held || std::mem::take(&mut self.long) {
            self.moved_at_pause = moved;
        }
        self.phase = phase;
        self.since_s = now_s;
        self.ticked_s = now_s;
        self.moved_at_tick = moved;
    }

    fn has_seen_enough(&self, still_s: f64) -> bool {
        if self.long {
            return still_s >= self.limits.longest_pause_s;
        }
        let longest_s = LOOK_LONGEST_S.min(self.limits.longest_pause_s);
        self.pause.len() >= self.tuning.look_answers || still_s >= longest_s
    }

    /// A pause by hand may be long: what it shows is taken in as it comes.
    fn learn_while_held(&mut self) {
        if self.pause.len() >= self.tuning.look_answers {
            self.take_pause_in();
        }
    }

    /// By how much the undisturbed median has shifted, as a logarithm, where that is more than chance and drift.
    fn take_pause_in(&mut self) -> Option<f64> {
        let pause = std::mem::take(&mut self.pause);
        self.judge_undisturbed(&pause);
        self.baseline.learn(&pause)
    }

    /// A pause has ended.
    fn learn(&mut self, now_s: f64) {
        let shift = self.take_pause_in();
        self.looked_s = now_s;
        let seldom_s = self.tuning.look_every_s;
        self.look_in_s = match shift {
            Some(_) => LOOK_SOON_S,
            None => (self.look_in_s * 2.0).min(seldom_s),
        };
        if shift.is_some() {
            // What was answered before is of the other regime.
            self.beside.forget();
        }
        if let Some(pace) = self.unbraked.filter(|_| shift.is_some_and(|shift| shift > 0.0)) {
            // It was the host that had become slow: what the brake did was not called for.
            self.set_pace(pace);
            self.unbraked = None;
        }
        self.take_brake_back();
        self.beside.forget_second();
    }

    fn toll(&self, sketch: &Sketch, quantile: f64) -> Option<Estimate> {
        Some(sketch.estimate(quantile)?.over(self.baseline.estimate(quantile)?))
    }

    fn set_pace(&mut self, pace: f64) {
        let floor = self.limits.floor.ln();
        let ceiling = self.limits.ceiling.map_or(f64::INFINITY, f64::ln).max(floor);
        self.pace = pace.clamp(floor, ceiling);
    }

    fn is_at_floor(&self) -> bool {
        self.pace <= self.limits.floor.ln() + 0.01
    }

    fn move_on(&mut self, now_s: f64, moved: u64, waiting_us: f64) -> Why {
        let undisturbed_us = self.baseline.estimate(PROMISED).map_or(0.0, |p99| p99.ln.exp());
        let waits = waiting_us > (WAITING_TIMES * undisturbed_us).max(WAITING_LEAST_US);
        if now_s - self.answered_s > BLIND_S {
            return Why::Blind;
        }
        let moving_s = now_s - self.since_s;
        if now_s - self.braked_s >= BRAKE_APART_S
            && moving_s >= REFILL_S
            && (waits || self.is_beyond(self.tuning.brake_errors))
        {
            return self.brake(now_s, moved);
        }
        let overdue = now_s - self.looked_s >= self.look_in_s;
        if moving_s >= LOOK_APART_S && (overdue || self.is_unbelievable()) {
            self.enter(Phase::Looking, now_s, moved);
            return Why::Looking;
        }
        if now_s - self.ticked_s < TICK_S {
            return self.last_why_of_moving();
        }
        let could = self.pace.exp() * (now_s - self.ticked_s);
        let used = moved.saturating_sub(self.moved_at_tick) as f64 >= USED * could;
        self.ticked_s = now_s;
        self.moved_at_tick = moved;
        self.tick(used)
    }

    /// Between two ticks what was said last goes on, unless that was of a pause.
    fn last_why_of_moving(&self) -> Why {
        match self.last_why {
            moving @ (Why::Starting | Why::Climbing | Why::Holding | Why::Easing | Why::Braking) => moving,
            _ => Why::Holding,
        }
    }

    /// True if the last second exceeds the limit by so many standard errors, with chance and the host's noise
    /// included.
    fn is_beyond(&self, errors: f64) -> bool {
        let toll = self.toll_of_last_second(self.tuning.fast_quantile);
        toll.is_some_and(|toll| self.breaks_promise(toll, errors))
    }

    fn toll_of_last_second(&self, quantile: f64) -> Option<Estimate> {
        let second = self.beside.last_second();
        self.toll_of_second(second, quantile).filter(|_| second.count() >= FAST_ANSWERS)
    }

    fn toll_of_second(&self, second: &Sketch, quantile: f64) -> Option<Estimate> {
        let toll = self.toll(second, quantile)?;
        Some(Estimate { error: toll.error.hypot(self.baseline.wobble()), ..toll })
    }

    /// Faster than undisturbed cannot be: the baseline is of another time.
    fn is_unbelievable(&self) -> bool {
        self.toll_of_last_second(0.5).is_some_and(|toll| toll.ln + 2.0 * toll.error < -self.promise)
    }

    fn brake(&mut self, now_s: f64, moved: u64) -> Why {
        self.end_start();
        let may_look = now_s - self.looked_s >= LOOK_APART_S;
        if self.is_at_floor() || self.unbraked.is_some() && may_look {
            // Slower does not help, or has not helped: is it the dump at all?
            self.broken_at_floor += u32::from(self.is_at_floor() && self.braking.are_the_dumps());
            self.braked_s = now_s;
            if self.is_unkept() {
                // Between two long pauses the server gets rid of enough not to take its reader for dead.
                let freed = moved.saturating_sub(self.moved_at_pause) >= self.limits.frees_writer();
                if freed && !self.limits.floor_is_asked {
                    self.enter(Phase::Looking, now_s, moved);
                    self.long = true;
                }
                return Why::Unkept;
            }
            if may_look {
                self.enter(Phase::Looking, now_s, moved);
                return Why::Looking;
            }
            return Why::Braking;
        }
        self.unbraked.get_or_insert(self.pace);
        self.braked_s = now_s;
        self.set_pace(self.pace + BRAKE.ln());
        self.beside.braked();
        Why::Braking
    }

    fn end_start(&mut self) {
        if std::mem::take(&mut self.starting) {
            self.set_pace(self.pace - self.tuning.start_back);
        }
    }

    /// The slow loop. `used`: the dump went as fast as it was allowed to.
    fn tick(&mut self, used: bool) -> Why {
        let left = self.left();
        if self.starting {
            let felt = left.is_some_and(|left| left < 0.0);
            self.settling_s = self.ticked_s;
            if !felt && !self.is_beyond(1.0) {
                if used && self.beside.last_second().count() >= FAST_ANSWERS {
                    self.set_pace(self.pace + START_GAIN);
                }
                return Why::Starting;
            }
            self.end_start();
            return Why::Easing;
        }
        // What is lost in the noise moves the rate by little, and no more downwards than upwards.
        let Some(left) = left.map(|left| left.clamp(-2.0, 1.0)) else { return Why::Holding };
        if left >= 0.0 {
            self.broken_at_floor = 0;
            let best = self.best.map_or(self.pace, |best| 0.9 * best + 0.1 * self.pace.max(best));
            self.best = Some(best);
        }
        if left.abs() < DEAD_BAND || left > 0.0 && !used {
            return Why::Holding;
        }
        let is_known = self.best.is_some_and(|best| self.pace < best + KNOWN_SHARE.ln());
        let Tuning { gain_first, gain_last, gain_half_life_s, .. } = self.tuning;
        let settled = ((self.ticked_s - self.settling_s) / gain_half_life_s).exp2();
        let gain = (gain_first / settled).max(gain_last);
        let gain = if left > 0.0 && is_known { gain * KNOWN_GAIN } else { gain };
        self.set_pace(self.pace + gain * left);
        if left > 0.0 { Why::Climbing } else { Why::Easing }
    }
}
