//! Command `toll load`: load generator that reports the latency of each event.

mod output;
mod shutdown;

use super::console::{eprint_line, print_line};
use super::target::TargetArgs;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use output::Output;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use toll_load::engine::{self, BinGrid, LoadPlan, RunError};
use toll_load::mix::{self, Distribution, Mix, Profile, RecordedWorkload, TableSet};
use toll_load::tables::{self, PrepareProgress, TableLayout};
use toll_mysql::{NO_BINLOG, Target};
use toll_stats::schedule::{ArrivalProcess, Pacing};
use toll_sys::count_format::format_count;
use toll_sys::signals;
use toll_sys::units::{self, Percent};

#[derive(Debug, Args)]
#[command(after_help = "Profiles: read-only, point-select, read-write, write-only, insert, update-index, \
    update-non-index, delete, or by sysbench's names: oltp_read_only, ...; statements, tables and key \
    distribution are sysbench's.\n\
    The password comes from MYSQL_PWD, a defaults file, TOLL_DSN or the prompt (--password).")]
pub struct Load {
    /// A profile, prepare, cleanup, or a file: a mix (.toml), a digest (.json), events (.ndjson)
    what: String,
    #[command(flatten)]
    target: TargetArgs,
    /// Schema with the tables [default: sbtest]
    #[arg(long)]
    db: Option<String>,
    /// Keep what is written out of the binary log and away from replicas (needs SUPER, BINLOG ADMIN or SESSION_VARIABLES_ADMIN)
    #[arg(long)]
    no_binlog: bool,
    /// Tables sbtest1, sbtest2, ...
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    tables: u32,
    /// Rows in each table
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Connections, each with one event at a time
    #[arg(long, short = 't', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    threads: u32,
    /// Threads of the generator that share the connections [default: one each up to 8 or the CPUs, beyond that a quarter of the CPUs, at least 4; with --reconnect one each]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    workers: Option<u32>,
    /// Reconnect after N events (1: a new connection per event); the first event's latency includes the connect [default: never]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    reconnect: u64,
    /// Open loop: events a second, 100k for 100,000 [default: closed loop]
    #[arg(long, value_parser = units::rate)]
    rate: Option<f64>,
    /// Replay a recording as fast as the connections go, instead of at its own times or rate
    #[arg(long, conflicts_with = "rate")]
    closed: bool,
    /// Spacing of events at a rate
    #[arg(long, value_enum, default_value_t = Arrivals::Poisson)]
    arrivals: Arrivals,
    /// How long to run after the warm-up: 60s, 5m, 500ms; 0: until a signal, or a recording's end [default: 10s, or a recording's end]
    #[arg(long, value_parser = units::duration)]
    time: Option<Duration>,
    /// Delay each event's last reply by this share of its response time, such as 2%: positive control (latency)
    #[arg(long, value_name = "SHARE", default_value = "0%", hide_default_value = true)]
    delay: Percent,
    /// Run this long before counting
    #[arg(long, default_value = "0s", value_parser = units::duration)]
    warmup: Duration,
    /// Send statements as text instead of prepared
    #[arg(long)]
    text: bool,
    /// How ids are drawn
    #[arg(long, value_enum, default_value_t = KeyDistribution::Special)]
    rand_type: KeyDistribution,
    /// Random seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// JSON lines: one each second and one for the run
    #[arg(long, conflicts_with = "bins")]
    json: bool,
    /// For programs: a JSON line for each bin of this width, aligned on CLOCK_MONOTONIC
    #[arg(long, value_name = "WIDTH", value_parser = units::duration)]
    bins: Option<Duration>,
    /// With --bins, in a closed loop of threads with a connection each: begin only as many events in a bin as fit into it, the same ones in each
    #[arg(long, requires = "bins", conflicts_with = "rate")]
    rest_at_edges: bool,
    /// Also write an HdrHistogram interval log, one line a second
    #[arg(long, value_name = "FILE")]
    hdr: Option<PathBuf>,
    /// End once nothing has succeeded for this long
    #[arg(long, default_value = "30s", value_parser = units::duration)]
    give_up: Duration,
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
    let left = match arguments.what.as_str() {
        "prepare" => "the tables are incomplete: drop them with toll load cleanup",
        "cleanup" => "some tables may be left: do it again",
        _ => "what the server had begun it may still finish",
    };
    shutdown::exit_soon_after_stop(&stop, left)?;
    match arguments.what.as_str() {
        "prepare" => prepare_tables(arguments, &stop),
        "cleanup" => {
            let target = arguments.target()?;
            tables::drop_tables(&target, arguments.tables)?;
            print_line!("dropped sbtest1 to sbtest{} where they were", arguments.tables);
            Ok(ExitCode::SUCCESS)
        }
        _ => run_load(arguments, stop),
    }
}

impl Load {
    fn target(&self) -> Result<Target> {
        let mut target = self.target.resolve()?;
        target.db = self.db.clone().or(target.db).or_else(|| Some("sbtest".into()));
        if self.no_binlog {
            target.session.push(NO_BINLOG.into());
        }
        Ok(target)
    }

    fn table(&self) -> TableSet {
        let distribution = match self.rand_type {
            KeyDistribution::Special => Distribution::Special,
            KeyDistribution::Uniform => Distribution::Uniform,
        };
        TableSet { tables: self.tables, rows: self.rows, distribution }
    }

    /// Statements and their schedule.
    fn workload(&self) -> Result<(Mix, Pacing)> {
        if let Some(profile) = Profile::from_name(&self.what) {
            return Ok((profile.build_mix(self.table())?, self.pace(None)));
        }
        let path = Path::new(&self.what);
        if !path.is_file() {
            let names: Vec<&str> = Profile::ALL.iter().map(|p| p.name()).collect();
            bail!(
                "{:?} is neither a file nor a profile: choose one of {}, prepare or cleanup",
                self.what,
                names.join(", ")
            );
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

fn run_load(arguments: &Load, stop: Arc<AtomicBool>) -> Result<ExitCode> {
    let (mix, pace) = arguments.workload()?;
    let target = arguments.target()?;
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
        seed: arguments.seed,
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
fn connection_hint(arguments: &Load, address: &str, error: &RunError) -> String {
    let mut hint = format!("load {} on {address}", arguments.what);
    // Where events had succeeded, the tables are there.
    if !matches!(error, RunError::NothingSucceeds { silence, .. } if silence.since.is_some()) {
        let Load { tables, rows, .. } = arguments;
        hint += &format!(" (if tables are missing: toll load prepare --tables {tables} --rows {rows})");
    }
    hint
}

fn prepare_tables(arguments: &Load, stop: &AtomicBool) -> Result<ExitCode> {
    let target = arguments.target()?;
    let threads = if arguments.threads > 1 {
        arguments.threads as usize
    } else {
        std::thread::available_parallelism().map_or(2, usize::from)
    };
    let layout = TableLayout { table: arguments.table(), seed: arguments.seed, threads };
    let begin = std::time::Instant::now();
    let bar = indicatif::ProgressBar::new(arguments.rows * u64::from(arguments.tables));
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
        bail!(
            "interrupted: the tables are incomplete; drop them with toll load cleanup --tables {}",
            arguments.tables
        );
    }
    print_line!(
        "{} of {} rows in {:.1} s",
        format_count(arguments.tables.into(), "table"),
        arguments.rows,
        begin.elapsed().as_secs_f64()
    );
    Ok(ExitCode::SUCCESS)
}
