//! What of a plan may be written down?
//!
//! Everything but what looks like a secret on a command line.

use crate::secrets;
use toll_record::Plan;

/// The plan with `***` in the place of every secret.
pub fn hidden(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for arm in &mut plan.arms {
        arm.title = secrets::hide(&arm.title);
        let treatment = &mut arm.treatment;
        for stages in treatment.processes.iter_mut().map(|process| &mut process.stages) {
            stages.iter_mut().for_each(|words| *words = secrets::hide_words(words));
        }
        for sql in treatment.on.iter_mut().chain(&mut treatment.off) {
            *sql = secrets::hide(sql);
        }
    }
    plan
}
