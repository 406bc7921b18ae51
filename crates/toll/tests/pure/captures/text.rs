//! Tests that tcpdump's text output of a capture is read like the capture itself.

use super::forms::{Link, Order, conversation, pcap, to_ipv6, write_file};
use super::printed::events;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use toll_sys::program::find_program;
use toll_testkit::wire::CapturedFrame;

/// Information in a timestamp format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeFormat {
    Moment,
    /// Time since the previous packet, or since midnight.
    Distance,
    Nothing,
}

/// Timestamp formats. `-ttttt` counts from the first packet and looks like `-ttt`, as which it is parsed.
const TIMES: [(&[&str], TimeFormat); 6] = [
    (&[], TimeFormat::Distance),
    (&["-t"], TimeFormat::Nothing),
    (&["-tt"], TimeFormat::Moment),
    (&["-ttt"], TimeFormat::Distance),
    (&["-tttt"], TimeFormat::Moment),
    (&["-ttttt"], TimeFormat::Nothing),
];
const DUMPS: [&str; 4] = ["-x", "-xx", "-X", "-XX"];
/// Time zone of tcpdump and toll, different from UTC.
const ZONE: &str = "IST-5:30";

/// toll's events from tcpdump's text output of `capture`.
fn read(capture: &Path, options: &[&str]) -> Vec<Value> {
    let output = Command::new("tcpdump")
        .args(["-Z", "root", "-nn", "-r"])
        .arg(capture)
        .args(options)
        .env("TZ", ZONE)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = capture.with_extension("txt");
    std::fs::write(&text, output.stdout).unwrap();
    events(&text, ZONE)
}

/// The events without fields that the timestamp format lacks.
fn with_time_format(mut events: Vec<Value>, told: TimeFormat) -> Vec<Value> {
    for event in &mut events {
        if told != TimeFormat::Moment {
            event["time"].take();
        }
        if told == TimeFormat::Nothing {
            event["query_time_us"].take();
            event["first_byte_time_us"].take();
        }
    }
    events
}

fn has_tcpdump() -> bool {
    let found = find_program("tcpdump").is_some();
    if !found {
        toll_testkit::skip!("this test needs tcpdump");
    }
    found
}

#[test]
fn every_form_of_dump_holds_the_events_of_its_capture() {
    if !has_tcpdump() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let talk = conversation();
    let six = to_ipv6(talk.frames());
    let cases: [(Link, &[CapturedFrame]); 3] =
        [(Link::Ethernet, talk.frames()), (Link::Vlan, talk.frames()), (Link::Ethernet, &six)];
    for (link, frames) in cases {
        let capture = write_file(dir.path(), "capture", &pcap(Order::Little, 1000, link, frames));
        let expected = events(&capture, ZONE);
        assert_eq!(expected.len(), 8);
        for dump in DUMPS {
            assert_eq!(read(&capture, &[dump, "-tttt"]), expected, "{link:?} {dump}");
        }
    }
}

#[test]
fn every_form_of_time_is_read_for_what_it_tells() {
    if !has_tcpdump() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let talk = conversation();
    let capture =
        write_file(dir.path(), "capture", &pcap(Order::Little, 1000, Link::Ethernet, talk.frames()));
    let fine = write_file(dir.path(), "fine", &pcap(Order::Little, 1, Link::Ethernet, talk.frames()));
    let expected = events(&capture, ZONE);
    assert_eq!(expected[1]["time"], "2023-11-14T22:13:20.000007Z");
    for (time, told) in TIMES {
        let options = [&["-x"][..], time].concat();
        assert_eq!(
            with_time_format(read(&capture, &options), told),
            with_time_format(expected.clone(), told),
            "{time:?}"
        );
        let options = [&["-x", "--nano"][..], time].concat();
        assert_eq!(
            with_time_format(read(&fine, &options), told),
            with_time_format(expected.clone(), told),
            "{time:?}, ns"
        );
    }
}
