//! Program `toll-fleet`: asks tables that `toll capture` and `toll digest` write on many hosts.

mod arguments;
mod columns;
mod compare;
mod distributed;
mod histogram;
mod inventory;
mod live_table;
mod page;
mod poll;
mod print;
mod queries;
mod serve;
mod simulate;
mod tables;
mod watch;

use anyhow::Context;
use arguments::{Command, Fleet, Source};
use clap::{CommandFactory, Parser};
use compare::Baseline;
use queries::{Question, checked_id};
use serve::ListenPlaces;
use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tables::{Tables, unix_us};
use toll_sys::count_format::format_count;
use toll_sys::number_format::format_megabytes;
use toll_sys::prometheus::MetricsListener;
use toll_sys::signals;
use toll_sys::units::Percent;
use toll_tables::{CompactOptions, Location};

/// Exit code of what a signal ended.
const INTERRUPTED: u8 = 130;
/// Exit code of `watch --at` with alerts.
const ALERTS: u8 = 3;
/// How often it is looked whether an interval is over, or a signal came.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Pause before an interval that could not be judged, or whose alerts nobody took, is tried again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_hours(24);

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
        Command::Class { id, source } => (Question::Sql(queries::class(checked_id(&id)?)), source),
        Command::Coverage { source } => (Question::Sql(queries::COVERAGE.to_owned()), source),
        Command::Hosts { source } => (Question::Sql(queries::HOSTS.to_owned()), source),
        Command::Sql { statement, source } => (Question::Sql(statement), source),
        Command::Compact { tables, grain, older_than, newer_than, keep_replaced } => {
            let now_us = now_us()?;
            let options = CompactOptions {
                grain: grain.into(),
                since_us: newer_than.map_or(i64::MIN, |age| now_us.saturating_sub(to_us(age))),
                until_us: now_us.saturating_sub(to_us(older_than)),
                keep_replaced,
            };
            return compact(&tables, &options);
        }
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
                return watch.run_once(&runtime, unix_us(at), &mut out);
            }
            return watch.run(&runtime, to_us(delay), metrics.as_deref(), &mut out);
        }
        Command::Serve { tables, listen, page, plain } => {
            let (tables, stop) = (Tables::open(&tables)?, stop_at_signals()?);
            let places = ListenPlaces { sql: listen, page, is_plain: plain };
            return runtime.block_on(until_stopped(&stop, serve::serve(tables, places)));
        }
        Command::Worker { tables, listen, plain } => {
            let (tables, stop) = (Tables::open(&tables)?, stop_at_signals()?);
            return runtime.block_on(until_stopped(&stop, distributed::run_worker(&tables, listen, plain)));
        }
        Command::Poll { servers, tables, cluster, every, duration } => {
            let until_us = poll::end_of(duration)?;
            let every_us = to_us(every).max(1);
            let plan = poll::Plan { servers, root: tables, cluster, every_us, until_us };
            return poll(&plan, &mut out);
        }
        Command::Inventory { file, tables } => {
            let hosts = runtime.block_on(inventory::write(tables.open()?, &file))?;
            writeln!(out, "{} in the table hosts", format_count(hosts as u64, "host"))?;
            out.flush()?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Completions(completions) => {
            completions.run(Fleet::command());
            return Ok(ExitCode::SUCCESS);
        }
        Command::Man(man) => {
            man.run(Fleet::command())?;
            return Ok(ExitCode::SUCCESS);
        }
        Command::Prune { tables, older_than } => {
            let days = toll_tables::prune(&tables.open()?, now_us()?.saturating_sub(to_us(older_than)))?;
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
            return compare(&runtime, &with.baseline()?, min_change_pct, &source, &mut out);
        }
    };
    let tables = source.open()?;
    let ask = async || {
        let of = tables.chosen(source.range(), source.condition()).await?;
        queries::answer(&tables, source.range(), of, &question).await
    };
    let rows = runtime.block_on(tables.workers().answer_with_retries(ask))?;
    if source.json {
        print::json(&rows, &mut out)?;
    } else {
        print::text(&rows, &mut out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn poll(plan: &poll::Plan, out: &mut impl Write) -> anyhow::Result<ExitCode> {
    let stop = stop_at_signals()?;
    let done = poll::poll(plan, &stop)?;
    let (rows, servers) = (format_count(done.rows, "row"), format_count(done.servers as u64, "server"));
    writeln!(out, "{rows} of digests of {servers} written")?;
    out.flush()?;
    let was_stopped = stop.load(Ordering::Relaxed);
    Ok(if was_stopped { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

fn compare(
    runtime: &tokio::runtime::Runtime,
    baseline: &Baseline,
    min_change_pct: f64,
    source: &Source,
    out: &mut impl Write,
) -> anyhow::Result<ExitCode> {
    let tables = source.open()?;
    let ask = async || compare::sides(&tables, source.range(), baseline, source.condition()).await;
    let sides = runtime.block_on(tables.workers().answer_with_retries(ask))?;
    if sides.straddling > 0 {
        writeln!(
            std::io::stderr(),
            "toll-fleet: on neither side are the {} queries of stretches that begin before its end and end after it",
            sides.straddling
        )?;
    }
    let comparison = toll_digest::compare::compare(&sides.baseline, &sides.compared, min_change_pct);
    if source.json {
        toll_digest::compare::write_json(&comparison, out)?;
    } else {
        toll_digest::compare::write_report(&comparison, out)?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn compact(root: &Location, options: &CompactOptions) -> anyhow::Result<ExitCode> {
    let stop = stop_at_signals()?;
    let done = toll_tables::compact(&root.open()?, options, &stop, |done, all| {
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

fn simulate(like: &Location, root: &Location, plan: simulate::Plan) -> anyhow::Result<ExitCode> {
    let stop = stop_at_signals()?;
    simulate::simulate(like, root, plan, &stop, |done, all| {
        show_progress(done.cast_unsigned(), all.cast_unsigned(), "hours");
    })?;
    end_progress()?;
    let manifests = toll_tables::read_manifests(&*root.open()?, toll_tables::ALL_DAYS)?;
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
    tables: Location,
    every_us: i64,
    min_change_pct: f64,
    webhook: Option<String>,
}

impl Watch {
    /// Prints a JSON object for each alert.
    async fn judge(&self, at_us: i64, out: &mut impl Write) -> anyhow::Result<watch::Judged> {
        let judged =
            watch::judge(&Tables::open(&self.tables)?, at_us, self.every_us, self.min_change_pct).await?;
        for alert in &judged.alerts {
            writeln!(out, "{}", serde_json::to_string(alert)?)?;
        }
        out.flush()?;
        Ok(judged)
    }

    fn post(&self, alerts: &[watch::Alert]) -> anyhow::Result<()> {
        // Until the interval after the next one: an alert that is not posted again ends by itself.
        let end_us = now_us()?.saturating_add(self.every_us.saturating_mul(2));
        self.webhook.as_ref().map_or(Ok(()), |url| watch::post(url, alerts, end_us))
    }

    /// Judges the intervals that end at a moment.
    fn run_once(
        &self,
        runtime: &tokio::runtime::Runtime,
        at_us: i64,
        out: &mut impl Write,
    ) -> anyhow::Result<ExitCode> {
        let judged = runtime.block_on(self.judge(at_us, out))?;
        if let Some(warning) = judged.warning() {
            writeln!(std::io::stderr(), "toll-fleet: {warning}")?;
        }
        self.post(&judged.alerts)?;
        Ok(if judged.alerts.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(ALERTS) })
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
        // Of the interval that is judged: its end, and its alerts as far as nobody has taken them.
        let (mut judged_us, mut unposted) = (None, Vec::new());
        let mut said = BTreeSet::new();
        let mut tried: Option<Instant> = None;
        while !stop.load(Ordering::Relaxed) {
            let due_us = (now_us()? - delay_us).div_euclid(self.every_us) * self.every_us;
            let is_open = judged_us != Some(due_us) || !unposted.is_empty();
            if is_open && tried.is_none_or(|tried| tried.elapsed() >= RETRY_INTERVAL) {
                let mut words = Vec::new();
                if judged_us != Some(due_us) {
                    match runtime.block_on(self.judge(due_us, out)) {
                        Ok(judged) => {
                            if let Some(passed) =
                                judged_us.and_then(|last| watch::passed_over(last, due_us, self.every_us))
                            {
                                words.push(passed);
                            }
                            *page.lock().unwrap_or_else(PoisonError::into_inner) =
                                watch::metrics(&judged.alerts, due_us);
                            words.extend(judged.warning());
                            (judged_us, unposted) = (Some(due_us), judged.alerts);
                        }
                        // Tables that are away, or a file that is being replaced, are there again later.
                        Err(error) => words.push(format!("{error:#}")),
                    }
                }
                if judged_us == Some(due_us) {
                    match self.post(&unposted) {
                        Ok(()) => unposted.clear(),
                        Err(error) => words.push(format!("{error:#}")),
                    }
                }
                tried = (judged_us != Some(due_us) || !unposted.is_empty()).then(Instant::now);
                // Each once, and again once it was otherwise.
                for new in words.iter().filter(|words| !said.contains(*words)) {
                    writeln!(std::io::stderr(), "toll-fleet: {new}")?;
                }
                said = words.into_iter().collect();
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

async fn until_stopped(
    stop: &AtomicBool,
    served: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<ExitCode> {
    let stopped = async {
        while !stop.load(Ordering::Relaxed) {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::select! {
        ended = served => ended.map(|()| ExitCode::SUCCESS),
        () = stopped => Ok(ExitCode::from(INTERRUPTED)),
    }
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
