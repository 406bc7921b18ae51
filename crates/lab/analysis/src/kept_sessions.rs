//! Note on settings that sessions copy when they connect, where users' sessions are not the run's to renew.

use super::windows::Window;
use toll_record::{Arm, Plan};
use toll_sys::number_format::format_megabytes;

/// A sentence for the arm's notes: its figures are those of the sessions that came while it was on. `None` for any other setting, and
/// in a run whose own load connects anew.
pub fn describe_kept_sessions(plan: &Plan, arm: &Arm, windows: &[&Window]) -> Option<String> {
    if plan.design.is_rounds() || !arm.treatment.fresh_sessions {
        return None;
    }
    let written: Vec<u64> = windows.iter().filter_map(|window| window.artefact_bytes).collect();
    let amount = match written.is_empty() {
        true => String::new(),
        false => format!(
            ", and {} MB were written in {} windows",
            format_megabytes(written.iter().sum::<u64>() as f64),
            written.len()
        ),
    };
    Some(format!(
        "a session has the setting of the moment at which it connected: sessions that stayed connected did not have this one{amount}"
    ))
}
