//! Is every treatment decided, so that the run may end before its last round?
//!
//! Asks the analysis for its verdicts, and never draws one of its own. Asked after every round: a run that may
//! end early has verdicts from a confidence sequence, since a plain interval looked at again and again finds
//! effects that are not there.

use super::judged;
use toll_record::{Role, RunResult, Verdict};

/// True once every treatment's toll is told apart from zero, or known to lie inside the margin. Never where no treatment
/// has a toll to be told: there is nothing to wait for, and nothing that says when to stop.
pub fn enough(result: &RunResult) -> bool {
    let decided = |verdict| matches!(verdict, Verdict::Costly | Verdict::Cheaper | Verdict::NoEffect);
    let treatments =
        result.arms.iter().filter(|arm| arm.role == Role::Treatment && arm.unavailable.is_none());
    let verdicts: Vec<Option<Verdict>> =
        treatments.map(|arm| judged(result, arm).map(|outcome| outcome.verdict)).collect();
    // What is compared with nothing has no verdict to wait for.
    let open = |verdict: &Option<Verdict>| {
        verdict.is_none_or(|verdict| verdict != Verdict::NotCompared && !decided(verdict))
    };
    verdicts.iter().flatten().any(|verdict| decided(*verdict)) && !verdicts.iter().any(open)
}
