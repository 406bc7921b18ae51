//! Command `toll clean`: undoes changes that killed runs left behind.

use super::console::{show, tell};
use super::login::{self, Login};
use anyhow::{Context, Result};
use clap::Args;
use std::process::ExitCode;
use toll_journal::{CleanResult, CleanState, Credentials};
use toll_sys::paths;

#[derive(Debug, Args)]
pub struct Clean {
    /// Only say what would be put back
    #[arg(long)]
    dry_run: bool,
    /// How to log in to a server that a killed run changed: a DSN, or an option file with a
    /// [client] section; the password comes from MYSQL_PWD or the file
    /// [default: the option file that the run was given, or MYSQL_PWD]
    #[arg(long, value_name = "DSN|FILE")]
    server: Option<String>,
}

/// Exit code 1 if a change could not be undone.
pub fn run(arguments: &Clean) -> Result<ExitCode> {
    let given = arguments.server.as_deref().map(Login::named).transpose().context("in --server")?;
    let credentials = Credentials { login: given.map(|login| login.target), password: login::password() };
    let found = toll_journal::clean(&paths::journal_dir()?, arguments.dry_run, &credentials)?;
    let left = found.iter().filter(|cleaned| !show(cleaned)).count();
    if !found.iter().any(|cleaned| !matches!(cleaned.state, CleanState::Running { .. })) {
        show!("nothing to clean");
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Prints the result. False if changes are left.
fn show(cleaned: &CleanResult) -> bool {
    let run = &cleaned.run_id;
    match &cleaned.state {
        CleanState::Running { pid } => show!("{run}: still running (pid {pid}), left alone"),
        CleanState::OtherNamespace { namespace } => {
            show!("{run}: belongs to another PID namespace ({namespace}): run toll clean there");
        }
        CleanState::WouldUndo { changes } => {
            show!("{run}: would put back");
            changes.iter().for_each(|change| show!("  {change}"));
            if changes.is_empty() {
                show!("  nothing");
            }
        }
        CleanState::Undone(undone) => {
            show!("{run}: put back");
            undone.actions.iter().for_each(|action| show!("  {action}"));
            if undone.actions.is_empty() && undone.failures.is_empty() {
                show!("  nothing was left");
            }
            undone.failures.iter().for_each(|failure| tell!("  FAILED: {failure}"));
            return undone.failures.is_empty();
        }
        CleanState::Unreadable { reason } => {
            tell!("{run}: {reason}");
            return false;
        }
    }
    true
}
