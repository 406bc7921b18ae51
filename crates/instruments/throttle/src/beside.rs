//! Probe latency during the dump, in the last second and recently.
//!
//! There are two recent values. In one, stalled seconds count in full; in the other, they weigh as little as
//! in the baseline. The second one applies unless stalls are more frequent during the dump than without it.
//! Knows no clock.

use super::baseline::{Answer, Baseline, ODD_WEIGHS, SECOND_ANSWERS};
use super::seconds::SlowSeconds;
use super::sketch::Sketch;
use super::tuning::Tuning;

/// Weight of the earlier answers after a brake: they belong to another rate.
const REMEMBERED: f64 = 0.3;

#[derive(Debug, Clone)]
pub struct Beside {
    fast: Sketch,
    slow: Sketch,
    slow_of_all: Sketch,
    odd: SlowSeconds,
    /// Answers that are no whole second yet.
    second: Vec<Answer>,
}

impl Beside {
    pub fn new(tuning: &Tuning) -> Self {
        Self {
            fast: Sketch::new(tuning.fast_half_life_s),
            slow: Sketch::new(tuning.slow_half_life_s),
            slow_of_all: Sketch::new(tuning.slow_half_life_s),
            odd: SlowSeconds::default(),
            second: Vec::with_capacity(SECOND_ANSWERS),
        }
    }

    /// Adds an answer. Returns the second that it completes, if any.
    pub fn add(&mut self, answer: Answer, baseline: &Baseline) -> Option<Vec<Answer>> {
        self.fast.add(answer.sent_s, answer.ln_us);
        self.slow_of_all.add(answer.sent_s, answer.ln_us);
        self.second.push(answer);
        if self.second.len() < SECOND_ANSWERS {
            return None;
        }
        let second = std::mem::replace(&mut self.second, Vec::with_capacity(SECOND_ANSWERS));
        let is_odd = baseline.is_odd(&second);
        self.odd.beside(is_odd);
        let weighs = if is_odd { ODD_WEIGHS } else { 1.0 };
        for answer in &second {
            self.slow.add_part(answer.sent_s, answer.ln_us, weighs);
        }
        Some(second)
    }

    /// Adds a second without the dump.
    pub fn saw_undisturbed(&mut self, second: &[Answer], baseline: &Baseline) {
        self.odd.without(baseline.is_odd(second));
    }

    pub fn last_second(&self) -> &Sketch {
        &self.fast
    }

    pub fn of_late(&self) -> &Sketch {
        if self.odd.are_the_dumps() { &self.slow_of_all } else { &self.slow }
    }

    /// Discards the answers of the last second: they belong to another time.
    pub fn forget_second(&mut self) {
        self.fast.clear();
    }

    /// Reduces the weight of the answers so far after a brake: they belong to another rate.
    pub fn braked(&mut self) {
        self.fast.clear();
        self.slow.keep(REMEMBERED);
        self.slow_of_all.keep(REMEMBERED);
    }

    /// Discards all answers so far: they belong to another load regime.
    pub fn forget(&mut self) {
        self.fast.clear();
        self.slow.clear();
        self.slow_of_all.clear();
        self.second.clear();
    }
}
