//! Program `toll-agent`: the subcommands of `toll` that run on database hosts, and no others.

#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use clap::{Command, CommandFactory, FromArgMatches, Parser, Subcommand};
use std::process::ExitCode;
use toll_commands::console::{EventPrinter, eprint_line};
use toll_commands::{capture, digest, exit_code, receive};

#[derive(Debug, Parser)]
#[command(name = "toll-agent", version, about, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "First time?  toll-agent capture --digest --duration 1m\n\
    `toll-agent help COMMAND` shows the options of a command, and examples.")]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Capture(Box<capture::Capture>),
    Digest(Box<digest::Digest>),
    Receive(Box<receive::Receive>),
    Completions(toll_reference::Completions),
    Man(toll_reference::Man),
}

/// Exit codes are those of `toll`.
fn main() -> ExitCode {
    EventPrinter::install();
    let command = command_line();
    let matches = command.clone().get_matches();
    let done = match Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).command {
        CliCommand::Capture(arguments) => capture::run(*arguments),
        CliCommand::Digest(arguments) => arguments.run(None),
        CliCommand::Receive(arguments) => receive::run(*arguments),
        CliCommand::Completions(arguments) => {
            arguments.run(command);
            Ok(ExitCode::SUCCESS)
        }
        CliCommand::Man(arguments) => arguments.run(command).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprint_line!("toll-agent: {error:#}");
        ExitCode::from(exit_code::FAILED)
    })
}

fn command_line() -> Command {
    toll_reference::with_program_name(Cli::command(), "toll-agent")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound_and_its_examples_call_it() {
        let mut command = command_line();
        command.clone().debug_assert();
        let capture = command.find_subcommand_mut("capture").unwrap().render_long_help().to_string();
        assert!(capture.contains("toll-agent capture -w queries.pcapng"), "{capture}");
        assert!(!capture.contains("toll capture"), "{capture}");
    }
}
