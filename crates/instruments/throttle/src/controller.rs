//! Controller of the dump's rate, which keeps the probe's p99 within the latency limit.
//!
//! Two loops adjust one number, the logarithm of the rate. The fast loop uses a quantile that one second's
//! answers can estimate, and only slows down. The slow loop uses the p99 over some ten seconds, and quantiles
//! below it. It moves the rate by the distance of the worst of them from the limit, less a margin for
//! uncertainty. In between, short pauses measure the undisturbed latency (`baseline.rs`).
//!
//! CPU is never used: a dump on CPUs that nobody else needs harms nobody. A throttle that counts its own CPU
//! usage feeds back on itself. Knows no clock, no server and no thread: all input comes from the caller.

use super::baseline::{Baseline, ProbeSample, SAMPLES_PER_SECOND};
use super::decision::{Decision, DumpState, Limits, ReadLimit, Reason};
use super::loaded_latency::LoadedLatency;
use super::sketch::{Estimate, Sketch};
use super::stall_attribution::SlowSecondStats;
use super::tuning::Tuning;

/// Quantile of the latency limit.
pub const LIMIT_QUANTILE: f64 = 0.99;

/// No quantile below the p99 may grow by more than the limit. If noise hides the p99, these still show that every
/// query waits.
const GUARD_QUANTILES: [f64; 2] = [0.5, 0.9];
/// Share of the p99's margin, in their own standard errors. The limit is not for them, and the lowest of three
/// estimates is biased low.
const GUARD_MARGIN: f64 = 0.7;

/// What the server has begun it does after its reader has stopped, until its buffers are full.
const DRAIN_S: f64 = 0.3;
/// After a pause, what had piled up comes at once.
const REFILL_S: f64 = 0.1;
/// The slow loop moves so often.
const SLOW_TICK_S: f64 = 1.0;
/// A brake shows its effect only after the drain.
const BRAKE_INTERVAL_S: f64 = 1.0;
/// What a brake leaves of the rate.
const BRAKE_FACTOR: f64 = 0.5;
/// Five seconds of a slow start double the rate. So the rate is at most twice too high, not ten times, before
/// the probe reacts.
const SLOW_START_GAIN: f64 = 0.15;
/// Below this share of the best rate so far, the way back is known: it is gone three times as fast.
const RECOVERY_SHARE: f64 = 0.7;
const RECOVERY_GAIN: f64 = 3.0;
/// The slow loop does not correct a smaller distance, as a share of the limit.
const DEAD_BAND: f64 = 0.08;
/// Less of the rate was used than this: the dump itself is slow, and a higher rate means nothing.
const FULL_USE_SHARE: f64 = 0.7;
/// What is left of the host's noise from second to second in the mean of those that the slow loop sees, and of
/// as many pauses.
const NOISE_LEFT: f64 = 0.5;
/// The fast loop wants so many answers.
const FAST_MIN_SAMPLES: f64 = 20.0;
/// A pause lasts no longer than this, how few answers there be.
const PAUSE_MAX_S: f64 = 3.0;
/// After one that told of another regime the next comes so soon; then each time twice as late.
const PAUSE_SOON_S: f64 = 5.0;
/// Two pauses lie so far apart at least.
const PAUSE_INTERVAL_MIN_S: f64 = 3.0;
/// No answer for so long is blindness.
const NO_ANSWER_S: f64 = 3.0;
/// A question that waits so many times the undisturbed p99, and a quarter of a second, is a brake's worth.
const STUCK_QUERY_FACTOR: f64 = 20.0;
const STUCK_QUERY_MIN_US: f64 = 250_000.0;
/// The limit is unattainable if exceeded so often at the lowest rate, with a pause after each.
const UNATTAINABLE_AFTER: u32 = 3;
/// First rate, if the floor is lower: 1 MiB/s, which no server of today feels.
const INITIAL_RATE: f64 = 1_048_576.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    MeasuringPause,
    UserPause,
}

#[derive(Debug, Clone)]
pub struct RateController {
    tuning: Tuning,
    limits: Limits,
    /// Logarithm of what the p99 may grow to.
    limit_ln: f64,
    baseline: Baseline,
    loaded: LoadedLatency,
    /// Seconds that call for the brake.
    brake_seconds: SlowSecondStats,
    /// Undisturbed answers of the pause that goes on.
    pause_samples: Vec<ProbeSample>,
    phase: Phase,
    phase_since_s: f64,
    /// Logarithms of the rate: now, and the best that was held.
    rate_ln: f64,
    best_rate_ln: Option<f64>,
    in_slow_start: bool,
    /// Since when the slow loop has been at work.
    settling_since_s: f64,
    limit_suspended: bool,
    last_reason: Reason,
    /// Rate before the first brake since the last look: what the host does by itself is not the dump's doing.
    rate_ln_before_brake: Option<f64>,
    braked_s: f64,
    last_pause_s: f64,
    next_pause_in_s: f64,
    misses_at_floor: u32,
    /// The pause that goes on is as long as the server bears.
    is_long_pause: bool,
    /// What had passed when the last pause ended that may have been as long.
    read_at_pause: u64,
    last_answer_s: f64,
    last_tick_s: f64,
    read_at_tick: u64,
}

impl RateController {
    /// `before` holds the probe answers from before the dump; `max_toll` is the latency limit, 0.1 for 10%.
    pub fn from_baseline_samples(
        tuning: Tuning,
        limits: Limits,
        max_toll: f64,
        before: &[ProbeSample],
        now_s: f64,
    ) -> Self {
        let mut baseline = Baseline::default();
        baseline.add_pause(before);
        let mut controller = Self::new(tuning, limits, max_toll, baseline, now_s);
        controller.record_undisturbed(before);
        controller
    }

    fn new(tuning: Tuning, limits: Limits, max_toll: f64, baseline: Baseline, now_s: f64) -> Self {
        let first = INITIAL_RATE.max(limits.floor).min(limits.ceiling.unwrap_or(f64::INFINITY));
        Self {
            loaded: LoadedLatency::new(&tuning),
            brake_seconds: SlowSecondStats::default(),
            limit_ln: max_toll.ln_1p(),
            baseline,
            pause_samples: Vec::new(),
            phase: Phase::Running,
            phase_since_s: now_s,
            rate_ln: first.ln(),
            best_rate_ln: None,
            in_slow_start: true,
            settling_since_s: now_s,
            limit_suspended: false,
            last_reason: Reason::Starting,
            rate_ln_before_brake: None,
            braked_s: now_s,
            last_pause_s: now_s,
            next_pause_in_s: tuning.pause_interval_s,
            misses_at_floor: 0,
            is_long_pause: false,
            read_at_pause: 0,
            last_answer_s: now_s,
            last_tick_s: now_s,
            read_at_tick: 0,
            tuning,
            limits,
        }
    }

    pub fn baseline(&self) -> &Baseline {
        &self.baseline
    }

    /// Recent p99 relative to the undisturbed one.
    pub fn recent_overhead(&self) -> Option<Estimate> {
        self.recent_overhead_at(LIMIT_QUANTILE)
    }

    fn recent_overhead_at(&self, quantile: f64) -> Option<Estimate> {
        let overhead = self.overhead(self.loaded.recent(), quantile)?;
        Some(Estimate { error: overhead.error.hypot(NOISE_LEFT * self.baseline.noise()), ..overhead })
    }

    /// Distance of the worst of the p99 and the guard quantiles from the limit less its margin. Unit: the limit, or
    /// the standard error if larger. `None` until the p99 can be estimated.
    fn headroom(&self) -> Option<f64> {
        let Tuning { margin_errors, margin_max: margin_most, .. } = self.tuning;
        let left = |toll: Estimate, margin_errors: f64| {
            let margin = (margin_errors * toll.error).min(margin_most * self.limit_ln);
            (self.limit_ln - margin - toll.ln) / self.limit_ln.max(toll.error)
        };
        let limited = left(self.recent_overhead()?, margin_errors);
        let guarded = GUARD_QUANTILES.iter().filter_map(|quantile| self.recent_overhead_at(*quantile));
        Some(guarded.map(|toll| left(toll, GUARD_MARGIN * margin_errors)).fold(limited, f64::min))
    }

    pub fn set_max_p99_overhead(&mut self, max_toll: f64) {
        self.limit_ln = max_toll.ln_1p();
    }

    /// `None`: no limit except the latency limit.
    pub fn set_ceiling(&mut self, ceiling: Option<f64>) {
        self.limits.ceiling = ceiling;
        self.set_rate_ln(self.rate_ln);
    }

    /// Suspends the latency limit: only the ceiling limits the rate.
    pub fn suspend_limit(&mut self) {
        self.limit_suspended = true;
    }

    /// True if the present probe latency counts as undisturbed by the dump.
    fn is_undisturbed(&self, sent_s: f64) -> bool {
        let still_s = sent_s - self.phase_since_s;
        self.phase != Phase::Running && (DRAIN_S..self.limits.longest_pause_s).contains(&still_s)
    }

    /// Records a probe answer: sent at `sent_s`, latency `latency_us`. Returns the state of the dump
    /// meanwhile.
    pub fn add_sample(&mut self, sent_s: f64, latency_us: f64) -> DumpState {
        self.last_answer_s = self.last_answer_s.max(sent_s + latency_us / 1e6);
        let answer = ProbeSample { sent_s, ln_us: latency_us.max(1e-3).ln() };
        let disturbed = match self.phase {
            Phase::Running => sent_s >= self.phase_since_s + REFILL_S,
            _ => sent_s < self.phase_since_s,
        };
        if self.is_undisturbed(sent_s) {
            self.pause_samples.push(answer);
            return DumpState::Paused;
        }
        if !disturbed {
            return DumpState::Transition;
        }
        if let Some(second) = self.loaded.add(answer, &self.baseline) {
            let brakes = self.needs_brake(&second);
            self.brake_seconds.record_during_dump(brakes);
            if !brakes && second.first().is_some_and(|first| first.sent_s >= self.braked_s) {
                self.release_brake();
            }
        }
        DumpState::Running
    }

    /// A second after the brake is as it should be: the one before was as likely the host's own as such seconds are
    /// without the dump.
    fn release_brake(&mut self) {
        if let Some(pace) = self.rate_ln_before_brake.take() {
            self.set_rate_ln(self.rate_ln + self.brake_seconds.host_share() * (pace - self.rate_ln));
        }
    }

    /// What seconds without the dump are like.
    fn record_undisturbed(&mut self, answers: &[ProbeSample]) {
        for second in
            answers.chunks(SAMPLES_PER_SECOND).filter(|second| 2 * second.len() >= SAMPLES_PER_SECOND)
        {
            self.loaded.add_undisturbed(second, &self.baseline);
            self.brake_seconds.record_without_dump(self.needs_brake(second));
        }
    }

    /// By the same measure as the brake.
    fn needs_brake(&self, second: &[ProbeSample]) -> bool {
        let own = Sketch::from_samples(second.iter().map(|answer| answer.ln_us));
        let overhead = self.second_overhead(&own, self.tuning.fast_quantile);
        overhead.is_some_and(|toll| self.exceeds_limit(toll, self.tuning.brake_errors))
    }

    fn exceeds_limit(&self, overhead: Estimate, errors: f64) -> bool {
        overhead.ln - errors * overhead.error > self.limit_ln
    }

    /// Decision from `now_s` on. `moved`: bytes read since the start. `waiting_us`: wait of the oldest open
    /// probe query. `held`: the user requested a pause.
    pub fn decide(&mut self, now_s: f64, moved: u64, waiting_us: f64, held: bool) -> Decision {
        let why = self.next_reason(now_s, moved, waiting_us, held);
        self.last_reason = why;
        let allow = match why {
            Reason::Freed => self.limits.ceiling.map_or(ReadLimit::Unlimited, ReadLimit::Rate),
            Reason::Trickling => ReadLimit::Rate(self.limits.keepalive_rate),
            Reason::Blind => ReadLimit::Rate(self.limits.floor),
            Reason::Looking | Reason::ByHand => ReadLimit::Paused,
            Reason::Unkept if self.phase == Phase::MeasuringPause => ReadLimit::Paused,
            _ => ReadLimit::Rate(self.rate_ln.exp()),
        };
        Decision { limit: allow, reason: why }
    }

    fn next_reason(&mut self, now_s: f64, moved: u64, waiting_us: f64, held: bool) -> Reason {
        match (self.phase, held) {
            (Phase::UserPause, true) => self.learn_during_user_pause(),
            (_, true) => self.enter_phase(Phase::UserPause, now_s, moved),
            (Phase::MeasuringPause, false) if self.limit_suspended => {
                self.enter_phase(Phase::Running, now_s, moved)
            }
            (Phase::UserPause, false) => {
                self.end_pause(now_s);
                self.enter_phase(Phase::Running, now_s, moved);
            }
            _ => {}
        }
        if self.limit_suspended && !held {
            return Reason::Freed;
        }
        let still_s = now_s - self.phase_since_s;
        match self.phase {
            Phase::UserPause if still_s >= self.limits.longest_pause_s => Reason::Trickling,
            Phase::UserPause => Reason::ByHand,
            Phase::MeasuringPause if !self.is_pause_complete(still_s) => {
                if self.is_long_pause {
                    Reason::Unkept
                } else {
                    Reason::Looking
                }
            }
            Phase::MeasuringPause => {
                self.end_pause(now_s);
                self.enter_phase(Phase::Running, now_s, moved);
                self.regulate(now_s, moved, waiting_us)
            }
            Phase::Running => self.regulate(now_s, moved, waiting_us),
        }
    }

    fn is_unattainable(&self) -> bool {
        self.misses_at_floor >= UNATTAINABLE_AFTER
    }

    fn enter_phase(&mut self, phase: Phase, now_s: f64, moved: u64) {
        if self.phase == Phase::UserPause || std::mem::take(&mut self.is_long_pause) {
            self.read_at_pause = moved;
        }
        self.phase = phase;
        self.phase_since_s = now_s;
        self.last_tick_s = now_s;
        self.read_at_tick = moved;
    }

    fn is_pause_complete(&self, still_s: f64) -> bool {
        if self.is_long_pause {
            return still_s >= self.limits.longest_pause_s;
        }
        let longest_s = PAUSE_MAX_S.min(self.limits.longest_pause_s);
        self.pause_samples.len() >= self.tuning.pause_samples || still_s >= longest_s
    }

    /// A pause by hand may be long: what it shows is taken in as it comes.
    fn learn_during_user_pause(&mut self) {
        if self.pause_samples.len() >= self.tuning.pause_samples {
            self.absorb_pause();
        }
    }

    /// By how much the undisturbed median has shifted, as a logarithm, where that is more than chance and drift.
    fn absorb_pause(&mut self) -> Option<f64> {
        let pause = std::mem::take(&mut self.pause_samples);
        self.record_undisturbed(&pause);
        self.baseline.add_pause(&pause)
    }

    /// A pause has ended.
    fn end_pause(&mut self, now_s: f64) {
        let shift = self.absorb_pause();
        self.last_pause_s = now_s;
        let seldom_s = self.tuning.pause_interval_s;
        self.next_pause_in_s = match shift {
            Some(_) => PAUSE_SOON_S,
            None => (self.next_pause_in_s * 2.0).min(seldom_s),
        };
        if shift.is_some() {
            // What was answered before is of the other regime.
            self.loaded.clear();
        }
        if let Some(pace) = self.rate_ln_before_brake.filter(|_| shift.is_some_and(|shift| shift > 0.0)) {
            // It was the host that had become slow: what the brake did was not called for.
            self.set_rate_ln(pace);
            self.rate_ln_before_brake = None;
        }
        self.release_brake();
        self.loaded.clear_last_second();
    }

    fn overhead(&self, sketch: &Sketch, quantile: f64) -> Option<Estimate> {
        Some(sketch.estimate(quantile)?.relative_to(self.baseline.estimate(quantile)?))
    }

    fn set_rate_ln(&mut self, pace: f64) {
        let floor = self.limits.floor.ln();
        let ceiling = self.limits.ceiling.map_or(f64::INFINITY, f64::ln).max(floor);
        self.rate_ln = pace.clamp(floor, ceiling);
    }

    fn is_at_floor(&self) -> bool {
        self.rate_ln <= self.limits.floor.ln() + 0.01
    }

    fn regulate(&mut self, now_s: f64, moved: u64, waiting_us: f64) -> Reason {
        let undisturbed_us = self.baseline.estimate(LIMIT_QUANTILE).map_or(0.0, |p99| p99.ln.exp());
        let waits = waiting_us > (STUCK_QUERY_FACTOR * undisturbed_us).max(STUCK_QUERY_MIN_US);
        if now_s - self.last_answer_s > NO_ANSWER_S {
            return Reason::Blind;
        }
        let moving_s = now_s - self.phase_since_s;
        if now_s - self.braked_s >= BRAKE_INTERVAL_S
            && moving_s >= REFILL_S
            && (waits || self.last_second_exceeds_limit(self.tuning.brake_errors))
        {
            return self.apply_brake(now_s, moved);
        }
        let overdue = now_s - self.last_pause_s >= self.next_pause_in_s;
        if moving_s >= PAUSE_INTERVAL_MIN_S && (overdue || self.is_baseline_stale()) {
            self.enter_phase(Phase::MeasuringPause, now_s, moved);
            return Reason::Looking;
        }
        if now_s - self.last_tick_s < SLOW_TICK_S {
            return self.last_running_reason();
        }
        let could = self.rate_ln.exp() * (now_s - self.last_tick_s);
        let used = moved.saturating_sub(self.read_at_tick) as f64 >= FULL_USE_SHARE * could;
        self.last_tick_s = now_s;
        self.read_at_tick = moved;
        self.run_slow_loop(used)
    }

    /// Between two ticks what was said last goes on, unless that was of a pause.
    fn last_running_reason(&self) -> Reason {
        match self.last_reason {
            moving @ (Reason::Starting
            | Reason::Climbing
            | Reason::Holding
            | Reason::Easing
            | Reason::Braking) => moving,
            _ => Reason::Holding,
        }
    }

    /// True if the last second exceeds the limit by so many standard errors, with chance and the host's noise
    /// included.
    fn last_second_exceeds_limit(&self, errors: f64) -> bool {
        let overhead = self.last_second_overhead(self.tuning.fast_quantile);
        overhead.is_some_and(|toll| self.exceeds_limit(toll, errors))
    }

    fn last_second_overhead(&self, quantile: f64) -> Option<Estimate> {
        let second = self.loaded.last_second();
        self.second_overhead(second, quantile).filter(|_| second.count() >= FAST_MIN_SAMPLES)
    }

    fn second_overhead(&self, second: &Sketch, quantile: f64) -> Option<Estimate> {
        let overhead = self.overhead(second, quantile)?;
        Some(Estimate { error: overhead.error.hypot(self.baseline.noise()), ..overhead })
    }

    /// Faster than undisturbed cannot be: the baseline is of another time.
    fn is_baseline_stale(&self) -> bool {
        self.last_second_overhead(0.5).is_some_and(|toll| toll.ln + 2.0 * toll.error < -self.limit_ln)
    }

    fn apply_brake(&mut self, now_s: f64, moved: u64) -> Reason {
        self.end_slow_start();
        let may_look = now_s - self.last_pause_s >= PAUSE_INTERVAL_MIN_S;
        if self.is_at_floor() || self.rate_ln_before_brake.is_some() && may_look {
            // Slower does not help, or has not helped: is it the dump at all?
            self.misses_at_floor += u32::from(self.is_at_floor() && self.brake_seconds.caused_by_dump());
            self.braked_s = now_s;
            if self.is_unattainable() {
                // Between two long pauses the server gets rid of enough not to take its reader for dead.
                let freed = moved.saturating_sub(self.read_at_pause) >= self.limits.keepalive_bytes();
                if freed && !self.limits.floor_is_set_by_user {
                    self.enter_phase(Phase::MeasuringPause, now_s, moved);
                    self.is_long_pause = true;
                }
                return Reason::Unkept;
            }
            if may_look {
                self.enter_phase(Phase::MeasuringPause, now_s, moved);
                return Reason::Looking;
            }
            return Reason::Braking;
        }
        self.rate_ln_before_brake.get_or_insert(self.rate_ln);
        self.braked_s = now_s;
        self.set_rate_ln(self.rate_ln + BRAKE_FACTOR.ln());
        self.loaded.decay_after_brake();
        Reason::Braking
    }

    fn end_slow_start(&mut self) {
        if std::mem::take(&mut self.in_slow_start) {
            self.set_rate_ln(self.rate_ln - self.tuning.start_reduction);
        }
    }

    /// The slow loop. `used`: the dump went as fast as it was allowed to.
    fn run_slow_loop(&mut self, used: bool) -> Reason {
        let left = self.headroom();
        if self.in_slow_start {
            let felt = left.is_some_and(|left| left < 0.0);
            self.settling_since_s = self.last_tick_s;
            if !felt && !self.last_second_exceeds_limit(1.0) {
                if used && self.loaded.last_second().count() >= FAST_MIN_SAMPLES {
                    self.set_rate_ln(self.rate_ln + SLOW_START_GAIN);
                }
                return Reason::Starting;
            }
            self.end_slow_start();
            return Reason::Easing;
        }
        // What is lost in the noise moves the rate by little, and no more downwards than upwards.
        let Some(left) = left.map(|left| left.clamp(-2.0, 1.0)) else { return Reason::Holding };
        if left >= 0.0 {
            self.misses_at_floor = 0;
            let best =
                self.best_rate_ln.map_or(self.rate_ln, |best| 0.9 * best + 0.1 * self.rate_ln.max(best));
            self.best_rate_ln = Some(best);
        }
        if left.abs() < DEAD_BAND || left > 0.0 && !used {
            return Reason::Holding;
        }
        let is_known = self.best_rate_ln.is_some_and(|best| self.rate_ln < best + RECOVERY_SHARE.ln());
        let Tuning { gain_first, gain_last, gain_half_life_s, .. } = self.tuning;
        let settled = ((self.last_tick_s - self.settling_since_s) / gain_half_life_s).exp2();
        let gain = (gain_first / settled).max(gain_last);
        let gain = if left > 0.0 && is_known { gain * RECOVERY_GAIN } else { gain };
        self.set_rate_ln(self.rate_ln + gain * left);
        if left > 0.0 { Reason::Climbing } else { Reason::Easing }
    }
}
