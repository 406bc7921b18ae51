//! The pages below `reference/commands`, made from the definitions of the command line.

use super::{assert_current, escape, heading};
use clap::{Arg, Command};
use std::fmt::Write as _;
use toll::cli::{HELP_GROUPS, command_line};

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help")
}

/// Words on one line, with a point at their end.
fn sentence(text: &str) -> String {
    let text = escape(&text.split_whitespace().collect::<Vec<_>>().join(" "));
    if text.is_empty() || text.ends_with(['.', '?', ':', ']', '%']) { text } else { text + "." }
}

/// `-i, --device <DEVICE>`, or the name of an argument without a dash.
fn signature(arg: &Arg) -> String {
    let names: Vec<&str> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| name.as_str()).collect();
    if arg.is_positional() {
        return format!("<{}>", names.join("> <"));
    }
    let mut shown: Vec<String> = arg.get_short().map(|short| format!("-{short}")).into_iter().collect();
    shown.extend(arg.get_long().map(|long| format!("--{long}")));
    let mut shown = shown.join(", ");
    if arg.get_action().takes_values() && !names.is_empty() {
        write!(shown, " <{}>", names.join("> <")).unwrap();
    }
    shown
}

fn item(arg: &Arg) -> String {
    let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut text = format!("- `{}`", signature(arg));
    if !help.is_empty() {
        let paragraphs: Vec<String> = help.split("\n\n").map(sentence).collect();
        write!(text, ": {}", paragraphs.join(" ")).unwrap();
    }
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() {
        write!(text, " Default: `{}`.", defaults.join(",")).unwrap();
    }
    let values = arg.get_possible_values();
    let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).collect();
    if arg.get_action().takes_values() && !values.is_empty() {
        if values.iter().all(|value| value.get_help().is_none()) {
            let names: Vec<_> = values.iter().map(|value| format!("`{}`", value.get_name())).collect();
            write!(text, " Values: {}.", names.join(", ")).unwrap();
        } else {
            for value in values {
                let help = value.get_help().map(ToString::to_string).unwrap_or_default();
                let help = if help.is_empty() { String::new() } else { format!(": {}", sentence(&help)) };
                write!(text, "\n  - `{}`{help}", value.get_name()).unwrap();
            }
        }
    }
    text + "\n"
}

/// What stands below the options: paragraphs as text, indented lines as code.
fn after(text: &str, page: &mut String) {
    let mut code = false;
    for line in text.lines() {
        let indented = line.starts_with("  ");
        if indented != code {
            page.push_str(if code { "```\n\n" } else { "\n```\n" });
            code = indented;
        }
        match indented {
            true => writeln!(page, "{}", &line[2..]).unwrap(),
            false => writeln!(page, "{}", escape(line)).unwrap(),
        }
    }
    if code {
        page.push_str("```\n");
    }
}

fn describe(command: &mut Command, level: usize, page: &mut String) {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    for paragraph in about.split("\n\n") {
        writeln!(page, "\n{}", sentence(paragraph)).unwrap();
    }
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").lines().map(str::trim).collect::<Vec<_>>().join("\n");
    write!(page, "\n```text\n{usage}\n```\n").unwrap();
    let of_it = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let args: Vec<&Arg> = command.get_arguments().filter(of_it).collect();
    let mut headings: Vec<&str> = vec!["Arguments", "Options"];
    headings.extend(args.iter().filter_map(|arg| arg.get_help_heading()));
    let mut done = Vec::new();
    for heading in headings {
        if done.contains(&heading) {
            continue;
        }
        done.push(heading);
        let below = |arg: &&&Arg| match (arg.is_positional(), arg.get_help_heading()) {
            (true, _) => heading == "Arguments",
            (false, given) => given.unwrap_or("Options") == heading,
        };
        let items: Vec<String> = args.iter().filter(below).map(|arg| item(arg)).collect();
        if !items.is_empty() {
            write!(page, "\n{} {heading}\n\n{}", "#".repeat(level + 1), items.concat()).unwrap();
        }
    }
    if let Some(text) = command.get_after_long_help().or(command.get_after_help()) {
        let text = text.to_string();
        write!(page, "\n{} Notes\n\n", "#".repeat(level + 1)).unwrap();
        after(&text, page);
    }
    let names: Vec<String> = visible(command).map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let sub = command.find_subcommand_mut(&name).unwrap();
        let title = sub.get_bin_name().unwrap_or(&name).to_owned();
        write!(page, "\n{} {title}\n", "#".repeat(level + 1)).unwrap();
        describe(sub, level + 1, page);
    }
}

const VALUES: &str = "
## Values

The same for every command:

| value | written as |
|---|---|
| `DURATION` | `300ms`, `5s`, `2m`, `1h`, `1d`; a number alone is seconds |
| `PERCENT` | `2%`, `0.5%` |
| `RATE` | events a second: `250`, `2.5k`, `1M`; rates of a dump are bytes a second: `512K`, `10M` |
| `SIZE` | `64M`, `1G`, powers of two; in capitals, since `5m` is five minutes |
| `NAMES`, `PORTS` | separated by commas |
| `DSN` | `mysql://user@host:port/schema?socket=/path`, without a password |
| `FILE` of `--server` | an option file with a `[client]` section |
";

#[test]
fn the_pages_of_the_commands_are_current() {
    let mut toll = command_line();
    toll.build();
    let mut index = heading("Commands")
        + "\nEvery command has `--help`, a page here, and the [exit codes](../exit-codes.md) of toll.\n";
    for (group, names) in HELP_GROUPS {
        write!(index, "\n## {group}\n\n| command | task |\n|---|---|\n").unwrap();
        for name in *names {
            let command = toll.find_subcommand_mut(name).unwrap();
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            writeln!(index, "| [`toll {name}`]({name}.md) | {} |", escape(&about)).unwrap();
            let mut page = heading(&format!("toll {name}"));
            describe(command, 1, &mut page);
            assert_current(&format!("reference/commands/{name}.md"), &page);
        }
    }
    index += VALUES;
    assert_current("reference/commands/index.md", &index);
}
