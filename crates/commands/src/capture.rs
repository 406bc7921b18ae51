//! Command `toll capture`: options only.

use crate::console::{BackgroundWriter, eprint_line, print_line};
use crate::json_format::JsonFormat;
use crate::named::{GroupByParser, named};
use crate::standard_output;
use anyhow::Context;
use clap::{ArgGroup, Args};
use signal_hook::consts::SIGUSR1;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use toll_agent::capture::otlp::OtlpSettings;
use toll_agent::capture::{
    self, CaptureAccounting, CaptureFrontend, CaptureOptions, OutputKind, Signals, TapKind,
};
use toll_agent::rotation::Rotate;
use toll_agent::table_options::TableOptions;
use toll_digest::classes::{GroupBy, Limit};
use toll_sys::signals;
use toll_sys::units::{self, Bytes, Percent};
use toll_tables::Location;

/// Capture MySQL traffic to a file, a digest or another host
///
/// Stores everything that clients send, the head of each server reply, and no bare acknowledgements. Dropped packets are
/// reported at the end, with place and time. Ctrl-C or TERM ends a capture in good order; USR1 prints its status.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("into").args(["write", "queries", "digest", "stream"]).required(true)))]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    toll capture -w queries.pcapng --duration 5m\n  \
    toll capture -i eth0 --port 3306,3307 -w /var/tmp/q.pcapng \\\n      \
        --rotate 1G,5m --keep 24 --drop-to nobody\n  \
    toll capture -w - | toll digest -\n  \
    toll capture --queries shop.queries --duration 1h\n  \
    toll capture --digest --every 1m --budget cpu=3%\n  \
    toll capture --digest --every 1m --otlp http://127.0.0.1:4318\n  \
    toll capture --digest --every 1m --parquet /var/lib/toll/tables --cluster shop\n  \
    toll capture --stream receiver:3399 --key db1.key --metrics 9104\n\
    Needs the right to open packet sockets: root, or setcap cap_net_raw+ep.\n\
    Exit codes: 0 ended by time or signal; 1 it could not begin or go on; 2 wrong arguments."
)]
pub struct Capture {
    /// Interface, or `any` for all. For loopback traffic `lo` is cheaper
    #[arg(short = 'i', long = "interface", alias = "device", value_name = "DEVICE", default_value = "lo")]
    #[arg(help_heading = "Source")]
    device: String,
    /// Ports of servers [default: 3306; with --tap sockets all on which queries come in]
    #[arg(long, value_name = "PORTS", value_delimiter = ',', help_heading = "Source")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    port: Vec<u16>,
    /// Source of queries
    #[arg(long, value_parser = named::<TapKind>(), default_value = "packets", help_heading = "Source")]
    tap: TapKind,
    /// The server whose sockets are listened to [default: the only one of this host]
    #[arg(long, value_name = "PID", help_heading = "Source")]
    server_pid: Option<u32>,
    /// With --tap sockets: read inside TLS even where this kernel may kill the server for it
    #[arg(long, help_heading = "Source")]
    force_return_probes: bool,
    /// Packets to a pcapng file, for its owner alone; `-` is standard output
    #[arg(short = 'w', long, alias = "output", value_name = "FILE", help_heading = "Destination")]
    write: Option<PathBuf>,
    /// Queries to a compact file, decoded on the fly
    #[arg(long, value_name = "FILE", help_heading = "Destination")]
    queries: Option<PathBuf>,
    /// A digest, printed at the end
    #[arg(long, help_heading = "Destination")]
    digest: bool,
    /// Packets to a `toll receive` elsewhere; with --tap sockets or --stream-queries: queries
    #[arg(long, value_name = "HOST:PORT", help_heading = "Destination")]
    stream: Option<String>,
    /// Bytes kept of each packet that a server answers [default: greetings and errors whole, 128 of OKs, 32 of results]
    #[arg(long, value_name = "BYTES", help_heading = "Source")]
    snap_server: Option<u32>,
    /// Memory for packets that wait to be taken from the kernel
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = buffer, help_heading = "Limits")]
    buffer: u64,
    /// Start a new file at this size, age, or both: 1G, 5m, 1G,5m
    #[arg(long, value_name = "SIZE,DURATION", value_parser = rotate, help_heading = "Files")]
    rotate: Option<Rotate>,
    /// Keep only the newest N files
    #[arg(long, value_name = "N", requires = "rotate", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(help_heading = "Files")]
    keep: Option<u64>,
    /// Write over a file that holds something
    #[arg(long, help_heading = "Files")]
    overwrite: bool,
    /// Limit CPU use to a share of one core by sampling connections: cpu=5%
    #[arg(long, value_name = "cpu=PERCENT", value_parser = budget, help_heading = "Limits")]
    budget: Option<f64>,
    /// End after this time: 10s, 5m
    #[arg(long, alias = "time", value_name = "DURATION", value_parser = units::duration, help_heading = "Limits")]
    duration: Option<Duration>,
    /// Drop privileges to this user after opening sockets (files belong to this user)
    #[arg(short = 'Z', long, alias = "user", value_name = "USER", help_heading = "Files")]
    drop_to: Option<String>,
    /// With --digest: a digest of each such stretch of time
    #[arg(long, value_name = "DURATION", value_parser = units::duration, requires = "digest")]
    #[arg(help_heading = "Destination")]
    every: Option<Duration>,
    /// With --digest: common property of the queries of a class [default: fingerprint]
    #[arg(long, value_parser = GroupByParser, requires = "digest", help_heading = "Output")]
    group_by: Option<GroupBy>,
    /// With --digest: show so many classes, or so many percent of the query time, or the lesser of both [default: 95%:20]
    #[arg(long, value_name = "PERCENT:COUNT", requires = "digest", help_heading = "Output")]
    limit: Option<Limit>,
    /// With --every and --json: print of each class its count and response times alone, as `toll live` reads them
    #[arg(long, hide = true, requires_all = ["every", "json"], conflicts_with_all = ["group_by", "otlp", "tables"])]
    times_alone: bool,
    /// With --stream: queries, decoded on this host, instead of packets
    #[arg(long, requires = "stream", help_heading = "Destination")]
    stream_queries: bool,
    /// With --stream: this sender's key file, made at the receiver
    #[arg(long, value_name = "FILE", requires = "stream", help_heading = "Destination")]
    key: Option<PathBuf>,
    /// With --stream: without a key, so that queries cross the network in the clear
    #[arg(long, requires = "stream", conflicts_with = "key", help_heading = "Destination")]
    plain: bool,
    /// Serve Prometheus metrics here, at /metrics: ADDRESS:PORT, or a port of 127.0.0.1
    #[arg(long, value_name = "ADDRESS", help_heading = "Output")]
    metrics: Option<String>,
    /// With --every: send each digest to this OpenTelemetry collector, by OTLP/HTTP [default: the one of
    /// OTEL_EXPORTER_OTLP_ENDPOINT, or http://localhost:4318]
    #[arg(long, value_name = "URL", requires = "every", help_heading = "Output")]
    otlp: Option<Option<String>>,
    /// With --every: write each digest to tables in this directory or bucket, as Parquet files of ten minutes
    #[arg(
        long = "parquet",
        value_name = "DIR|s3://BUCKET/PREFIX",
        requires = "every",
        conflicts_with = "group_by",
        help_heading = "Output"
    )]
    tables: Option<Location>,
    /// With --parquet: the cluster that this host belongs to [default: default]
    #[arg(long, value_name = "NAME", requires = "tables", help_heading = "Output")]
    cluster: Option<String>,
    /// Print the status every second
    #[arg(long, help_heading = "Output")]
    status: bool,
    /// Print drop counters, and the digest, as JSON on standard output
    #[arg(long, help_heading = "Output")]
    json: bool,
    #[command(flatten)]
    format: JsonFormat,
}

fn buffer(text: &str) -> Result<u64, String> {
    let Bytes(bytes) = text.parse::<Bytes>()?;
    match bytes >> 20 {
        1..=4096 => Ok(bytes),
        _ => Err("write 1M to 4G".into()),
    }
}

/// `1G`, `5m`, `1G,5m`: sizes end in K, M, G or T, times in a unit of time.
pub(crate) fn rotate(text: &str) -> Result<Rotate, String> {
    let mut rotate = Rotate::default();
    for part in text.split(',') {
        let is_size = part.ends_with(['K', 'M', 'G', 'T']);
        let is_new = if is_size {
            let Bytes(bytes) = part.parse::<Bytes>()?;
            rotate.bytes.replace(bytes.max(1)).is_none()
        } else if part.ends_with(|end: char| end.is_ascii_lowercase()) {
            rotate.every.replace(units::duration(part)?).is_none()
        } else {
            return Err("write a size, a time or both: 1G, 5m, 1G,5m".into());
        };
        if !is_new {
            return Err("write one size and one time at most: 1G,5m".into());
        }
    }
    Ok(rotate)
}

/// `cpu=5%`: a share of one core.
fn budget(text: &str) -> Result<f64, String> {
    match text.strip_prefix("cpu=").map(str::parse) {
        Some(Ok(Percent(percent))) if percent > 0.0 => Ok(percent / 100.0),
        _ => Err("write a share of one core: cpu=5%".into()),
    }
}

pub fn run(mut arguments: Capture) -> anyhow::Result<ExitCode> {
    arguments.json |= arguments.format.is_json();
    let files = [&arguments.write, &arguments.queries];
    let to_stdout = files.into_iter().flatten().any(|path| path.as_os_str() == "-");
    if arguments.json && to_stdout {
        anyhow::bail!("standard output is used for the capture: name a file, or omit --json");
    }
    let mut front = CaptureConsole { json: arguments.json, background_writer: None };
    capture::capture(&to_options(arguments)?, &mut front)?;
    Ok(ExitCode::SUCCESS)
}

/// The terminal or the pipes of a capture.
struct CaptureConsole {
    json: bool,
    /// While the capture goes on: whoever does not read what is said must not hold up the ring.
    background_writer: Option<BackgroundWriter>,
}

impl CaptureFrontend for CaptureConsole {
    /// The first of the signals that ask to end does so in good order, a later one at once; USR1 asks how far it is.
    fn install_signals(&mut self) -> anyhow::Result<Signals> {
        self.background_writer =
            Some(BackgroundWriter::start().context("cannot start a thread to speak with")?);
        let asked = Signals::default();
        signals::end_in_good_order(&signals::shutdown_signals(), &asked.end.shared_flag())?;
        signal_hook::flag::register(SIGUSR1, Arc::clone(&asked.status))
            .context("cannot install the signal handler")?;
        Ok(asked)
    }

    fn show_accounting(&mut self, ledger: &CaptureAccounting, ended: bool) {
        if ended {
            // All before it is said, and the last line waits for its reader.
            self.background_writer = None;
        }
        if self.json {
            // It has no map with keys that are no text, and so cannot fail.
            print_line!("{}", serde_json::to_string(ledger).unwrap_or_default());
        } else {
            eprint_line!("toll: {}", ledger.render_text());
        }
    }

    fn digest_writer(&mut self) -> Box<dyn Write + Send> {
        Box::new(std::io::stdout())
    }

    fn output(&mut self) -> std::io::Result<File> {
        standard_output::open()
    }
}

fn to_options(arguments: Capture) -> anyhow::Result<CaptureOptions> {
    let goal = match arguments {
        Capture { write: Some(ref path), .. } => OutputKind::Packets(path.clone()),
        Capture { queries: Some(ref path), .. } => OutputKind::Queries(path.clone()),
        Capture { stream: Some(ref to), .. } => OutputKind::Stream(to.clone()),
        _ => OutputKind::Digest,
    };
    let ports = match (arguments.tap, arguments.port) {
        (TapKind::Packets, ports) if ports.is_empty() => vec![3306],
        (_, ports) => ports,
    };
    let variable = |name: &str| std::env::var(name).ok();
    let otlp = arguments.otlp.map(|address| OtlpSettings::new(address.as_deref(), variable));
    let cluster = arguments.cluster.unwrap_or_else(|| "default".into());
    let tables = arguments.tables.map(|root| TableOptions { root, cluster });
    Ok(CaptureOptions {
        source: arguments.tap,
        device: arguments.device,
        ports,
        server_pid: arguments.server_pid,
        force_return_probes: arguments.force_return_probes,
        output: goal,
        snap_server: arguments.snap_server,
        buffer_bytes: usize::try_from(arguments.buffer).unwrap_or(usize::MAX),
        rotation: arguments.rotate.unwrap_or_default(),
        keep: arguments.keep.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX)),
        overwrite: arguments.overwrite,
        cpu_share: arguments.budget,
        duration: arguments.duration,
        user: arguments.drop_to,
        digest_interval: arguments.every,
        group_by: arguments.group_by.unwrap_or_default(),
        limit: arguments.limit.unwrap_or_default(),
        times_alone: arguments.times_alone,
        stream_queries: arguments.stream_queries,
        key: arguments.key,
        plain: arguments.plain,
        metrics: arguments.metrics,
        otlp: otlp.transpose().context("cannot send digests to OpenTelemetry")?,
        tables,
        status: arguments.status,
        json: arguments.json,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_end_by_size_by_time_or_by_both() {
        let minutes = Some(Duration::from_secs(300));
        assert_eq!(rotate("1G"), Ok(Rotate { bytes: Some(1 << 30), every: None }));
        assert_eq!(rotate("5m"), Ok(Rotate { bytes: None, every: minutes }));
        assert_eq!(rotate("5m,1G"), Ok(Rotate { bytes: Some(1 << 30), every: minutes }));
        for wrong in ["", "5", "1G,2G", "5m,6m", "1G,", "5 y", "G", "xs"] {
            assert!(rotate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_budget_is_a_share_of_a_core() {
        assert_eq!(budget("cpu=5%"), Ok(0.05));
        for wrong in ["5%", "cpu=5", "cpu=0%", "cpu=-1%", "cpu="] {
            assert!(budget(wrong).is_err(), "{wrong}");
        }
        assert_eq!(buffer("64M"), Ok(64 << 20));
        assert!(buffer("1K").is_err() && buffer("5G").is_err() && buffer("x").is_err());
    }
}
