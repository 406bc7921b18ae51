//! Tests of capture profiles.

use super::*;
use crate::packet_builder::{self, AddressPair, ETHERTYPE_V4, IpHeader, TcpHeader};
use crate::pcap::Link;

const S: u64 = 1_000_000_000;
const BEGIN_NS: u64 = 1_700_000_000 * S;

fn ip(source: &str, destination: &str) -> IpHeader {
    let ends = AddressPair { source: source.parse().unwrap(), destination: destination.parse().unwrap() };
    IpHeader { addresses: ends, ttl: 64, id: 1 }
}

/// An Ethernet frame.
fn tcp(source: &str, destination: &str, flags: u8, payload: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    packet_builder::append_ethernet(&mut frame, [2; 6], [4; 6], None, ETHERTYPE_V4);
    let head = TcpHeader { seq: 1, ack: 1, flags, window: 1, options: &[] };
    packet_builder::append_tcp(&mut frame, &ip(source, destination), &head, &vec![7; payload]);
    frame
}

fn udp(source: &str, destination: &str, payload: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    packet_builder::append_ethernet(&mut frame, [2; 6], [4; 6], None, ETHERTYPE_V4);
    packet_builder::append_udp(&mut frame, &ip(source, destination), &vec![7; payload]);
    frame
}

fn seen(time_ns: u64, bytes: &[u8]) -> Frame<'_> {
    Frame { time_ns, link: Link::Ethernet, wire_len: bytes.len() as u32, bytes }
}

const CLIENT: &str = "10.0.0.9:40000";
const SERVER: &str = "10.0.0.1:80";

#[test]
fn every_packet_stands_in_one_line_of_each_account() {
    let mut profile = Profile::new();
    let whole = tcp(CLIENT, SERVER, frame::ACK, 100);
    let datagram = udp(CLIENT, "10.0.0.1:53", 20);
    let mut ping = whole.clone();
    ping[23] = 1;
    let mut arp = whole.clone();
    (arp[12], arp[13]) = (0x08, 0x06);
    let mut mpls = whole.clone();
    (mpls[12], mpls[13]) = (0x88, 0x47);
    let mut contradicts = whole.clone();
    contradicts[14] = 0x41;
    let mut fragment = datagram.clone();
    fragment[20] = 0x20;
    for bytes in [&whole, &datagram, &ping, &arp, &mpls, &contradicts, &fragment] {
        profile.add_frame(&seen(BEGIN_NS, bytes));
    }
    // A snap length that leaves half of an IP header; one that leaves no ports; one that leaves most.
    for kept in [20, 36, 60] {
        profile.add_frame(&Frame { bytes: &whole[..kept], ..seen(BEGIN_NS, &whole) });
    }
    profile.add_frame(&seen(0, &whole));
    assert!(profile.is_consistent(), "{profile:#?}");
    let counts = profile.protocols.all().map(|(name, sum)| (name, sum.packets));
    assert_eq!(
        counts,
        [
            ("tcp", 4),
            ("udp", 2),
            ("icmp", 1),
            ("other_ip", 0),
            ("not_ip", 1),
            ("unsupported", 1),
            ("truncated", 1),
            ("malformed", 1),
        ]
    );
    assert_eq!((profile.truncated, profile.fragments, profile.untimed), (3, 1, 1));
    assert_eq!(profile.flows.portless, 2);
    assert_eq!(profile.total.bytes, 9 * 154 + 2 * 62);
    assert_eq!(profile.captured_bytes, profile.total.bytes - (154 - 20) - (154 - 36) - (154 - 60));
}

#[test]
fn both_directions_are_one_flow_whose_client_asked_first() {
    let mut profile = Profile::new();
    profile.add_frame(&seen(BEGIN_NS, &tcp(SERVER, CLIENT, frame::SYN | frame::ACK, 0)));
    profile.add_frame(&seen(BEGIN_NS + 5, &tcp(CLIENT, SERVER, frame::ACK, 10)));
    profile.add_frame(&seen(BEGIN_NS + 9, &tcp(SERVER, CLIENT, frame::ACK | frame::FIN, 1000)));
    // The same ports by UDP are another flow, as is another port.
    profile.add_frame(&seen(BEGIN_NS, &udp(SERVER, CLIENT, 1)));
    profile.add_frame(&seen(BEGIN_NS, &tcp("10.0.0.9:40001", SERVER, frame::ACK, 0)));
    let flows = profile.flows.largest(10);
    assert_eq!(flows.len(), 3);
    let first = &flows[0];
    assert_eq!((first.client.0.to_string(), first.client.1), ("10.0.0.9".to_owned(), 40_000));
    assert_eq!((first.server.0.to_string(), first.server.1), ("10.0.0.1".to_owned(), 80));
    assert_eq!(first.sum, TrafficSum { packets: 3, bytes: 54 + 64 + 1054 });
    assert_eq!((first.first_ns, first.last_ns), (BEGIN_NS, BEGIN_NS + 9));
    let by_udp = flows.iter().find(|flow| flow.transport == Transport::Udp).unwrap();
    assert_eq!(by_udp.client.1, 80, "who sent first");
    assert_eq!(profile.flows.lifetimes(), flows::FlowLifetimes { begun: 1, ended: 1 });
    assert_eq!(profile.flows.estimated_flows(), None);
    let ports = profile.top_ports(Transport::Tcp, 5);
    assert_eq!(ports, [(80, TrafficSum { packets: 4, bytes: 54 + 64 + 1054 + 54 })]);
}

#[test]
fn flows_past_the_bound_are_counted_together_and_their_number_is_estimated() {
    let mut profile = Profile { flows: Flows::with_max(2000), ..Profile::default() };
    for round in 0..2 {
        for port in 0..5000 {
            let bytes = udp(&format!("10.0.0.9:{}", 10_000 + port), "10.0.0.1:9999", 10);
            profile.add_frame(&seen(BEGIN_NS + round, &bytes));
        }
    }
    assert_eq!(profile.flows.tracked_flows(Transport::Udp), 2000);
    assert_eq!(profile.flows.untracked_traffic.packets, 2 * 3000);
    let estimated = profile.flows.estimated_flows().unwrap();
    assert!(estimated.abs_diff(5000) < 125, "{estimated}");
    assert!(profile.is_consistent());
}

#[test]
fn stretches_fold_by_ten_and_lose_nothing() {
    let mut rates = RateHistogram::with_max_bins(20);
    // 1 ms apart, from 7 ms on: the twenty-first makes stretches of 10 ms of all.
    for n in 0..21 {
        rates.add(BEGIN_NS + (7 + n) * 1_000_000, 10);
    }
    assert_eq!(rates.width_ns(), 10_000_000);
    let packets = |rates: &RateHistogram| rates.bins().map(|sum| sum.packets).collect::<Vec<_>>();
    assert_eq!(packets(&rates), [3, 10, 8]);
    assert_eq!(rates.from_ns(), BEGIN_NS);
    // One from before the first has its place.
    rates.add(BEGIN_NS - 15_000_000, 1000);
    assert_eq!(packets(&rates), [1, 0, 3, 10, 8]);
    assert_eq!(rates.from_ns(), BEGIN_NS - 20_000_000);
    let busiest = rates.busiest().unwrap();
    assert_eq!((busiest.from_ns, busiest.sum.bytes), (BEGIN_NS - 20_000_000, 1000));
    // A clock that is wrong by centuries does not take more memory.
    rates.add(u64::MAX, 1);
    rates.add(1, 1);
    assert!(rates.bins().len() <= 20);
    assert_eq!(rates.total(), TrafficSum { packets: 24, bytes: 21 * 10 + 1002 });
}

#[test]
fn disorder_is_counted_and_measured() {
    let mut profile = Profile::new();
    let bytes = udp(CLIENT, SERVER, 1);
    for after in [100, 200, 150, 151, 40, 300] {
        profile.add_frame(&seen(BEGIN_NS + after, &bytes));
    }
    assert_eq!((profile.disordered, profile.disorder_ns), (2, 111));
    assert_eq!(profile.span_ns, Some((BEGIN_NS + 40, BEGIN_NS + 300)));
}

#[test]
fn lengths_are_counted_one_by_one_and_in_bins_of_a_hundred() {
    let mut lengths = LengthDistribution::default();
    for (kind, bytes, times) in [
        (LengthKind::Tcp, 66, 3),
        (LengthKind::Tcp, 1518, 5),
        (LengthKind::Udp, 99, 1),
        (LengthKind::Udp, 100, 1),
        (LengthKind::Other, 70_000, 1),
    ] {
        for _ in 0..times {
            lengths.add(kind, bytes);
        }
    }
    let bins = lengths.bins();
    assert_eq!(bins.len(), 16);
    assert_eq!((bins[0], bins[1], bins[15]), ([3, 1, 0], [0, 1, 0], [5, 0, 0]));
    assert_eq!(lengths.most_frequent(LengthKind::Tcp, 1), [(1518, 5)]);
    assert_eq!(lengths.longer[2], TrafficSum { packets: 1, bytes: 70_000 });
    assert_eq!(lengths.span(), Some((66, 70_000)));
    assert_eq!(lengths.longest(LengthKind::Udp), 100);
    assert_eq!(lengths.median(), Some(1518));
    assert_eq!(lengths.packets(), 11);
    assert_eq!(LengthDistribution::default().span(), None);
    assert_eq!(LengthDistribution::default().median(), None);
}
