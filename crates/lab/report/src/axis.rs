//! Axis of overheads: from the lowest to the highest end of the intervals, with zero between them.

use toll_analysis::estimate_format::{format_overhead, interval_of};
use toll_record::{Outcome, Verdict};
use toll_sys::number_format::format_signed;

/// Longest axis, in multiples of the end that three quarters of the intervals stay within.
const MOST_REACH: f64 = 2.0;

/// Axis from the lowest to the highest end of the intervals, with zero between them. Ratios are drawn by their logarithms.
pub struct Axis {
    low: f64,
    high: f64,
    /// Percent overheads; otherwise differences in this unit.
    unit: Option<String>,
}

impl Axis {
    /// `None` if some outcome has no interval around zero overhead, or they differ in unit.
    pub fn over<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Option<Self> {
        let outcomes: Vec<&Outcome> = outcomes.filter(|outcome| interval_of(outcome).is_some()).collect();
        let first = outcomes.first()?;
        let is_like = |outcome: &&Outcome| {
            outcome.toll_pct.is_some() == first.toll_pct.is_some()
                && outcome.unit == first.unit
                && outcome.verdict != Verdict::NotCompared
        };
        if !outcomes.iter().all(is_like) {
            return None;
        }
        let unit = first.toll_pct.is_none().then(|| first.unit.clone());
        let mut axis = Axis { low: 0.0, high: 0.0, unit };
        let mut reach = Vec::with_capacity(outcomes.len());
        for outcome in &outcomes {
            let [low, high] = interval_of(outcome)?.map(|end| axis.scale(end));
            axis.low = axis.low.min(low);
            axis.high = axis.high.max(high);
            reach.push(low.abs().max(high.abs()));
        }
        // One extreme row would leave no room for the others.
        reach.sort_by(f64::total_cmp);
        let most = MOST_REACH * reach[reach.len() * 3 / 4];
        axis.low = axis.low.max(-most);
        axis.high = axis.high.min(most);
        (axis.high > axis.low).then_some(axis)
    }

    fn scale(&self, value: f64) -> f64 {
        match self.unit {
            None => (value.max(-99.9) / 100.0).ln_1p(),
            Some(_) => value,
        }
    }

    /// Place of a value: 0 at the low end, 1 at the high end, outside for values beyond them.
    pub fn position(&self, value: f64) -> f64 {
        (self.scale(value) - self.low) / (self.high - self.low)
    }

    /// Values at both ends.
    pub fn ends(&self) -> [f64; 2] {
        [self.low, self.high].map(|scaled| match self.unit {
            None => 100.0 * scaled.exp_m1(),
            Some(_) => scaled,
        })
    }

    /// Round values within the axis, at most `most` of them, zero among them.
    pub fn round_values(&self, most: usize) -> Vec<f64> {
        let [low, high] = self.ends();
        let rough = (high - low) / most as f64;
        let unit = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * unit).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let (first, last) = ((low / step).ceil() as i64, (high / step).floor() as i64);
        (first..=last).map(|i| i as f64 * step).collect()
    }

    /// A value as a label.
    pub fn label(&self, value: f64) -> String {
        match &self.unit {
            _ if value == 0.0 => "0".to_owned(),
            None => format_overhead(value),
            Some(unit) => format_signed(value, unit),
        }
    }
}

/// The estimate, on the scale of its interval.
pub fn estimate(outcome: &Outcome) -> f64 {
    outcome.toll_pct.or(outcome.effect).unwrap_or(0.0)
}
