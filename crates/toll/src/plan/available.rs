//! Can an arm run here, and if not, why not?

use crate::scenario::{Arm, Kind};
use crate::secrets;
use crate::server::program::on_path;
use crate::treatment::{Fill, words_of};
use std::collections::BTreeMap;
use std::path::Path;

/// Placeholders that each trial fills in for itself.
pub const OPEN: [&str; 4] = ["artefact", "duration_s", "remote_ip", "remote_port"];

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
    for needed in &arm.requires {
        let is_file = needed.contains('/') && Path::new(needed).exists();
        if !is_file && let Some(why) = no_program(needed) {
            return Some(why);
        }
    }
    for name in &arm.env {
        if std::env::var_os(name).is_none() {
            return Some(no_variable(name));
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

/// The reason why an arm's commands cannot be carried out on this server, placeholders filled in as far as
/// they are known before a trial.
pub fn unfit(arm: &Arm, fill: &Fill) -> Option<String> {
    let mut open = fill.clone();
    for name in OPEN {
        open.set(name, name.to_uppercase());
    }
    for command in arm.command.iter().chain(arm.stages.iter().flatten()) {
        match words_of(command, &open) {
            Ok(words) => {
                if let Some(why) = no_program(&words[0]) {
                    return Some(why);
                }
            }
            Err(error) => return Some(format!("{error:#}")),
        }
    }
    let texts = arm.stdout.iter().chain(arm.set.values()).chain(arm.set_if_known.values());
    texts.filter_map(|text| open.apply(text).err()).map(|error| format!("{error:#}")).next()
}

/// Why a program, by its name or its path, cannot be started; `None`: it can.
pub fn no_program(program: &str) -> Option<String> {
    let shown = secrets::hide(program);
    if !program.contains('/') {
        return on_path(program)
            .is_none()
            .then(|| format!("{shown} is not installed: `toll doctor` says how to get it"));
    }
    let path = Path::new(program);
    if !path.exists() {
        return Some(format!("there is no {shown}: give the path of a program that is there"));
    }
    let executable = path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok();
    (!executable).then(|| format!("{shown} cannot be executed: make it executable, or name its interpreter"))
}

/// What to say of an environment variable that an arm wants and that is not set.
pub fn no_variable(name: &str) -> String {
    format!("the environment variable {name} is not set: set it before toll is started")
}
