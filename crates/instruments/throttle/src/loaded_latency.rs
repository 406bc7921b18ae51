//! Probe latency during the dump, in the last second and recently.
//!
//! There are two recent values. In one, stalled seconds count in full; in the other, they weigh as little as
//! in the baseline. The second one applies unless stalls are more frequent during the dump than without it.
//! Knows no clock.

use super::baseline::{Baseline, ProbeSample, SAMPLES_PER_SECOND, STALL_WEIGHT};
use super::sketch::Sketch;
use super::stall_attribution::SlowSecondStats;
use super::tuning::Tuning;

/// Weight of the earlier answers after a brake: they belong to another rate.
const WEIGHT_AFTER_BRAKE: f64 = 0.3;

#[derive(Debug, Clone)]
pub struct LoadedLatency {
    fast: Sketch,
    slow: Sketch,
    slow_unweighted: Sketch,
    stalls: SlowSecondStats,
    /// Answers that are no whole second yet.
    second: Vec<ProbeSample>,
}

impl LoadedLatency {
    pub fn new(tuning: &Tuning) -> Self {
        Self {
            fast: Sketch::new(tuning.fast_half_life_s),
            slow: Sketch::new(tuning.slow_half_life_s),
            slow_unweighted: Sketch::new(tuning.slow_half_life_s),
            stalls: SlowSecondStats::default(),
            second: Vec::with_capacity(SAMPLES_PER_SECOND),
        }
    }

    /// Adds an answer. Returns the second that it completes, if any.
    pub fn add(&mut self, answer: ProbeSample, baseline: &Baseline) -> Option<Vec<ProbeSample>> {
        self.fast.add(answer.sent_s, answer.ln_us);
        self.slow_unweighted.add(answer.sent_s, answer.ln_us);
        self.second.push(answer);
        if self.second.len() < SAMPLES_PER_SECOND {
            return None;
        }
        let second = std::mem::replace(&mut self.second, Vec::with_capacity(SAMPLES_PER_SECOND));
        let is_odd = baseline.is_stalled(&second);
        self.stalls.record_during_dump(is_odd);
        let weighs = if is_odd { STALL_WEIGHT } else { 1.0 };
        for answer in &second {
            self.slow.add_weighted(answer.sent_s, answer.ln_us, weighs);
        }
        Some(second)
    }

    /// Adds a second without the dump.
    pub fn add_undisturbed(&mut self, second: &[ProbeSample], baseline: &Baseline) {
        self.stalls.record_without_dump(baseline.is_stalled(second));
    }

    pub fn last_second(&self) -> &Sketch {
        &self.fast
    }

    pub fn recent(&self) -> &Sketch {
        if self.stalls.caused_by_dump() { &self.slow_unweighted } else { &self.slow }
    }

    /// Discards the answers of the last second: they belong to another time.
    pub fn clear_last_second(&mut self) {
        self.fast.clear();
    }

    /// Reduces the weight of the answers so far after a brake: they belong to another rate.
    pub fn decay_after_brake(&mut self) {
        self.fast.clear();
        self.slow.scale_weight(WEIGHT_AFTER_BRAKE);
        self.slow_unweighted.scale_weight(WEIGHT_AFTER_BRAKE);
    }

    /// Discards all answers so far: they belong to another load regime.
    pub fn clear(&mut self) {
        self.fast.clear();
        self.slow.clear();
        self.slow_unweighted.clear();
        self.second.clear();
    }
}
