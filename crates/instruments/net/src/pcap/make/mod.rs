//! Generator of synthetic captures with known properties.
//!
//! The sets and their properties are those of Jiva, "Performance Evaluation of Tcpdump" (figures 1 to 5);
//! `mysql` holds the sessions of a server. Seeded: the same request gives the same bytes.

mod fixed_size;
mod flash;
mod http;
mod lookup;
mod mixed;
mod mysql;
mod packetiser;
mod skype;
#[cfg(test)]
mod tests;
mod traffic;

use super::capture_writer::{CaptureWriter, FileFormat, Out};
use anyhow::{Context, bail};
use std::sync::atomic::{AtomicBool, Ordering};
use toll_sys::named_choice::NamedChoice;
use toll_wire::pcap::{Frame, Interface, Link};
use traffic::{Traffic, TrafficVolume};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    /// A web browsing session: pages and images over TCP, DNS over UDP
    Http,
    /// Videos: long downloads over TCP
    Flash,
    /// Calls: nearly all of it UDP
    Skype,
    /// The three above merged: 75% of the packets TCP, 25% UDP
    Mixed,
    /// Sessions of MySQL clients: statements as text and prepared, with their answers
    Mysql,
    /// Datagrams of one length, evenly apart, as RFC 2544 uses them
    Sized,
}

impl NamedChoice for Set {
    const CHOICES: &'static [(&'static str, Self, &'static str)] = &[
        ("http", Self::Http, "A web browsing session: pages and images over TCP, DNS over UDP"),
        ("flash", Self::Flash, "Videos: long downloads over TCP"),
        ("skype", Self::Skype, "Calls: nearly all of it UDP"),
        ("mixed", Self::Mixed, "The three above merged: 75% of the packets TCP, 25% UDP"),
        (
            "mysql",
            Self::Mysql,
            "Sessions of MySQL clients: statements as text and prepared, with their answers",
        ),
        ("sized", Self::Sized, "Datagrams of one length, evenly apart, as RFC 2544 uses them"),
    ];
}

/// Options of the generator.
#[derive(Debug)]
pub struct MakeOptions {
    pub set: Set,
    pub seconds: f64,
    pub seed: u64,
    /// Bytes of each frame of [`Set::Sized`], without its check sequence.
    pub size: u16,
    /// On average, counting the bytes of frames.
    pub mbps: f64,
    pub out: Out,
    pub format: FileFormat,
}

/// Result of the generator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MakeSummary {
    pub packets: u64,
    pub bytes: u64,
}

/// When the first packet is seen, Unix s: 2026-01-01. A clock would make each file another.
const START_TIME_S: u64 = 1_767_225_600;
/// Fewer bytes hold no conversation worth the name.
const MIN_BYTES: f64 = 50_000.0;
/// Lengths of frames without their check sequence: Ethernet's least, and what an MTU of 1500 carries.
pub const SIZES: std::ops::RangeInclusive<u16> = 60..=1514;
/// Of a bench that does not say: small, and no smaller than what a statement takes.
pub const DEFAULT_SIZE: u16 = 200;
/// Packets between two looks for an interrupt.
const CHECK_EVERY_PACKETS: u64 = 4096;

impl Set {
    /// Mb/s unless the user says otherwise.
    pub fn default_mbps(self) -> f64 {
        match self {
            Set::Http | Set::Flash | Set::Mixed | Set::Mysql | Set::Sized => 10.0,
            Set::Skype => 2.0,
        }
    }

    fn packet_source(self, span: TrafficVolume, seed: u64, size: u16) -> Box<dyn PacketSource> {
        match self {
            Set::Sized => Box::new(fixed_size::FixedSizePackets::new(span, seed, size)),
            Set::Http => Box::new(Traffic::new(http::Http, span, seed, 1)),
            Set::Flash => Box::new(Traffic::new(flash::Flash::new(span), span, seed, 2)),
            Set::Skype => Box::new(Traffic::new(skype::Skype, span, seed, 3)),
            Set::Mixed => Box::new(mixed::MixedTraffic::new(span, seed)),
            Set::Mysql => Box::new(Traffic::new(mysql::Mysql, span, seed, 4)),
        }
    }
}

/// What passes the wire, one Ethernet frame after the other.
trait PacketSource {
    /// Puts the next frame into `frame` and returns when it is seen, ns after the first. `None`: that was all.
    fn next_packet(&mut self, frame: &mut Vec<u8>) -> Option<u64>;
}

/// Writes a set.
///
/// # Errors
/// Too little was asked for, or the output cannot be written; then there is none.
pub fn make_capture(request: &MakeOptions, stop: &AtomicBool) -> anyhow::Result<MakeSummary> {
    let span = TrafficVolume { seconds: request.seconds, bytes_per_s: request.mbps * 1e6 / 8.0 };
    let bytes = span.bytes();
    if !bytes.is_finite() || bytes < MIN_BYTES {
        bail!(
            "{} s of {} Mb/s hold no conversation: the least is {} kB, so ask for more --seconds or --mbps",
            request.seconds,
            request.mbps,
            MIN_BYTES / 1e3
        );
    }
    // 32 bits of seconds end in 2106, and nobody waits for a file of years.
    const LONGEST_S: f64 = 366.0 * 86_400.0;
    if request.seconds > LONGEST_S {
        bail!("{} s are more than a year", request.seconds);
    }
    let mut packets = request.set.packet_source(span, request.seed, request.size);
    let mut out = CaptureWriter::create(&request.out, request.format, &[])?;
    write_packets(packets.as_mut(), &mut out, stop)
        .and_then(|made| out.finish().map(|()| made))
        .with_context(|| format!("cannot write {}", request.out))
}

fn write_packets(
    packets: &mut dyn PacketSource,
    out: &mut CaptureWriter,
    stop: &AtomicBool,
) -> anyhow::Result<MakeSummary> {
    let mut made = MakeSummary { packets: 0, bytes: 0 };
    let mut bytes = Vec::new();
    let interface = out.write_interface(&Interface { number: 0, link: 1, snap_len: 0, name: b"" })?;
    while let Some(after_ns) = packets.next_packet(&mut bytes) {
        if made.packets.is_multiple_of(CHECK_EVERY_PACKETS) && stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let time_ns = START_TIME_S * 1_000_000_000 + after_ns;
        let wire_len = bytes.len() as u32;
        out.write_frame(interface, &Frame { time_ns, link: Link::Ethernet, wire_len, bytes: &bytes })?;
        made.packets += 1;
        made.bytes += u64::from(wire_len);
    }
    Ok(made)
}
