//! Command `toll digest`: options only.

use crate::digest_tables::TableArguments;
use crate::named::{GroupByParser, named};
use crate::reading_progress::reading_progress;
use anyhow::bail;
use clap::{Args, ValueEnum};
use signal_hook::consts::SIGINT;
use std::io::{BufWriter, IsTerminal, Write};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use toll_digest::classes::{GroupBy, Limit, Rank, Settings};
use toll_digest::{DigestResult, Format, Request, TimeBound, Type};
use toll_input::Progress;
use toll_sys::signals;
use toll_sys::units::Percent;
use toll_wire::decoder::Config;
use toll_wire::filter::{Filter, FilterError};

/// Rank the queries of captures and logs by what they cost
///
/// Reads packet captures, tcpdump text, query events, slow logs and general logs, plain or compressed with
/// gzip or zstd. Merges digests in JSON of other hosts or times. Fingerprints and IDs are those of pt-query-digest.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    toll digest slow.log\n  \
    toll digest --group-by tag:route --order-by query_time:p99 shop.queries\n  \
    toll digest --parquet tables --host db1 --cluster shop slow.log\n  \
    toll digest --compare before.queries after.queries\n  \
    toll digest --compare-at '2026-11-21 14:00' slow.log")]
pub struct Digest {
    /// Files to read; `-` is standard input, read as it comes
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Type of the files
    #[arg(long, value_enum, default_value = "auto", help_heading = "Input")]
    r#type: AutoType,
    /// Ports that servers listen on (captures)
    #[arg(long, value_delimiter = ',', default_value = "3306", value_name = "PORTS", help_heading = "Input")]
    port: Vec<u16>,
    /// Only this server (captures); may be given more than once
    #[arg(long, alias = "server", value_name = "IP[:PORT]", help_heading = "Input")]
    server_address: Vec<Server>,
    /// Common property of the queries of a class
    #[arg(long, value_parser = GroupByParser, default_value = "fingerprint", help_heading = "Output")]
    group_by: GroupBy,
    /// Rank by an attribute and an aggregate of it, such as query_time:sum, rows_sent:max,
    /// lock_time:p95; general logs, which have no times, are ranked by count
    #[arg(
        long,
        default_value = "query_time:sum",
        value_name = "ATTRIBUTE:AGGREGATE",
        help_heading = "Output"
    )]
    order_by: Rank,
    /// Show so many classes, or so many percent of the whole, or the lesser of both
    #[arg(long, default_value = "95%:20", value_name = "PERCENT:COUNT", help_heading = "Output")]
    limit: Limit,
    /// Only events at or after a time: 2h (ago), 2026-11-21 [10:00:00], 261121 [10:00:00]
    #[arg(long, value_name = "TIME", help_heading = "Selection")]
    since: Option<TimeBound>,
    /// Only events before a time
    #[arg(long, value_name = "TIME", help_heading = "Selection")]
    until: Option<TimeBound>,
    /// Only events for which an expression holds, such as: query_time > 0.1 && db == "shop"
    #[arg(long, value_name = "EXPR", value_parser = filter, help_heading = "Selection")]
    filter: Option<Filter>,
    /// How to print it
    #[arg(long, value_parser = named::<Format>(), default_value = "report", help_heading = "Output")]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format", help_heading = "Output")]
    json: bool,
    /// Compare with the events of this file (repeatable): classes that are slower, faster, new or gone
    #[arg(long, value_name = "FILE", help_heading = "Comparison")]
    compare: Vec<PathBuf>,
    /// Compare the events before a time with those after it, such as a deployment
    #[arg(long, value_name = "TIME", conflicts_with = "compare", help_heading = "Comparison")]
    compare_at: Option<TimeBound>,
    /// Smallest change of the typical query time that counts as slower or faster
    #[arg(long, value_name = "PERCENT", default_value = "5%", help_heading = "Comparison")]
    min_change: Percent,
    /// Print each event instead of a digest (as ndjson, csv or slowlog)
    #[arg(long, conflicts_with_all = ["compare", "compare_at"], help_heading = "Output")]
    events: bool,
    /// Show statements as they were written, with their literals
    #[arg(long, help_heading = "Output")]
    literals: bool,
    /// Threads that decode at once [default: one for each processor]
    #[arg(long, value_name = "N", help_heading = "Input")]
    jobs: Option<NonZeroUsize>,
    #[command(flatten)]
    tables: Option<TableArguments>,
}

fn filter(text: &str) -> Result<Filter, FilterError> {
    Filter::parse(text)
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AutoType {
    /// By their first bytes
    Auto,
    /// pcap or pcapng
    Pcap,
    /// Output of tcpdump with -x, -xx or -X
    Tcpdump,
    /// Query events of toll capture --queries
    Queries,
    /// Slow log of MariaDB, MySQL or Percona Server
    Slowlog,
    /// General log of MariaDB or MySQL
    Genlog,
    /// MariaDB's server_audit
    Auditlog,
    /// Digests that --format json wrote: merged, and exact in counts, sums and percentiles
    Digest,
}

/// An address, with the port if it is not one of `--port`.
#[derive(Debug, Clone, Copy)]
struct Server {
    ip: IpAddr,
    port: Option<u16>,
}

impl FromStr for Server {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(ip) = text.parse() {
            return Ok(Self { ip, port: None });
        }
        text.parse::<SocketAddr>()
            .map(|address| Self { ip: address.ip(), port: Some(address.port()) })
            .map_err(|_| "write an address such as 10.0.0.5, 10.0.0.5:3306 or [2001:db8::1]:3306".to_owned())
    }
}

/// What a program adds to a digest between reading and printing.
pub type AddToDigest<'a> = dyn FnMut(&Request, &mut DigestResult, &AtomicBool) + 'a;

impl Digest {
    /// `add`: needs samples of the classes.
    pub fn run(mut self, add: Option<&mut AddToDigest<'_>>) -> anyhow::Result<ExitCode> {
        if self.json {
            self.format = Format::Json;
        }
        let events = self.events;
        let sides = Sides { baseline: std::mem::take(&mut self.compare), at: self.compare_at };
        let Percent(min_change_pct) = self.min_change;
        let tables = self.tables.take().and_then(TableArguments::place);
        let mut request = self.into_request()?;
        let stop = Arc::new(AtomicBool::new(false));
        signals::end_in_good_order(&[SIGINT], &stop)?;
        if let Some(tables) = tables {
            return tables.write(&request, &stop);
        }
        if let Some(before) = sides.split(&mut request)? {
            return compare(&before, &request, min_change_pct, &stop);
        }
        // Events on a terminal are progress enough.
        let is_seen = events && std::io::stdout().is_terminal();
        let progress = if is_seen { Progress::hidden() } else { reading_progress(&request.files) };
        let mut out = BufWriter::new(std::io::stdout().lock());
        if events {
            let printed = toll_digest::print_events(&request, &progress, &stop, &mut out);
            progress.finish();
            let interrupted = printed.or_else(|error| ignore_closed_pipe(error).map(|()| false))?;
            return Ok(if interrupted {
                ExitCode::from(crate::exit_code::INTERRUPTED)
            } else {
                ExitCode::SUCCESS
            });
        }
        request.settings.keep_samples |= add.is_some();
        let done = toll_digest::digest(&request, &progress, &stop);
        progress.finish();
        let mut done = done?;
        if let Some(add) = add {
            add(&request, &mut done, &stop);
        }
        toll_digest::print(&request, &done, &mut out).or_else(ignore_closed_pipe)?;
        if done.interrupted && std::io::stderr().is_terminal() {
            writeln!(std::io::stderr(), "toll: interrupted; the digest holds what was read until then")?;
        }
        Ok(if done.interrupted { ExitCode::from(crate::exit_code::INTERRUPTED) } else { ExitCode::SUCCESS })
    }

    fn into_request(self) -> anyhow::Result<Request> {
        if self.files.iter().filter(|file| file.as_os_str() == "-").count() > 1 {
            bail!("standard input can be read only once: name `-` once");
        }
        if self.format == Format::Slowlog && !self.events {
            bail!("the format slowlog holds events: add --events");
        }
        let jobs = self.jobs.or_else(|| std::thread::available_parallelism().ok());
        let named: Vec<u16> = self.server_address.iter().filter_map(|server| server.port).collect();
        let capture = Config {
            ports: if named.is_empty() { self.port } else { named },
            servers: self.server_address.iter().map(|server| server.ip).collect(),
            ..Config::default()
        };
        Ok(Request {
            files: self.files,
            capture,
            kind: match self.r#type {
                AutoType::Auto => None,
                AutoType::Pcap => Some(Type::Pcap),
                AutoType::Tcpdump => Some(Type::Tcpdump),
                AutoType::Queries => Some(Type::Queries),
                AutoType::Slowlog => Some(Type::Slowlog),
                AutoType::Genlog => Some(Type::Genlog),
                AutoType::Auditlog => Some(Type::Auditlog),
                AutoType::Digest => Some(Type::Digest),
            },
            settings: Settings {
                group_by: self.group_by,
                rank: self.order_by,
                keep_samples: self.literals,
                ..Settings::default()
            },
            limit: self.limit,
            since: self.since,
            until: self.until,
            filter: self.filter,
            format: self.format,
            literals: self.literals,
            jobs: jobs.map_or(1, NonZeroUsize::get),
        })
    }
}

/// Events of before, in a comparison.
struct Sides {
    /// Other files, or
    baseline: Vec<PathBuf>,
    /// events before this time.
    at: Option<TimeBound>,
}

impl Sides {
    /// The request of the events before, and `request` changed to those after; `None`: nothing is to be compared.
    fn split(self, request: &mut Request) -> anyhow::Result<Option<Request>> {
        if self.baseline.is_empty() && self.at.is_none() {
            return Ok(None);
        }
        if !matches!(request.format, Format::Report | Format::Json) {
            bail!("a comparison is printed as a report or as JSON: write --format report or json");
        }
        request.settings.keep_time_bins = true;
        let mut before = request.clone();
        if let Some(at) = self.at {
            if request.files.iter().any(|file| file.as_os_str() == "-") {
                bail!("--compare-at reads each file twice: write standard input to a file first");
            }
            before.until = Some(before.until.map_or(at, |until| until.min(at)));
            request.since = Some(request.since.map_or(at, |since| since.max(at)));
        } else {
            let is_stdin = |file: &&PathBuf| file.as_os_str() == "-";
            if self.baseline.iter().chain(&request.files).filter(is_stdin).count() > 1 {
                bail!("standard input can be read only once: name `-` once");
            }
            before.files = self.baseline;
        }
        Ok(Some(before))
    }
}

fn compare(
    before: &Request,
    after: &Request,
    min_change_pct: f64,
    stop: &AtomicBool,
) -> anyhow::Result<ExitCode> {
    let progress = reading_progress(&[before.files.as_slice(), &after.files].concat());
    let read = |request: &Request| toll_digest::digest(request, &progress, stop);
    let sides = read(before).and_then(|before| {
        if before.interrupted {
            bail!("interrupted while the first side was read: there is nothing to compare");
        }
        Ok((before, read(after)?))
    });
    progress.finish();
    let (before, after_done) = sides?;
    let comparison = toll_digest::compare::compare(&before, &after_done, min_change_pct);
    let mut out = BufWriter::new(std::io::stdout().lock());
    toll_digest::print_comparison(after.format, &comparison, &mut out).or_else(ignore_closed_pipe)?;
    Ok(if after_done.interrupted { ExitCode::from(crate::exit_code::INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// Ignores a closed pipe: `toll digest ... | head` is not an error.
fn ignore_closed_pipe(error: anyhow::Error) -> anyhow::Result<()> {
    match error.downcast_ref::<std::io::Error>() {
        Some(io) if io.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    }
}
