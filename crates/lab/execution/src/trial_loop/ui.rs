//! Messages and progress for the user.

use super::trial::TrialParams;

pub trait Ui {
    /// A line that stays.
    fn print_line(&self, text: &str);
    /// The smallest effect on the primary outcome, percent, that the rounds so far find.
    fn show_precision(&self, finds_pct: f64);
    /// A trial begins.
    fn show_trial(&self, place: TrialParams, arm: &str);
}
