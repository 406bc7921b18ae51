//! JSON schema of a capture profile. Every type here is a promise (docs/reference/pcap.md): fields may be added, never
//! renamed.
//!
//! Lengths and bytes are those on the wire unless their name contains `captured`.

use super::{Input, InputProfile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toll_wire::profile::{self, BIN_WIDTH, LengthKind, Profile, Transport};

/// Entries of each list of what is most frequent.
const TOP_COUNT: usize = 10;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Document {
    pub profiles: Vec<ProfileEntry>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProfileEntry {
    pub inputs: Vec<Input>,
    pub interrupted: bool,
    pub packets: u64,
    pub bytes: u64,
    pub captured_bytes: u64,
    /// Packets of which a snap length cut a part.
    pub cut_packets: u64,
    pub fragments: u64,
    pub first_seen: Option<String>,
    pub last_seen: Option<String>,
    pub duration_s: f64,
    /// Absent where the duration is 0.
    pub packets_per_s: Option<f64>,
    pub bits_per_s: Option<f64>,
    /// Packets older than the one before them, and by how much at most.
    pub disordered_packets: u64,
    pub disorder_us_max: f64,
    pub untimed_packets: u64,
    pub protocols: BTreeMap<String, Share>,
    pub length_bytes: Option<Length>,
    /// Bins that hold packets.
    pub length_bins: Vec<LengthBin>,
    /// Packets too long for a bin.
    pub longer_packets: u64,
    pub top_lengths: ByTransport<TopLength>,
    pub rates: Rates,
    pub flows: Flows,
    pub top_ports: ByTransport<Port>,
    pub ledger: ReadAccounting,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    pub packets: u64,
    pub bytes: u64,
    /// Of all packets.
    pub packets_pct: f64,
    pub bytes_pct: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Length {
    pub min: u64,
    pub mean: f64,
    pub median: Option<usize>,
    pub max: u64,
    pub tcp_max: u64,
    pub udp_max: u64,
}

/// Packets of `from` to `to` bytes, both included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LengthBin {
    pub from: usize,
    pub to: usize,
    pub tcp: u64,
    pub udp: u64,
    pub other: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ByTransport<T> {
    pub tcp: Vec<T>,
    pub udp: Vec<T>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TopLength {
    pub length: usize,
    pub packets: u64,
    /// Of the packets of this protocol.
    pub packets_pct: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Port {
    pub port: u16,
    pub packets: u64,
    pub bytes: u64,
    /// Of the packets of this protocol.
    pub packets_pct: f64,
}

/// One stretch after the other, those without packets too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    pub stretch_s: f64,
    pub from: Option<String>,
    pub busiest: Option<Busiest>,
    pub packets: Vec<u64>,
    pub bytes: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Busiest {
    /// After the first packet's stretch began.
    pub at_s: f64,
    pub packets: u64,
    pub bits_per_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flows {
    pub tcp: u64,
    /// Of those: a SYN was seen, or a FIN or RST.
    pub tcp_begun: u64,
    pub tcp_ended: u64,
    pub udp: u64,
    /// All flows, where there was no room to keep each apart; then `tcp` and `udp` are those that were.
    pub estimated: Option<u64>,
    pub packets_beyond: u64,
    pub packets_without_ports: u64,
    pub top: Vec<Flow>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Flow {
    pub transport: String,
    pub client: String,
    pub server: String,
    pub packets: u64,
    pub bytes: u64,
    pub first_seen: Option<String>,
    pub duration_s: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReadAccounting {
    pub unread_tail_bytes: u64,
    pub dropped_by_capture: Option<u64>,
    pub damage: Vec<String>,
    pub adds_up: bool,
}

/// All profiles, for a program or a page.
pub fn build_document(profiles: &[InputProfile]) -> Document {
    Document { profiles: profiles.iter().map(build_entry).collect() }
}

fn build_entry(profiled: &InputProfile) -> ProfileEntry {
    let profile = &profiled.profile;
    let duration_s = profile.duration_s();
    let by_time = |n: f64| (duration_s > 0.0).then(|| n / duration_s);
    let bins = profile.lengths.bins();
    let length = profile.lengths.span().map(|(min, max)| Length {
        min,
        mean: profile.total.bytes as f64 / profile.total.packets as f64,
        median: profile.lengths.median(),
        max,
        tcp_max: profile.lengths.longest(LengthKind::Tcp),
        udp_max: profile.lengths.longest(LengthKind::Udp),
    });
    ProfileEntry {
        inputs: profiled.inputs.clone(),
        interrupted: profiled.interrupted,
        packets: profile.total.packets,
        bytes: profile.total.bytes,
        captured_bytes: profile.captured_bytes,
        cut_packets: profile.truncated,
        fragments: profile.fragments,
        first_seen: profile.span_ns.and_then(|(first, _)| format_time(first)),
        last_seen: profile.span_ns.and_then(|(_, last)| format_time(last)),
        duration_s,
        packets_per_s: by_time(profile.total.packets as f64),
        bits_per_s: by_time(profile.total.bytes as f64 * 8.0),
        disordered_packets: profile.disordered,
        disorder_us_max: profile.disorder_ns as f64 / 1e3,
        untimed_packets: profile.untimed,
        protocols: profile
            .protocols
            .all()
            .map(|(name, sum)| (name.to_owned(), share(sum, profile.total)))
            .into(),
        length_bytes: length,
        length_bins: (0..).step_by(BIN_WIDTH).zip(bins).filter_map(bin).collect(),
        longer_packets: profile.lengths.longer.iter().map(|sum| sum.packets).sum(),
        top_lengths: ByTransport {
            tcp: top_lengths(profile, LengthKind::Tcp),
            udp: top_lengths(profile, LengthKind::Udp),
        },
        rates: rates(profile),
        flows: flows(profile),
        top_ports: ByTransport { tcp: ports(profile, Transport::Tcp), udp: ports(profile, Transport::Udp) },
        ledger: ReadAccounting {
            unread_tail_bytes: profiled.unread_tail,
            dropped_by_capture: profiled.dropped_by_capture,
            damage: profiled.damage.clone(),
            adds_up: profile.is_consistent(),
        },
    }
}

/// RFC 3339, UTC.
fn format_time(ns: u64) -> Option<String> {
    jiff::Timestamp::from_nanosecond(i128::from(ns)).ok().map(|time| time.to_string())
}

/// Percent; of nothing, none.
pub fn pct(part: u64, whole: u64) -> f64 {
    if whole > 0 { part as f64 * 100.0 / whole as f64 } else { 0.0 }
}

fn share(sum: profile::TrafficSum, total: profile::TrafficSum) -> Share {
    Share {
        packets: sum.packets,
        bytes: sum.bytes,
        packets_pct: pct(sum.packets, total.packets),
        bytes_pct: pct(sum.bytes, total.bytes),
    }
}

fn bin((from, [tcp, udp, other]): (usize, [u64; 3])) -> Option<LengthBin> {
    (tcp + udp + other > 0).then_some(LengthBin { from, to: from + BIN_WIDTH - 1, tcp, udp, other })
}

fn top_lengths(profile: &Profile, kind: LengthKind) -> Vec<TopLength> {
    let whole = match kind {
        LengthKind::Tcp => profile.protocols.tcp.packets,
        LengthKind::Udp => profile.protocols.udp.packets,
        LengthKind::Other => profile.total.packets,
    };
    let top = profile.lengths.most_frequent(kind, TOP_COUNT).into_iter();
    top.map(|(length, packets)| TopLength { length, packets, packets_pct: pct(packets, whole) }).collect()
}

fn ports(profile: &Profile, transport: Transport) -> Vec<Port> {
    let whole = match transport {
        Transport::Tcp => profile.protocols.tcp.packets,
        Transport::Udp => profile.protocols.udp.packets,
    };
    let one = |(port, profile::TrafficSum { packets, bytes })| Port {
        port,
        packets,
        bytes,
        packets_pct: pct(packets, whole),
    };
    profile.top_ports(transport, TOP_COUNT).into_iter().map(one).collect()
}

fn rates(profile: &Profile) -> Rates {
    let rates = &profile.rates;
    let stretch_s = rates.width_ns() as f64 / 1e9;
    Rates {
        stretch_s,
        from: profile.span_ns.and_then(|_| format_time(rates.from_ns())),
        busiest: rates.busiest().map(|busiest| Busiest {
            at_s: (busiest.from_ns - rates.from_ns()) as f64 / 1e9,
            packets: busiest.sum.packets,
            bits_per_s: busiest.sum.bytes as f64 * 8.0 / stretch_s,
        }),
        packets: rates.bins().map(|sum| sum.packets).collect(),
        bytes: rates.bins().map(|sum| sum.bytes).collect(),
    }
}

fn flows(profile: &Profile) -> Flows {
    let flows = &profile.flows;
    let lives = flows.lifetimes();
    Flows {
        tcp: flows.tracked_flows(Transport::Tcp),
        tcp_begun: lives.begun,
        tcp_ended: lives.ended,
        udp: flows.tracked_flows(Transport::Udp),
        estimated: flows.estimated_flows(),
        packets_beyond: flows.untracked_traffic.packets,
        packets_without_ports: flows.portless,
        top: flows.largest(TOP_COUNT).iter().map(flow).collect(),
    }
}

fn flow(flow: &profile::Flow) -> Flow {
    let end = |(address, port): (toll_wire::frame::Address, u16)| {
        let address = address.to_string();
        if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
    };
    Flow {
        transport: match flow.transport {
            Transport::Tcp => "tcp".to_owned(),
            Transport::Udp => "udp".to_owned(),
        },
        client: end(flow.client),
        server: end(flow.server),
        packets: flow.sum.packets,
        bytes: flow.sum.bytes,
        first_seen: format_time(flow.first_ns).filter(|_| flow.first_ns > 0),
        duration_s: (flow.last_ns - flow.first_ns) as f64 / 1e9,
    }
}
