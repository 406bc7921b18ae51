//! Capture profile: packets by protocol, length, time and flow. Never reads a file.
//!
//! Memory does not grow with the capture. Each part documents its bound and what happens beyond it.

mod flows;
mod hyperloglog;
mod lengths;
mod rates;
#[cfg(test)]
mod tests;

pub use flows::{Flow, Flows, Transport};
pub use lengths::{BIN_WIDTH, EXACT_LIMIT, LengthDistribution, LengthKind};
pub use rates::{RateBin, RateHistogram};

use crate::frame::{self, FrameError, Packet};
use crate::pcap::Frame;
use std::ops::AddAssign;

/// Packets, and their bytes on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrafficSum {
    pub packets: u64,
    pub bytes: u64,
}

impl TrafficSum {
    #[inline]
    fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}

impl AddAssign for TrafficSum {
    fn add_assign(&mut self, other: TrafficSum) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Packets by protocol; every packet counts in exactly one of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProtocolSums {
    pub tcp: TrafficSum,
    pub udp: TrafficSum,
    /// ICMP and ICMPv6.
    pub icmp: TrafficSum,
    /// Any other protocol over IP.
    pub other_ip: TrafficSum,
    /// ARP and others.
    pub not_ip: TrafficSum,
    /// Link types and wrappings that are not unwrapped.
    pub unsupported: TrafficSum,
    /// The snap length cut within the headers.
    pub truncated: TrafficSum,
    /// Headers that contradict themselves.
    pub malformed: TrafficSum,
}

impl ProtocolSums {
    /// All of them, each with its name.
    pub fn all(&self) -> [(&'static str, TrafficSum); 8] {
        [
            ("tcp", self.tcp),
            ("udp", self.udp),
            ("icmp", self.icmp),
            ("other_ip", self.other_ip),
            ("not_ip", self.not_ip),
            ("unsupported", self.unsupported),
            ("truncated", self.truncated),
            ("malformed", self.malformed),
        ]
    }
}

/// Packets of a port, whichever end had it. Of a packet's two ports the lower one counts, which is the
/// service's nearly always. 256 neighbours have room together, once one of them needs it.
#[derive(Debug)]
struct PortSums(Vec<Option<Box<[TrafficSum; 256]>>>);

impl Default for PortSums {
    fn default() -> Self {
        PortSums(vec![None; 256])
    }
}

impl PortSums {
    #[inline]
    fn add(&mut self, port: u16, bytes: u64) {
        let [high, low] = port.to_be_bytes();
        let neighbours =
            self.0[usize::from(high)].get_or_insert_with(|| Box::new([TrafficSum::default(); 256]));
        neighbours[usize::from(low)].add(bytes);
    }

    fn used_ports(&self) -> impl Iterator<Item = (u16, TrafficSum)> + '_ {
        let rooms = (0..=u8::MAX).zip(&self.0).filter_map(|(high, room)| Some((high, room.as_ref()?)));
        rooms.flat_map(|(high, room)| {
            let port = move |low| u16::from_be_bytes([high, low]);
            (0..=u8::MAX).map(port).zip(room.iter().copied()).filter(|(_, sum)| sum.packets > 0)
        })
    }
}

/// The profile of one capture, or of several that are taken for one.
#[derive(Debug, Default)]
pub struct Profile {
    /// All packets, by their bytes on the wire.
    pub total: TrafficSum,
    /// Bytes that the capture holds of them.
    pub captured_bytes: u64,
    /// Packets of which a snap length cut a part.
    pub truncated: u64,
    pub protocols: ProtocolSums,
    /// Parts of larger packets (they stand in `protocols` too, in no flow and no port).
    pub fragments: u64,
    /// Earliest and latest packet, Unix ns; `None`: no packet has a time.
    pub span_ns: Option<(u64, u64)>,
    /// Packets without a time.
    pub untimed: u64,
    /// Packets that are older than the one before them.
    pub disordered: u64,
    /// How far at most, ns.
    pub disorder_ns: u64,
    pub lengths: LengthDistribution,
    pub rates: RateHistogram,
    pub flows: Flows,
    tcp_ports: PortSums,
    udp_ports: PortSums,
    previous_ns: u64,
}

impl Profile {
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts a packet.
    #[inline]
    pub fn add_frame(&mut self, frame: &Frame<'_>) {
        let captured = frame.bytes.len() as u64;
        // A packet was at least as long as what is left of it.
        let bytes = u64::from(frame.wire_len).max(captured);
        self.total.add(bytes);
        self.captured_bytes += captured;
        self.truncated += u64::from(captured < bytes);
        self.add_time(frame.time_ns, bytes);
        let protocols = &mut self.protocols;
        let (sum, kind) = match frame::parse_packet(frame) {
            Ok(packet) => {
                self.fragments += u64::from(packet.fragment);
                match packet.protocol {
                    frame::TCP => {
                        add_ported_packet(
                            &packet,
                            Transport::Tcp,
                            frame,
                            bytes,
                            &mut self.flows,
                            &mut self.tcp_ports,
                        );
                        (&mut protocols.tcp, LengthKind::Tcp)
                    }
                    frame::UDP => {
                        add_ported_packet(
                            &packet,
                            Transport::Udp,
                            frame,
                            bytes,
                            &mut self.flows,
                            &mut self.udp_ports,
                        );
                        (&mut protocols.udp, LengthKind::Udp)
                    }
                    1 | 58 => (&mut protocols.icmp, LengthKind::Other),
                    _ => (&mut protocols.other_ip, LengthKind::Other),
                }
            }
            Err(FrameError::OtherProtocol) => (&mut protocols.not_ip, LengthKind::Other),
            Err(FrameError::Unsupported) => (&mut protocols.unsupported, LengthKind::Other),
            Err(FrameError::Truncated) => (&mut protocols.truncated, LengthKind::Other),
            Err(FrameError::Malformed) => (&mut protocols.malformed, LengthKind::Other),
        };
        sum.add(bytes);
        self.lengths.add(kind, bytes);
    }

    #[inline]
    fn add_time(&mut self, time_ns: u64, bytes: u64) {
        if time_ns == 0 {
            self.untimed += 1;
            return;
        }
        if time_ns < self.previous_ns {
            self.disordered += 1;
            self.disorder_ns = self.disorder_ns.max(self.previous_ns - time_ns);
        }
        self.previous_ns = time_ns;
        let (first, last) = self.span_ns.unwrap_or((time_ns, time_ns));
        self.span_ns = Some((first.min(time_ns), last.max(time_ns)));
        self.rates.add(time_ns, bytes);
    }

    /// From the earliest packet to the latest, s; 0 where there are fewer than two.
    pub fn duration_s(&self) -> f64 {
        self.span_ns.map_or(0.0, |(first, last)| (last - first) as f64 / 1e9)
    }

    /// The `n` ports with most packets, the most first; ties by number.
    pub fn top_ports(&self, transport: Transport, n: usize) -> Vec<(u16, TrafficSum)> {
        let ports = match transport {
            Transport::Tcp => &self.tcp_ports,
            Transport::Udp => &self.udp_ports,
        };
        let mut seen: Vec<(u16, TrafficSum)> = ports.used_ports().collect();
        seen.sort_by_key(|&(port, sum)| (std::cmp::Reverse(sum.packets), port));
        seen.truncate(n);
        seen
    }

    /// True if every packet counts in exactly one line of each group. False is a bug of the profile.
    pub fn is_consistent(&self) -> bool {
        let mut by_protocol = TrafficSum::default();
        for (_, sum) in self.protocols.all() {
            by_protocol += sum;
        }
        let mut by_time = self.rates.total();
        by_time.packets += self.untimed;
        by_protocol == self.total
            && self.lengths.packets() == self.total.packets
            && by_time.packets == self.total.packets
            && self.flows.packets() == self.protocols.tcp.packets + self.protocols.udp.packets
    }
}

/// Counts what has ports: by flow, and by its lower port.
#[inline]
fn add_ported_packet(
    packet: &Packet<'_>,
    transport: Transport,
    frame: &Frame<'_>,
    bytes: u64,
    flows: &mut Flows,
    ports: &mut PortSums,
) {
    let Some(&[a, b, c, d]) = packet.payload.first_chunk::<4>().filter(|_| !packet.fragment) else {
        flows.portless += 1;
        return;
    };
    let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    ports.add(source.min(destination), bytes);
    let flags = match transport {
        Transport::Tcp => packet.payload.get(13).copied().unwrap_or(0),
        Transport::Udp => 0,
    };
    flows.add_packet(transport, packet, [source, destination], flags, frame.time_ns, bytes);
}
