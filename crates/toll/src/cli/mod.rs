//! Command line: subcommands and exit codes.
//!
//! One file for each subcommand; this one only dispatches. Exit codes are in `toll_commands::exit_code`.

mod backup;
mod burn;
mod clean;
mod consent;
mod cost;
mod doctor;
mod enter;
mod exact;
mod interrupt;
mod list;
mod load;
mod login;
mod pcap;
mod progress;
mod replay;
pub mod report;
mod run;
mod scenario_file;
mod server;
mod server_choice;
mod target;
mod throttle;

use clap::{CommandFactory, Parser, Subcommand};
use console::{EventPrinter, eprint_line};
use std::process::ExitCode;
pub use toll_commands::exit_code;
use toll_commands::{capture, console, digest, named, receive, reference, standard_output};
use toll_sys::paths;

#[derive(Debug, Parser)]
#[command(name = "toll", version, about, arg_required_else_help = true, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    verb: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run a scenario (`toll list`), or your own TOML file
    Run(run::Run),
    /// Measure the overhead of one command: `toll cost -- tcpdump -w {artefact} 'port {port}'`
    Cost(cost::Cost),
    /// List scenarios, variants, workloads and outcomes
    List(list::List),
    /// Undo what killed runs left behind: variables, processes, namespaces, files
    Clean(clean::Clean),
    /// Generate MySQL load, at full speed or at a rate, and report latencies
    Load(Box<load::Load>),
    /// Run a dump command, slowed down to protect query latency
    Throttle(Box<throttle::Throttle>),
    /// Show, combine or export finished runs
    Report(report::Report),
    /// Check what this host can measure and how noisy it is
    Doctor(doctor::Doctor),
    /// Start or stop a sandbox server
    #[command(subcommand)]
    Server(server::Server),
    Digest(digest::Digest),
    Capture(Box<capture::Capture>),
    /// Back up a server into a store, git or both; list, verify, restore and prune
    Backup(Box<backup::Backup>),
    Receive(Box<receive::Receive>),
    Replay(replay::Replay),
    #[command(subcommand)]
    Pcap(pcap::Pcap),
    Completions(reference::Completions),
    Man(reference::Man),
    /// Use a share of the host's CPU time, as a positive control
    #[command(hide = true)]
    Burn(burn::Burn),
    /// Run a program inside a control group
    #[command(hide = true)]
    Enter(enter::Enter),
    /// Carry out a run inside a virtual machine
    #[command(hide = true)]
    Inside(exact::Inside),
}

/// Runs the requested subcommand. Every error ends here, as one line with the next step.
pub fn main() -> ExitCode {
    EventPrinter::install();
    let verb = Cli::parse().verb;
    if verb.is_interactive() {
        report_pending_journals();
    }
    match dispatch(verb) {
        Ok(code) => code,
        Err(error) => {
            eprint_line!("toll: {error:#}");
            ExitCode::from(exit_code::FAILED)
        }
    }
}

impl CliCommand {
    /// False for subcommands that are part of a run, or whose output is code. `clean` reports journals
    /// itself.
    fn is_interactive(&self) -> bool {
        let started_by_a_run = std::env::var_os(toll_sys::process::RUN_ID_VARIABLE).is_some();
        let other = matches!(
            self,
            Self::Clean(_)
                | Self::Completions(_)
                | Self::Man(_)
                | Self::Burn(_)
                | Self::Enter(_)
                | Self::Inside(_)
        );
        !started_by_a_run && !other
    }
}

/// Reports journals of killed runs: their changes may matter more than the current command.
fn report_pending_journals() {
    let Ok(dir) = paths::journal_dir() else { return };
    for waiting in toll_journal::pending_runs(&dir) {
        let (run, n) = (&waiting.run_id, waiting.changes.len());
        if n > 0 {
            eprint_line!("toll: run {run} was killed and left {n} changes. Run `toll clean` to undo them");
        }
        for reason in &waiting.unreadable {
            eprint_line!("toll: an undo journal cannot be read, and changes may be left. {run}: {reason}");
        }
    }
}

fn dispatch(verb: CliCommand) -> anyhow::Result<ExitCode> {
    match verb {
        CliCommand::Run(arguments) => return run::run(arguments),
        CliCommand::Cost(arguments) => return cost::run(arguments),
        CliCommand::List(arguments) => return list::run(arguments),
        CliCommand::Burn(arguments) => return burn::run(arguments),
        CliCommand::Enter(arguments) => match enter::run(&arguments)? {},
        CliCommand::Inside(arguments) => return exact::run_inside(&arguments),
        CliCommand::Clean(arguments) => return clean::run(&arguments),
        CliCommand::Load(arguments) => return load::run(&arguments),
        CliCommand::Receive(arguments) => return receive::run(*arguments),
        CliCommand::Replay(arguments) => return replay::run(arguments),
        CliCommand::Throttle(arguments) => return throttle::run(*arguments),
        CliCommand::Report(arguments) => return report::run(&arguments),
        CliCommand::Doctor(arguments) => return doctor::run(&arguments),
        CliCommand::Server(verb) => return server::run(verb),
        CliCommand::Digest(digest) => return digest.run(),
        CliCommand::Capture(arguments) => return capture::run(*arguments),
        CliCommand::Backup(arguments) => return backup::run(*arguments),
        CliCommand::Pcap(verb) => return verb.run(),
        CliCommand::Completions(arguments) => arguments.run(Cli::command()),
        CliCommand::Man(arguments) => arguments.run(Cli::command())?,
    }
    Ok(ExitCode::SUCCESS)
}
