//! Command line: subcommands and exit codes.
//!
//! One file for each subcommand; this one only dispatches. Exit codes are in `toll_commands::exit_code`.

mod backup;
mod burn;
mod clean;
mod consent;
mod cost;
mod digest;
mod doctor;
mod enter;
mod exact;
mod interrupt;
mod list;
mod live;
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

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use console::{EventPrinter, eprint_line};
use std::process::ExitCode;
pub use toll_commands::exit_code;
use toll_commands::help_groups::{HelpGroup, with_groups};
use toll_commands::{capture, console, named, receive, standard_output};
use toll_sys::paths;

#[derive(Debug, Parser)]
#[command(name = "toll", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "First time?  toll doctor, then\n  \
    sudo toll cost -- tcpdump -i any -w {artefact} 'port {port}'\n\
    `toll help COMMAND` shows the options of a command, and examples. NO_COLOR=1 turns colours off.")]
#[command(about = "Measure what it costs to watch, log, move or back up a busy MySQL or MariaDB host")]
pub struct Cli {
    #[command(subcommand)]
    verb: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Run a scenario (`toll list`), or your own TOML file
    Run(run::Run),
    Cost(cost::Cost),
    Live(Box<live::Live>),
    /// List scenarios, workloads and metrics; show one scenario
    List(list::List),
    /// Undo the changes of killed runs
    Clean(clean::Clean),
    /// Generate MySQL load, and report latencies
    Load(Box<load::Load>),
    /// Run a dump command within a limit on query latency
    Throttle(Box<throttle::Throttle>),
    /// Show, combine or export finished runs
    Report(report::Report),
    /// Check the abilities and the noise of this host
    Doctor(doctor::Doctor),
    /// Start or stop a sandbox server
    #[command(subcommand)]
    Server(server::Server),
    Digest(Box<digest::DigestWithPlans>),
    Capture(Box<capture::Capture>),
    /// Back up a server; list, verify, restore and prune backups
    Backup(Box<backup::Backup>),
    Receive(Box<receive::Receive>),
    Replay(replay::Replay),
    #[command(subcommand)]
    Pcap(pcap::Pcap),
    Completions(toll_reference::Completions),
    Man(toll_reference::Man),
    /// Use a share of the host's CPU time, as a positive control
    #[command(hide = true)]
    Burn(burn::Burn),
    /// Run a program inside a control group
    #[command(hide = true)]
    Enter(enter::Enter),
    /// Watch a server for a live run, and switch off what hurts it
    #[command(hide = true)]
    Guard,
    /// Carry out a run inside a virtual machine
    #[command(hide = true)]
    Inside(exact::Inside),
}

/// Subcommands in `toll --help`, in the order in which they are needed.
pub const HELP_GROUPS: &[HelpGroup] = &[
    ("Measure", &["doctor", "cost", "run", "live", "list", "report", "clean"]),
    ("Capture and analyse", &["capture", "receive", "digest", "pcap"]),
    ("Load", &["load", "replay", "server"]),
    ("Back up", &["backup", "throttle"]),
    ("Other", &["completions", "man"]),
];

/// The command line with its help in groups.
#[must_use]
pub fn command_line() -> Command {
    with_groups(Cli::command(), HELP_GROUPS)
}

/// Runs the requested subcommand. Every error ends here, as one line with the next step.
pub fn main() -> ExitCode {
    EventPrinter::install();
    let matches = command_line().get_matches();
    let verb = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).verb;
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
                | Self::Guard
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
        CliCommand::Live(arguments) => return live::run(*arguments),
        CliCommand::Guard => return live::run_guard(),
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
        CliCommand::Digest(arguments) => return digest::run(*arguments),
        CliCommand::Capture(arguments) => return capture::run(*arguments),
        CliCommand::Backup(arguments) => return backup::run(*arguments),
        CliCommand::Pcap(verb) => return verb.run(),
        CliCommand::Completions(arguments) => arguments.run(command_line()),
        CliCommand::Man(arguments) => arguments.run(command_line())?,
    }
    Ok(ExitCode::SUCCESS)
}
