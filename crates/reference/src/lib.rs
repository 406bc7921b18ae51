//! Manual pages and shell completions of a program, made from the definition of its command line.

use anyhow::Context;
use clap::{Args, Command};
use std::path::PathBuf;

/// Print the manual page (roff)
#[derive(Debug, Args)]
pub struct Man {
    /// Write a page for each subcommand into this directory instead
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Man {
    /// # Errors
    /// The pages cannot be written.
    pub fn run(&self, command: Command) -> anyhow::Result<()> {
        let Some(directory) = &self.directory else {
            return Ok(clap_mangen::Man::new(command).render(&mut std::io::stdout())?);
        };
        clap_mangen::generate_to(command, directory)
            .with_context(|| format!("cannot write manual pages into {}", directory.display()))
    }
}

/// Print a completion script for a shell
#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    shell: clap_complete::Shell,
}

impl Completions {
    pub fn run(&self, mut command: Command) {
        let program = command.get_name().to_owned();
        clap_complete::generate(self.shell, &mut command, program, &mut std::io::stdout());
    }
}

/// The command line as help and manual of another program show it: examples that call `toll` call `program`.
#[must_use]
pub fn with_program_name(command: Command, program: &str) -> Command {
    let subcommands: Vec<String> =
        command.get_subcommands().map(|subcommand| subcommand.get_name().to_owned()).collect();
    let rename = |text: String| {
        subcommands.iter().fold(text, |text, subcommand| {
            text.replace(&format!("toll {subcommand}"), &format!("{program} {subcommand}"))
        })
    };
    command.mut_subcommands(|subcommand| {
        let about = subcommand.get_about().map(|text| rename(text.to_string()));
        let subcommand = match about {
            Some(about) => subcommand.about(about),
            None => subcommand,
        };
        let examples = subcommand.get_after_help().map(|text| rename(text.to_string()));
        let subcommand = match examples {
            Some(examples) => subcommand.after_help(examples),
            None => subcommand,
        };
        subcommand.mut_args(|argument| match argument.get_help().map(|text| rename(text.to_string())) {
            Some(help) => argument.help(help),
            None => argument,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn command() -> Command {
        let capture = Command::new("capture")
            .about("Collect queries for `toll receive`")
            .arg(Arg::new("stream").long("stream").help("Packets to a `toll receive` elsewhere"))
            .after_help("toll capture -w - | toll receive -");
        Command::new("toll").version("1").subcommand(capture).subcommand(Command::new("receive"))
    }

    #[test]
    fn examples_of_another_program_call_that_program() {
        let mut agent = with_program_name(command(), "toll-agent");
        let help = agent.find_subcommand_mut("capture").unwrap().render_long_help().to_string();
        assert!(help.contains("toll-agent capture -w - | toll-agent receive -"), "{help}");
        assert!(help.contains("Packets to a `toll-agent receive` elsewhere"), "{help}");
        assert!(help.contains("Collect queries for `toll-agent receive`"), "{help}");
    }

    #[test]
    fn every_subcommand_has_a_manual_page() {
        let directory = tempfile::tempdir().unwrap();
        let man = Man { directory: Some(directory.path().to_owned()) };
        man.run(command()).unwrap();
        let mut pages: Vec<String> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        pages.sort();
        assert_eq!(pages, ["toll-capture.1", "toll-receive.1", "toll.1"]);
        let nowhere = Man { directory: Some(directory.path().join("toll.1")) };
        assert!(nowhere.run(command()).unwrap_err().to_string().starts_with("cannot write manual pages"));
    }
}
