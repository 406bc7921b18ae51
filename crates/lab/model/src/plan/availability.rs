//! Availability check: the reason why a variant cannot run on this host, if there is one.

use super::arm::is_written_by_server;
use crate::placeholders::{PER_TRIAL_PLACEHOLDERS, PlaceholderValues};
use std::collections::{BTreeMap, BTreeSet};
use toll_record::{Arm, HeldIn, Setup};

/// sysbench reports events and p99 each second. In a closed loop the mean follows from the events; at a given rate threads wait for
/// their next event, and a mean that is made of them would say that nothing costs anything.
pub const NO_SYSBENCH_RATE: &str = "sysbench does not say the mean response time at a given rate: use --driver toll, or leave out \
                                    the rate";
/// sysbench 1.0 tries TLS with certificates of fixed names in its working directory. If the server offers no TLS (or
/// somebody in between says so), it logs in without. Nothing in its output tells the two apart.
pub const NO_SYSBENCH_TLS: &str = "sysbench cannot be made to use TLS: it goes on in clear text with a server that \
                                   offers none, and checks no certificate that the account names. Use --driver toll";

/// Capabilities of the host and its servers.
#[derive(Debug, Clone)]
pub struct TestbedFacts {
    pub host: HostFacts,
    /// The test setup, as requested.
    pub setup: Setup,
    /// Servers in the order of the setup, or the reason why one could not be started. Empty: there is no
    /// server.
    pub servers: Vec<Result<ServerFacts, String>>,
    /// Rig steps that could not be made: the reason by kind.
    pub rig_missing: BTreeMap<String, String>,
}

/// All that planning knows of the host. It never looks for itself.
#[derive(Debug, Clone)]
pub struct HostFacts {
    pub is_root: bool,
    /// CPUs that programs may use.
    pub cpus: f64,
    /// Unix time at which the run began, microseconds.
    pub wall_us: u64,
    /// Mechanism that groups a treatment's processes.
    pub held_in: HeldIn,
    /// Required things that the host lacks, each with the reason and the remedy.
    pub missing: BTreeMap<Required, String>,
}

/// Something that an arm requires of the host, by its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Required {
    /// A program by its name or path, to be started.
    Program(String),
    /// A file by its path, of any kind.
    File(String),
    /// An environment variable.
    Variable(String),
    /// A kernel setting by its `sysctl` name.
    Setting(String),
    /// A command that must succeed, by its words.
    Check(Vec<String>),
}

/// Capabilities of one server.
#[derive(Debug, Clone)]
pub struct ServerFacts {
    pub server: toll_record::Server,
    pub variables: BTreeMap<String, String>,
    /// True if toll may change global variables (its own sandbox, or a user with the privilege).
    pub can_set_global: bool,
    /// The reason why the server's logs cannot be read; `None` if they can.
    pub log_error: Option<String>,
    /// The account is used with TLS, whatever the transport.
    pub uses_tls: bool,
}

impl TestbedFacts {
    /// The server that the baseline is measured on.
    pub fn baseline_server(&self) -> Option<&ServerFacts> {
        self.servers.first()?.as_ref().ok()
    }
}

/// The reason why an arm cannot run, and the remedy. `None` if it can run.
pub fn unavailable_reason(arm: &Arm, facts: &TestbedFacts) -> Option<String> {
    let step = arm.needs.rig.iter().find_map(|kind| Some((kind, facts.rig_missing.get(kind)?)));
    if let Some((kind, why)) = step {
        return Some(format!("the rig's step {kind} cannot be made here: {why}"));
    }
    if let Some(why) = required_anywhere(arm).find_map(|required| facts.host.missing.get(&required)) {
        return Some(why.clone());
    }
    if arm.needs.root && !facts.host.is_root {
        return Some("needs root: run toll with sudo".into());
    }
    let index = facts.setup.server_index(&arm.name);
    let is_its_own = |i: usize| facts.setup.crosses_over() || i == index;
    let servers = facts.servers.iter().enumerate().filter(|(i, _)| is_its_own(*i));
    servers.into_iter().find_map(|(_, server)| match server {
        Err(why) => Some(format!("the server that it needs for itself does not start: {why}")),
        Ok(server) => unavailable_reason_on(arm, server),
    })
}

/// What an arm requires of the host, whichever server it is measured on.
fn required_anywhere(arm: &Arm) -> impl Iterator<Item = Required> {
    let needed = arm.needs.programs.iter().map(|name| match name.contains('/') {
        true => Required::File(name.clone()),
        false => Required::Program(name.clone()),
    });
    let variables = arm.treatment.processes.iter().flat_map(|process| &process.env);
    let settings = arm.treatment.sysctl.iter().map(|(name, _)| name);
    needed
        .chain(variables.map(|name| Required::Variable(name.clone())))
        .chain(settings.map(|name| Required::Setting(name.clone())))
}

/// All that an arm requires of the host by name, so that somebody can look for it.
pub fn required(arm: &Arm, fill: &PlaceholderValues) -> BTreeSet<Required> {
    let open = with_open(fill);
    let stages = arm.treatment.processes.iter().flat_map(|process| &process.stages);
    let programs = stages.filter_map(|words| open.fill_in(words.first()?).ok()).map(Required::Program);
    required_anywhere(arm).chain(programs).chain(required_check(arm, fill)).collect()
}

/// The command that must succeed, once all that its words name is known.
fn required_check(arm: &Arm, fill: &PlaceholderValues) -> Option<Required> {
    let words = arm.needs.check.iter().map(|word| fill.fill_in(word).ok()).collect::<Option<Vec<_>>>()?;
    (!words.is_empty()).then_some(Required::Check(words))
}

/// Placeholders as far as they are known before a trial.
fn with_open(fill: &PlaceholderValues) -> PlaceholderValues {
    let mut open = fill.clone();
    for name in PER_TRIAL_PLACEHOLDERS {
        open.set(name, name.to_uppercase());
    }
    open
}

/// The same of one server alone.
pub fn unavailable_reason_on(arm: &Arm, server: &ServerFacts) -> Option<String> {
    let treatment = &arm.treatment;
    if arm.workload.driver == "sysbench" && (server.uses_tls || arm.workload.transport == "tls") {
        return Some(NO_SYSBENCH_TLS.into());
    }
    if treatment.has_statements() && !server.can_set_global {
        return Some("toll may not change global settings of this server: use a user with SUPER or SYSTEM_VARIABLES_ADMIN".into());
    }
    if is_written_by_server(arm)
        && let Some(reason) = &server.log_error
    {
        return Some(reason.clone());
    }
    let was_there = server.server.kind == "external";
    if was_there && !arm.server_options.is_empty() {
        return Some(
            "it needs a server with options of its own, and the server is not toll's: leave out --server"
                .into(),
        );
    }
    if was_there && !treatment.on.is_empty() && treatment.off.is_empty() {
        return Some(
            "its `on` has no `off`, and the server is not toll's: add `off`, or use `set` and `update`, which toll \
             restores"
                .into(),
        );
    }
    let set = treatment.settings.iter().filter(|setting| !setting.if_known).map(|setting| &setting.name);
    for variable in set.chain(&arm.needs.variables) {
        match server.variables.get(variable.as_str()) {
            None => {
                return Some(format!(
                    "{} {} has no variable {variable}",
                    server.server.flavour, server.server.version
                ));
            }
            Some(value)
                if arm.needs.variables.contains(variable)
                    && variable == "performance_schema"
                    && value == "OFF" =>
            {
                return Some("performance_schema is off: start the server with performance_schema=ON".into());
            }
            Some(_) => {}
        }
    }
    None
}

/// The reason why an arm's commands cannot be carried out on this server. `None` if they can.
///
/// Placeholders are filled in as far as they are known before a trial.
pub fn unrunnable_reason(arm: &Arm, placeholders: &PlaceholderValues, host: &HostFacts) -> Option<String> {
    let open = with_open(placeholders);
    let stages = arm.treatment.processes.iter().flat_map(|process| &process.stages);
    for (i, word) in stages.flat_map(|words| words.iter().enumerate()) {
        match open.fill_in(word) {
            Ok(program) if i == 0 => {
                if let Some(why) = host.missing.get(&Required::Program(program)) {
                    return Some(why.clone());
                }
            }
            Ok(_) => {}
            Err(error) => return Some(format!("{error:#}")),
        }
    }
    if let Some(why) = required_check(arm, placeholders).and_then(|check| host.missing.get(&check)) {
        return Some(why.clone());
    }
    let texts = (arm.treatment.processes.iter().filter_map(|process| process.stdout.as_ref()))
        .chain(arm.treatment.settings.iter().map(|setting| &setting.value))
        .chain(arm.count_with.iter().chain(&arm.needs.check));
    texts.filter_map(|text| open.fill_in(text).err()).map(|error| format!("{error:#}")).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placeholders::BUILT_IN_PLACEHOLDERS;
    use crate::plan::{ResolvedScenario, RunOverrides};
    use crate::scenario::Preset;

    fn facts(flavour: &str, missing: &[(Required, &str)]) -> TestbedFacts {
        let server = toll_record::Server {
            kind: "sandbox".into(),
            flavour: flavour.into(),
            version: "8.0.15".into(),
            address: "/run/mysqld.sock".into(),
            config: vec![],
        };
        let server = ServerFacts {
            server,
            variables: BTreeMap::new(),
            can_set_global: true,
            log_error: None,
            uses_tls: false,
        };
        let missing = missing.iter().map(|(required, why)| (required.clone(), (*why).to_owned()));
        TestbedFacts {
            host: HostFacts {
                is_root: false,
                cpus: 6.0,
                wall_us: 3_000_000_016,
                held_in: HeldIn::ProcessGroup,
                missing: missing.collect(),
            },
            setup: Setup::default(),
            servers: vec![Ok(server)],
            rig_missing: BTreeMap::new(),
        }
    }

    fn resolve_preset(preset: &str, arm: &str) -> ResolvedScenario {
        let overrides = RunOverrides { arms: Some(vec![arm.into()]), ..RunOverrides::default() };
        ResolvedScenario::new(Preset::named(preset).unwrap().scenario().unwrap(), &overrides).unwrap()
    }

    fn fill() -> PlaceholderValues {
        let mut placeholders = PlaceholderValues::default();
        BUILT_IN_PLACEHOLDERS.iter().for_each(|(name, _)| placeholders.set(name, "x".into()));
        placeholders
    }

    fn planned(resolved: &ResolvedScenario, facts: &TestbedFacts, arm: &str) -> Arm {
        let plan = resolved.plan(facts, &|_| fill(), vec![]).unwrap();
        plan.arms.into_iter().find(|planned| planned.name == arm).unwrap()
    }

    #[test]
    fn a_dump_needs_the_program_of_its_own_server_and_no_other() {
        let resolved = resolve_preset("socket-vs-tcp", "dump-tcp");
        for (flavour, own) in [("mysql", "mysqldump"), ("mariadb", "mariadb-dump")] {
            let program = |name: &str| Required::Program(name.to_owned());
            let required = resolved.required(&facts(flavour, &[]), &|_| fill());
            let dumps = ["mysqldump", "mariadb-dump"].map(|name| required.contains(&program(name)));
            assert_eq!(dumps, [flavour == "mysql", flavour == "mariadb"]);
            for dump in ["mysqldump", "mariadb-dump"] {
                let facts = facts(flavour, &[(program(dump), "not installed")]);
                let why = planned(&resolved, &facts, "dump-tcp").unavailable;
                assert_eq!(why.as_deref(), (dump == own).then_some("not installed"));
            }
        }
    }

    #[test]
    fn sysbench_is_refused_where_the_login_is_to_be_encrypted() {
        let overrides = RunOverrides {
            arms: Some(vec!["tcp-64".into(), "tls-64".into()]),
            driver: Some("sysbench".into()),
            ..RunOverrides::default()
        };
        let scenario = Preset::named("socket-vs-tcp").unwrap().scenario().unwrap();
        let resolved = ResolvedScenario::new(scenario, &overrides).unwrap();
        let mut facts = facts("mariadb", &[]);
        assert_eq!(planned(&resolved, &facts, "tcp-64").unavailable, None);
        assert_eq!(planned(&resolved, &facts, "tls-64").unavailable.as_deref(), Some(NO_SYSBENCH_TLS));
        // The account's option file asks for TLS: nothing can run, and so the baseline's reason is the error.
        facts.servers[0].as_mut().unwrap().uses_tls = true;
        let error = resolved.plan(&facts, &|_| fill(), vec![]).map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(NO_SYSBENCH_TLS), "{error}");
    }

    #[test]
    fn an_arm_whose_check_failed_says_what_the_check_said() {
        let resolved = resolve_preset("capture-league", "bcc-mysqld-qslower");
        let mut facts = facts("mariadb", &[]);
        let check = resolved.required(&facts, &|_| fill()).into_iter().find(|required| {
            matches!(required, Required::Check(words) if words.last().is_some_and(|word| word == "x"))
        });
        let check = check.expect("its words have the server's program");
        facts.host.is_root = true;
        assert_eq!(planned(&resolved, &facts, "bcc-mysqld-qslower").unavailable, None);
        facts.host.missing.insert(check, "no probes".into());
        let why = planned(&resolved, &facts, "bcc-mysqld-qslower").unavailable;
        assert_eq!(why.as_deref(), Some("no probes"));
    }

    #[test]
    fn a_plan_is_the_same_for_the_same_facts_whatever_the_host() {
        let facts = facts("mariadb", &[]);
        let plan = resolve_preset("tcpdump-impact", "cpu-control").plan(&facts, &|_| fill(), vec![]).unwrap();
        assert_eq!((plan.seed, plan.started_wall_us), (1_000_000_002, 3_000_000_016));
        let burn = plan.arms.iter().find(|arm| arm.name == "cpu-control").unwrap();
        assert!((burn.burn_share.unwrap() - 0.6).abs() < 1e-9, "a tenth of six CPUs");
    }
}
