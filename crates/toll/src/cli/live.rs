//! Command `toll live`: prices a method on a server that serves users, under its own traffic.

use super::console::eprint_line;
use super::login::Login;
use super::report::{FormatArgs, print_report};
use super::target::AddressArgs;
use super::{cost, interrupt, progress, scenario_file};
use anyhow::{Context, bail, ensure};
use clap::Args;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use toll_consent::audit;
use toll_consent::design::LiveDesign;
use toll_consent::prepare::{LiveOptions, LiveServer, prepare};
use toll_execution::run::{self, RunRequest, RunSource};
use toll_execution::testbed::{SecondServer, ServerChoice};
use toll_guard::control::Vetoes;
use toll_guard::limits::Tolerated;
use toll_guard::watch::Replica;
use toll_model::plan::RunOverrides;
use toll_model::scenario::{Profile, Scenario};
use toll_record::{Design, Role};
use toll_server::{AllowedChanges, ExternalServer};
use toll_sys::program::OWN_PROGRAM;
use toll_sys::redact;
use toll_sys::units::{self, Seconds};

/// Limits and weights from the look at the server are good for so long.
const PLAN_HOLDS: Duration = Duration::from_secs(600);
/// A probe query that fails after ten seconds by itself is no slow one any more.
const PROBE_LIMIT_MOST_S: f64 = 9.0;

/// Measure what a method costs a server that serves users
///
/// The method is switched on and off under the server's own traffic, in short windows of random order; toll adds no load and creates
/// nothing. Without --execute it prints the plan and changes nothing. A process of its own watches the server, and takes the
/// method off within two seconds once a limit is passed.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "Examples:\n  \
    toll live tcpdump-impact --variants slowlog-all --server toll.cnf\n  \
    toll live tcpdump-impact --variants slowlog-all --server toll.cnf \\\n      \
        --execute --reason 'ticket 4711: may we log all queries?'\n  \
    sudo toll live --server toll.cnf --time 30m -- /opt/agent/bin/agent\n\n\
    Exit codes: 1 the breaker tripped, or an error; 130 interrupted. The method is off in each case.")]
pub struct Live {
    /// A scenario's name (see `toll list`) or a TOML file, whose treatments are named by --variants
    #[arg(value_name = "SCENARIO|FILE", required_unless_present = "command")]
    scenario: Option<String>,
    /// These treatments of the scenario
    #[arg(long, alias = "arms", value_delimiter = ',', value_name = "NAMES", conflicts_with = "command")]
    variants: Vec<String>,
    /// Switch what the plan says
    #[arg(long, requires = "reason")]
    execute: bool,
    /// Why it is done, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The first eight characters of the server's uuid, or the host's name, in place of an answer at the terminal
    #[arg(long, value_name = "TEXT")]
    confirm: Option<String>,
    /// The server: a DSN, or an option file with a [client] section
    #[arg(long, aliases = ["dsn", "defaults-file"], value_name = "DSN|FILE", help_heading = "Server")]
    #[arg(conflicts_with = "address")]
    server: Option<String>,
    #[command(flatten)]
    address: AddressArgs,
    /// A replica whose lag ends the run: a name, and a DSN or an option file; may be repeated
    #[arg(long, value_name = "NAME=DSN|FILE", value_parser = named_server, help_heading = "Server")]
    watch_replica: Vec<(String, String)>,
    /// Measure on a replica or a read-only server
    #[arg(long, help_heading = "Server")]
    allow_replica: bool,
    /// A second replica of the same cluster with the same share of its traffic: the method is on at one while it is off at the
    /// other, and what slows both at once cancels
    #[arg(long, value_name = "DSN|FILE", help_heading = "Server")]
    crossed_with: Option<String>,
    /// Time of all blocks
    #[arg(long, alias = "duration", value_name = "DURATION", default_value = "20m", help_heading = "Time")]
    time: Seconds,
    /// Length of a window
    #[arg(long, value_name = "DURATION", default_value = "2s", help_heading = "Time")]
    window: Seconds,
    /// Time after each switch that is thrown away
    #[arg(long, value_name = "DURATION", default_value = "1s", help_heading = "Time")]
    guard_interval: Seconds,
    /// Time to look at the server before anything is switched
    #[arg(long, value_name = "DURATION", default_value = "30s", help_heading = "Time")]
    baseline: Seconds,
    /// The probe query [default: a row by primary key, anywhere in the largest tables]
    #[arg(long, alias = "canary", value_name = "SQL", help_heading = "Breaker")]
    probe: Option<String>,
    /// Probe queries up to this are never too slow, whatever the baseline [default: by the baseline alone]
    #[arg(long, value_name = "DURATION", help_heading = "Breaker")]
    probe_limit: Option<Seconds>,
    /// The method goes off, and the run ends, once this file is there
    #[arg(long, value_name = "FILE", help_heading = "Breaker")]
    flag_file: Option<PathBuf>,
    /// A Unix socket that the guard makes: `panic` takes the method off, `status` says what the guard sees
    #[arg(long, value_name = "FILE", help_heading = "Breaker")]
    control: Option<PathBuf>,
    /// Serve Prometheus metrics here, at /metrics: ADDRESS:PORT, or a port of 127.0.0.1
    #[arg(long, value_name = "ADDRESS", help_heading = "Output")]
    metrics: Option<String>,
    /// The method goes off once this service does not answer 200: http://HOST:PORT/PATH
    #[arg(long, value_name = "URL", help_heading = "Breaker")]
    veto_url: Option<String>,
    /// Without response times from the server's sockets, which need root: by the server's own counters, if they are on
    #[arg(long, help_heading = "Server")]
    no_tap: bool,
    /// Bytes that the method may write in a second, for the limit on what it writes
    #[arg(long, value_name = "RATE", default_value = "20M", value_parser = units::rate, help_heading = "Breaker")]
    write_rate: f64,
    /// Seed of order and jitter [default: from the clock, and written down]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Directory of the run [default: run-SCENARIO-TIME]
    #[arg(short, long, alias = "output", value_name = "DIR", help_heading = "Output")]
    out: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
    /// The command and its arguments, run without a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn named_server(text: &str) -> Result<(String, String), String> {
    let (name, server) = text.split_once('=').ok_or("write NAME=DSN or NAME=FILE")?;
    Ok((name.to_owned(), server.to_owned()))
}

pub fn run(arguments: Live) -> anyhow::Result<ExitCode> {
    let cancel = interrupt::new_signal_token()?;
    ensure!(
        arguments.probe_limit.is_none_or(|limit| limit.0 <= PROBE_LIMIT_MOST_S),
        "--probe-limit is at most {PROBE_LIMIT_MOST_S} s: a probe query without an answer is given up after 10 s"
    );
    let vetoes = Vetoes { control: arguments.control.clone(), url: arguments.veto_url.clone() }.resolve()?;
    let (scenario, text) = arguments.scenario()?;
    let mut login = Login::choose(arguments.server.as_deref(), &arguments.address)?
        .context("name the server: --server FILE.cnf, or --host and --user")?;
    let server = ExternalServer::connect(&login.target, login.defaults_file.clone())?;
    // The plan, the consent and the run are for the one server, whoever answers at its address later.
    login.target.identity.clone_from(&server.target().identity);
    let mut second =
        arguments.crossed_with.as_deref().map(Login::parse).transpose().context("in --crossed-with")?;
    let second_server = second
        .as_ref()
        .map(|login| ExternalServer::connect(&login.target, login.defaults_file.clone()))
        .transpose()?;
    if let (Some(login), Some(other)) = (&mut second, &second_server) {
        login.target.identity.clone_from(&other.target().identity);
        ensure!(
            !other.server().is_at_same_address(server.server()),
            "--crossed-with names the server that --server names: a method cannot be on and off there at once"
        );
    }
    let confirmation = server.short_id();
    arguments.check_confirmation(&confirmation)?;
    let treatments = scenario.arms.iter().filter(|arm| arm.role == Role::Treatment).count() as u32;
    let design =
        LiveDesign::fit(arguments.time.0, arguments.window.0, arguments.guard_interval.0, treatments)?;
    let overrides = RunOverrides {
        rounds: Some(design.blocks),
        window: Some(arguments.window),
        settle: Some(arguments.guard_interval),
        seed: arguments.seed,
        early_stop: true,
        design: Design::Blocks { ramp_s: design.ramp_s.clone() },
        ..RunOverrides::default()
    };
    let agreed = AllowedChanges { allows_replica: arguments.allow_replica, ..AllowedChanges::default() };
    let mut request = RunRequest {
        source: RunSource::Scenario(Box::new(scenario), Box::new(overrides)),
        text,
        server: ServerChoice::External {
            target: Box::new(login.target.clone()),
            defaults_file: login.defaults_file.clone(),
            agreed,
            second: second.as_ref().map(|login| {
                Box::new(SecondServer {
                    target: login.target.clone(),
                    defaults_file: login.defaults_file.clone(),
                })
            }),
        },
        out: arguments.out.clone(),
        keep_artefacts: false,
        live: None,
        readers: super::run::only_for_owner(),
        command: std::env::args().collect(),
    };
    let options = LiveOptions {
        probe_query: arguments.probe.clone(),
        flag_file: arguments.flag_file.clone(),
        vetoes,
        metrics: arguments.metrics.clone(),
        write_rate: arguments.write_rate,
        tolerated: Tolerated { probe_us: arguments.probe_limit.map_or(0.0, |limit| limit.0 * 1e6) },
        baseline_s: arguments.baseline.0,
        without_tap: arguments.no_tap,
        replicas: arguments.replicas()?,
        guard_command: vec![OWN_PROGRAM.to_owned(), "guard".to_owned()],
    };
    eprint_line!("toll: looking at the server for {:.0} s, with nothing switched", arguments.baseline.0);
    let first = LiveServer { server: &server, target: &login.target };
    let other = second_server.as_ref().zip(second.as_ref());
    let other = other.map(|(server, login)| LiveServer { server, target: &login.target });
    let servers: Vec<LiveServer<'_>> = std::iter::once(first).chain(other).collect();
    let Some(prepared) = prepare(&mut request, &servers, &design, options, &cancel)? else {
        return Ok(ExitCode::from(super::exit_code::INTERRUPTED));
    };
    let prepared_at = Instant::now();
    print_report(&prepared.page)?;
    if !arguments.execute {
        return Ok(ExitCode::SUCCESS);
    }
    prepared.check_rights()?;
    let typed = arguments.confirmed(&confirmation)?;
    ensure!(
        prepared_at.elapsed() < PLAN_HOLDS,
        "nothing was switched: the server was looked at {:.0} minutes ago, and its limits are of that time. Give the command again",
        prepared_at.elapsed().as_secs_f64() / 60.0
    );
    run::make_run_dir(&prepared.dir, request.readers)?;
    let mut audit = audit::Audit::create(&prepared.dir)?;
    let reason = arguments.reason.as_deref().unwrap_or_default();
    prepared.audit_consent(&mut audit, &typed, reason, &request.command)?;
    request.live = Some(prepared.live);
    let finished = run::run(request, &progress::RunProgress::on_stderr(), &cancel);
    let how = match &finished {
        Ok(finished) => audit::describe_end(&finished.ending),
        Err(error) => format!("{error:#}"),
    };
    let audited = audit.write(audit::Action::End { how: &how });
    let code = super::run::finish_run(finished?, arguments.format.chosen(), &[])?;
    audited.map(|()| code)
}

impl Live {
    /// The scenario under the server's own traffic, and its text.
    fn scenario(&self) -> anyhow::Result<(Scenario, String)> {
        match &self.scenario {
            Some(name) => {
                let (scenario, text) = scenario_file::load(name)?;
                ensure!(
                    !self.variants.is_empty(),
                    "name the treatments with --variants: `toll list {}` shows them",
                    scenario.name
                );
                Ok((scenario.under_own_traffic(&self.variants, Profile::live())?, text))
            }
            None => {
                let text = cost::build_scenario(&self.command, &[], "again", None);
                let scenario = Scenario::parse(&text).context("this command cannot be measured")?;
                let chosen = [cost::COMMAND.to_owned()];
                let shown = cost::build_scenario(&redact::redact_words(&self.command), &[], "again", None);
                Ok((scenario.under_own_traffic(&chosen, Profile::live())?, shown))
            }
        }
    }

    fn replicas(&self) -> anyhow::Result<Vec<Replica>> {
        let parse = |(name, server): &(String, String)| {
            let login = Login::parse(server).with_context(|| format!("replica {name}"))?;
            Ok(Replica { name: name.clone(), target: login.target })
        };
        self.watch_replica.iter().map(parse).collect()
    }

    /// Refuses at once what would be refused after the plan.
    fn check_confirmation(&self, expected: &str) -> anyhow::Result<()> {
        match &self.confirm {
            Some(typed) => ensure!(typed == expected, "nothing was switched: `{typed}` is not {expected}"),
            None if self.execute && !std::io::stdin().is_terminal() => {
                bail!("nothing was switched: give --confirm {expected}, there is no terminal to ask at")
            }
            None => {}
        }
        Ok(())
    }

    /// What was typed, once it is what was asked for.
    fn confirmed(&self, expected: &str) -> anyhow::Result<String> {
        if let Some(typed) = &self.confirm {
            return Ok(typed.clone());
        }
        eprint_line!("Type {expected} to begin:");
        let mut typed = String::new();
        std::io::stdin().read_line(&mut typed).context("cannot read the answer")?;
        let typed = typed.trim().to_owned();
        ensure!(typed == expected, "nothing was switched: `{typed}` is not {expected}");
        Ok(typed)
    }
}

/// The guard of a live run, hidden: its setup and toll's words come on standard input.
pub fn run_guard() -> anyhow::Result<ExitCode> {
    toll_guard::process::run(std::io::BufReader::new(std::io::stdin()), std::io::stdout())?;
    Ok(ExitCode::SUCCESS)
}
