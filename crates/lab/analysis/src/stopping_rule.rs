//! Stopping rule: a run may end early once every treatment is decided.
//!
//! Uses the verdicts of the analysis as of a round, and never draws its own. A run that may end early uses a
//! confidence sequence. A plain interval that is checked repeatedly finds effects that do not exist.

use super::judged_outcome;
use toll_record::{Role, RunResult, Verdict};

/// True once every treatment's overhead differs from zero, or is known to be within the margin.
///
/// False if no treatment has an overhead to measure: there is then no rule for stopping.
pub fn can_stop_early(result: &RunResult) -> bool {
    let decided = |verdict| matches!(verdict, Verdict::Costly | Verdict::Cheaper | Verdict::NoEffect);
    let treatments =
        result.arms.iter().filter(|arm| arm.role == Role::Treatment && arm.unavailable.is_none());
    let verdicts: Vec<Option<Verdict>> =
        treatments.map(|arm| judged_outcome(result, arm).map(|outcome| outcome.verdict)).collect();
    // What is compared with nothing has no verdict to wait for.
    let open = |verdict: &Option<Verdict>| {
        verdict.is_none_or(|verdict| verdict != Verdict::NotCompared && !decided(verdict))
    };
    verdicts.iter().flatten().any(|verdict| decided(*verdict)) && !verdicts.iter().any(open)
}
