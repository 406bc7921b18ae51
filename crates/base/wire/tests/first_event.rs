//! Tests of what a file begins with: it stays as the file grows, and tells it from others.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use toll_wire::first_event::{FirstEvent, find_first_event};
use toll_wire::pcap::write::{append_ng_interface, append_ng_packet, append_ng_section};
use toll_wire::pcap::write::{append_pcap_record, encode_pcap_header};
use toll_wire::pcap::{Frame, Interface, Link};
use toll_wire::queries::BlockCompressor;

const BANNER: &str = "/usr/sbin/mysqld, Version: 8.0.36 (MySQL Community Server - GPL). started with:\n\
    Tcp port: 3306  Unix socket: /run/mysqld/mysqld.sock\nTime                 Id Command    Argument\n";
const SLOW: &str = "# Time: 251126 14:00:01\n# User@Host: app[app] @ db1 []\n# Thread_id: 8  Schema: shop\n\
    # Query_time: 0.000123  Lock_time: 0.000010  Rows_sent: 1  Rows_examined: 1\nuse shop;\nSET timestamp=1764165601;\n";

/// Its first event is the same at every length from its end on, and not there before.
fn assert_stable(whole: &[u8], end: usize, absent: usize) {
    for length in 0..=whole.len() {
        let expected = match length {
            _ if length >= end => FirstEvent::EndsAt(end),
            _ if length == absent => FirstEvent::Absent,
            _ => continue,
        };
        assert_eq!(find_first_event(&whole[..length]), expected, "{length} bytes");
    }
    for length in 1..end {
        let found = find_first_event(&whole[..length]);
        assert!(!matches!(found, FirstEvent::EndsAt(_)), "{length} bytes: {found:?}");
    }
}

#[test]
fn a_log_keeps_its_first_event_however_it_grows() {
    let more = "SELECT 1;\n# Time: 251126 14:00:02\n# Query_time: 1.0  Lock_time: 0\nSET timestamp=1764165602;\nSELECT 2;\n";
    let slow = format!("{BANNER}{SLOW}{more}");
    assert_stable(slow.as_bytes(), BANNER.len() + SLOW.len(), BANNER.len());
    let general = "2025-11-26T14:00:01.123456Z\t    8 Connect\tapp@localhost on shop\n";
    let whole = format!("{BANNER}{general}{}", general.replace("01.12", "02.34"));
    assert_stable(whole.as_bytes(), BANNER.len() + general.len(), BANNER.len());
    let audit = "20251126 14:00:01,db1,app,localhost,8,22,QUERY,shop,'SELECT 1',0\n";
    assert_stable(audit.repeat(2).as_bytes(), audit.len(), 0);
}

#[test]
fn logs_that_begin_with_the_same_banner_differ_in_their_first_event() {
    let end = |text: &str| match find_first_event(text.as_bytes()) {
        FirstEvent::EndsAt(end) => text[..end].to_owned(),
        other => panic!("{other:?}"),
    };
    let of = |from: &str, to: &str| end(&format!("{BANNER}{}", SLOW.replace(from, to)));
    let first = of("", "");
    for (from, to) in [("14:00:01", "15:00:01"), ("0.000123", "0.000124"), ("Thread_id: 8", "Thread_id: 9")] {
        assert_ne!(of(from, to), first, "{to}");
    }
}

#[test]
fn a_capture_keeps_its_first_packet_however_it_grows() {
    let link = Link::from_number(1);
    let frame = |time_ns: u64| Frame { time_ns, link, wire_len: 16, bytes: b"0123456789abcdef" };
    let mut classic = encode_pcap_header(1).to_vec();
    append_pcap_record(&mut classic, &frame(1_764_165_601_000_000_000)).unwrap();
    let end = classic.len();
    append_pcap_record(&mut classic, &frame(1_764_165_602_000_000_000)).unwrap();
    assert_stable(&classic, end, 24);
    let mut ng = Vec::new();
    append_ng_section(&mut ng);
    append_ng_interface(&mut ng, &Interface { number: 0, link: 1, snap_len: 0, name: b"eth0" });
    let opened = ng.len();
    append_ng_packet(&mut ng, 0, &frame(1_764_165_601_000_000_000));
    let end = ng.len();
    append_ng_packet(&mut ng, 0, &frame(1_764_165_602_000_000_000));
    assert_stable(&ng, end, opened);
    let mut queries = Vec::new();
    let mut compressor = BlockCompressor::new().unwrap();
    compressor.compress(&[7; 300], &mut queries).unwrap();
    let end = queries.len();
    compressor.compress(&[8; 300], &mut queries).unwrap();
    assert_stable(&queries, end, 0);
}
