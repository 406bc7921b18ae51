//! Replay of a capture to a network, with a check of the attained rate.

mod frames;
mod report;
mod stamp;
mod unique;

pub use frames::{FramePolicy, SnappedFrames};
pub use stamp::{Stamp, read as stamp_of};

use anyhow::{Context, bail, ensure};
use frames::LoadedFrames;
use report::ReplayReport;
use std::path::PathBuf;
use std::time::Duration;
use toll_input::Progress;
use toll_sys::cancel::CancelToken;
use toll_sys::number_format;
use toll_taps::{Device, Pace, Rate, Sender};

/// A device that takes nothing for so long takes nothing any more.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);
/// Without a terminal, a line so often.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// What is behind at the end, as a share of the time that was asked for, up to which a rate is held.
const RATE_TOLERANCE: f64 = 0.001;
/// Of any replay, however short: one turn of a scheduler.
const RATE_TOLERANCE_S: f64 = 0.005;

/// Options of a replay.
#[derive(Debug)]
pub struct ReplayOptions {
    pub files: Vec<PathBuf>,
    pub device: String,
    /// A device that leads to other hosts is meant.
    pub any_device: bool,
    /// Another device that counts what arrives.
    pub receive_on: Option<String>,
    pub rate: Rate,
    /// Times through; `None`: until the time is up.
    pub rounds: Option<u64>,
    pub packets: Option<u64>,
    pub duration: Option<Duration>,
    pub unique_ip: bool,
    /// Each packet tells its number and when it was sent.
    pub stamps: bool,
    pub frame_policy: FramePolicy,
}

/// Sends the requested packets. Returns the report, or an error if the replay could not start.
///
/// # Errors
/// No such device, or not one to send on without being told so; captures that cannot be sent; no packet socket.
pub fn replay_captures(
    options: &ReplayOptions,
    reading: &Progress,
    cancel: &CancelToken,
) -> anyhow::Result<ReplayReport> {
    let device = Device::find(&options.device)?;
    ensure!(device.is_up, "{0} is down: ip link set {0} up", device.name);
    ensure!(device.is_ethernet, "{} does not carry Ethernet frames", device.name);
    if let Some(reason) = device.way_out.as_ref().filter(|_| !options.any_device) {
        bail!(
            "{} leads to other hosts ({reason}), which would receive what is sent there. Name another device, or say \
             --yes-this-interface if that is meant",
            device.name
        );
    }
    let receiver = options.receive_on.as_deref().map(Device::find).transpose()?;
    let pace = Pace::new(options.rate).context("a rate of 0 sends nothing: give one above 0")?;
    let mut sender = Sender::open(&device)?;
    let loaded = frames::load_frames(&options.files, &device, options.frame_policy, reading, cancel);
    reading.finish();
    let LoadedFrames { mut packets, snapped, skipped, cut_short, .. } = loaded?;
    for line in cut_short {
        tracing::warn!("{line}");
    }
    if !sender.bypasses_qdisc {
        tracing::warn!(
            "this kernel has no way past the queue discipline of {}: what it holds back is not seen",
            device.name
        );
    }

    let plan = toll_taps::ReplayPlan {
        pace,
        rounds: options.rounds,
        packets: options.packets,
        duration: options.duration,
        send_timeout: SEND_TIMEOUT,
    };
    let counted = receiver.as_ref().map(Device::counters).transpose()?;
    let mut reported = Duration::ZERO;
    let go_on = |progress: toll_taps::ReplayProgress| {
        if progress.elapsed >= reported + REPORT_INTERVAL {
            reported = progress.elapsed;
            tracing::info!("{}", describe_progress(&progress, options.duration));
        }
        !cancel.is_cancelled()
    };
    let (unique, stamps) = (options.unique_ip, options.stamps);
    let before = |frame: &mut [u8], number: u64| {
        if stamps {
            stamp::write(frame, Stamp { number, sent_ns: toll_taps::now_ns() });
        }
    };
    let after = |frame: &mut [u8]| {
        if unique {
            unique::next_addresses(frame);
        }
    };
    let ended = toll_taps::replay_frames(&mut sender, &mut packets, &plan, before, after, go_on)?;
    let received = match (&receiver, counted) {
        (Some(receiver), Some(before)) => Some((before, settled_counters(receiver)?)),
        _ => None,
    };
    Ok(ReplayReport::new(options, &device, &ended, received, snapped, skipped))
}

/// A receiver's counters once they no longer rise, or after a second.
fn settled_counters(receiver: &Device) -> anyhow::Result<toll_taps::Counters> {
    let mut last = receiver.counters()?;
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(50));
        let now = receiver.counters()?;
        if now == last {
            break;
        }
        last = now;
    }
    Ok(last)
}

fn describe_progress(progress: &toll_taps::ReplayProgress, duration: Option<Duration>) -> String {
    let seconds = progress.elapsed.as_secs_f64();
    let left = duration
        .map(|whole| number_format::format_duration_s(whole.saturating_sub(progress.elapsed).as_secs_f64()));
    format!(
        "{} packets, {:.1} Mb/s so far{}",
        number_format::format_grouped(progress.packets as f64),
        progress.bytes as f64 * 8.0 / 1e6 / seconds,
        left.map(|left| format!("; {left} left")).unwrap_or_default()
    )
}
