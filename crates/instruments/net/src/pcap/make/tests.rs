//! Tests of the synthetic captures.

use super::*;
use crate::pcap::profile::json::{ProfileEntry, build_document};
use crate::pcap::profile::read_profiles;
use crate::pcap::{capture_writer, merge};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use toll_wire::frame;
use toll_wire::pcap::Reader;

const SEEDS: [u64; 4] = [1, 2, 3, 20_260_101];

fn make_file(set: Set, seconds: f64, mbps: f64, seed: u64, dir: &Path) -> PathBuf {
    let out = dir.join(format!("{set:?}-{seconds}-{mbps}-{seed}.pcap"));
    let request = MakeOptions {
        set,
        seconds,
        seed,
        size: 64,
        mbps,
        out: Out::File(out.clone()),
        format: FileFormat::Pcap,
    };
    make_capture(&request, &AtomicBool::new(false)).unwrap();
    out
}

fn profile_file(file: PathBuf) -> ProfileEntry {
    let read = read_profiles(&[file], false, &toll_input::Progress::hidden(), &AtomicBool::new(false));
    assert!(read.refused.is_empty(), "{:?}", read.refused);
    let one = build_document(&read.profiles).profiles.remove(0);
    assert!(one.ledger.adds_up && one.ledger.damage.is_empty() && one.ledger.unread_tail_bytes == 0);
    one
}

/// Packets of a port among those of UDP, %.
fn udp_port_pct(one: &ProfileEntry, port: u16) -> f64 {
    one.top_ports.udp.iter().find(|found| found.port == port).map_or(0.0, |found| found.packets_pct)
}

/// Packets of UDP up to a length, % of them.
fn udp_below_pct(one: &ProfileEntry, length: usize) -> f64 {
    let below: u64 = one.length_bins.iter().filter(|bin| bin.to < length).map(|bin| bin.udp).sum();
    below as f64 * 100.0 / one.protocols["udp"].packets as f64
}

/// The paper's figures 1 to 5, for any seed.
#[test]
fn every_set_has_the_properties_of_the_paper() {
    let dir = tempfile::tempdir().unwrap();
    for seed in SEEDS {
        let of = |set| profile_file(make_file(set, 20.0, 10.0, seed, dir.path()));
        let (http, flash, skype, mixed) = (of(Set::Http), of(Set::Flash), of(Set::Skype), of(Set::Mixed));
        for one in [&http, &flash] {
            assert!(one.protocols["tcp"].packets_pct > 90.0, "{seed}: most packets are TCP");
            let mut top: Vec<usize> = one.top_lengths.tcp.iter().take(2).map(|top| top.length).collect();
            top.sort_unstable();
            assert_eq!(top, [66, 1518], "{seed}");
            assert!(udp_port_pct(one, 53) > 60.0, "{seed}: UDP is mostly DNS: {:?}", one.top_ports.udp);
        }
        assert!(http.protocols["udp"].packets > 100, "{seed}");
        assert!(skype.protocols["udp"].packets_pct > 95.0, "{seed}: nearly all of it is UDP");
        assert!(skype.protocols["tcp"].packets > 0, "{seed}");
        assert_eq!(skype.top_lengths.udp[0].length, 1429, "{seed}");
        let longest = |one: &ProfileEntry| one.length_bytes.as_ref().unwrap().udp_max;
        assert!(longest(&skype) > 2 * longest(&http) && longest(&skype) > 2 * longest(&flash), "{seed}");
        let spike = udp_below_pct(&skype, 200);
        assert!((30.0..60.0).contains(&spike), "{seed}: {spike}% below 200 bytes");
        // Of the bins between the spike and the peak none comes near.
        for bin in skype.length_bins.iter().filter(|bin| bin.from >= 200 && bin.to < 1400) {
            assert!(bin.udp as f64 * 5.0 < skype.protocols["udp"].packets as f64 * spike / 100.0, "{bin:?}");
        }
        let (tcp, udp) = (mixed.protocols["tcp"].packets_pct, mixed.protocols["udp"].packets_pct);
        assert!(
            (73.0..=77.0).contains(&tcp) && (23.0..=27.0).contains(&udp),
            "{seed}: {tcp}% TCP, {udp}% UDP"
        );
        for one in [&http, &flash, &skype, &mixed] {
            assert!((one.duration_s - 20.0).abs() < 0.2, "{seed}: {} s", one.duration_s);
            let mbps = one.bits_per_s.unwrap() / 1e6;
            assert!((mbps - 10.0).abs() < 0.1, "{seed}: {mbps} Mb/s");
            assert_eq!(one.disordered_packets, 0);
            let flows = &one.flows;
            assert!(
                flows.tcp > 5 && flows.tcp_begun == flows.tcp && flows.tcp_ended == flows.tcp,
                "{flows:?}"
            );
            assert_eq!(flows.estimated, None);
        }
    }
}

#[test]
fn the_mixed_set_is_the_three_others_merged() {
    let dir = tempfile::tempdir().unwrap();
    let (seconds, mbps, seed) = (10.0, 8.0, 5);
    let parts: Vec<PathBuf> =
        mixed::SHARES.map(|(set, share)| make_file(set, seconds, mbps * share, seed, dir.path())).into();
    let merged = dir.path().join("merged.pcap");
    let request = merge::MergeOptions {
        files: parts,
        out: Out::File(merged.clone()),
        format: capture_writer::FileFormat::Pcap,
    };
    let progress = toll_input::Progress::hidden();
    merge::merge_captures(&request, &progress, &AtomicBool::new(false)).unwrap();
    let mixed = make_file(Set::Mixed, seconds, mbps, seed, dir.path());
    assert!(std::fs::read(mixed).unwrap() == std::fs::read(merged).unwrap());
}

#[test]
fn a_seed_makes_the_same_bytes_and_another_makes_others() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for set in [Set::Http, Set::Flash, Set::Skype, Set::Mixed, Set::Mysql, Set::Sized] {
        let of = |seed, dir| std::fs::read(make_file(set, 2.0, 2.0, seed, dir)).unwrap();
        let first = of(9, here.path());
        assert!(first == of(9, there.path()), "{set:?}");
        assert!(first != of(10, here.path()), "{set:?}");
    }
}

#[test]
fn frames_of_one_length_are_all_of_it_evenly_apart_and_whole() {
    let dir = tempfile::tempdir().unwrap();
    let one = profile_file(make_file(Set::Sized, 2.0, 8.0, 1, dir.path()));
    let length = one.length_bytes.as_ref().unwrap();
    assert_eq!((length.min, length.max), (64, 64));
    // 2 s of a megabyte a second, the last one a gap before the end.
    assert_eq!((one.packets, one.flows.udp), (31_250, 64));
    assert!((one.duration_s - 2.0).abs() < 0.001, "{}", one.duration_s);
    let busiest = one.rates.packets.iter().max().unwrap();
    let least = one.rates.packets.iter().rev().skip(1).min().unwrap();
    assert!(busiest - least <= 1, "{least} to {busiest} in a stretch");
}

/// What a receiver would check, without any other program: sums, MTU, and sequence numbers that add up from
/// handshake to handshake.
#[test]
fn every_packet_is_right_and_every_connection_whole() {
    let dir = tempfile::tempdir().unwrap();
    for (set, seconds, mbps) in [
        (Set::Http, 3.0, 10.0),
        (Set::Flash, 3.0, 10.0),
        (Set::Skype, 3.0, 5.0),
        (Set::Mysql, 3.0, 10.0),
        // One conversation alone.
        (Set::Http, 0.4, 1.0),
        (Set::Mysql, 1.0, 0.4),
    ] {
        for seed in SEEDS {
            let file = std::fs::read(make_file(set, seconds, mbps, seed, dir.path())).unwrap();
            let mut connections: HashMap<_, Connection> = HashMap::new();
            let mut reader = Reader::new(toll_wire::pcap::Format::Pcap);
            reader
                .feed(&file, &mut |seen| {
                    let packet = frame::parse_packet(seen).unwrap();
                    assert_eq!(seen.wire_len as usize, seen.bytes.len());
                    let ip = &seen.bytes[seen.bytes.len() - packet.payload.len() - 20..];
                    assert!(ip.len() <= 1500, "{set:?}: an IP packet of {} bytes", ip.len());
                    assert_eq!(checksum(&[&ip[..20]]), 0, "{set:?}: IP");
                    let length = (packet.payload.len() as u16).to_be_bytes();
                    let pseudo = [&ip[12..20], &[0, packet.protocol], &length, packet.payload];
                    assert_eq!(checksum(&pseudo), 0, "{set:?}: protocol {}", packet.protocol);
                    if packet.protocol == frame::TCP {
                        let segment = frame::parse_segment(seen).unwrap();
                        let mut ends = [
                            (segment.source.to_string(), segment.source_port),
                            (segment.destination.to_string(), segment.destination_port),
                        ];
                        let from = usize::from(ends[0] > ends[1]);
                        ends.sort();
                        connections.entry(ends).or_default().segment(from, &segment.segment);
                    }
                })
                .unwrap();
            assert!(!connections.is_empty(), "{set:?}");
            for (ends, connection) in connections {
                assert_eq!(connection.ended, [true; 2], "{set:?} {seed}: {ends:?} is not closed");
            }
        }
    }
}

/// The sum of 16-bit words that is 0 where a checksum is right: another way than the builder's.
fn checksum(parts: &[&[u8]]) -> u16 {
    let bytes = parts.concat();
    let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// What both ends have sent so far.
#[derive(Default)]
struct Connection {
    /// The next sequence number of either end.
    next: [Option<u32>; 2],
    ended: [bool; 2],
}

impl Connection {
    fn segment(&mut self, from: usize, segment: &frame::Segment<'_>) {
        let syn = segment.flags & frame::SYN != 0;
        match self.next[from] {
            None => assert!(syn, "a connection begins with a SYN of each end"),
            Some(next) => assert_eq!((segment.seq, syn), (next, false)),
        }
        assert!(!self.ended[from] || segment.payload_len == 0, "nothing is said after a FIN");
        if segment.flags & frame::ACK != 0 {
            // All that the other end has sent may be acknowledged, and nothing more.
            let owed = self.next[1 - from].unwrap().wrapping_sub(segment.ack);
            assert!(owed < 1 << 20, "{owed} bytes acknowledged before they were sent");
        }
        let fin = segment.flags & frame::FIN != 0;
        let counted = segment.payload_len + u32::from(syn) + u32::from(fin);
        self.next[from] = Some(segment.seq.wrapping_add(counted));
        self.ended[from] |= fin;
    }
}
