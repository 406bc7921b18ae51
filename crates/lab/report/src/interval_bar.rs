//! Bars of confidence intervals in characters, all on one axis.

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
    /// Characters.
    pub width: usize,
}

impl Axis {
    /// `None` if some outcome has no interval around zero overhead, or they differ in unit.
    pub fn over<'a>(outcomes: impl Iterator<Item = &'a Outcome>, width: usize) -> Option<Self> {
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
        let mut axis = Axis { low: 0.0, high: 0.0, unit, width };
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

    /// Column of a value on the scale; outside the axis for what lies beyond it.
    fn column(&self, scaled: f64) -> i64 {
        ((scaled - self.low) / (self.high - self.low) * (self.width - 1) as f64).round() as i64
    }

    /// Values at both ends and at zero, above the bars.
    pub fn labels(&self) -> String {
        let write = |scaled: f64| match &self.unit {
            None => format_overhead(100.0 * scaled.exp_m1()),
            Some(unit) => format_signed(scaled, unit),
        };
        let mut line = vec![' '; self.width];
        let zero = self.column(0.0).clamp(0, self.width as i64 - 1) as usize;
        line[zero] = '0';
        let (low, high) = (write(self.low), write(self.high));
        if low.chars().count() < zero {
            line.iter_mut().zip(low.chars()).for_each(|(place, c)| *place = c);
        }
        let begin = self.width.saturating_sub(high.chars().count());
        if begin > zero + 1 {
            line[begin..].iter_mut().zip(high.chars()).for_each(|(place, c)| *place = c);
        }
        line.into_iter().collect()
    }

    /// `---o---` from end to end, `|` at zero, `<` and `>` where it goes on beyond the axis.
    pub fn bar(&self, outcome: &Outcome) -> String {
        let mut line = vec![' '; self.width];
        let last = self.width as i64 - 1;
        line[self.column(0.0).clamp(0, last) as usize] = '|';
        if let Some(ends) = interval_of(outcome) {
            let [low, high] = ends.map(|end| self.column(self.scale(end)));
            for place in low.clamp(0, last)..=high.clamp(0, last) {
                line[place as usize] = '-';
            }
            if low < 0 {
                line[0] = '<';
            }
            if high > last {
                line[last as usize] = '>';
            }
            line[self.column(self.scale(estimate(outcome))).clamp(0, last) as usize] = 'o';
        }
        line.into_iter().collect()
    }
}

fn estimate(outcome: &Outcome) -> f64 {
    outcome.toll_pct.or(outcome.effect).unwrap_or(0.0)
}
