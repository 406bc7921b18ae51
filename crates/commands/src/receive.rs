//! Command `toll receive`: the receiving end of `toll capture --stream`.

use crate::capture::rotate;
use crate::console::{eprint_line, print_line};
use crate::json_format::JsonFormat;
use crate::standard_output;
use anyhow::{Context, bail};
use clap::{ArgGroup, Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use toll_agent::receive::{self, ReceiveOptions, ReceivedTables, ReceiverKey, Rotation, StreamDestination};
use toll_agent::rotation::Rotate;
use toll_agent::table_options::TableOptions;
use toll_sys::cancel::CancelToken;
use toll_sys::{signals, units};
use toll_tables::Location;

/// Receive the streams of `toll capture --stream` from many hosts
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
#[command(
    after_help = "Each stream is written to DIR/HOST-YYYYMMDD-HHMMSS.pcapng (or .queries), in UTC, as `toll capture` \
    would have written it there. Broken connections resume where they stopped. SIGINT and SIGTERM end it in \
    order; with --once it waits for the stream's end first, five seconds at most.\n\
    Examples:\n  \
    toll receive keygen receiver.key\n  \
    toll receive keygen db1.key --receiver receiver.key  # move it to db1\n  \
    toll receive --key receiver.key --listen 0.0.0.0:3399 -w captures\n  \
    toll receive --key receiver.key --listen 0.0.0.0:3399 -w captures \\\n      \
        --rotate 1G,10m --keep 48\n  \
    toll receive --key receiver.key --listen 0.0.0.0:3399 -w incoming \\\n      \
        --rotate 10m --parquet /var/lib/toll/tables --cluster shop\n  \
    toll receive --key receiver.key --listen 0.0.0.0:3399 --once -w - |\n      \
        toll digest --type pcap -\n\
    Exit codes: 1 it could not listen, or with --once the stream is incomplete; 2 wrong arguments."
)]
pub struct Receive {
    #[command(subcommand)]
    command: Option<ReceiveCommand>,
    #[command(flatten)]
    run: ReceiveRun,
}

#[derive(Debug, Subcommand)]
enum ReceiveCommand {
    /// Create the key file of a receiver, or with --receiver that of a sender
    Keygen(Keygen),
}

#[derive(Debug, Args)]
struct Keygen {
    /// The file to create. A sender has its name: db1.key is the key of db1
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Create a sender's key, and add the sender to this receiver's key file
    #[arg(long, alias = "key", value_name = "FILE")]
    receiver: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("protection").args(["key", "plain"])))]
struct ReceiveRun {
    /// Address and port to listen on
    #[arg(long, value_name = "HOST:PORT", required = true)]
    listen: Option<String>,
    /// Directory for the streams' files; with --once a file, or `-` for standard output
    #[arg(short = 'w', long, alias = "output", value_name = "DIR", required = true)]
    write: Option<PathBuf>,
    /// This receiver's key file, which lists its senders
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Without a key: queries cross the network in the clear, and anybody may send
    #[arg(long)]
    plain: bool,
    /// Streams at once, at most
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    streams: u64,
    /// Accept one stream, and exit when it ends
    #[arg(long)]
    once: bool,
    /// Begin another file after so many bytes, so much time of the capture, or both: 1G, 10m, 1G,10m
    #[arg(long, value_name = "SIZE,DURATION", value_parser = rotate, conflicts_with = "once")]
    rotate: Option<Rotate>,
    /// Keep so many files of a stream, the newest
    #[arg(long, value_name = "N", requires = "rotate", value_parser = clap::value_parser!(u64).range(1..))]
    keep: Option<u64>,
    /// Digest each file of queries (`toll capture --stream-queries`) that is full, or whose stream has ended, into
    /// tables in this directory or bucket, as Parquet files, and remove it
    #[arg(
        long = "parquet",
        value_name = "DIR|s3://BUCKET/PREFIX",
        requires = "rotate",
        help_heading = "Output"
    )]
    #[arg(conflicts_with_all = ["once", "keep"])]
    tables: Option<Location>,
    /// With --parquet: length of the stretches of time that the tables have
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "1m", requires = "tables")]
    #[arg(help_heading = "Output")]
    every: Duration,
    /// With --parquet: the cluster that the senders belong to [default: default]
    #[arg(long, value_name = "NAME", requires = "tables", help_heading = "Output")]
    cluster: Option<String>,
    /// End after this time: 30s, 5m, 2h
    #[arg(long, alias = "time", value_parser = units::duration, value_name = "DURATION")]
    duration: Option<Duration>,
    /// One JSON object a stream on standard output, once it has ended
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    format: JsonFormat,
}

pub fn run(arguments: Receive) -> anyhow::Result<ExitCode> {
    if let Some(ReceiveCommand::Keygen(keygen)) = &arguments.command {
        return create_key(keygen);
    }
    let arguments = arguments.run;
    let json = arguments.json || arguments.format.is_json();
    let asked = build_request(arguments)?;
    asked.destination.prepare()?;
    signals::cancel_on_signals(&asked.cancel, || {
        eprint_line!("toll: still ending streams; kill -9 {} ends it at once", std::process::id());
    })?;
    receive::receive_streams(asked, &mut |account| {
        if json {
            print_line!("{}", serde_json::to_string(account).context("cannot write JSON")?);
        } else {
            eprint_line!("toll: {}", account.render_text());
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

fn create_key(Keygen { file, receiver }: &Keygen) -> anyhow::Result<ExitCode> {
    let path = file.display();
    match receiver {
        None => {
            ReceiverKey::create(file)?;
            print_line!(
                "{path}: a receiver's key. Add each sender: toll receive keygen db1.key --receiver {path}"
            );
        }
        Some(key) => {
            let name = ReceiverKey::create_sender(key, file)?;
            print_line!("{path}: the key of the sender {name}, which {} now lists.", key.display());
            print_line!("Move it to that host over SSH, and start the receiver again if it runs.");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn build_request(arguments: ReceiveRun) -> anyhow::Result<ReceiveOptions> {
    let key = match (&arguments.key, arguments.plain) {
        (Some(path), _) => ReceiverKey::read(path)?,
        (None, true) => ReceiverKey::Plain,
        (None, false) => bail!(
            "set --key FILE (`toll receive keygen FILE` creates one), or --plain where everybody on the network may \
             read the queries and send some"
        ),
    };
    let write = arguments.write.context("set where to write with -w")?;
    let tables = arguments.tables.map(|root| ReceivedTables {
        tables: TableOptions { root, cluster: arguments.cluster.unwrap_or_else(|| "default".into()) },
        every: arguments.every,
    });
    if let Some(tables) = &tables {
        tables.prepare()?;
    }
    let keep = arguments.keep.map(|files| files as usize);
    let rotation = Rotation { limits: arguments.rotate.unwrap_or_default(), keep };
    let place = match (arguments.once, write.as_os_str() == "-") {
        (true, true) if arguments.json || arguments.format.is_json() => {
            bail!("-w - and --json both want standard output: name a file")
        }
        (true, true) => StreamDestination::Open(Arc::new(
            standard_output::open().context("cannot write to standard output")?,
        )),
        (true, false) if write.is_dir() => {
            bail!("{} is a directory: with --once name a file", write.display())
        }
        (true, false) => StreamDestination::File(write),
        (false, true) => {
            bail!("-w - accepts a single stream: add --once, or write to a directory")
        }
        (false, false) => StreamDestination::Directory { path: write, rotation },
    };
    Ok(ReceiveOptions {
        listen: arguments.listen.context("set where to listen with --listen")?,
        key,
        destination: place,
        tables,
        max_streams: arguments.streams as usize,
        once: arguments.once,
        duration: arguments.duration,
        cancel: CancelToken::new(),
    })
}
