//! Availability check: the reason why a variant cannot run on this host, if there is one.

use super::arm::is_written_by_server;
use crate::fill::Fill;
use std::collections::BTreeMap;
use std::path::Path;
use toll_record::{Arm, HeldIn, Setup};
use toll_sys::program::{no_program, no_variable};
use toll_sys::sysctl;

/// Placeholders that each trial fills in for itself.
pub const OPEN: [&str; 4] = ["artefact", "duration_s", "remote_ip", "remote_port"];

/// Capabilities of the host and its servers.
#[derive(Debug, Clone)]
pub struct Facts {
    pub is_root: bool,
    /// The test setup, as requested.
    pub setup: Setup,
    /// Servers in the order of the setup, or the reason why one could not be started. Empty: there is no
    /// server.
    pub servers: Vec<Result<ServerFacts, String>>,
    /// Rig steps that could not be made: the reason by kind.
    pub rig_missing: BTreeMap<String, String>,
    /// Mechanism that groups a treatment's processes.
    pub held_in: HeldIn,
}

/// Capabilities of one server.
#[derive(Debug, Clone)]
pub struct ServerFacts {
    pub server: toll_record::Server,
    pub variables: BTreeMap<String, String>,
    /// True if toll may change global variables (its own sandbox, or a user with the privilege).
    pub may_set: bool,
    /// The reason why the server's logs cannot be read; `None` if they can.
    pub no_logs: Option<String>,
}

impl Facts {
    /// The server that the baseline is measured on.
    pub fn first(&self) -> Option<&ServerFacts> {
        self.servers.first()?.as_ref().ok()
    }
}

/// The reason why an arm cannot run, and the remedy. `None` if it can run.
pub fn unavailable(arm: &Arm, facts: &Facts) -> Option<String> {
    let step = arm.needs.rig.iter().find_map(|kind| Some((kind, facts.rig_missing.get(kind)?)));
    if let Some((kind, why)) = step {
        return Some(format!("the rig's step {kind} cannot be made here: {why}"));
    }
    for needed in &arm.needs.programs {
        let is_file = needed.contains('/') && Path::new(needed).exists();
        if !is_file && let Some(why) = no_program(needed) {
            return Some(why);
        }
    }
    for name in arm.treatment.processes.iter().flat_map(|process| &process.env) {
        if std::env::var_os(name).is_none() {
            return Some(no_variable(name));
        }
    }
    for (name, _) in &arm.treatment.sysctl {
        if !sysctl::path(name).is_some_and(|path| path.exists()) {
            return Some(format!("this kernel has no setting {name}"));
        }
    }
    if arm.needs.root && !facts.is_root {
        return Some("needs root: run toll with sudo".into());
    }
    match facts.servers.get(facts.setup.server_of(&arm.name)) {
        None => None,
        Some(Err(why)) => Some(format!("the server that it needs for itself does not start: {why}")),
        Some(Ok(server)) => unavailable_on(arm, server),
    }
}

fn unavailable_on(arm: &Arm, server: &ServerFacts) -> Option<String> {
    let treatment = &arm.treatment;
    if treatment.has_statements() && !server.may_set {
        return Some("toll may not change global settings of this server: use a user with SUPER or SYSTEM_VARIABLES_ADMIN".into());
    }
    if is_written_by_server(arm)
        && let Some(reason) = &server.no_logs
    {
        return Some(reason.clone());
    }
    let was_there = server.server.kind == "external";
    if was_there && !arm.server_options.is_empty() {
        return Some(
            "it needs a server with options of its own, and this server was there before: leave out --server"
                .into(),
        );
    }
    if was_there && !treatment.on.is_empty() && treatment.off.is_empty() {
        return Some(
            "its `on` has no `off`, and this server was there before: write how it is put back, or use `set` and \
             `update`, which toll puts back by itself"
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
pub fn unfit(arm: &Arm, fill: &Fill) -> Option<String> {
    let mut open = fill.clone();
    for name in OPEN {
        open.set(name, name.to_uppercase());
    }
    let stages = arm.treatment.processes.iter().flat_map(|process| &process.stages);
    for (i, word) in stages.flat_map(|words| words.iter().enumerate()) {
        match open.apply(word) {
            Ok(program) if i == 0 => {
                if let Some(why) = no_program(&program) {
                    return Some(why);
                }
            }
            Ok(_) => {}
            Err(error) => return Some(format!("{error:#}")),
        }
    }
    let texts = (arm.treatment.processes.iter().filter_map(|process| process.stdout.as_ref()))
        .chain(arm.treatment.settings.iter().map(|setting| &setting.value));
    texts.filter_map(|text| open.apply(text).err()).map(|error| format!("{error:#}")).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fill::BUILT_IN;
    use crate::plan::{Settled, Wishes};
    use crate::scenario::Scenario;
    use std::os::unix::fs::PermissionsExt;

    /// Set in the process that sees MySQL's programs alone.
    const ALONE: &str = "TOLL_TEST_MYSQLS_PROGRAMS_ALONE";

    /// Why `socket-vs-tcp` cannot dump on a server of this flavour.
    fn no_dump(flavour: &str) -> Option<String> {
        let (scenario, _) = Scenario::load("socket-vs-tcp").unwrap();
        let wishes = Wishes { arms: Some(vec!["dump-tcp".into()]), ..Wishes::default() };
        let settled = Settled::new(scenario, &wishes).unwrap();
        let mut fill = Fill::default();
        BUILT_IN.iter().for_each(|(name, _)| fill.set(name, "x".into()));
        let server = toll_record::Server {
            kind: "sandbox".into(),
            flavour: flavour.into(),
            version: "8.0.15".into(),
            address: "/run/mysqld.sock".into(),
            config: vec![],
        };
        let variables = BTreeMap::new();
        let server = ServerFacts { server, variables, may_set: true, no_logs: None };
        let facts = Facts {
            is_root: false,
            setup: Setup::default(),
            servers: vec![Ok(server)],
            rig_missing: BTreeMap::new(),
            held_in: HeldIn::ProcessGroup,
        };
        let plan = settled.plan(&facts, &|_| fill.clone(), vec![]).unwrap();
        plan.arms.into_iter().find(|arm| arm.name == "dump-tcp").unwrap().unavailable
    }

    #[test]
    fn a_dump_needs_the_program_of_its_own_server_and_no_other() {
        if std::env::var_os(ALONE).is_some() {
            assert_eq!(no_dump("mysql"), None);
            let why = no_dump("mariadb").unwrap();
            assert!(why.starts_with("mariadb-dump is not installed"), "{why}");
            return;
        }
        let bin = tempfile::tempdir().unwrap();
        let dumper = bin.path().join("mysqldump");
        std::fs::write(&dumper, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&dumper, std::fs::Permissions::from_mode(0o755)).unwrap();
        // PATH is a process's own: this test again, in another.
        let name = "plan::available::tests::a_dump_needs_the_program_of_its_own_server_and_no_other";
        let mut again = toll_sys::child::command(std::env::current_exe().unwrap());
        again.args(["--exact", name]).env("PATH", bin.path()).env(ALONE, "1");
        let said = again.output().unwrap();
        let text = String::from_utf8_lossy(&said.stdout);
        assert!(said.status.success() && text.contains("1 passed"), "{text}");
    }
}
