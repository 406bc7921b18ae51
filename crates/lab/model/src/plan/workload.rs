//! Load of a plan: the usual one, overridden by the scenario, the arm and the command line.

use super::{NO_SYSBENCH_RATE, RunOverrides};
use crate::scenario::{Arm, Rate, Scenario, Subject, Workload as Written};
use anyhow::bail;
use toll_record::Workload;
use toll_sys::units::Percent;

/// The scenario's load with the user's overrides. `rows`: of the flag or the profile.
pub fn resolve(scenario: &Scenario, overrides: &RunOverrides, rows: Option<u64>) -> Workload {
    let driver = match scenario.subject {
        Subject::Server => "toll",
        Subject::Host => "none",
    };
    let base = Workload {
        driver: driver.into(),
        profile: "read-only".into(),
        transport: "tcp".into(),
        threads: 8,
        tables: 8,
        rows: 100_000,
        prepared: true,
        reconnect_every: 0,
        workers: None,
        delay_pct: None,
        rate_per_s: None,
    };
    let mut workload = overlay(&base, &scenario.workload);
    if let Some(driver) = &overrides.driver {
        workload.driver.clone_from(driver);
    }
    workload.rows = rows.unwrap_or(workload.rows);
    workload.threads = overrides.threads.unwrap_or(workload.threads);
    workload.tables = overrides.tables.unwrap_or(workload.tables);
    workload
}

/// A load with the values of another in the place of its own, as far as that has any.
pub fn overlay(base: &Workload, over: &Written) -> Workload {
    let text = |over: &Option<String>, base: &String| over.clone().unwrap_or_else(|| base.clone());
    Workload {
        driver: text(&over.driver, &base.driver),
        profile: text(&over.profile, &base.profile),
        transport: text(&over.transport, &base.transport),
        threads: over.threads.unwrap_or(base.threads),
        tables: over.tables.unwrap_or(base.tables),
        rows: over.rows.unwrap_or(base.rows),
        prepared: over.prepared.unwrap_or(base.prepared),
        reconnect_every: over.reconnect.unwrap_or(base.reconnect_every),
        workers: over.workers.or(base.workers),
        delay_pct: over.delay.map(|Percent(percent)| percent).or(base.delay_pct),
        rate_per_s: match over.rate {
            Some(Rate::PerSecond(rate)) => Some(rate),
            _ => base.rate_per_s,
        },
    }
}

/// # Errors
/// sysbench would not tell what is to be measured.
pub fn check_sysbench(arms: &[Arm], base: &Workload, window_s: Option<f64>) -> anyhow::Result<()> {
    if let Some(window_s) = window_s.filter(|s| base.driver == "sysbench" && *s < 2.0) {
        bail!(
            "sysbench reports once a second, too seldom for a window of {window_s} s: use --window 3s or more"
        );
    }
    let has_rate =
        |arm: &&Arm| arm.workload.rate.is_some() && overlay(base, &arm.workload).driver == "sysbench";
    match arms.iter().find(has_rate) {
        Some(arm) => bail!("{}: {NO_SYSBENCH_RATE}", arm.name),
        None => Ok(()),
    }
}

/// Copies the scenario's rate to an arm without its own. The arm whose capacity it is a share of is left out.
pub fn inherit_rate(arm: &mut Arm, scenario: &Written) {
    let is_itself = matches!(&scenario.rate, Some(Rate::Share { of, .. }) if *of == arm.name);
    let has_load = arm.workload.driver.as_ref().or(scenario.driver.as_ref()).is_none_or(|d| d != "none");
    if arm.workload.rate.is_none() && has_load && !is_itself {
        arm.workload.rate.clone_from(&scenario.rate);
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{ResolvedScenario, RunOverrides};
    use crate::scenario::Scenario;

    #[test]
    fn sysbench_is_refused_a_rate_from_wherever() {
        let text = |rate: &str| {
            format!(
                "name = \"x\"\nquestion = \"?\"\nbaseline = \"none\"\nprimary = \"latency_us_mean\"\n\
                 [workload]\ndriver = \"sysbench\"\n[profile.quick]\nrounds = 1\nwindow = \"3s\"\nsettle = \"0s\"\n\
                 [[arm]]\nname = \"none\"\ntitle = \"t\"\nrole = \"baseline\"\n\
                 [[arm]]\nname = \"slow\"\ntitle = \"t\"\nworkload = {{ {rate} }}\n"
            )
        };
        let resolve = |rate: &str, overrides: &RunOverrides| {
            ResolvedScenario::new(Scenario::parse(&text(rate)).unwrap(), overrides).map(drop)
        };
        resolve("threads = 3", &RunOverrides::default()).unwrap();
        for (rate, given) in [("rate = 5.0", None), ("threads = 3", Some(9.0))] {
            let said = resolve(rate, &RunOverrides { rate: given, ..RunOverrides::default() }).unwrap_err();
            assert!(said.to_string().contains("use --driver toll"), "{said}");
        }
    }

    #[test]
    fn a_profile_changes_keys_of_the_load_and_an_arm_has_the_last_word() {
        let text = "name = \"x\"\nquestion = \"?\"\nbaseline = \"none\"\nprimary = \"qps\"\n\
                    [workload]\nthreads = 3\nprepared = true\n\
                    [profile.quick]\nrounds = 1\nwindow = \"1s\"\nsettle = \"0s\"\n\
                    [profile.tls]\nrounds = 1\nwindow = \"1s\"\nsettle = \"0s\"\nworkload = { transport = \"tls\", prepared = false }\n\
                    [[arm]]\nname = \"none\"\ntitle = \"t\"\nrole = \"baseline\"\n\
                    [[arm]]\nname = \"own\"\ntitle = \"t\"\nworkload = { transport = \"unix\" }\n";
        let loads = |profile: &str| {
            let overrides = RunOverrides { profile: Some(profile.to_owned()), ..RunOverrides::default() };
            let resolved = ResolvedScenario::new(Scenario::parse(text).unwrap(), &overrides).unwrap();
            let loads = resolved.arms.iter().map(|arm| resolved.arm_workload(arm));
            loads.map(|load| (load.transport, load.prepared, load.threads)).collect::<Vec<_>>()
        };
        let is = |transport: &str, prepared| (transport.to_owned(), prepared, 3);
        assert_eq!(loads("quick"), [is("tcp", true), is("unix", true)]);
        assert_eq!(loads("tls"), [is("tls", false), is("unix", false)]);
    }
}
