//! Interim precision: the smallest effect that the rounds so far detect.
//!
//! For users who watch the run. Verdicts, and what the run finds in the end, are the analysis's,
//! which takes the host's drift out first.

use super::trial::ClosedWindow;
use std::collections::BTreeMap;
use toll_model::plan::noise::BinOutcome;
use toll_model::plan::noise_outcome;
use toll_record::{Plan, Role};

/// The power that the smallest effect is stated for.
const POWER: f64 = 0.8;

/// Windows of the run until now, by arm and round.
pub struct InterimPrecision<'a> {
    plan: &'a Plan,
    outcome: Option<BinOutcome>,
    ln: BTreeMap<(&'a str, u32), f64>,
}

impl<'a> InterimPrecision<'a> {
    pub fn new(plan: &'a Plan) -> Self {
        Self { plan, outcome: noise_outcome(plan), ln: BTreeMap::new() }
    }

    pub fn add_window(&mut self, arm: &'a str, round: u32, closed: &ClosedWindow) {
        let (Some(outcome), Some(load)) = (self.outcome, &closed.load) else { return };
        let value = match outcome {
            BinOutcome::Latency => load.latency_us_sum as f64 / load.events as f64,
            BinOutcome::Count => load.statements as f64 / (closed.end_mono_us - closed.begin_mono_us) as f64,
        };
        if value.is_finite() && value > 0.0 {
            self.ln.insert((arm, round), value.ln());
        }
    }

    /// Percent on the primary outcome, all treatments together; `None`: too few rounds yet, or an outcome that the load
    /// does not measure.
    pub fn mde_pct(&self) -> Option<f64> {
        let is_asked = |role| role == Role::Treatment;
        let arms = self.plan.arms.iter().filter(|arm| is_asked(arm.role) && arm.unavailable.is_none());
        let pairs: Vec<Vec<f64>> = arms
            .map(|arm| {
                let reference = arm.against.as_ref().unwrap_or(&self.plan.baseline);
                let of_arm = self.ln.range((arm.name.as_str(), 0)..=(arm.name.as_str(), u32::MAX));
                of_arm.filter_map(|((_, round), ln)| Some(ln - self.ln.get(&(reference, *round))?)).collect()
            })
            .collect();
        let spreads: Vec<f64> = pairs.iter().filter(|d| d.len() > 1).map(|d| toll_stats::sd(d)).collect();
        let rounds = pairs.iter().map(Vec::len).max()?;
        if spreads.is_empty() {
            return None;
        }
        let sd = toll_stats::median(&spreads);
        let rounds = u32::try_from(rounds).ok()?;
        let found =
            toll_stats::minimum_detectable_effect(sd, rounds, self.plan.alpha, pairs.len() as u32, POWER);
        found.map(toll_stats::log_ratio_to_pct)
    }
}
