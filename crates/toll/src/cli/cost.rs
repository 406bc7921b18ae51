//! Command `toll cost -- COMMAND`: measures the overhead of a command on a busy host.

use super::consent;
use super::report::FormatArgs;
use super::server_choice::ServerArgs;
use anyhow::{Context, bail, ensure};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use toll_consent::load::is_own_server;
use toll_execution::run::{RunRequest, RunSource};
use toll_execution::testbed::ServerChoice;
use toll_model::plan::{ResolvedScenario, RunOverrides};
use toll_model::scenario::{MAX_ROUNDS, Scenario, check_load};
use toll_report::bound::{Bound, BoundError};
use toll_sys::program::{missing_program_error, missing_variable_error};
use toll_sys::redact;
use toll_sys::units::{self, Seconds};

/// Measure the overhead of one command
///
/// Without --server, the command runs next to a sandbox server under a load of toll's. On an existing server, it runs under
/// the server's own traffic, and toll adds no load without --load.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sudo toll cost -- tcpdump -i any -w {artefact} 'port {port}'\n  \
    toll cost --time 10m -- /opt/agent/bin/agent --socket={socket}\n  \
    sudo toll cost --server toll.cnf --time 30m -- /opt/agent/bin/agent\n  \
    sudo toll cost --server toll.cnf --load --allow-schema toll_load \\\n      \
        --rate 300 --dry-run -- /opt/agent/bin/agent\n\n\
    Filled in: {port} {socket} {datadir} {pid} {artefact} {duration_s} {client_defaults}\n\
    {schema}; {{x}} is {x}")]
pub struct Cost {
    /// Print what would be started, changed and loaded, and exit
    #[arg(long)]
    dry_run: bool,
    /// Seed of order, jitter and draws [default: from the clock, and written down]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Run a command that ends by itself again until its window ends
    #[arg(long, help_heading = "Command")]
    repeat: bool,
    /// Give the command this environment variable of toll's own; may be repeated
    #[arg(long, value_name = "NAME", help_heading = "Command")]
    env: Vec<String>,
    /// Time of the run; windows and rounds are chosen for it [default: 2m]
    #[arg(long, alias = "duration", value_name = "DURATION", help_heading = "Time")]
    time: Option<Seconds>,
    /// Minimum detectable effect (80% power); without --time, the run takes as long as needed
    #[arg(long, value_name = "PERCENT", value_parser = super::run::percent, conflicts_with = "rounds")]
    #[arg(help_heading = "Time")]
    find: Option<f64>,
    /// Number of rounds; a 95% interval needs at least 6
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_ROUNDS)))]
    #[arg(help_heading = "Time")]
    rounds: Option<u32>,
    /// Length of a window; a command that ends sooner ends its windows
    #[arg(long, value_name = "DURATION", help_heading = "Time")]
    window: Option<Seconds>,
    /// Time between starting the command and its window; for one that ends by itself, before both [default: as it
    /// needs]
    #[arg(long, value_name = "DURATION", help_heading = "Time")]
    settle: Option<Seconds>,
    /// Pause between trials
    #[arg(long, value_name = "DURATION", default_value = "0s", help_heading = "Time")]
    gap: Seconds,
    #[command(flatten)]
    server: ServerArgs,
    /// Add a load of toll's on an existing server, in addition to its own traffic; a sandbox always has one
    #[arg(long, help_heading = "Load and data")]
    load: bool,
    /// Kind of load: see `toll list workloads` [default: read-only]
    #[arg(long, value_name = "PROFILE", value_parser = workload, help_heading = "Load and data")]
    workload: Option<String>,
    /// Load generator [default: toll]
    #[arg(long, value_parser = ["toll", "sysbench"], help_heading = "Load and data")]
    driver: Option<String>,
    /// Connections of the load [default: 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Load and data")]
    threads: Option<u32>,
    /// Events a second of the load, such as your server's own [default: as fast as it goes]
    #[arg(long, value_name = "RATE", value_parser = units::rate, help_heading = "Load and data")]
    rate: Option<f64>,
    /// Rows in each of the 8 tables [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Load and data")]
    rows: Option<u64>,
    #[command(flatten)]
    exact: super::exact::ExactArgs,
    /// Directory of the run [default: run-cost-TIME]
    #[arg(short, long, alias = "output", value_name = "DIR", help_heading = "Output")]
    out: Option<PathBuf>,
    /// Exit with 3 if the overhead exceeds this bound: 'latency_us_p99>20%'; may be repeated
    #[arg(long, value_name = "BOUND", value_parser = bound, help_heading = "Output")]
    fail_if: Vec<Bound>,
    #[command(flatten)]
    format: FormatArgs,
    /// The command and its arguments, run without a shell
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// The variant that is the command.
pub(super) const COMMAND: &str = "command";

/// Scenario without load and command; `toml` quotes the rest.
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

/// As [`TEMPLATE`], for a server under its own traffic: its own counter of statements takes the place of a load's, and
/// nobody measures response times.
const TEMPLATE_OF_OWN_TRAFFIC: &str = r#"
name = "cost"
question = "What does this command cost this server under its own traffic?"
baseline = "baseline"
primary = "cpu_us_per_query"
columns = ["cpu_us_per_query", "qps", "stall_s", "artefact_bytes_per_s"]
panels = ["cpu_us_per_query", "qps"]

[profile.cost]
time = "2m"
settle = "500ms"

[[arm]]
name = "baseline"
title = "the server's own traffic"
role = "baseline"
meter = "server"

[[arm]]
name = "baseline-again"
title = "the server's own traffic, again (A/A)"
role = "aa"
meter = "server"
"#;

/// Rows, connections and kind of the load, if nothing else is asked for.
const USUAL_ROWS: u64 = 10_000;
const USUAL_THREADS: u32 = 8;
const USUAL_WORKLOAD: &str = "read-only";

pub fn run(arguments: Cost) -> anyhow::Result<ExitCode> {
    let (is_agreed, makes_schema) = (arguments.server.yes, arguments.server.makes_schema());
    let server = arguments.server.clone().resolve()?;
    let is_own_traffic = match &server {
        ServerChoice::External { target, .. } => !arguments.load && !is_own_server(target),
        ServerChoice::Sandbox { .. } | ServerChoice::None => false,
    };
    if is_own_traffic {
        check_no_load_options(&arguments, makes_schema)?;
    }
    let load = (!is_own_traffic).then(|| arguments.workload.as_deref().unwrap_or(USUAL_WORKLOAD));
    let full_text = build_scenario(&arguments.command, &arguments.env, ends(&arguments), load);
    let scenario = Scenario::parse(&full_text).context("this command cannot be measured")?;
    check_command(&arguments)?;
    // What is kept of the run must not say more than its title does.
    let redacted = redact::redact_words(&arguments.command);
    let text = build_scenario(&redacted, &arguments.env, ends(&arguments), load);
    let mut overrides = RunOverrides {
        time: arguments.time,
        find_pct: arguments.find,
        rounds: arguments.rounds,
        window: arguments.window,
        settle: arguments.settle,
        gap: Some(arguments.gap),
        seed: arguments.seed,
        ..RunOverrides::default()
    };
    if !is_own_traffic {
        overrides.driver = arguments.driver;
        overrides.rows = Some(arguments.rows.unwrap_or(USUAL_ROWS));
        overrides.threads = Some(arguments.threads.unwrap_or(USUAL_THREADS));
        overrides.rate = arguments.rate;
    }
    let resolved = ResolvedScenario::new(scenario.clone(), &overrides)?;
    super::run::check_bounds(&arguments.fail_if, &resolved)?;
    let source = RunSource::Scenario(Box::new(scenario), Box::new(overrides));
    let asked = RunRequest {
        source,
        text,
        server,
        out: arguments.out,
        keep_artefacts: false,
        live: None,
        readers: super::run::only_for_owner(),
        command: std::env::args().collect(),
    };
    if arguments.dry_run {
        return super::exact::print_preview(asked, &arguments.exact, is_agreed);
    }
    consent::check_load(&asked.source, &asked.server, is_agreed)?;
    super::exact::run(arguments.exact, asked, full_text, arguments.format.chosen(), &arguments.fail_if)
}

/// Refuses options of a load where there is none: whoever gives a rate expects a load of that rate.
fn check_no_load_options(arguments: &Cost, makes_schema: bool) -> anyhow::Result<()> {
    let options = [
        (arguments.workload.is_some(), "--workload"),
        (arguments.driver.is_some(), "--driver"),
        (arguments.threads.is_some(), "--threads"),
        (arguments.rate.is_some(), "--rate"),
        (arguments.rows.is_some(), "--rows"),
        (makes_schema, "--allow-schema"),
    ];
    if let Some((_, option)) = options.into_iter().find(|(given, _)| *given) {
        bail!(
            "{option} is of a load, and toll adds none to an existing server: its own traffic is measured. Add --load, or \
             leave out {option}"
        );
    }
    ensure!(
        !arguments.exact.exact,
        "--exact counts in virtual machines, which have a server of their own: leave out --server"
    );
    Ok(())
}

/// A bound on the command: its variant's name can be left out.
fn bound(text: &str) -> Result<Bound, BoundError> {
    let subject = text.split(['<', '>']).next().unwrap_or_default();
    if subject.contains('.') { text.parse() } else { format!("{COMMAND}.{text}").parse() }
}

fn workload(name: &str) -> Result<String, String> {
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

/// What becomes of a command that ends by itself.
fn ends(arguments: &Cost) -> &'static str {
    if arguments.repeat { "again" } else { "rehearse" }
}

/// The scenario of one command under this load; `None`: under the server's own traffic.
pub(super) fn build_scenario(command: &[String], env: &[String], ends: &str, load: Option<&str>) -> String {
    // Each word in quotes of its own: placeholders are filled in once they are split.
    let line = shell_words::join(command);
    let mut arm = toml::Table::new();
    let mut put = |key: &str, value: &str| arm.insert(key.into(), value.into());
    put("name", COMMAND);
    put("title", &shell_words::join(redact::redact_words(command)));
    put("command", &line);
    put("ends", ends);
    if line.contains("{artefact}") {
        put("artefact", "bytes");
    }
    if load.is_none() {
        put("meter", "server");
    }
    if !env.is_empty() {
        arm.insert("env".into(), env.to_vec().into());
    }
    let mut workload = toml::Table::new();
    let (key, value) = load.map_or(("driver", "none"), |profile| ("profile", profile));
    workload.insert(key.into(), value.into());
    let mut rest = toml::Table::new();
    rest.insert("workload".into(), workload.into());
    rest.insert("arm".into(), toml::Value::Array(vec![arm.into()]));
    let template = if load.is_none() { TEMPLATE_OF_OWN_TRAFFIC } else { TEMPLATE };
    let (head, arms) = template.split_once("\n[profile.cost]").unwrap_or((template, ""));
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
        let scenario =
            Scenario::parse(&build_scenario(&cost.command, &cost.env, ends(&cost), Some(USUAL_WORKLOAD)))
                .unwrap();
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
    fn on_a_server_under_its_own_traffic_there_is_no_load_and_the_server_counts() {
        let cost = Wrapper::parse_from(["x", "--", "agent", "--socket={socket}"]).cost;
        let scenario = Scenario::parse(&build_scenario(&cost.command, &cost.env, ends(&cost), None)).unwrap();
        assert_eq!(scenario.workload.driver.as_deref(), Some("none"));
        assert!(scenario.arms.iter().all(|arm| arm.meter == Some(toll_record::Meter::Server)));
    }

    #[test]
    fn a_bound_is_on_the_command() {
        let bounds = ["qps<-5%", "command.qps<-5%"].map(|text| bound(text).unwrap().to_string());
        assert_eq!(bounds, ["command.qps<-5%"; 2]);
        assert!(bound("qps").is_err());
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
