//! Replay of a capture to a network, with a check of the attained rate.

mod packets;
mod report;
mod stamp;
mod unique;

pub use packets::{Choice, Snapped};
pub use stamp::{Stamp, read as stamp_of};

use anyhow::{Context, bail, ensure};
use packets::Loaded;
use report::Report;
use std::path::PathBuf;
use std::time::Duration;
use toll_input::Progress;
use toll_sys::cancel::CancelToken;
use toll_sys::number_format;
use toll_taps::{Device, Pace, Rate, Sender};

/// A device that takes nothing for so long takes nothing any more.
const GIVE_UP: Duration = Duration::from_secs(5);
/// Without a terminal, a line so often.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// What is behind at the end, as a share of the time that was asked for, up to which a rate is held.
const HELD_WITHIN: f64 = 0.001;
/// Of any replay, however short: one turn of a scheduler.
const HELD_WITHIN_S: f64 = 0.005;

/// Options of a replay.
#[derive(Debug)]
pub struct Asked {
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
    pub choice: Choice,
}

/// Sends the requested packets. Returns the report, or an error if the replay could not start.
///
/// # Errors
/// No such device, or not one to send on without being told so; captures that cannot be sent; no packet socket.
pub fn replay(asked: &Asked, reading: &Progress, cancel: &CancelToken) -> anyhow::Result<Report> {
    let device = Device::named(&asked.device)?;
    ensure!(device.is_up, "{0} is down: ip link set {0} up", device.name);
    ensure!(device.is_ethernet, "{} does not carry Ethernet frames", device.name);
    if device.carries_default_route && !asked.any_device {
        bail!(
            "{} carries the default route: what is sent there reaches other hosts. Name another device, or say \
             --yes-this-interface if that is meant",
            device.name
        );
    }
    let receiver = asked.receive_on.as_deref().map(Device::named).transpose()?;
    let pace = Pace::new(asked.rate).context("a rate of 0 sends nothing: give one above 0")?;
    let mut sender = Sender::open(&device)?;
    let loaded = packets::load(&asked.files, &device, asked.choice, reading, cancel);
    reading.finish();
    let Loaded { mut packets, snapped, skipped, cut_short, .. } = loaded?;
    for line in cut_short {
        tracing::warn!("{line}");
    }
    if !sender.bypasses_qdisc {
        tracing::warn!(
            "this kernel has no way past the queue discipline of {}: what it holds back is not seen",
            device.name
        );
    }

    let plan = toll_taps::Replay {
        pace,
        rounds: asked.rounds,
        packets: asked.packets,
        duration: asked.duration,
        give_up: GIVE_UP,
    };
    let counted = receiver.as_ref().map(Device::counters).transpose()?;
    let mut told = Duration::ZERO;
    let go_on = |progress: toll_taps::Progress| {
        if progress.elapsed >= told + TOLD_EVERY {
            told = progress.elapsed;
            tracing::info!("{}", so_far(&progress, asked.duration));
        }
        !cancel.is_cancelled()
    };
    let (unique, stamps) = (asked.unique_ip, asked.stamps);
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
    let ended = toll_taps::replay(&mut sender, &mut packets, &plan, before, after, go_on)?;
    let received = match (&receiver, counted) {
        (Some(receiver), Some(before)) => Some((before, settled(receiver)?)),
        _ => None,
    };
    Ok(Report::new(asked, &device, &ended, received, snapped, skipped))
}

/// A receiver's counters once they no longer rise, or after a second.
fn settled(receiver: &Device) -> anyhow::Result<toll_taps::Counters> {
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

fn so_far(progress: &toll_taps::Progress, duration: Option<Duration>) -> String {
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
