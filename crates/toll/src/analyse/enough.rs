//! Is every treatment decided, so that the run may end before its last round?
//!
//! Asks the analysis for its verdicts, and never draws one of its own. Asked after every round: a run that may
//! end early has verdicts from a confidence sequence, since a plain interval looked at again and again finds
//! effects that are not there.

use super::judged;
use toll_record::{Role, RunResult, Verdict};

/// True once every treatment's toll is told apart from zero, or known to lie inside the margin.
pub fn enough(result: &RunResult) -> bool {
    // What is compared with nothing has no verdict to wait for.
    let decided = |verdict| {
        matches!(verdict, Verdict::Costly | Verdict::Cheaper | Verdict::NoEffect | Verdict::NotCompared)
    };
    let mut treatments =
        result.arms.iter().filter(|arm| arm.role == Role::Treatment && arm.unavailable.is_none());
    treatments.all(|arm| judged(result, arm).is_some_and(|outcome| decided(outcome.verdict)))
}
