//! What of a plan may be written down?
//!
//! Everything but what looks like a secret on a command line. A plan that lost one so cannot be carried out
//! again, and says so.

use crate::secrets;
use anyhow::bail;
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

/// An error for the first arm whose commands have lost a secret.
pub fn check_whole(plan: &Plan) -> anyhow::Result<()> {
    for arm in &plan.arms {
        let treatment = &arm.treatment;
        let words = treatment.processes.iter().flat_map(|process| process.stages.iter().flatten());
        if words.chain(&treatment.on).chain(&treatment.off).any(|text| text.contains("***")) {
            bail!(
                "the plan does not hold the secret that arm {} was given on its command line: let the command \
                 read it from an option file or from an environment variable (`env`), and plan anew",
                arm.name
            );
        }
    }
    Ok(())
}
