//! Mutation tests: damaged input gives an error, or counters that add up.

use toll_testkit::wire::{
    self, Conversation, EventCollector, column_packets, ok, pcap, prepare_response, protocol_packet, result,
};
use toll_wire::decoder::{CaptureDecoder, Config, Decoder};
use toll_wire::pcap::{Format, Frame, Interface, Link, Reader, write};
use toll_wire::profile::Profile;

/// Damaged inputs of each format in one run; more than this is the fuzzer's part.
const ROUNDS: u64 = 4000;

struct TestRng(u64);

impl TestRng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn below(&mut self, bound: usize) -> usize {
        self.next() as usize % bound.max(1)
    }
}

fn talk() -> Conversation {
    let mut talk = Conversation::logged_in();
    talk.client(&protocol_packet(0, b"\x03select 1"));
    talk.server(&result(&["1", "2"]));
    talk.client(&protocol_packet(0, b"\x16select ?, ?"));
    talk.server(&prepare_response(7, 2, 2));
    talk.client(&protocol_packet(0, &[0x17, 7, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 3, 0, 253, 0, 1, 0, 0, 0]));
    talk.server(&column_packets());
    talk.client(&protocol_packet(0, b"\xfa\x07\0\0\0\xc0\0\x03\0\xfd\0\0\x01\0\0\0\0\x01a"));
    talk.server(&protocol_packet(1, &ok(1)));
    talk.client(&protocol_packet(0, b"\x03load data local infile 'x' into table t"));
    talk.server(&protocol_packet(1, b"\xfbx"));
    talk.client(&[protocol_packet(2, b"1,2"), protocol_packet(3, b"")].concat());
    talk.server(&protocol_packet(4, &ok(1)));
    talk.client(&wire::zlib_frame(0, &protocol_packet(0, b"\x03select compressed, compressed, compressed")));
    talk.server(&wire::zstd_frame(1, &result(&["1"])));
    talk.close();
    talk
}

/// An interface and its packets, each in an enhanced packet block.
fn pcapng(talk: &Conversation) -> Vec<u8> {
    let mut capture = Vec::new();
    write::append_ng_section(&mut capture);
    write::append_ng_interface(&mut capture, &Interface { number: 0, link: 101, snap_len: 0, name: b"" });
    for (time_ns, bytes) in talk.frames() {
        let wire_len = bytes.len() as u32;
        write::append_ng_packet(
            &mut capture,
            0,
            &Frame { time_ns: *time_ns, link: Link::Raw, wire_len, bytes },
        );
    }
    capture
}

fn tcpdump_text(talk: &Conversation) -> Vec<u8> {
    let mut text = String::new();
    for (_, frame) in talk.frames() {
        text.push_str("2026-11-21 01:22:38.795523 IP 10.0.0.1.40000 > 10.0.0.2.3306: tcp 7\n");
        for (line, bytes) in frame.chunks(16).enumerate() {
            let groups: Vec<_> = bytes
                .chunks(2)
                .map(|pair| pair.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
                .collect();
            text.push_str(&format!("\t0x{:04x}:  {}  ....\n", line * 16, groups.join(" ")));
        }
    }
    text.into_bytes()
}

fn damage(seed: &[u8], dice: &mut TestRng) -> Vec<u8> {
    let mut input = seed.to_vec();
    for _ in 0..=dice.below(6) {
        let at = dice.below(input.len());
        match dice.below(5) {
            0 => input.truncate(at),
            1 => input[at] = dice.next() as u8,
            2 => input[at] ^= 1 << dice.below(8),
            3 => {
                let end = (at + dice.below(60)).min(input.len());
                input.drain(at..end);
            }
            _ => {
                let end = (at + dice.below(60)).min(input.len());
                let piece = input[at..end].to_vec();
                let to = dice.below(input.len());
                input.splice(to..to, piece);
            }
        }
        if input.is_empty() {
            break;
        }
    }
    input
}

fn decode_damaged(format: Format, seed: &[u8]) {
    let mut dice = TestRng(seed.len() as u64);
    // One for all: each would take longer to make than to fill.
    let mut profile = Profile::new();
    for _ in 0..ROUNDS {
        let input = damage(seed, &mut dice);
        let mut decoder = CaptureDecoder::new(format, &Config::default());
        let mut events = EventCollector::default();
        // Refusing is fine: what was read before must still be accounted for.
        let _refused = decoder.feed(&input, &mut events);
        decoder.finish(&mut events);
        assert!(decoder.accounting().is_consistent(), "{:#?}", decoder.accounting());
        let mut reader = Reader::new(format);
        let _refused = reader.feed(&input, &mut |frame| profile.add_frame(frame));
        reader.finish(&mut |frame| profile.add_frame(frame));
    }
    assert!(profile.is_consistent(), "{profile:#?}");
    assert!(profile.total.packets > ROUNDS);
}

#[test]
fn damaged_pcap_is_refused_or_accounted_for() {
    decode_damaged(Format::Pcap, &pcap(talk().frames()));
}

#[test]
fn damaged_pcapng_is_refused_or_accounted_for() {
    decode_damaged(Format::PcapNg, &pcapng(&talk()));
}

#[test]
fn damaged_text_is_accounted_for() {
    decode_damaged(Format::TcpdumpText, &tcpdump_text(&talk()));
}

#[test]
fn damaged_messages_in_whole_segments_are_accounted_for() {
    let mut dice = TestRng(11);
    for _ in 0..ROUNDS {
        let mut frames = talk().frames().to_vec();
        for _ in 0..=dice.below(4) {
            let at = dice.below(frames.len());
            let frame = &mut frames[at].1;
            if frame.len() > 40 {
                let byte = 40 + dice.below(frame.len() - 40);
                frame[byte] = dice.next() as u8;
            }
        }
        EventCollector::decode(&pcap(&frames));
    }
}

#[test]
fn every_link_type_takes_any_bytes() {
    let links = [
        Link::Ethernet,
        Link::VlanTag,
        Link::LinuxSll,
        Link::LinuxSll2,
        Link::Raw,
        Link::Null,
        Link::Unsupported(147),
    ];
    let mut dice = TestRng(5);
    let mut decoder = Decoder::new(&Config::default());
    let mut events = EventCollector::default();
    for round in 0..ROUNDS {
        let mut bytes: Vec<u8> = (0..dice.below(120)).map(|_| dice.next() as u8).collect();
        if let Some(first) = bytes.first_mut() {
            *first = [0x45, 0x60, 0, 2][dice.below(4)];
        }
        let link = links[dice.below(links.len())];
        decoder.decode_frame(
            &Frame { time_ns: round, link, wire_len: dice.next() as u32, bytes: &bytes },
            &mut events,
        );
    }
    decoder.finish(&mut events);
    assert!(decoder.accounting().is_consistent());
    assert_eq!(decoder.accounting().frames.read, ROUNDS);
}

#[test]
fn the_three_forms_of_a_capture_hold_the_same_commands() {
    let talk = talk();
    let texts = |capture: &[u8]| {
        EventCollector::decode(capture).statement_texts().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let expected = texts(&pcap(talk.frames()));
    assert!(expected.len() > 4);
    assert_eq!(texts(&pcapng(&talk)), expected);
    assert_eq!(texts(&tcpdump_text(&talk)), expected);
    assert_eq!(
        EventCollector::decode(&pcapng(&talk)).list,
        EventCollector::decode(&pcap(talk.frames())).list
    );
}

#[test]
fn a_record_that_claims_4_gb_is_refused() {
    let mut capture = pcap(talk().frames());
    let length_at = 24 + 8;
    capture[length_at..length_at + 4].fill(0xff);
    let mut decoder = CaptureDecoder::new(Format::Pcap, &Config::default());
    let error = decoder.feed(&capture, &mut EventCollector::default()).unwrap_err();
    assert_eq!(error.offset, 24);
    assert!(error.to_string().contains("4294967295"), "{error}");
}
