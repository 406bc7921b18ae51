//! Command `toll clean`: undoes changes that killed runs left behind.

use super::console::{eprint_line, print_line};
use super::login::Login;
use super::target::AddressArgs;
use anyhow::Result;
use clap::Args;
use std::process::ExitCode;
use toll_journal::{CleanResult, CleanState, Credentials};
use toll_sys::paths;

#[derive(Debug, Args)]
pub struct Clean {
    /// Only print what would be undone
    #[arg(long)]
    dry_run: bool,
    /// Login to a server that a killed run changed: a DSN, or an option file with a [client] section; the password comes
    /// from MYSQL_PWD or the file [default: the option file that the run was given, or MYSQL_PWD]
    #[arg(long, aliases = ["dsn", "defaults-file"], value_name = "DSN|FILE")]
    #[arg(conflicts_with = "address")]
    server: Option<String>,
    #[command(flatten)]
    address: AddressArgs,
}

/// Exit code 1 if a change could not be undone.
pub fn run(arguments: &Clean) -> Result<ExitCode> {
    let given = Login::choose(arguments.server.as_deref(), &arguments.address)?;
    let credentials =
        Credentials { login: given.map(|login| login.target), password: toll_mysql::env_password() };
    let found = toll_journal::clean(&paths::journal_dir()?, arguments.dry_run, &credentials)?;
    let left = found.iter().filter(|cleaned| !print_cleaned(cleaned)).count();
    if !found.iter().any(|cleaned| !matches!(cleaned.state, CleanState::Running { .. })) {
        print_line!("nothing to clean");
    }
    Ok(if left == 0 { ExitCode::SUCCESS } else { ExitCode::from(super::exit_code::FAILED) })
}

/// Prints the result. False if changes are left.
fn print_cleaned(cleaned: &CleanResult) -> bool {
    let run = &cleaned.run_id;
    match &cleaned.state {
        CleanState::Running { pid } => print_line!("{run}: still running (pid {pid}), left alone"),
        CleanState::OtherNamespace { namespace } => {
            print_line!("{run}: belongs to another PID namespace ({namespace}): run toll clean there");
        }
        CleanState::WouldUndo { changes } => {
            print_line!("{run}: would undo");
            changes.iter().for_each(|change| print_line!("  {change}"));
            if changes.is_empty() {
                print_line!("  nothing");
            }
        }
        CleanState::Undone(undone) => {
            print_line!("{run}: undone");
            undone.actions.iter().for_each(|action| print_line!("  {action}"));
            if undone.actions.is_empty() && undone.failures.is_empty() {
                print_line!("  nothing was left");
            }
            undone.failures.iter().for_each(|failure| eprint_line!("  FAILED: {failure}"));
            return undone.failures.is_empty();
        }
        CleanState::Unreadable { reason } => {
            eprint_line!("{run}: {reason}");
            return false;
        }
    }
    true
}
