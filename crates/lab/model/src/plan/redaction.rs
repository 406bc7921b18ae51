//! Redaction of a plan: everything is written down but what looks like a secret on a command line.
//!
//! A plan without its secrets cannot be carried out again. [`check_unredacted`] refuses it.

use anyhow::bail;
use std::collections::BTreeMap;
use toll_record::Plan;
use toll_sys::redact;

/// The plan with `***` in the place of every secret.
pub fn redact_plan(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for arm in &mut plan.arms {
        arm.title = redact::redact_text(&arm.title);
        let treatment = &mut arm.treatment;
        for stages in treatment.processes.iter_mut().map(|process| &mut process.stages) {
            stages.iter_mut().for_each(|words| *words = redact::redact_words(words));
        }
        for sql in treatment.on.iter_mut().chain(&mut treatment.off) {
            *sql = redact::redact_text(sql);
        }
        for words in [&mut arm.count_with, &mut arm.needs.check] {
            *words = redact::redact_words(words);
        }
        redact_options(&mut arm.server_options);
    }
    for server in plan.setup.sandbox.iter_mut().flat_map(|sandbox| &mut sandbox.servers) {
        redact_options(&mut server.options);
    }
    for setting in plan.server.iter_mut().flat_map(|server| &mut server.config) {
        if let Some((name, _)) = setting.split_once('=').filter(|(name, _)| is_secret_option(name)) {
            *setting = format!("{name}=***");
        }
    }
    plan
}

fn redact_options(options: &mut BTreeMap<String, String>) {
    for (_, value) in options.iter_mut().filter(|(name, _)| is_secret_option(name)) {
        "***".clone_into(value);
    }
}

/// True if a server option of this name holds a secret.
fn is_secret_option(name: &str) -> bool {
    name.contains("password") || name.contains("secret")
}

/// Refuses a plan whose secrets were redacted.
///
/// # Errors
/// A command, statement or server option holds `***`.
pub fn check_unredacted(plan: &Plan) -> anyhow::Result<()> {
    let options =
        plan.setup.sandbox.iter().flat_map(|sandbox| &sandbox.servers).map(|server| &server.options);
    if let Some((name, _)) = options.flatten().find(|(name, value)| is_secret_option(name) && *value == "***")
    {
        bail!(
            "the plan does not hold the server's option {name}, which is secret: plan anew from the scenario"
        );
    }
    for arm in &plan.arms {
        let treatment = &arm.treatment;
        let words = treatment.processes.iter().flat_map(|process| process.stages.iter().flatten());
        let words = words.chain(&arm.count_with).chain(&arm.needs.check);
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

#[cfg(test)]
mod tests {
    use super::*;
    use toll_record::{Arm, SandboxServer, SandboxSetup};

    #[test]
    fn a_plan_that_lost_a_secret_says_so_and_one_without_is_whole() {
        let text = r#"{"format":2,"toll_version":"0","command":[],"scenario":"x","question":"?","profile":"a","seed":1,
            "baseline":"b","primary":"qps","outcomes":[],"columns":[],"panels":[],"margin_pct":5.0,"alpha":0.05,"rounds":1,
            "window_s":1.0,"settle_s":0.0,"gap_s":0.0,"pilot_s":0.0,"setup":{},
            "early_stop":false,"order":[],"jitter":0.2,"started_wall_us":0,"arms":[{"name":"b","title":"mysqldump -phunter2",
            "role":"baseline","command":"","meter":"none","window":{"until":"time","s":1.0},"settle_s":0.0,
            "workload":{"driver":"none","profile":"x","transport":"tcp","threads":1,"tables":1,"rows":1,"prepared":true},"treatment":{"processes":[{"name":"d",
            "stages":[["mysqldump","-phunter2"]],"stop":"TERM","after_s":0.0}]}}]}"#;
        let mut plan: Plan = serde_json::from_str(text).unwrap();
        assert!(check_unredacted(&plan).is_ok());
        let kept = redact_plan(&plan);
        assert!(!serde_json::to_string(&kept).unwrap().contains("hunter2"));
        assert!(
            check_unredacted(&kept).unwrap_err().to_string().contains("arm b was given on its command line")
        );

        plan.arms[0].treatment.processes.clear();
        plan.arms[0].count_with = ["mysql", "-phunter2"].map(str::to_owned).to_vec();
        let kept = redact_plan(&plan);
        assert!(
            !serde_json::to_string(&kept).unwrap().contains("hunter2") && check_unredacted(&kept).is_err()
        );

        plan.arms = Vec::<Arm>::new();
        let options = BTreeMap::from([("report_password".to_owned(), "hunter2".to_owned())]);
        let server = SandboxServer { options, ..SandboxServer::default() };
        plan.setup.sandbox = Some(SandboxSetup { servers: vec![server], ..SandboxSetup::default() });
        let kept = redact_plan(&plan);
        assert!(!serde_json::to_string(&kept).unwrap().contains("hunter2"));
        assert!(check_unredacted(&kept).unwrap_err().to_string().contains("report_password"));
    }
}
