//! Program `toll-fleet`: asks tables that `toll capture` and `toll digest` write on many hosts.

mod columns;
mod compare;
mod histogram;
mod live_table;
mod print;
mod queries;
mod simulate;
mod tables;
mod watch;

use anyhow::{Context, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use compare::{Baseline, RangeArgument};
use datafusion::arrow::array::RecordBatch;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tables::{TimeRange, unix_us};
use toll_digest::TimeBound;
use toll_sys::count_format::format_count;
use toll_sys::number_format::format_megabytes;
use toll_sys::prometheus::MetricsListener;
use toll_sys::signals;
use toll_sys::units::{self, Percent};
use toll_tables::Grain;

/// Exit code of what a signal ended.
const INTERRUPTED: u8 = 130;
/// Exit code of `watch --at` with alerts.
const ALERTS: u8 = 3;
/// How often it is looked whether an interval is over, or a signal came.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const DAY: Duration = Duration::from_hours(24);

/// Rank the queries of many hosts, from tables of their digests
///
/// Percentiles of merged rows are as exact as those of one host: within 0.8%.
#[derive(Debug, Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    toll-fleet top --tables /var/lib/toll/tables --since 2h\n  \
    toll-fleet compare --tables /var/lib/toll/tables --at '2026-11-21 14:00' --since '2026-11-21 12:00'\n  \
    toll-fleet class A88E850C664D65442BCCA77FCE7C6843 --tables /var/lib/toll/tables\n  \
    toll-fleet sql --tables /var/lib/toll/tables 'SELECT host, sum(n) FROM digests GROUP BY host'\n\
    Exit codes: 0 done; 1 it failed; 2 wrong arguments; 3 watch --at has alerts; 130 interrupted."
)]
struct Fleet {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Classes by their query time, over all hosts
    Top {
        /// Show so many classes
        #[arg(long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
        #[command(flatten)]
        source: Source,
    },
    /// One class on each host
    Class {
        /// Its ID, as the other commands and digests show it
        id: String,
        #[command(flatten)]
        source: Source,
    },
    /// Classes that are slower, faster, new or gone: since a moment, against another time, or on one host
    Compare {
        #[command(flatten)]
        with: With,
        /// Smallest change of the typical query time that counts as slower or faster
        #[arg(long, value_name = "PERCENT", default_value = "5%")]
        min_change: Percent,
        #[command(flatten)]
        source: Source,
    },
    /// Each host beside the others of its cluster, the slowest for the same queries first
    Hosts {
        #[command(flatten)]
        source: Source,
    },
    /// How much of each host's traffic the tables have
    Coverage {
        #[command(flatten)]
        source: Source,
    },
    /// Merge the many files of an hour or a day into one, and their rows into one for each stretch
    ///
    /// Rows are sums, so that no percentile changes. Each counts once at every moment, also where this is killed.
    Compact {
        /// Directory of the tables
        #[arg(long, value_name = "DIR")]
        tables: PathBuf,
        /// Stretch of time that rows are merged to
        #[arg(long, value_name = "GRAIN", default_value = "hour")]
        grain: GrainArgument,
        /// Only hours or days that ended so long ago: files may arrive late
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "2h")]
        older_than: Duration,
    },
    /// Alert about classes that are slower or new, and about hosts that are silent
    ///
    /// A class is reported once two intervals in a row differ from the day before them.
    Watch {
        /// Directory of the tables
        #[arg(long, value_name = "DIR")]
        tables: PathBuf,
        /// Length of an interval, each of which is judged once it is over
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "10m")]
        every: Duration,
        /// Judge an interval so long after its end: files may arrive late
        #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "15m")]
        delay: Duration,
        /// Smallest change of the typical query time that counts
        #[arg(long, value_name = "PERCENT", default_value = "10%")]
        min_change: Percent,
        /// Offer the alerts to Prometheus at this address or port
        #[arg(long, value_name = "ADDRESS:PORT")]
        metrics: Option<String>,
        /// Post them to this URL, in the format of Prometheus' Alertmanager: its `/api/v2/alerts`
        #[arg(long, value_name = "URL")]
        webhook: Option<String>,
        /// Judge once, as of this time; exit code 3: there are alerts
        #[arg(long, value_name = "TIME", conflicts_with_all = ["delay", "metrics"])]
        at: Option<TimeBound>,
    },
    /// Remove days that are older than an age
    Prune {
        /// Directory of the tables
        #[arg(long, value_name = "DIR")]
        tables: PathBuf,
        /// Remove whole days (UTC) that ended so long ago
        #[arg(long, value_name = "DURATION", value_parser = units::duration)]
        older_than: Duration,
    },
    /// Write tables of many hosts that resemble those seen, to try queries and storage at a size
    Simulate {
        /// Tables of the hosts seen: classes, rates and histograms are theirs
        #[arg(long, value_name = "DIR")]
        like: PathBuf,
        /// New directory for the simulated tables: a row for each class, host and hour
        #[arg(long, value_name = "DIR")]
        tables: PathBuf,
        /// Number of hosts, in clusters of ten
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        hosts: u32,
        /// Days, the last of them yesterday
        #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1_000))]
        days: u32,
        /// Seed of all draws
        #[arg(long, value_name = "NUMBER", default_value = "1")]
        seed: u64,
    },
    /// Rows of a statement on the tables digests, texts and coverage
    Sql {
        statement: String,
        #[command(flatten)]
        source: Source,
    },
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum GrainArgument {
    Hour,
    Day,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct With {
    /// The time from a moment on with that before it, such as a deployment
    #[arg(long, value_name = "TIME")]
    at: Option<TimeBound>,
    /// The time of --since and --until with this one: 2d..1d, or times as they have them
    #[arg(long, value_name = "FROM..UNTIL")]
    baseline: Option<RangeArgument>,
    /// One host with the others of its cluster, at the same time
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
}

impl With {
    fn baseline(self) -> anyhow::Result<Baseline> {
        match (self.at, self.baseline, self.host) {
            (Some(moment), _, _) => Ok(Baseline::Before(unix_us(moment))),
            (_, Some(RangeArgument(range)), _) => Ok(Baseline::Range(range)),
            (_, _, Some(host)) => Ok(Baseline::ClusterOf(host)),
            (None, None, None) => bail!("one of --at, --baseline and --host is needed"),
        }
    }
}

#[derive(Debug, Args)]
struct Source {
    /// Directory of the tables
    #[arg(long, value_name = "DIR")]
    tables: PathBuf,
    /// Only stretches that begin at or after a time: 2h (ago), 2026-11-21 [10:00:00]
    #[arg(long, value_name = "TIME")]
    since: Option<TimeBound>,
    /// Only stretches that begin before a time
    #[arg(long, value_name = "TIME")]
    until: Option<TimeBound>,
    /// Print JSON: an object for each row, or one of a comparison
    #[arg(long)]
    json: bool,
}

impl Source {
    fn range(&self) -> TimeRange {
        TimeRange {
            since_us: self.since.map_or(TimeRange::ALL.since_us, unix_us),
            until_us: self.until.map_or(TimeRange::ALL.until_us, unix_us),
        }
    }
}

fn checked_id(id: &str) -> anyhow::Result<String> {
    if id.len() != 32 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("{id} is no ID of a class: it has 32 hexadecimal digits, as `toll-fleet top` shows them");
    }
    Ok(id.to_owned())
}

fn main() -> ExitCode {
    let arguments = Fleet::parse();
    match run(arguments.command) {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _unread = writeln!(std::io::stderr(), "toll-fleet: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Runtime::new().context("cannot start threads")?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let (question, source) = match command {
        Command::Top { limit, source } => (Question::Top(limit.into()), source),
        Command::Class { id, source } => (Question::Sql(queries::class(&checked_id(&id)?)), source),
        Command::Coverage { source } => (Question::Sql(queries::COVERAGE.to_owned()), source),
        Command::Hosts { source } => (Question::Sql(queries::HOSTS.to_owned()), source),
        Command::Sql { statement, source } => (Question::Sql(statement), source),
        Command::Compact { tables, grain, older_than } => return compact(&tables, grain, older_than),
        Command::Watch {
            tables,
            every,
            delay,
            min_change: Percent(min_change_pct),
            metrics,
            webhook,
            at,
        } => {
            let watch = Watch { tables, every_us: to_us(every).max(1), min_change_pct, webhook };
            if let Some(at) = at {
                let alerts = runtime.block_on(watch.judge(unix_us(at), &mut out))?;
                out.flush()?;
                watch.post(&alerts)?;
                return Ok(if alerts.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(ALERTS) });
            }
            return watch.run(&runtime, to_us(delay), metrics.as_deref(), &mut out);
        }
        Command::Prune { tables, older_than } => {
            let days = toll_tables::prune(&tables, now_us()?.saturating_sub(to_us(older_than)))?;
            writeln!(out, "removed {}", format_count(days, "day"))?;
            out.flush()?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Simulate { like, tables, hosts, days, seed } => {
            let day_us = to_us(DAY);
            let midnight_us = now_us()?.div_euclid(day_us) * day_us;
            let begin_us = midnight_us - i64::from(days) * day_us;
            return simulate(&like, &tables, simulate::Plan { hosts, days, begin_us, seed });
        }
        Command::Compare { with, min_change: Percent(min_change_pct), source } => {
            let baseline = with.baseline()?;
            let sides = compare::sides(&source.tables, source.range(), &baseline);
            let (before, after) = runtime.block_on(sides)?;
            let comparison = toll_digest::compare::compare(&before, &after, min_change_pct);
            if source.json {
                toll_digest::compare::write_json(&comparison, &mut out)?;
            } else {
                toll_digest::compare::write_report(&comparison, &mut out)?;
            }
            out.flush()?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    let rows = runtime.block_on(answer(&source.tables, source.range(), &question))?;
    if source.json {
        print::json(&rows, &mut out)?;
    } else {
        print::text(&rows, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// A question to the tables.
enum Question {
    Sql(String),
    /// So many classes, first ranked by what is cheap to read: histograms are those of the ranked alone.
    Top(usize),
}

async fn answer(root: &Path, range: TimeRange, question: &Question) -> anyhow::Result<Vec<RecordBatch>> {
    let session = tables::open(root, range, None).await?;
    match question {
        Question::Sql(sql) => tables::rows(&session, sql).await,
        Question::Top(limit) => {
            let ranked = tables::rows(&session, &queries::ranked(*limit)).await?;
            let ids: Vec<String> = ranked.iter().flat_map(|batch| columns::texts(batch, "class")).collect();
            let whole_ns = ranked.first().and_then(|batch| columns::optional_int(batch, "whole_ns"));
            match whole_ns {
                Some(whole_ns) if !ids.is_empty() => {
                    tables::rows(&session, &queries::top(&ids, whole_ns)).await
                }
                _ => Ok(Vec::new()),
            }
        }
    }
}

fn compact(root: &Path, grain: GrainArgument, older_than: Duration) -> anyhow::Result<ExitCode> {
    let grain = match grain {
        GrainArgument::Hour => Grain::Hour,
        GrainArgument::Day => Grain::Day,
    };
    let until_us = now_us()?.saturating_sub(to_us(older_than));
    let stop = stop_at_signals()?;
    let done = toll_tables::compact(root, grain, until_us, &stop, |done, all| {
        show_progress(done, all, "stretches");
    })?;
    end_progress()?;
    writeln!(
        std::io::stdout(),
        "{} files of {} MB became {} of {} MB, {} rows {}",
        done.files_before,
        format_megabytes(done.bytes_before as f64),
        done.files_after,
        format_megabytes(done.bytes_after as f64),
        done.rows_before,
        done.rows_after
    )?;
    if stop.load(Ordering::Relaxed) {
        writeln!(std::io::stderr(), "toll-fleet: interrupted; what is merged is whole")?;
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

fn simulate(like: &Path, root: &Path, plan: simulate::Plan) -> anyhow::Result<ExitCode> {
    let stop = stop_at_signals()?;
    simulate::simulate(like, root, plan, &stop, |done, all| {
        show_progress(done.cast_unsigned(), all.cast_unsigned(), "hours");
    })?;
    end_progress()?;
    let manifests = toll_tables::read_manifests(root, toll_tables::ALL_DAYS)?;
    let digests = manifests.values().flat_map(|manifest| &manifest.files);
    let (mut files, mut rows, mut bytes) = (0_u64, 0_u64, 0_u64);
    for file in digests.filter(|file| file.path.starts_with("digests/")) {
        (files, rows, bytes) = (files + 1, rows + file.rows, bytes + file.bytes);
    }
    writeln!(
        std::io::stdout(),
        "{} of digests in {}, {} MB: {:.1} bytes each",
        format_count(rows, "row"),
        format_count(files, "file"),
        format_megabytes(bytes as f64),
        bytes as f64 / rows.max(1) as f64
    )?;
    if stop.load(Ordering::Relaxed) {
        writeln!(std::io::stderr(), "toll-fleet: interrupted; hours are missing")?;
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

/// Options of `watch`.
struct Watch {
    tables: PathBuf,
    every_us: i64,
    min_change_pct: f64,
    webhook: Option<String>,
}

impl Watch {
    /// Prints a JSON object for each alert.
    async fn judge(&self, at_us: i64, out: &mut impl Write) -> anyhow::Result<Vec<watch::Alert>> {
        let alerts = watch::judge(&self.tables, at_us, self.every_us, self.min_change_pct).await?;
        for alert in &alerts {
            writeln!(out, "{}", serde_json::to_string(alert)?)?;
        }
        Ok(alerts)
    }

    fn post(&self, alerts: &[watch::Alert]) -> anyhow::Result<()> {
        // Until the interval after the next one: an alert that is not posted again ends by itself.
        let end_us = now_us()?.saturating_add(self.every_us.saturating_mul(2));
        self.webhook.as_ref().map_or(Ok(()), |url| watch::post(url, alerts, end_us))
    }

    /// Judges each interval, until a signal.
    fn run(
        &self,
        runtime: &tokio::runtime::Runtime,
        delay_us: i64,
        metrics: Option<&str>,
        out: &mut impl Write,
    ) -> anyhow::Result<ExitCode> {
        let stop = stop_at_signals()?;
        let page = Arc::new(Mutex::new(watch::metrics(&[], 0)));
        if let Some(address) = metrics {
            let shown = Arc::clone(&page);
            let text = move || shown.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let at = MetricsListener::bind(address)?.serve(text)?;
            writeln!(std::io::stderr(), "toll-fleet: metrics at http://{at}/metrics")?;
        }
        let mut judged_us = None;
        while !stop.load(Ordering::Relaxed) {
            let due_us = (now_us()? - delay_us).div_euclid(self.every_us) * self.every_us;
            if judged_us != Some(due_us) {
                let judged = runtime.block_on(self.judge(due_us, out)).and_then(|alerts| {
                    *page.lock().unwrap_or_else(PoisonError::into_inner) = watch::metrics(&alerts, due_us);
                    self.post(&alerts)
                });
                // A collector that is away, or a file that is being replaced, is there again later.
                if let Err(error) = judged {
                    writeln!(std::io::stderr(), "toll-fleet: {error:#}")?;
                }
                out.flush()?;
                judged_us = Some(due_us);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(ExitCode::from(INTERRUPTED))
    }
}

fn now_us() -> anyhow::Result<i64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).context("the clock is before 1970")?;
    Ok(to_us(now))
}

fn to_us(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

fn stop_at_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    signals::end_in_good_order(&signals::shutdown_signals(), &stop)?;
    Ok(stop)
}

/// For those who watch.
fn show_progress(done: u64, all: u64, what: &str) {
    if std::io::stderr().is_terminal() {
        let _unseen = write!(std::io::stderr(), "\rtoll-fleet: {done} of {all} {what} ");
    }
}

fn end_progress() -> std::io::Result<()> {
    if std::io::stderr().is_terminal() { writeln!(std::io::stderr()) } else { Ok(()) }
}
