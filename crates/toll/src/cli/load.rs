//! Command `toll load`: load generator that reports the latency of each event.

mod output;
mod shutdown;

use super::console::{eprint_line, print_line};
use super::target::TargetArgs;
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use output::Output;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use toll_commands::json_format::JsonFormat;
use toll_load::engine::{self, BinGrid, LoadPlan, RunError};
use toll_load::mix::{self, Distribution, Mix, Profile, RecordedWorkload, TableSet};
use toll_load::tables::{self, PrepareProgress, TableLayout};
use toll_mysql::{NO_BINLOG, Target};
use toll_stats::schedule::{ArrivalProcess, Pacing};
use toll_sys::count_format::format_count;
use toll_sys::signals;
use toll_sys::units::{self, Percent};

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "Examples:\n  \
    toll load prepare --server toll.cnf --tables 8 --rows 100000\n  \
    toll load read-only --server toll.cnf --tables 8 --rows 100000 \\\n      \
        --threads 8 --rate 500 --time 5m\n  \
    toll load cleanup --server toll.cnf --tables 8\n\n\
    Profiles: read-only, point-select, read-write, write-only, insert, update-index, \
    update-non-index, delete, or by sysbench's names: oltp_read_only, ...; statements, tables and key \
    distribution are sysbench's.\n\
    The password comes from MYSQL_PWD, a defaults file, TOLL_DSN or the prompt (--password).")]
pub struct Load {
    #[command(subcommand)]
    command: Option<LoadCommand>,
    #[command(flatten)]
    run: LoadRun,
}

#[derive(Debug, Subcommand)]
enum LoadCommand {
    /// Create and fill the tables sbtest1, sbtest2, ...
    Prepare(Prepare),
    /// Drop these tables
    Cleanup(Cleanup),
}

/// The server and the tables.
#[derive(Debug, Args)]
struct TableArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Schema with the tables [default: sbtest]
    #[arg(long, short = 'D', alias = "db", value_name = "NAME", help_heading = "Server")]
    database: Option<String>,
    /// Keep what is written out of the binary log and away from replicas (needs SUPER, BINLOG ADMIN or SESSION_VARIABLES_ADMIN)
    #[arg(long, help_heading = "Load and data")]
    no_binlog: bool,
    /// Tables sbtest1, sbtest2, ...
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    #[arg(help_heading = "Load and data")]
    tables: u32,
}

/// Rows of the tables, and the choice of them.
#[derive(Debug, Args)]
struct RowArgs {
    /// Rows in each table
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(help_heading = "Load and data")]
    rows: u64,
    /// Distribution of the ids that are drawn
    #[arg(long, value_enum, default_value_t = KeyDistribution::Special, help_heading = "Load and data")]
    rand_type: KeyDistribution,
    /// Random seed
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Args)]
struct Prepare {
    #[command(flatten)]
    tables: TableArgs,
    #[command(flatten)]
    rows: RowArgs,
    /// Connections that fill the tables [default: the CPUs]
    #[arg(long, short = 't', value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    #[arg(help_heading = "Load and data")]
    threads: Option<u32>,
}

#[derive(Debug, Args)]
struct Cleanup {
    #[command(flatten)]
    tables: TableArgs,
}

#[derive(Debug, Args)]
struct LoadRun {
    /// A profile, or a file: a mix (.toml), a digest (.json), events (.ndjson)
    #[arg(value_name = "PROFILE|FILE", required = true)]
    what: Option<String>,
    #[command(flatten)]
    tables: TableArgs,
    #[command(flatten)]
    rows: RowArgs,
    /// Connections, each with one event at a time
    #[arg(long, short = 't', value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_535), help_heading = "Load and data")]
    threads: u32,
    /// Open loop: events a second, 100k for 100,000 [default: closed loop]
    #[arg(long, value_name = "RATE", value_parser = units::rate, help_heading = "Load and data")]
    rate: Option<f64>,
    /// Spacing of events at a rate
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson, help_heading = "Load and data")]
    arrivals: Arrivals,
    /// Replay a recording as fast as the connections go, instead of at its own times or rate
    #[arg(long, conflicts_with = "rate", help_heading = "Load and data")]
    closed: bool,
    /// Send statements as text instead of prepared
    #[arg(long, help_heading = "Load and data")]
    text: bool,
    /// Delay each event's last reply by this share of its response time, such as 2%: positive control (latency)
    #[arg(long, value_name = "PERCENT", default_value = "0%", hide_default_value = true)]
    #[arg(help_heading = "Load and data")]
    delay: Percent,
    /// Reconnect after N events (1: a new connection per event); the first event's latency includes the connect [default: never]
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        hide_default_value = true,
        help_heading = "Load and data"
    )]
    reconnect: u64,
    /// Time to run after the warm-up; 0: until a signal, or a recording's end [default: 10s, or a recording's end]
    #[arg(long, alias = "duration", value_name = "DURATION", value_parser = units::duration, help_heading = "Time")]
    time: Option<Duration>,
    /// Time to run before counting
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = units::duration)]
    #[arg(help_heading = "Time")]
    warmup: Duration,
    /// End once nothing has succeeded for this long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = units::duration)]
    #[arg(help_heading = "Time")]
    give_up: Duration,
    /// JSON lines: one each second and one for the run
    #[arg(long, conflicts_with = "bins", help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    format: JsonFormat,
    /// Also write an HdrHistogram interval log, one line a second
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    hdr: Option<PathBuf>,
    /// Threads of the generator that share the connections [default: one each up to 8 or the CPUs, beyond that a quarter of the CPUs, at least 4; with --reconnect one each]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    #[arg(help_heading = "For programs")]
    workers: Option<u32>,
    /// A JSON line for each bin of this width, aligned on CLOCK_MONOTONIC
    #[arg(long, value_name = "DURATION", value_parser = units::duration, conflicts_with = "format")]
    #[arg(help_heading = "For programs")]
    bins: Option<Duration>,
    /// With --bins, in a closed loop of threads with a connection each: begin only as many events in a bin as fit into it, the same ones in each
    #[arg(long, requires = "bins", conflicts_with = "rate", help_heading = "For programs")]
    rest_at_edges: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Arrivals {
    Poisson,
    Uniform,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum KeyDistribution {
    Special,
    Uniform,
}

pub fn run(arguments: &Load) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in signals::shutdown_signals() {
        signal_hook::flag::register(signal, stop.clone()).context("cannot install the signal handler")?;
    }
    // A file that may grow no further (ulimit -f) is an error to report, as a full disk is.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default())?;
    let left = match &arguments.command {
        Some(LoadCommand::Prepare(_)) => "the tables are incomplete: drop them with toll load cleanup",
        Some(LoadCommand::Cleanup(_)) => "some tables may be left: do it again",
        None => "what the server had begun it may still finish",
    };
    shutdown::exit_soon_after_stop(&stop, left)?;
    match &arguments.command {
        Some(LoadCommand::Prepare(prepare)) => prepare_tables(prepare, &stop),
        Some(LoadCommand::Cleanup(Cleanup { tables })) => {
            tables::drop_tables(&tables.target()?, tables.tables)?;
            print_line!("dropped sbtest1 to sbtest{} where they were", tables.tables);
            Ok(ExitCode::SUCCESS)
        }
        None => run_load(&arguments.run, stop),
    }
}

impl TableArgs {
    fn target(&self) -> Result<Target> {
        let mut target = self.target.resolve()?;
        target.db = self.database.clone().or(target.db).or_else(|| Some("sbtest".into()));
        if self.no_binlog {
            target.session.push(NO_BINLOG.into());
        }
        Ok(target)
    }
}

impl RowArgs {
    fn table_set(&self, tables: u32) -> TableSet {
        let distribution = match self.rand_type {
            KeyDistribution::Special => Distribution::Special,
            KeyDistribution::Uniform => Distribution::Uniform,
        };
        TableSet { tables, rows: self.rows, distribution }
    }
}

impl LoadRun {
    fn is_json(&self) -> bool {
        self.json || self.format.is_json()
    }

    fn what(&self) -> &str {
        self.what.as_deref().unwrap_or_default()
    }

    fn table(&self) -> TableSet {
        self.rows.table_set(self.tables.tables)
    }

    /// Statements and their schedule.
    fn workload(&self) -> Result<(Mix, Pacing)> {
        if let Some(profile) = Profile::from_name(self.what()) {
            return Ok((profile.build_mix(self.table())?, self.pace(None)));
        }
        let path = Path::new(self.what());
        if ["prepare", "cleanup"].contains(&self.what()) {
            bail!("{0} is a command: write `toll load {0}`, and options behind it", self.what());
        }
        if !path.is_file() {
            let names: Vec<&str> = Profile::ALL.iter().map(|p| p.name()).collect();
            bail!("{:?} is neither a file nor a profile: choose one of {}", self.what(), names.join(", "));
        }
        match path.extension().and_then(|e| e.to_str()) {
            Some("toml") => Ok((Mix::from_toml_file(path)?, self.pace(None))),
            Some("json") => Ok(self.replay_mix(mix::from_digest(path, self.table())?)),
            Some("ndjson" | "jsonl") => Ok(self.replay_mix(mix::from_events(path)?)),
            _ => bail!("{}: name a mix .toml, a digest .json, and events .ndjson", path.display()),
        }
    }

    fn pace(&self, recorded_per_s: Option<f64>) -> Pacing {
        let arrivals = match self.arrivals {
            Arrivals::Poisson => ArrivalProcess::Poisson,
            Arrivals::Uniform => ArrivalProcess::Uniform,
        };
        match self.rate.or(recorded_per_s.filter(|_| !self.closed)) {
            Some(rate_per_s) => Pacing::Open { rate_per_s, arrivals },
            None => Pacing::Closed,
        }
    }

    /// A recording keeps its own times, or at least its own rate, unless options override them.
    fn replay_mix(&self, recorded: RecordedWorkload) -> (Mix, Pacing) {
        for (count, what) in &recorded.unsupported {
            eprint_line!("toll: left out {count} times: {what}");
        }
        let pace = if recorded.offsets_ns.is_empty() || self.rate.is_some() || self.closed {
            self.pace(recorded.rate_per_s)
        } else {
            Pacing::Recorded { offsets_ns: recorded.offsets_ns }
        };
        match &pace {
            Pacing::Recorded { offsets_ns } => {
                let length_s = offsets_ns.last().map_or(0.0, |last| *last as f64 / 1e9);
                eprint_line!("toll: {} events over {length_s:.3} s, as recorded", offsets_ns.len());
            }
            Pacing::Open { rate_per_s, .. } => eprint_line!("toll: {rate_per_s:.1} events/s"),
            Pacing::Closed => {}
        }
        (recorded.mix, pace)
    }
}

fn run_load(arguments: &LoadRun, stop: Arc<AtomicBool>) -> Result<ExitCode> {
    let (mix, pace) = arguments.workload()?;
    let target = arguments.tables.target()?;
    let connections = arguments.threads as usize;
    let workers = match arguments.workers {
        Some(workers) => workers as usize,
        // Connecting blocks, and would hold up all connections that share the thread.
        None if arguments.reconnect > 0 => connections,
        None => engine::default_workers(connections),
    };
    let bins = match arguments.bins {
        Some(width) => BinGrid::Clock(width),
        None => BinGrid::FromStart(Duration::from_secs(1)),
    };
    let time = arguments.time.unwrap_or_else(|| match &pace {
        // It ends by itself.
        Pacing::Recorded { .. } => Duration::ZERO,
        _ => Duration::from_secs(10),
    });
    let time = (!time.is_zero()).then_some(time + arguments.warmup);
    let plan = LoadPlan {
        target,
        mix,
        pace,
        connections,
        workers: workers.min(connections),
        prepared: !arguments.text,
        reconnect_every: arguments.reconnect,
        delay: arguments.delay.0 / 100.0,
        rest_at_edges: arguments.rest_at_edges,
        time,
        warmup: arguments.warmup,
        bins,
        seed: arguments.rows.seed,
        give_up: arguments.give_up,
    };
    let address = plan.target.address.to_string();
    let mut output = Output::new(arguments)?;
    let error = match engine::run_load(plan, stop, |bin| output.write_bin(bin)) {
        Ok(totals) => return output.write_totals(&totals).map(|()| ExitCode::SUCCESS),
        Err(error) => error,
    };
    if let RunError::NothingSucceeds { totals, .. } = &error
        && totals.counts.events > 0
    {
        output.write_totals(totals)?;
    }
    let hint = connection_hint(arguments, &address, &error);
    Err(error).context(hint)
}

/// Address that was tried, and the most likely remedy.
fn connection_hint(arguments: &LoadRun, address: &str, error: &RunError) -> String {
    let mut hint = format!("load {} on {address}", arguments.what());
    // Where events had succeeded, the tables are there.
    if !matches!(error, RunError::NothingSucceeds { silence, .. } if silence.since.is_some()) {
        let TableSet { tables, rows, .. } = arguments.table();
        hint += &format!(" (if tables are missing: toll load prepare --tables {tables} --rows {rows})");
    }
    hint
}

fn prepare_tables(arguments: &Prepare, stop: &AtomicBool) -> Result<ExitCode> {
    let target = arguments.tables.target()?;
    let (count, rows) = (arguments.tables.tables, arguments.rows.rows);
    let threads = match arguments.threads {
        Some(threads) => threads as usize,
        None => std::thread::available_parallelism().map_or(2, usize::from),
    };
    let layout = TableLayout { table: arguments.rows.table_set(count), seed: arguments.rows.seed, threads };
    let begin = std::time::Instant::now();
    let bar = indicatif::ProgressBar::new(rows * u64::from(count));
    bar.set_style(indicatif::ProgressStyle::with_template(
        "{bar:40} {human_pos} of {human_len} rows, {eta} left",
    )?);
    let outcome = tables::prepare_tables(&target, &layout, stop, |progress| match progress {
        PrepareProgress::Rows(rows) => bar.set_position(rows),
        PrepareProgress::Indexing(_) => {}
        PrepareProgress::Done(number) => bar.println(format!("sbtest{number} is ready")),
    });
    bar.finish_and_clear();
    outcome.context("preparing tables (if they are there already: toll load cleanup)")?;
    if stop.load(std::sync::atomic::Ordering::Relaxed) {
        bail!("interrupted: the tables are incomplete; drop them with toll load cleanup --tables {count}");
    }
    print_line!(
        "{} of {rows} rows in {:.1} s",
        format_count(count.into(), "table"),
        begin.elapsed().as_secs_f64()
    );
    Ok(ExitCode::SUCCESS)
}
