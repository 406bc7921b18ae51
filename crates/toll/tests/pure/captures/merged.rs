//! Tests that a merged capture holds every packet of its parts, by time. Compared with mergecap, and on its
//! own.

use super::forms::{Link, Order, conversation, pcap, write_file};
use super::own::{done, has, made, pcap as toll, printed, profile, text};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use toll_testkit::wire::CapturedFrame;
use toll_wire::pcap::{Format, Frame, Interface, ParseStep, Reader, RecordParser, write};

/// Time, wire length and bytes of every packet, in the file's order.
fn packets(path: &Path) -> Vec<(u64, u32, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let mut seen = Vec::new();
    let mut reader = Reader::new(Format::detect(&bytes).unwrap());
    let mut each = |frame: &Frame<'_>| seen.push((frame.time_ns, frame.wire_len, frame.bytes.to_vec()));
    reader.feed(&bytes, &mut each).unwrap();
    assert_eq!(reader.unread_tail_bytes(), 0);
    seen
}

fn merge(files: &[&Path], out: &Path) -> String {
    let mut arguments = vec!["merge"];
    arguments.extend(files.iter().map(|file| text(file)));
    arguments.extend(["-w", text(out)]);
    done(&arguments)
}

#[test]
fn a_merged_capture_is_what_mergecap_makes() {
    if !has(&["mergecap", "editcap"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let rates = ["--seconds", "3", "--mbps", "4"];
    let sets: Vec<PathBuf> = ["http", "skype", "mysql"].map(|set| made(dir.path(), set, &rates)).into();
    let ng = dir.path().join("http.pcapng");
    printed("editcap", &["-F", "pcapng", text(&sets[0]), text(&ng)]);
    let inputs = [ng.as_path(), &sets[1], &sets[2]];
    for (name, format) in [("ours.pcap", "nsecpcap"), ("ours.pcapng", "pcapng")] {
        let (ours, theirs) = (dir.path().join(name), dir.path().join("theirs"));
        merge(&inputs, &ours);
        let mut arguments = vec!["-F", format, "-w", text(&theirs)];
        arguments.extend(inputs.iter().map(|input| text(input)));
        printed("mergecap", &arguments);
        let (mut ours, mut theirs) = (packets(&ours), packets(&theirs));
        assert!(ours.len() > 5_000);
        assert!(ours.is_sorted_by_key(|packet| packet.0), "{name}");
        // Of equal times mergecap puts the file first that was named last.
        ours.sort();
        theirs.sort();
        assert!(ours == theirs, "{name}: {} and {} packets", ours.len(), theirs.len());
    }
}

/// Packets numbered by their last byte, at the times given.
fn numbered(times_ns: &[u64], first: u8) -> Vec<CapturedFrame> {
    let mut frames = conversation().frames()[..times_ns.len()].to_vec();
    for ((frame, time_ns), number) in frames.iter_mut().zip(times_ns).zip(first..) {
        frame.0 = 1_700_000_000_000_000_000 + time_ns;
        *frame.1.last_mut().unwrap() = number;
    }
    frames
}

fn numbers(path: &Path) -> Vec<u8> {
    packets(path).iter().map(|(_, _, bytes)| *bytes.last().unwrap()).collect()
}

#[test]
fn equal_times_keep_the_order_of_the_files_and_each_file_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, frames: &[CapturedFrame]| {
        write_file(dir.path(), name, &pcap(Order::Big, 1, Link::Ethernet, frames))
    };
    let a = write("a", &numbered(&[10, 20, 20, 40], 0));
    // Out of order within.
    let b = write("b", &numbered(&[20, 40, 15, 50], 10));
    let out = dir.path().join("out.pcap");
    let said = merge(&[&a, &b], &out);
    assert_eq!(numbers(&out), [0, 1, 2, 10, 3, 11, 12, 13]);
    assert!(said.contains("1 packet stand behind a later one, by 1 us at most"), "{said}");
    merge(&[&b, &a], &out);
    assert_eq!(numbers(&out), [0, 10, 1, 2, 11, 12, 3, 13]);
    assert_eq!(profile(&out)["disordered_packets"], 1);
}

#[test]
fn link_types_differ_in_a_pcapng_and_are_refused_in_a_pcap() {
    let dir = tempfile::tempdir().unwrap();
    let frames = numbered(&[1, 2, 3], 0);
    let a = write_file(dir.path(), "a", &pcap(Order::Little, 1000, Link::Ethernet, &frames));
    let b = write_file(dir.path(), "b", &pcap(Order::Little, 1000, Link::LinuxSll2, &frames));
    let out = dir.path().join("out.pcap");
    let refused = toll(&["merge", text(&a), text(&b), "-w", text(&out)]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("link types 1 and 276 cannot be in one pcap"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    let left: Vec<_> =
        std::fs::read_dir(dir.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 2, "nothing is left: {left:?}");
    let out = dir.path().join("out.pcapng");
    merge(&[&a, &b], &out);
    assert_eq!(profile(&out)["protocols"]["tcp"]["packets"], 6);
}

/// Interfaces of a capture as its packets name them, in order: link, snap length, name.
fn interfaces(path: &Path) -> Vec<(u16, u32, Vec<u8>)> {
    let bytes = std::fs::read(path).unwrap();
    let mut records = RecordParser::new(Format::detect(&bytes).unwrap()).unwrap();
    let (mut rest, mut seen) = (bytes.as_slice(), Vec::new());
    while !rest.is_empty() {
        let used = match records.next_record(rest).unwrap() {
            ParseStep::Frame { used, .. } => {
                let Interface { link, snap_len, name, .. } = records.interface().unwrap();
                seen.push((link, snap_len, name.to_vec()));
                used
            }
            ParseStep::Skip { used } => used,
            ParseStep::SkipAhead { used } => used as usize,
            ParseStep::Incomplete(need) => panic!("{need} bytes are needed"),
        };
        rest = &rest[used..];
    }
    seen
}

#[test]
fn interfaces_keep_their_names_and_snap_lengths_and_cut_packets_their_true_length() {
    let dir = tempfile::tempdir().unwrap();
    let mut capture = Vec::new();
    write::append_ng_section(&mut capture);
    for (name, snap_len) in [(&b"eth0"[..], 96), (b"eth1", 0)] {
        write::append_ng_interface(&mut capture, &Interface { number: 0, link: 1, snap_len, name });
    }
    let frame =
        |time_ns, bytes| Frame { time_ns, link: toll_wire::pcap::Link::Ethernet, wire_len: 1000, bytes };
    // Finer than a microsecond, and beyond what 32 bits of seconds hold.
    let late_ns = 5_000_000_000_123_456_789;
    write::append_ng_packet(&mut capture, 1, &frame(1_700_000_000_123_456_789, &[1; 60]));
    write::append_ng_packet(&mut capture, 0, &frame(late_ns, &[2; 20]));
    let a = write_file(dir.path(), "a.pcapng", &capture);
    let b = write_file(dir.path(), "b", &pcap(Order::Little, 1000, Link::LinuxSll, &numbered(&[0], 0)));
    let out = dir.path().join("out.pcapng");
    merge(&[&a, &b], &out);
    let expected = [(113, 262_144, Vec::new()), (1, 0, b"eth1".to_vec()), (1, 96, b"eth0".to_vec())];
    assert_eq!(interfaces(&out), expected);
    let merged = packets(&out);
    assert_eq!((merged[1].0, merged[1].1, merged[1].2.len()), (1_700_000_000_123_456_789, 1000, 60));
    assert_eq!((merged[2].0, merged[2].1, merged[2].2.len()), (late_ns, 1000, 20));
    let refused = toll(&["merge", text(&a), "-w", text(&dir.path().join("out.pcap"))]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("cannot store times after February 2106"));
    assert_eq!(refused.status.code(), Some(1));
}

#[test]
fn an_output_is_private_and_whole_and_never_an_input() {
    let dir = tempfile::tempdir().unwrap();
    let capture = pcap(Order::Little, 1000, Link::Ethernet, &numbered(&[1, 2], 0));
    let a = write_file(dir.path(), "a.pcap", &capture);
    // By another name, too.
    let link = dir.path().join("link.pcap");
    std::os::unix::fs::symlink(&a, &link).unwrap();
    for out in [&a, &link] {
        let refused = toll(&["merge", text(&a), "-w", text(out)]);
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(said.contains("is read: name another file"), "{said}");
        assert_eq!(refused.status.code(), Some(1));
    }
    assert_eq!(std::fs::read(&a).unwrap(), capture);
    let out = dir.path().join("out.pcap");
    std::fs::write(&out, "what was there").unwrap();
    merge(&[&a], &out);
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(numbers(&out), [0, 1]);
    // A device stays one.
    merge(&[&a], Path::new("/dev/null"));
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
    // What cannot be read leaves what was there.
    let bad = write_file(dir.path(), "bad", b"this is no capture at all, is it?");
    assert_eq!(toll(&["merge", text(&a), text(&bad), "-w", text(&out)]).status.code(), Some(1));
    assert_eq!(numbers(&out), [0, 1]);
    let printed = b"12:00:00.000000 IP 10.0.0.1.4000 > 10.0.0.2.80: tcp 0\n\t0x0000:  4500 0028 0000 4000\n";
    let printed = write_file(dir.path(), "printed", printed);
    let refused = toll(&["merge", text(&a), text(&printed), "-w", text(&out)]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("give what tcpdump -w writes"));
    assert_eq!(numbers(&out), [0, 1]);
    let piped = toll(&["merge", "--format", "pcap", text(&a), "-w", "-"]);
    assert!(piped.stdout == std::fs::read(&out).unwrap());
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 5, "a, its link, out, bad and printed");
}

#[test]
fn a_record_larger_than_a_piece_and_an_input_cut_short_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let mut capture = write::encode_pcap_header(1).to_vec();
    let large = vec![7; 300_000];
    for (time_ns, bytes) in [(5_000_000_000, &large[..]), (6_000_000_000, &large[..10])] {
        let frame =
            Frame { time_ns, link: toll_wire::pcap::Link::Ethernet, wire_len: bytes.len() as u32, bytes };
        write::append_pcap_record(&mut capture, &frame).unwrap();
    }
    let whole = write_file(dir.path(), "whole", &capture);
    let cut = write_file(dir.path(), "cut", &capture[..capture.len() - 1]);
    let out = dir.path().join("out.pcap");
    let said = merge(&[&whole, &cut], &out);
    assert!(said.contains("cut ends within a record"), "{said}");
    assert_eq!(packets(&out).iter().map(|packet| packet.2.len()).collect::<Vec<_>>(), [300_000, 300_000, 10]);
    // Damaged: what was read is there, and the exit code says that it is not all.
    capture[24 + 8..24 + 12].fill(0xff);
    let damaged = write_file(dir.path(), "damaged", &capture);
    let merged = toll(&["merge", text(&whole), text(&damaged), "-w", text(&out)]);
    let said = String::from_utf8(merged.stderr).unwrap();
    assert!(said.contains("damaged: byte 24 of the capture"), "{said}");
    assert_eq!(merged.status.code(), Some(1));
    assert_eq!(packets(&out).len(), 2);
}
