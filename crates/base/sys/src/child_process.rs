//! Commands for child processes with a clean environment.
//!
//! # Invariants
//! Never passes on a password. toll's own environment may hold some (MYSQL_PWD, TOLL_DSN, cloud keys).
//! Capture tools and their helpers must not read them, nor anyone who can read their environment.

use std::ffi::{OsStr, OsString};
use std::process::Command;

/// Variables that a child inherits: search paths and locale, nothing that grants access.
const INHERITED_VARIABLES: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TZ",
    "TMPDIR",
    "TERM",
    "COLUMNS",
    "LINES",
    "PERL5LIB",
    "PYTHONPATH",
];
/// `LC_*`: locale; `XDG_*`: directories; `LD_*`: libraries of servers that were unpacked by hand.
const INHERITED_PREFIXES: [&str; 3] = ["LC_", "XDG_", "LD_"];

/// A command whose environment holds only variables known to be harmless. Add others by name with
/// [`Command::env`].
pub fn clean_env_command(program: impl AsRef<OsStr>) -> Command {
    #[allow(clippy::disallowed_methods)] // the one place
    let mut command = Command::new(program);
    command.env_clear().envs(harmless_variables());
    command
}

/// Variables of toll's own environment that a child inherits.
pub fn harmless_variables() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_inherited))
}

fn is_inherited(name: &str) -> bool {
    INHERITED_VARIABLES.contains(&name) || INHERITED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_sees_no_variable_that_could_hold_a_secret() {
        let environment = clean_env_command("env").env("TOLL_TEST", "given").output().unwrap().stdout;
        let environment = String::from_utf8_lossy(&environment);
        assert!(environment.contains("PATH=") && environment.contains("TOLL_TEST=given"), "{environment}");
        // Cargo sets dozens for its tests, none of which is on the list.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert!(!environment.contains("CARGO_MANIFEST_DIR"), "{environment}");
        for secret in ["MYSQL_PWD", "TOLL_DSN", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"] {
            assert!(!is_inherited(secret));
        }
    }
}
