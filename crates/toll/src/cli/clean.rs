//! `toll clean`: put back what killed runs left behind.

use crate::journal::{self, Cleaned, Credentials, State};
use crate::places;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;

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

/// Exit code 1 if something could not be put back.
pub fn run(arguments: &Clean) -> Result<ExitCode> {
    let credentials = Credentials::of(arguments.server.as_deref())?;
    let found = journal::clean(&places::journal_dir()?, arguments.dry_run, &credentials)?;
    let left = found.iter().filter(|cleaned| !show(cleaned)).count();
    if !found.iter().any(|cleaned| !matches!(cleaned.state, State::Running { .. })) {
        println!("nothing to clean");
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// False if something is left.
fn show(cleaned: &Cleaned) -> bool {
    let run = &cleaned.run_id;
    match &cleaned.state {
        State::Running { pid } => println!("{run}: still running (pid {pid}), left alone"),
        State::Elsewhere { namespace } => {
            println!("{run}: belongs to another PID namespace ({namespace}): run toll clean there");
        }
        State::Found { changes } => {
            println!("{run}: would put back");
            changes.iter().for_each(|change| println!("  {change}"));
            if changes.is_empty() {
                println!("  nothing");
            }
        }
        State::Undone(undone) => {
            println!("{run}: put back");
            undone.actions.iter().for_each(|action| println!("  {action}"));
            if undone.actions.is_empty() && undone.failures.is_empty() {
                println!("  nothing was left");
            }
            undone.failures.iter().for_each(|failure| eprintln!("  FAILED: {failure}"));
            return undone.failures.is_empty();
        }
        State::Unreadable { reason } => {
            eprintln!("{run}: {reason}");
            return false;
        }
    }
    true
}
