//! Groups of subcommands in the help of a program: clap has headings for options alone.

use clap::Command;
use std::fmt::Write as _;

/// A heading, and the names of the subcommands below it.
pub type HelpGroup = (&'static str, &'static [&'static str]);

/// The command line, whose help shows its subcommands in `groups`, each with its description.
#[must_use]
pub fn with_groups(command: Command, groups: &[HelpGroup]) -> Command {
    let (header, literal) = (*command.get_styles().get_header(), *command.get_styles().get_literal());
    let names = || groups.iter().flat_map(|(_, names)| names.iter());
    let width = names().map(|name| name.len()).max().unwrap_or(0);
    let mut template = String::from("{about-with-newline}\n{usage-heading} {usage}\n");
    for (heading, names) in groups {
        // Writing to a string cannot fail.
        let _ = write!(template, "\n{header}{heading}:{header:#}\n");
        for name in *names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(template, "  {literal}{name:<width$}{literal:#}  {about}");
        }
    }
    let _ = write!(template, "\n{header}Options:{header:#}\n{{options}}{{after-help}}");
    command.help_template(template)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_shows_subcommands_in_the_order_of_their_groups() {
        let subcommands = [("b", "Second"), ("long-name", "First"), ("c", "Third")];
        let subcommands = subcommands.map(|(name, about)| Command::new(name).about(about));
        let command = Command::new("x").about("Does it").subcommands(subcommands).after_help("The end");
        let help = with_groups(command, &[("One", &["long-name", "b"]), ("Two", &["c"])]).render_help();
        let expected = "Does it\n\nUsage: x [COMMAND]\n\nOne:\n  long-name  First\n  b          Second\n\n\
                        Two:\n  c          Third\n\nOptions:\n  -h, --help  Print help\n\nThe end\n";
        assert_eq!(help.to_string(), expected);
    }
}
