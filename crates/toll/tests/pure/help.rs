//! Tests of `--help`: groups of subcommands, headings and descriptions of options, lines that fit a terminal.

use clap::{Arg, Command};
use std::collections::{BTreeMap, BTreeSet};
use toll::cli::{HELP_GROUPS, command_line};

/// Widest line of a help on a terminal, and of an example, which a narrower one must not break.
const WIDEST: usize = 100;
const WIDEST_EXAMPLE: usize = 80;
/// Longest list of options without a heading in it.
const LONGEST_LIST: usize = 12;

/// Every command that help shows, by its words: `toll backup list`.
fn commands() -> Vec<(String, Command)> {
    fn add(command: &Command, name: &str, all: &mut Vec<(String, Command)>) {
        all.push((name.to_owned(), command.clone()));
        let shown = |sub: &&Command| !sub.is_hide_set() && sub.get_name() != "help";
        for sub in command.get_subcommands().filter(shown) {
            add(sub, &format!("{name} {}", sub.get_name()), all);
        }
    }
    let mut toll = command_line();
    toll.build();
    let mut all = Vec::new();
    add(&toll, "toll", &mut all);
    all
}

fn shown_arguments(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|arg| !arg.is_hide_set())
}

/// Failures of `check` on all shown arguments, with the command and the argument.
fn failures(check: impl Fn(&str, &Arg) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, command) in commands() {
        for arg in shown_arguments(&command) {
            found.extend(check(&name, arg).map(|why| format!("{name} {}: {why}", arg.get_id())));
        }
    }
    found
}

#[test]
fn every_subcommand_is_in_exactly_one_group_of_the_help() {
    let toll = command_line();
    let shown: BTreeSet<&str> =
        toll.get_subcommands().filter(|sub| !sub.is_hide_set()).map(Command::get_name).collect();
    let grouped: Vec<&str> = HELP_GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), shown);
    assert_eq!(grouped.len(), shown.len(), "one is in two groups: {grouped:?}");

    let help = toll.clone().render_help().to_string();
    for (heading, names) in HELP_GROUPS {
        assert!(help.contains(&format!("\n{heading}:\n")), "{help}");
        for name in *names {
            let about = toll.find_subcommand(name).unwrap().get_about().unwrap().to_string();
            let line = help.lines().find(|line| line.starts_with(&format!("  {name} "))).unwrap();
            assert!(line.ends_with(&format!("  {about}")) && !about.contains('{'), "{line}");
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
    assert!(help.contains("First time?  toll doctor"), "{help}");
    assert!(help.lines().count() <= 45, "{help}");
}

#[test]
fn every_option_has_a_description() {
    let without = failures(|_, arg| {
        let has_none = arg.get_help().is_none_or(|help| help.to_string().trim().is_empty());
        let values = arg.get_possible_values();
        let value = values.iter().find(|value| !value.is_hide_set() && value.get_help().is_none());
        // Either all of an option's values are described, or none is.
        let is_mixed = value.is_some() && values.iter().any(|value| value.get_help().is_some());
        (has_none || is_mixed).then(|| "no description".to_owned())
    });
    assert_eq!(without, [""; 0]);
    assert!(commands().len() > 20);
}

/// Words that stand for a value. An option with a fixed set of values shows its own name.
const PLACEHOLDERS: &str = "ADDRESS ATTRIBUTE:AGGREGATE BACKUP BOUND BYTES COMMAND DEVICE DIR \
    DIR|s3://BUCKET/PREFIX DSN DSN|FILE DURATION EXPR FACTOR FILE FILE|PACKAGE HOST HOST:PORT IP[:PORT] MODE N NAME \
    NAME=DSN|FILE NAME=VALUE NAMES NUMBER PATH PERCENT PERCENTS PERCENT:COUNT PID PORT PORTS PROFILE PROFILE|FILE RATE RATES RECIPIENT RUN \
    RUN/plan.json sandbox|DSN|FILE SCENARIO SCENARIO|FILE SHARE SIZE SIZE,DURATION SOCKET SQL TEXT TIME URL USER WHAT cpu=PERCENT";

#[test]
fn a_placeholder_says_what_kind_of_value_it_stands_for() {
    let known: Vec<&str> = PLACEHOLDERS.split_whitespace().collect();
    let odd = failures(|_, arg| {
        if !arg.get_action().takes_values() || !arg.get_possible_values().is_empty() {
            return None;
        }
        let names = arg.get_value_names().unwrap_or_default();
        let unknown = names.iter().find(|name| !known.contains(&name.as_str()))?;
        Some(format!("<{unknown}>"))
    });
    assert_eq!(odd, [""; 0]);
}

#[test]
fn a_heading_is_over_the_options_that_belong_to_it() {
    // Positionals have their own place in help.
    let under = failures(|_, arg| {
        arg.get_help_heading().filter(|_| arg.is_positional()).map(|heading| format!("under {heading:?}"))
    });
    assert_eq!(under, [""; 0]);

    // Other things of the same name: ports to look at, files and backups that are kept, packets and classes, what slows a dump
    // and what ends a live run, the host to connect to and the host of a log, how often a capture prints and rows of a table.
    let other = ["port", "keep", "limit", "control", "flag-file", "host", "every"];
    // An option of one name is under one heading, whichever command it is of: one that comes after a group of options, and
    // takes its heading from that, stands under as many as there are groups.
    let mut headings: BTreeMap<String, BTreeMap<String, Vec<String>>> = BTreeMap::new();
    for (name, command) in commands() {
        for arg in shown_arguments(&command) {
            if let (Some(long), Some(heading)) = (arg.get_long(), arg.get_help_heading()) {
                let of = headings.entry(long.to_owned()).or_default();
                of.entry(heading.to_owned()).or_default().push(name.clone());
            }
        }
    }
    assert!(headings.len() > 60, "{}", headings.len());
    headings.retain(|name, of| of.len() > 1 && !other.contains(&name.as_str()));
    assert_eq!(headings, BTreeMap::new());

    // What is of no group has no heading, and a group is no group with one option in it.
    for (name, command) in commands() {
        let mut of: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for arg in shown_arguments(&command).filter(|arg| !arg.is_positional()) {
            of.entry(arg.get_help_heading().unwrap_or_default()).or_default().push(arg.get_long().unwrap());
        }
        for (heading, options) in of {
            assert!(heading.is_empty() || options.len() > 1, "{name}: {heading:?} has {options:?}");
            assert!(options.len() <= LONGEST_LIST, "{name}: {heading:?} has {options:?}");
            let own = ["help", "version", "json", "dry-run"];
            let leaked: Vec<_> = options.iter().filter(|option| own.contains(option)).collect();
            assert!(
                heading.is_empty() || heading == "Output" || leaked.is_empty(),
                "{name}: {leaked:?} {heading:?}"
            );
        }
    }
}

#[test]
fn help_fits_a_terminal_and_no_example_is_broken() {
    for (name, command) in commands() {
        for help in [command.clone().render_help(), command.clone().render_long_help()] {
            let help = help.to_string();
            let wide = help.lines().find(|line| line.chars().count() > WIDEST);
            assert_eq!(wide, None, "{name}");
        }
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let examples = after.lines().filter(|line| line.starts_with("  "));
        for example in examples {
            assert!(example.chars().count() <= WIDEST_EXAMPLE, "{name}: {example}");
        }
    }
}

/// Names of an option: its own, and those that it takes for it.
fn names(arg: &Arg) -> Vec<String> {
    let own = arg.get_long().into_iter().map(str::to_owned);
    own.chain(arg.get_all_aliases().into_iter().flatten().map(str::to_owned)).collect()
}

#[test]
fn an_option_has_the_same_names_in_every_command() {
    // Whoever knows one of these names from another command, or another program, need not look it up.
    let together: [&[&str]; 5] = [
        &["time", "duration"],
        &["interface", "device"],
        &["keep", "keep-last"],
        &["variants", "arms"],
        &["json", "format"],
    ];
    // Other things of the same name: files of a capture, and what a receiver keeps of a stream.
    let other = [
        ("toll capture", "keep"),
        ("toll receive", "keep"),
        ("toll pcap merge", "format"),
        ("toll pcap make", "format"),
    ];
    let mut seen = 0;
    let mut missing = Vec::new();
    for (command, definition) in commands() {
        let all: Vec<String> = definition.get_arguments().flat_map(names).collect();
        for group in together {
            let is_other = |name: &&str| other.contains(&(command.as_str(), name));
            if group.iter().any(|name| all.iter().any(|known| known == name)) && !group.iter().any(is_other) {
                seen += 1;
                let absent = group.iter().filter(|name| !all.iter().any(|known| known == *name));
                missing.extend(absent.map(|name| format!("{command} --{name}")));
            }
        }
    }
    assert_eq!(missing, [""; 0]);
    assert!(seen > 20, "{seen}");
}

#[test]
fn spellings_of_other_commands_and_programs_are_understood() {
    for line in [
        "toll run x --arms a,b --duration 5m --output here --json --database d --defaults-file my.cnf",
        "toll run x --variants a --time 5m -o here --format json --dsn mysql://root@localhost/",
        "toll cost --fail-if latency_us_mean>5% --fail-if command.qps<-5% --duration 5m --json -- true",
        "toll load read-only --server my.cnf -D d --duration 5s --format json --ssl-ca ca.pem",
        "toll load read-only -S /run/s.sock -u app --db d --time 5s --json",
        "toll load prepare --server my.cnf --tables 2 --rows 9 -t 4",
        "toll load cleanup -P 3307 --database d",
        "toll capture -i eth0 -w x --time 5s -Z nobody",
        "toll capture --interface eth0 --output x --duration 5s --user nobody --format json",
        "toll receive --listen 0.0.0.0:1 --write d --plain --time 5s --format json",
        "toll receive keygen db1.key --receiver receiver.key",
        "toll digest x --json --server 10.0.0.5",
        "toll digest x --format json --server-address 10.0.0.5:3306",
        "toll replay x --intf1 veth0 --time 5s --format json",
        "toll pcap make http --seconds 5 --format pcap -w x",
        "toll pcap make http --duration 5s --file-format pcap --output x",
        "toll pcap profile x --format json",
        "toll doctor --json --duration 5s",
        "toll report x --json --out y",
        "toll server status --format json",
        "toll throttle ctl /run/toll.sock max-p99-toll=5%",
        "toll throttle --server my.cnf --database d --format json -- true",
        "toll throttle --server my.cnf --json=overhead.json -- true",
        "toll backup create --server my.cnf --databases a,b --to d --keep-last 7",
        "toll backup --dsn mysql://root@localhost/ --schema a b --to d --format json",
        "toll backup restore latest --from d --server x --replace-existing",
        "toll backup restore -o dump.sql --from d",
        "toll clean --defaults-file my.cnf",
    ] {
        let parsed = command_line().try_get_matches_from(line.split(' '));
        assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
    }
    for line in [
        "toll digest x --json --format csv",
        "toll load --server a --host b read-only",
        "toll backup --server a --host b --to d",
        "toll backup restore latest --from d --output x --port 3307",
        "toll clean --server a -S /run/s.sock",
        "toll cost --server a --user b -- true",
        "toll report x --json --format md",
    ] {
        let said = command_line().try_get_matches_from(line.split(' ')).unwrap_err().to_string();
        assert!(said.contains("cannot be used with"), "{line}: {said}");
    }
}
