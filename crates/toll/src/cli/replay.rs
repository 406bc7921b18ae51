//! Command `toll replay`: sends captures on a network device, at a fixed rate.

use super::console::{eprint_line, print_line};
use super::interrupt;
use super::named::named;
use super::progress;
use anyhow::Context;
use clap::{ArgGroup, Args};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use toll_commands::json_format::JsonFormat;
use toll_net::replay::{self, FramePolicy, ReplayOptions, SnappedFrames};
use toll_sys::units;
use toll_taps::Rate;

/// Send packet captures on a network device
///
/// At their recorded times, or at a rate.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("rate").args(["mbps", "pps", "multiplier", "topspeed"])))]
#[command(
    after_help = "Options have tcpreplay's names where they mean the same. All packets are read before the first is \
    sent; Mb/s are those of frames, without preamble, checksum and gap.\n\
    Examples:\n  \
    toll replay http.pcap -i veth0 --mbps 300\n  \
    toll replay http.pcap -i veth0 --topspeed --loop 0 --duration 10s \\\n      \
        --receive-on veth1\n\
    Exit codes: 1 what was asked could not be sent, or not at this rate; 130 interrupted."
)]
pub struct Replay {
    /// Captures (pcap, pcapng; compressed too) of Ethernet frames, sent one after the other
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Device to send on
    #[arg(short = 'i', long = "interface", aliases = ["device", "intf1"], value_name = "DEVICE")]
    device: String,
    /// Megabits a second
    #[arg(short = 'M', long, value_name = "NUMBER", value_parser = above_zero, help_heading = "Rate")]
    mbps: Option<f64>,
    /// Packets a second
    #[arg(short = 'p', long, value_name = "NUMBER", value_parser = above_zero, help_heading = "Rate")]
    pps: Option<f64>,
    /// Times the recorded speed [default: 1]
    #[arg(short = 'x', long, value_name = "FACTOR", value_parser = above_zero, help_heading = "Rate")]
    multiplier: Option<f64>,
    /// As fast as they go
    #[arg(short = 't', long, help_heading = "Rate")]
    topspeed: bool,
    /// Times through all captures; 0: until --duration is over
    #[arg(short = 'l', long = "loop", value_name = "N", default_value_t = 1, help_heading = "Limits")]
    rounds: u64,
    /// End after so many packets
    #[arg(short = 'L', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(help_heading = "Limits")]
    limit: Option<u64>,
    /// End after this time: 10s, 5m
    #[arg(long, alias = "time", value_parser = units::duration, value_name = "DURATION", help_heading = "Limits")]
    duration: Option<Duration>,
    /// Other IP addresses each time through, so that every flow is a new one
    #[arg(long, help_heading = "Packets")]
    unique_ip: bool,
    /// Put a number and the time of sending into the last 20 bytes of each payload that has them
    #[arg(long, help_heading = "Packets")]
    stamp: bool,
    /// Also report the packets that this device received
    #[arg(long, value_name = "DEVICE")]
    receive_on: Option<String>,
    /// Treatment of truncated packets
    #[arg(long, value_parser = named::<SnappedFrames>(), default_value = "refuse", help_heading = "Packets")]
    snapped: SnappedFrames,
    /// Leave out packets that are longer than the device carries
    #[arg(long, help_heading = "Packets")]
    skip_oversized: bool,
    /// Allow sending on an interface that leads to other hosts
    #[arg(long)]
    yes_this_interface: bool,
    /// Report a rate that is not reached, without an error
    #[arg(long)]
    allow_slower: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    format: JsonFormat,
}

fn above_zero(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n.is_finite() && n > 0.0 => Ok(n),
        _ => Err("write a number above 0".into()),
    }
}

pub fn run(arguments: Replay) -> anyhow::Result<ExitCode> {
    if arguments.rounds == 0 && arguments.duration.is_none() && arguments.limit.is_none() {
        anyhow::bail!("--loop 0 never ends by itself: add --duration or --limit");
    }
    let cancel = interrupt::new_signal_token()?;
    let is_json = arguments.json || arguments.format.is_json();
    let may_be_slower = arguments.allow_slower;
    let asked = build_request(arguments);
    let report = replay::replay_captures(&asked, &progress::reading_progress(&asked.files), &cancel)?;
    if is_json {
        print_line!("{}", serde_json::to_string(&report).context("cannot write JSON")?);
    } else {
        print_line!("{}", report.render_text());
    }
    if report.was_stopped() {
        return Ok(ExitCode::from(super::exit_code::INTERRUPTED));
    }
    if let Some(failure) = report.failure() {
        eprint_line!("toll: {failure}");
        return Ok(if may_be_slower && report.was_all_sent() {
            ExitCode::SUCCESS
        } else {
            ExitCode::from(super::exit_code::FAILED)
        });
    }
    Ok(ExitCode::SUCCESS)
}

fn build_request(arguments: Replay) -> ReplayOptions {
    let rate = match arguments {
        Replay { topspeed: true, .. } => Rate::TopSpeed,
        Replay { mbps: Some(mbps), .. } => Rate::BitsPerSecond(at_least_one(mbps * 1e6)),
        Replay { pps: Some(pps), .. } => Rate::MilliPacketsPerSecond(at_least_one(pps * 1e3)),
        Replay { multiplier, .. } => Rate::MicroMultiples(at_least_one(multiplier.unwrap_or(1.0) * 1e6)),
    };
    ReplayOptions {
        files: arguments.files,
        device: arguments.device,
        any_device: arguments.yes_this_interface,
        receive_on: arguments.receive_on,
        rate,
        rounds: (arguments.rounds > 0).then_some(arguments.rounds),
        packets: arguments.limit,
        duration: arguments.duration,
        unique_ip: arguments.unique_ip,
        stamps: arguments.stamp,
        frame_policy: FramePolicy { snapped: arguments.snapped, skip_oversized: arguments.skip_oversized },
    }
}

/// At least one of what the rate is counted in.
fn at_least_one(rate: f64) -> u64 {
    (rate.round() as u64).max(1)
}
