//! Command `toll cost -- COMMAND`: measures the overhead of a command on a busy host.

use super::report::Format;
use super::server_choice::ServerArgs;

use anyhow::{Context, bail};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use toll_execution::run::{RunRequest, RunSource};
use toll_model::plan::RunOverrides;
use toll_model::scenario::{MAX_ROUNDS, Scenario, check_load};
use toll_sys::program::{missing_program_error, missing_variable_error};
use toll_sys::redact;
use toll_sys::units::{self, Seconds};

/// Filled in: {port} {socket} {datadir} {pid} {artefact} {duration_s} {client_defaults} {schema}; {{x}} is {x}
#[derive(Debug, Args)]
pub struct Cost {
    /// Load on the server: see `toll list workloads`
    #[arg(long, default_value = "read-only", value_parser = load)]
    workload: String,
    /// Time of the run; windows and rounds are chosen for it [default: 2m]
    #[arg(long, value_name = "2m")]
    time: Option<Seconds>,
    /// Minimum detectable effect (80% power); without --time, the run takes as long as needed
    #[arg(long, value_name = "2%", value_parser = super::run::percent, conflicts_with = "rounds")]
    find: Option<f64>,
    /// Number of rounds; a 95% interval needs at least 6
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    rounds: Option<u32>,
    /// Length of a window; a command that ends sooner ends its windows
    #[arg(long, value_name = "2s")]
    window: Option<Seconds>,
    /// Time between starting the command and its window; for one that ends by itself, before both [default: as it
    /// needs]
    #[arg(long, value_name = "500ms")]
    settle: Option<Seconds>,
    /// Pause between trials
    #[arg(long, default_value = "0s")]
    gap: Seconds,
    /// Run a command that ends by itself again until its window ends
    #[arg(long)]
    repeat: bool,
    /// Give the command this environment variable of toll's own; may be repeated
    #[arg(long, value_name = "NAME")]
    env: Vec<String>,
    /// Rows in each of the 8 tables
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Connections of the load
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Events a second of the load, such as your server's own [default: as fast as it goes]
    #[arg(long, value_name = "2k", value_parser = units::rate)]
    rate: Option<f64>,
    #[command(flatten)]
    server: ServerArgs,
    /// Load generator
    #[arg(long, default_value = "toll", value_parser = ["toll", "sysbench"])]
    driver: String,
    /// Seed of order, jitter and draws [default: from the clock, and written down]
    #[arg(long)]
    seed: Option<u64>,
    /// Directory of the run [default: run-cost-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    exact: super::exact::ExactArgs,
    /// Form of the report on standard output
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// The command and its arguments, run without a shell
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Scenario without the command itself; `toml` quotes the rest.
const TEMPLATE: &str = r#"
name = "cost"
question = "What does this command cost a busy host?"
baseline = "baseline"
primary = "latency_us_mean"

[profile.cost]
time = "2m"
settle = "500ms"

[[arm]]
name = "baseline"
alias = "none"
title = "load alone"
role = "baseline"

[[arm]]
name = "baseline-again"
alias = "none2"
title = "load alone, again (A/A)"
role = "aa"
"#;

pub fn run(arguments: Cost) -> anyhow::Result<ExitCode> {
    let full_text = build_scenario(&arguments, &arguments.command);
    let scenario = Scenario::parse(&full_text).context("this command cannot be measured")?;
    check_command(&arguments)?;
    // What is kept of the run must not say more than its title does.
    let text = build_scenario(&arguments, &redact::redact_words(&arguments.command));
    let overrides = RunOverrides {
        driver: Some(arguments.driver),
        time: arguments.time,
        find_pct: arguments.find,
        rounds: arguments.rounds,
        window: arguments.window,
        settle: arguments.settle,
        gap: Some(arguments.gap),
        rows: Some(arguments.rows),
        threads: Some(arguments.threads),
        rate: arguments.rate,
        seed: arguments.seed,
        ..RunOverrides::default()
    };
    let is_agreed = arguments.server.yes;
    let server = arguments.server.resolve()?;
    let source = RunSource::Scenario(Box::new(scenario), Box::new(overrides));
    super::consent::check_load(&source, &server, is_agreed)?;
    let asked = RunRequest {
        source,
        text,
        server,
        out: arguments.out,
        keep_artefacts: false,
        readers: super::run::only_for_owner(),
        command: std::env::args().collect(),
    };
    super::exact::run(arguments.exact, asked, full_text, arguments.format, &[])
}

fn load(name: &str) -> Result<String, String> {
    check_load(name).map(|()| name.to_owned()).map_err(|error| error.to_string())
}

/// Reports, before a server is started, errors that would occur in every trial.
fn check_command(arguments: &Cost) -> anyhow::Result<()> {
    // `{toll}` and the like are known once the run is planned.
    let program = arguments.command.first().filter(|word| !word.contains('{'));
    if let Some(why) = program.and_then(|program| missing_program_error(program)) {
        bail!("nothing was measured: {why}");
    }
    if let Some(name) = arguments.env.iter().find(|name| std::env::var_os(name).is_none()) {
        bail!("nothing was measured: {}", missing_variable_error(name));
    }
    Ok(())
}

fn build_scenario(arguments: &Cost, command: &[String]) -> String {
    // Each word in quotes of its own: placeholders are filled in once they are split.
    let line = shell_words::join(command);
    let mut arm = toml::Table::new();
    let mut put = |key: &str, value: &str| arm.insert(key.into(), value.into());
    put("name", "command");
    put("title", &shell_words::join(redact::redact_words(command)));
    put("command", &line);
    put("ends", if arguments.repeat { "again" } else { "rehearse" });
    if line.contains("{artefact}") {
        put("artefact", "bytes");
    }
    if !arguments.env.is_empty() {
        arm.insert("env".into(), arguments.env.clone().into());
    }
    let mut workload = toml::Table::new();
    workload.insert("profile".into(), arguments.workload.as_str().into());
    let mut rest = toml::Table::new();
    rest.insert("workload".into(), workload.into());
    rest.insert("arm".into(), toml::Value::Array(vec![arm.into()]));
    let (head, arms) = TEMPLATE.split_once("\n[profile.cost]").unwrap_or((TEMPLATE, ""));
    format!("{head}\n[profile.cost]{arms}\n{}", toml::to_string(&rest).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Wrapper {
        #[command(flatten)]
        cost: Cost,
    }

    #[test]
    fn any_command_becomes_an_arm_word_for_word() {
        let words = ["x", "--", "tcpdump", "-w", "{artefact}", "port {port}", "it's \"quoted\""];
        let cost = Wrapper::parse_from(words).cost;
        let scenario = Scenario::parse(&build_scenario(&cost, &cost.command)).unwrap();
        let arm = scenario.arms.last().unwrap();
        let definitions = toll_model::placeholders::Definitions::new(&scenario.define, "mariadb");
        let words = definitions.split_command(arm.command.as_deref().unwrap()).unwrap();
        let mut placeholders = toll_model::placeholders::PlaceholderValues::default();
        placeholders.set("artefact", "/x y/\"a'.bin".into());
        placeholders.set("port", "33002".into());
        let filled: Vec<String> = words.iter().map(|word| placeholders.fill_in(word).unwrap()).collect();
        assert_eq!(filled, ["tcpdump", "-w", "/x y/\"a'.bin", "port 33002", "it's \"quoted\""]);
        assert_eq!(scenario.workload.profile.as_deref(), Some("read-only"));
        assert_eq!(arm.ends, toll_model::scenario::OnExit::Rehearse);
    }

    #[test]
    fn what_makes_no_sense_is_a_wrong_argument() {
        for words in [
            ["x", "--rounds", "0", "--", "true"],
            ["x", "--rounds", "4294967295", "--", "true"],
            ["x", "--window", "9999h", "--", "true"],
            ["x", "--rows", "0", "--", "true"],
            ["x", "--threads", "0", "--", "true"],
            ["x", "--workload", "nosuch", "--", "true"],
        ] {
            assert!(Wrapper::try_parse_from(words).is_err(), "{words:?}");
        }
    }
}
