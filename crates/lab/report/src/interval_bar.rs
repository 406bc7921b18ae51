//! Bars of confidence intervals in characters, all on one axis.

use super::axis::{Axis, estimate};
use toll_analysis::estimate_format::interval_of;
use toll_record::Outcome;

/// Axis drawn in so many characters.
pub struct Bars {
    axis: Axis,
    pub width: usize,
}

impl Bars {
    pub fn new(axis: Axis, width: usize) -> Self {
        Self { axis, width }
    }

    /// Column of a value; outside the bars for what lies beyond the axis.
    fn column(&self, value: f64) -> i64 {
        (self.axis.position(value) * (self.width - 1) as f64).round() as i64
    }

    /// Values at both ends and at zero, above the bars.
    pub fn labels(&self) -> String {
        let mut line = vec![' '; self.width];
        let zero = self.column(0.0).clamp(0, self.width as i64 - 1) as usize;
        line[zero] = '0';
        let [low, high] = self.axis.ends().map(|end| self.axis.label(end));
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
            let [low, high] = ends.map(|end| self.column(end));
            for place in low.clamp(0, last)..=high.clamp(0, last) {
                line[place as usize] = '-';
            }
            if low < 0 {
                line[0] = '<';
            }
            if high > last {
                line[last as usize] = '>';
            }
            line[self.column(estimate(outcome)).clamp(0, last) as usize] = 'o';
        }
        line.into_iter().collect()
    }
}
