//! Can an arm run here, and if not, why not?

use crate::scenario::{Arm, Kind};
use crate::server::program::on_path;
use std::collections::BTreeMap;
use std::path::Path;

/// What the host and the server offer.
#[derive(Debug, Clone)]
pub struct Facts {
    pub server: toll_record::Server,
    pub variables: BTreeMap<String, String>,
    pub is_root: bool,
    /// toll may change global variables (its own sandbox, or a user with the privilege).
    pub may_set: bool,
    /// Why no log of the server's can be had; absent where one can.
    pub no_logs: Option<String>,
}

/// The reason why an arm cannot run, with what would change that; `None`: it can.
pub fn unavailable(arm: &Arm, facts: &Facts) -> Option<String> {
    let programs = arm
        .command
        .iter()
        .chain(arm.stages.iter().flatten())
        .filter_map(|stage| stage.split_ascii_whitespace().next())
        .filter(|word| !word.starts_with('{'));
    for program in programs.chain(arm.requires.iter().map(String::as_str)) {
        if !is_there(program) {
            return Some(format!("{program} is not installed: `toll doctor` says how to get it"));
        }
    }
    if arm.requires_root && !facts.is_root {
        return Some("needs root: run toll with sudo".into());
    }
    if matches!(arm.kind, Kind::Sql | Kind::Log) && !facts.may_set {
        return Some("toll may not change global settings of this server: use a user with SUPER or SYSTEM_VARIABLES_ADMIN".into());
    }
    if arm.kind == Kind::Log
        && let Some(reason) = &facts.no_logs
    {
        return Some(reason.clone());
    }
    if facts.server.kind == "external" && !arm.on.is_empty() && arm.off.is_empty() {
        return Some(
            "its `on` has no `off`, and this server was there before: write how it is put back, or use `set` and \
             `update`, which toll puts back by itself"
                .into(),
        );
    }
    for variable in arm.set.keys().chain(&arm.requires_variable) {
        match facts.variables.get(variable.as_str()) {
            None => {
                return Some(format!(
                    "{} {} has no variable {variable}",
                    facts.server.flavour, facts.server.version
                ));
            }
            Some(value)
                if arm.requires_variable.contains(variable)
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

/// A program by its name, a file by its path.
fn is_there(name: &str) -> bool {
    if name.contains('/') { Path::new(name).exists() } else { on_path(name).is_some() }
}
