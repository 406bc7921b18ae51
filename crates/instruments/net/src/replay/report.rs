//! Report of a replay: requested, sent and received rates, and the timing accuracy.

use super::{RATE_TOLERANCE, RATE_TOLERANCE_S, ReplayOptions};
use serde::Serialize;
use toll_sys::number_format;
use toll_taps::{Counters, Device, Rate, ReplayResult};

/// `toll replay --json`; a promise.
#[derive(Debug, Serialize)]
pub struct ReplayReport {
    device: String,
    /// Absent at top speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<RequestedRate>,
    packets: u64,
    bytes: u64,
    seconds: f64,
    /// From the first packet to the last.
    sent_mbps: f64,
    sent_packets_per_s: f64,
    /// Deviation of the sent rate from the one that was asked, percent; absent at top speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_error_pct: Option<f64>,
    /// Of bytes sent within windows against bytes due in them.
    window_errors: Vec<DeviationRow>,
    /// After its deadline each packet left; absent at top speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    lateness_us: Option<Lateness>,
    /// Times that the device's queue was full and a packet was offered again.
    retries: u64,
    /// Packets of the captures that were cut by a snap length.
    snapped: u64,
    /// Packets of the captures that were left out.
    skipped: u64,
    /// Counters of the receiving device in the meantime.
    #[serde(skip_serializing_if = "Option::is_none")]
    received: Option<ReceivedCounts>,
    /// False: the rate could not be held, or it ended early.
    complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip)]
    behind_s: f64,
    #[serde(skip)]
    rate_was_held: bool,
    #[serde(skip)]
    was_stopped: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum RequestedRate {
    Mbps(f64),
    PacketsPerS(f64),
    Multiplier(f64),
}

#[derive(Debug, Serialize)]
struct DeviationRow {
    width_ms: f64,
    windows: u64,
    rms_pct: f64,
    worst_pct: f64,
}

#[derive(Debug, Serialize)]
struct Lateness {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

#[derive(Debug, Serialize)]
struct ReceivedCounts {
    packets: u64,
    bytes: u64,
    dropped: u64,
    mbps: f64,
    /// Packets sent that did not arrive, percent.
    lost_pct: f64,
}

impl ReplayReport {
    pub(super) fn new(
        options: &ReplayOptions,
        device: &Device,
        ended: &ReplayResult,
        received: Option<(Counters, Counters)>,
        snapped: u64,
        skipped: u64,
    ) -> Self {
        let account = &ended.pacing;
        let seconds = ended.elapsed.as_secs_f64();
        let behind_s = ended.elapsed.saturating_sub(ended.due).as_secs_f64();
        let is_paced = options.rate != Rate::TopSpeed;
        let is_held =
            !is_paced || behind_s <= (ended.due.as_secs_f64() * RATE_TOLERANCE).max(RATE_TOLERANCE_S);
        let us = |quantile: f64| account.lateness_ns.value_at_quantile(quantile) as f64 / 1e3;
        let error_pct = (ended.due.as_secs_f64() / seconds - 1.0) * 100.0;
        let mbps = |bytes: u64| bytes as f64 * 8.0 / 1e6 / seconds;
        let window = |e: toll_taps::WindowDeviation| DeviationRow {
            width_ms: e.width_us as f64 / 1e3,
            windows: e.windows,
            rms_pct: e.rms_pct,
            worst_pct: e.worst_pct,
        };
        let windows =
            if is_paced { account.window_deviations(ended.elapsed.as_nanos() as u64) } else { Vec::new() };
        Self {
            device: device.name.clone(),
            asked: match options.rate {
                Rate::BitsPerSecond(rate) => Some(RequestedRate::Mbps(rate as f64 / 1e6)),
                Rate::MilliPacketsPerSecond(rate) => Some(RequestedRate::PacketsPerS(rate as f64 / 1e3)),
                Rate::MicroMultiples(rate) => Some(RequestedRate::Multiplier(rate as f64 / 1e6)),
                Rate::TopSpeed => None,
            },
            packets: account.packets,
            bytes: account.bytes,
            seconds,
            sent_mbps: mbps(account.bytes - account.last_bytes),
            sent_packets_per_s: account.packets.saturating_sub(1) as f64 / seconds,
            rate_error_pct: (is_paced && account.packets > 1).then_some(error_pct),
            window_errors: windows.into_iter().map(window).collect(),
            lateness_us: (!account.lateness_ns.is_empty()).then(|| Lateness {
                p50: us(0.5),
                p99: us(0.99),
                p999: us(0.999),
                max: account.lateness_ns.max() as f64 / 1e3,
            }),
            retries: ended.retries,
            snapped,
            skipped,
            received: received.map(|(before, after)| {
                let packets = after.received_packets - before.received_packets;
                let bytes = after.received_bytes - before.received_bytes;
                ReceivedCounts {
                    packets,
                    bytes,
                    dropped: after.received_dropped - before.received_dropped,
                    mbps: mbps(bytes),
                    lost_pct: (1.0 - packets as f64 / account.packets.max(1) as f64).max(0.0) * 100.0,
                }
            }),
            complete: is_held && ended.error.is_none() && !ended.was_stopped,
            error: ended.error.as_ref().map(|error| explain_error(error, device)),
            behind_s,
            rate_was_held: is_held,
            was_stopped: ended.was_stopped,
        }
    }

    /// Problem and advice; `None`: everything was sent as requested.
    pub fn failure(&self) -> Option<String> {
        if let Some(error) = &self.error {
            return Some(format!(
                "{error}; {} packets had been sent",
                number_format::format_grouped(self.packets as f64)
            ));
        }
        if self.rate_was_held {
            return None;
        }
        Some(format!(
            "this rate cannot be held here: the last packet left {} after it was due; {:.1} Mb/s, {} packets/s, is what \
             was sent",
            number_format::format_duration_us(self.behind_s * 1e6),
            self.sent_mbps,
            number_format::format_grouped(self.sent_packets_per_s)
        ))
    }

    /// True if everything was sent, at whatever rate.
    pub fn was_all_sent(&self) -> bool {
        self.error.is_none() && !self.was_stopped
    }

    pub fn was_stopped(&self) -> bool {
        self.was_stopped
    }

    pub fn render_text(&self) -> String {
        let asked = match self.asked {
            Some(RequestedRate::Mbps(rate)) => format!("asked {rate:.3} Mb/s, "),
            Some(RequestedRate::PacketsPerS(rate)) => format!("asked {rate:.3} packets/s, "),
            Some(RequestedRate::Multiplier(factor)) => format!("asked {factor} times the recorded speed, "),
            None => "at top speed, ".to_owned(),
        };
        let error = self.rate_error_pct.map(|pct| format!(" ({pct:+.3}%)")).unwrap_or_default();
        let mut lines = vec![format!(
            "{asked}sent {:.3} Mb/s, {} packets/s{error} on {}: {} packets, {} MB in {:.3} s",
            self.sent_mbps,
            number_format::format_grouped(self.sent_packets_per_s),
            self.device,
            number_format::format_grouped(self.packets as f64),
            number_format::format_megabytes(self.bytes as f64),
            self.seconds
        )];
        for window in &self.window_errors {
            lines.push(format!(
                "in windows of {} ms: {:.2}% from what was due (rms), {:.2}% at most",
                window.width_ms, window.rms_pct, window.worst_pct
            ));
        }
        if let Some(late) = &self.lateness_us {
            let [p50, p99, p999, max] =
                [late.p50, late.p99, late.p999, late.max].map(number_format::format_duration_us);
            lines.push(format!(
                "after their deadlines: {p50} (p50), {p99} (p99), {p999} (p99.9), {max} at most"
            ));
        }
        if let Some(received) = &self.received {
            lines.push(format!(
                "received {:.3} Mb/s: {} packets, {:.4}% lost",
                received.mbps,
                number_format::format_grouped(received.packets as f64),
                received.lost_pct
            ));
        }
        if self.retries > 0 {
            lines.push(format!(
                "the device's queue was full {} times: packets were offered again",
                number_format::format_grouped(self.retries as f64)
            ));
        }
        if self.skipped > 0 {
            lines.push(format!(
                "{} packets of the captures were left out",
                number_format::format_grouped(self.skipped as f64)
            ));
        }
        lines.join("\n")
    }
}

fn explain_error(error: &std::io::Error, device: &Device) -> String {
    let name = &device.name;
    match error.raw_os_error() {
        Some(nix::libc::ENETDOWN) => format!("{name} went down"),
        Some(nix::libc::ENXIO | nix::libc::ENODEV) => format!("{name} is gone"),
        Some(nix::libc::EMSGSIZE) => format!("a packet is longer than {name} carries (MTU {})", device.mtu),
        Some(nix::libc::ENOBUFS) => {
            format!(
                "the queue of {name} stayed full for {} s: is its other end up?",
                super::SEND_TIMEOUT.as_secs()
            )
        }
        _ => format!("cannot send on {name}: {error}"),
    }
}
