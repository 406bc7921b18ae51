//! A scenario for a server that serves users: under its own traffic, without a load or data of toll's.

use super::{Arm, Profile, Scenario, Workload};
use anyhow::{bail, ensure};
use std::collections::BTreeMap;
use toll_record::{Aggregate, Asker, Compare, Definition, Meter, Role, Source, Zeros};

/// What verdicts are drawn from. What users ask for is theirs: throughput is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judged {
    /// Of the users' queries, at a fixed mix of classes.
    UsersResponse,
    /// CPU time per query of the server's host.
    HostCpu,
    /// Of toll's probe queries.
    ProbeResponse,
}

impl Judged {
    fn outcome(self) -> &'static str {
        match self {
            Self::UsersResponse => USERS_RESPONSE,
            Self::HostCpu => "cpu_us_per_query",
            Self::ProbeResponse => PROBE_RESPONSE,
        }
    }
}

const USERS_RESPONSE: &str = "users_response_us";
const PROBE_RESPONSE: &str = "probe_response_us";
/// Shown beside them, of the server's host.
const OF_HOST: [&str; 4] =
    ["cpu_us_per_query", "server_cpu_us_per_query", "server_wait_us_per_query", "artefact_bytes_per_s"];

/// Outcomes that a load of toll's has none of.
fn outcomes() -> Vec<Definition> {
    let response = |name: &str, title: &str, head: &str, of| Definition {
        name: name.to_owned(),
        unit: "us".to_owned(),
        title: title.to_owned(),
        head: Some(head.to_owned()),
        higher_is_better: false,
        source: Source::ByClass { of },
        aggregate: Aggregate::Mean,
        compare: Compare::LogRatio,
        zeros: Zeros::Refuse,
        margin: None,
        by_rate: false,
        long_windows: false,
    };
    vec![
        response(
            USERS_RESPONSE,
            "response time of users' queries, at a fixed mix",
            "response time (users)",
            Asker::Users,
        ),
        response(PROBE_RESPONSE, "response time of probe queries", "response time (probe)", Asker::Probe),
    ]
}

impl Scenario {
    /// The baseline, an A/A of it and the chosen treatments, with the server's own count of statements in the place of a load.
    ///
    /// # Errors
    /// It is about the host alone, a name is not that of a treatment, or a treatment's windows have no fixed length.
    pub fn under_own_traffic(mut self, chosen: &[String], profile: Profile) -> anyhow::Result<Self> {
        ensure!(
            self.subject == super::Subject::Server,
            "{} is about the host alone: no server's traffic is in it",
            self.name
        );
        let chosen = self.resolve_names(chosen);
        for name in &chosen {
            match self.arms.iter().find(|arm| arm.name == *name) {
                None => bail!("{} has no variant `{name}`: `toll list {}` shows them", self.name, self.name),
                Some(arm) if arm.role == Role::Treatment => ensure!(
                    !arm.sets_window_end(),
                    "`{name}` sets the end of its windows: a live run has windows of one length, so that its plan says how \
                     long the method is on. Leave it out"
                ),
                Some(_) => bail!("`{name}` is no treatment: the baseline and its A/A are in every live run"),
            }
        }
        let aa = self.ensure_aa();
        let kept: Vec<String> = [aa, self.baseline.clone()].into_iter().chain(chosen).collect();
        self.arms.retain(|arm| kept.contains(&arm.name));
        for arm in &mut self.arms {
            arm.workload = Workload::default();
            arm.meter = Some(Meter::Server);
            arm.against = None;
            arm.judged_by = None;
        }
        self.workload = Workload { driver: Some("none".to_owned()), ..Workload::default() };
        self.outcomes.extend(outcomes());
        self.judge_live_by(Judged::UsersResponse, true, false);
        self.profile = BTreeMap::from([("live".to_owned(), profile)]);
        self.default_profile = None;
        (self.data, self.sweep, self.pareto) = (None, None, None);
        self.rig.clear();
        self.contrasts.clear();
        self.limits.clear();
        self.charts.clear();
        Ok(self)
    }

    /// Name of the first A/A arm. A scenario without one gets a copy of its baseline: each fifth block needs it.
    fn ensure_aa(&mut self) -> String {
        if let Some(arm) = self.arms.iter().find(|arm| arm.role == Role::Aa) {
            return arm.name.clone();
        }
        let mut name = format!("{}-again", self.baseline);
        while super::find_arm(&self.arms, &name).is_some() {
            name += "-again";
        }
        let baseline = self.arms.iter().position(|arm| arm.name == self.baseline);
        if let Some(at) = baseline {
            let title = format!("{}, again (A/A)", self.arms[at].title);
            let (name, alias) = (name.clone(), Vec::new());
            let copy = Arm { name, alias, title, role: Role::Aa, ..self.arms[at].clone() };
            self.arms.insert(at + 1, copy);
        }
        name
    }

    /// Verdicts are drawn from this; shown is what can be seen of the server. Throughput is shown as a check of balance. Where
    /// treatments cross over, response times alone are compared between two servers.
    pub fn judge_live_by(&mut self, judged: Judged, sees_host: bool, crosses_over: bool) {
        let throughput = ["qps"].into_iter().filter(|_| !crosses_over);
        let others = [USERS_RESPONSE, PROBE_RESPONSE].into_iter().chain(throughput);
        let of_host = OF_HOST.into_iter().filter(|_| sees_host && !crosses_over);
        let first = judged.outcome();
        let shown = std::iter::once(first).chain(others.chain(of_host).filter(|name| *name != first));
        let shown: Vec<String> = shown.map(str::to_owned).collect();
        self.primary = first.to_owned();
        self.panels = Some(shown.iter().filter(|name| *name != "artefact_bytes_per_s").cloned().collect());
        self.columns = Some(shown);
    }
}

impl Profile {
    /// Of a live run, whose times come from its options.
    #[must_use]
    pub fn live() -> Self {
        Self {
            time: None,
            rounds: None,
            window: None,
            settle: None,
            gap: toll_sys::units::Seconds(0.0),
            rows: None,
            table_rows: None,
            scale: None,
            buffer_pool: None,
            limits: None,
            arms: None,
            timed: None,
            workload: Workload::default(),
            pilot: toll_sys::units::Seconds(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ResolvedScenario, RunOverrides};
    use crate::scenario::Preset;
    use toll_sys::units::Seconds;

    #[test]
    fn a_preset_becomes_one_without_load_and_data() {
        let preset = || Preset::named("tcpdump-impact").unwrap().scenario().unwrap();
        let chosen = ["A".to_owned(), "toll-queries".to_owned()];
        let live = preset().under_own_traffic(&chosen, Profile::live()).unwrap();
        let names: Vec<&str> = live.arms.iter().map(|arm| arm.name.as_str()).collect();
        assert_eq!(names, ["baseline", "baseline-again", "slowlog-all", "toll-queries"]);
        assert_eq!(live.primary, "users_response_us");
        let [window, settle] = [10.0, 5.0].map(|s| Some(Seconds(s)));
        let times = RunOverrides { rounds: Some(8), window, settle, ..RunOverrides::default() };
        let resolved = ResolvedScenario::new(live, &times).unwrap();
        assert!(resolved.arms.iter().all(|arm| resolved.arm_workload(arm).driver == "none"));
        for wrong in ["baseline", "nosuch"] {
            assert!(preset().under_own_traffic(&[wrong.to_owned()], Profile::live()).is_err());
        }
        let mut without_aa = preset();
        without_aa.arms.retain(|arm| arm.role != Role::Aa);
        let log = without_aa.arms.iter_mut().find(|arm| arm.name == "slowlog-all").unwrap();
        log.name = "baseline-again".to_owned();
        let live = without_aa.under_own_traffic(&chosen, Profile::live()).unwrap();
        let aa: Vec<&Arm> = live.arms.iter().filter(|arm| arm.role == Role::Aa).collect();
        assert_eq!((aa.len(), aa[0].name.as_str()), (1, "baseline-again-again"));
        assert_eq!((aa[0].command.as_ref(), aa[0].title.as_str()), (None, "load alone, again (A/A)"));
        let mut backup = preset();
        let arm = backup.arms.iter_mut().find(|arm| arm.name == "toll-queries").unwrap();
        arm.ends = crate::scenario::OnExit::Rehearse;
        let error = backup.under_own_traffic(&chosen, Profile::live()).unwrap_err().to_string();
        assert!(error.contains("`toll-queries` sets the end of its windows"), "{error}");
        let host = Preset::named("packet-loss").unwrap().scenario().unwrap();
        assert!(host.under_own_traffic(&[], Profile::live()).is_err());
    }
}
