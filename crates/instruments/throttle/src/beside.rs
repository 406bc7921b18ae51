//! What does the canary take beside the dump, in the last second and of late?
//!
//! Of late there are two answers: with seconds in full in which much stood still, and with such seconds weighing as little
//! as they do in the baseline. The second one holds unless they are more frequent beside the dump than without it. Knows no clock.

use super::baseline::{Answer, Baseline, ODD_WEIGHS, SECOND_ANSWERS};
use super::seconds::SlowSeconds;
use super::sketch::Sketch;
use super::tuning::Tuning;

/// What a brake leaves of the memory of late, which is of another rate.
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

    /// One more answer; gives the second that it makes whole.
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

    /// A second without the dump.
    pub fn saw_undisturbed(&mut self, second: &[Answer], baseline: &Baseline) {
        self.odd.without(baseline.is_odd(second));
    }

    pub fn last_second(&self) -> &Sketch {
        &self.fast
    }

    pub fn of_late(&self) -> &Sketch {
        if self.odd.are_the_dumps() { &self.slow_of_all } else { &self.slow }
    }

    /// What was answered in the last second is of another time.
    pub fn forget_second(&mut self) {
        self.fast.clear();
    }

    /// What was answered so far is of another rate.
    pub fn braked(&mut self) {
        self.fast.clear();
        self.slow.keep(REMEMBERED);
        self.slow_of_all.keep(REMEMBERED);
    }

    /// What was answered so far is of another regime.
    pub fn forget(&mut self) {
        self.fast.clear();
        self.slow.clear();
        self.slow_of_all.clear();
        self.second.clear();
    }
}
