//! Command `toll receive`: the receiving end of `toll capture --stream`.

use crate::capture::rotate;
use crate::console::{eprint_line, print_line};
use crate::standard_output;
use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use toll_agent::receive::{self, ReceiveOptions, ReceiverKey, Rotation, StreamDestination};
use toll_agent::rotation::Rotate;
use toll_sys::cancel::CancelToken;
use toll_sys::{signals, units};

/// Receive what `toll capture --stream` sends, from many hosts at once
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
#[command(group(ArgGroup::new("protection").args(["key", "plain"])))]
#[command(
    after_help = "Each stream is written to DIR/HOST-YYYYMMDD-HHMMSS.pcapng (or .queries), in UTC, as `toll capture` \
    would have written it there. Broken connections resume where they stopped. SIGINT and SIGTERM end it in \
    order; with --once it waits for the stream's end first, five seconds at most.\n\
    Examples:\n  \
    toll receive --new-key receiver.key\n  \
    toll receive --key receiver.key --new-sender db1.key     # then move db1.key to the host db1\n  \
    toll receive --key receiver.key --listen 0.0.0.0:3399 -w captures\n  \
    toll receive --key receiver.key --listen 0.0.0.0:3399 -w captures --rotate 1G,10m --keep 48\n  \
    toll receive --key receiver.key --listen 0.0.0.0:3399 --once -w - | toll digest --type pcap -\n\
    Exit codes: 1 it could not listen, or with --once the stream is incomplete; 2 wrong arguments."
)]
pub struct Receive {
    /// Address and port to listen on
    #[arg(long, value_name = "ADDR:PORT", required_unless_present_any = ["new_key", "new_sender"])]
    listen: Option<String>,
    /// Directory for the streams' files; with --once a file, or `-` for standard output
    #[arg(short = 'w', value_name = "DIR", required_unless_present_any = ["new_key", "new_sender"])]
    write: Option<PathBuf>,
    /// This receiver's key file, which lists its senders
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Without a key: queries cross the network in the clear, and anybody may send
    #[arg(long)]
    plain: bool,
    /// Create the key file of a receiver, and exit
    #[arg(long, value_name = "FILE", exclusive = true)]
    new_key: Option<PathBuf>,
    /// Create the key file of a sender, add the sender to --key, and exit. The file's name is the sender's: db1.key
    #[arg(long, value_name = "FILE", requires = "key", conflicts_with_all = ["listen", "write"])]
    new_sender: Option<PathBuf>,
    /// Streams at once, at most
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    streams: u64,
    /// Accept one stream, and exit when it ends
    #[arg(long)]
    once: bool,
    /// Begin another file after so many bytes, so much time of the capture, or both: 1G, 10m, 1G,10m
    #[arg(long, value_name = "SIZE,TIME", value_parser = rotate, conflicts_with = "once")]
    rotate: Option<Rotate>,
    /// Keep so many files of a stream, the newest
    #[arg(long, value_name = "N", requires = "rotate", value_parser = clap::value_parser!(u64).range(1..))]
    keep: Option<u64>,
    /// End after this time: 30s, 5m, 2h
    #[arg(long, value_parser = units::duration, value_name = "TIME")]
    duration: Option<Duration>,
    /// One JSON object a stream on standard output, once it has ended
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Receive) -> anyhow::Result<ExitCode> {
    if let Some(path) = &arguments.new_key {
        ReceiverKey::create(path)?;
        let path = path.display();
        print_line!(
            "{path}: a receiver's key. Add each sender: toll receive --key {path} --new-sender db1.key"
        );
        return Ok(ExitCode::SUCCESS);
    }
    if let (Some(path), Some(key)) = (&arguments.new_sender, &arguments.key) {
        let name = ReceiverKey::create_sender(key, path)?;
        let (path, key) = (path.display(), key.display());
        print_line!("{path}: the key of the sender {name}, which {key} now lists.");
        print_line!("Move it to that host over SSH, and start the receiver again if it runs.");
        return Ok(ExitCode::SUCCESS);
    }
    let json = arguments.json;
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

fn build_request(arguments: Receive) -> anyhow::Result<ReceiveOptions> {
    let key = match (&arguments.key, arguments.plain) {
        (Some(path), _) => ReceiverKey::read(path)?,
        (None, true) => ReceiverKey::Plain,
        (None, false) => bail!(
            "set --key FILE (`toll receive --new-key FILE` creates one), or --plain where everybody on the network may \
             read the queries and send some"
        ),
    };
    let write = arguments.write.context("set where to write with -w")?;
    let keep = arguments.keep.map(|files| files as usize);
    let rotation = Rotation { limits: arguments.rotate.unwrap_or_default(), keep };
    let place = match (arguments.once, write.as_os_str() == "-") {
        (true, true) if arguments.json => bail!("-w - and --json both want standard output: name a file"),
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
        max_streams: arguments.streams as usize,
        once: arguments.once,
        duration: arguments.duration,
        cancel: CancelToken::new(),
    })
}
