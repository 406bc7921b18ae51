//! Tests of `toll pcap`'s errors on files that are not captures, or not whole ones.

use super::forms::{Link, Order, conversation, pcap, write_file};
use super::own::{pcap as toll, text};
use std::io::Write;
use std::path::Path;

/// Exit code and the lines on standard error.
fn run_refused(verb: &[&str], path: &Path) -> (Option<i32>, Vec<String>) {
    let output = toll(&[verb, &[text(path)]].concat());
    let lines = String::from_utf8(output.stderr).unwrap().lines().map(str::to_owned).collect();
    (output.status.code(), lines)
}

#[test]
fn what_is_no_capture_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let capture = pcap(Order::Little, 1000, Link::Ethernet, conversation().frames());
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packed.write_all(b"nothing of use").unwrap();
    let packed = packed.finish().unwrap();
    let out = dir.path().join("out.pcap");
    for (path, why) in [
        (write_file(dir.path(), "empty", b""), "it is empty"),
        (
            write_file(dir.path(), "text", b"Dear DBA,\nthis is a letter.\n"),
            "no capture|neither pcap nor pcapng",
        ),
        (write_file(dir.path(), "zeros", &[0; 4096]), "no capture|neither pcap nor pcapng"),
        (write_file(dir.path(), "three", &capture[..3]), "no capture|neither pcap nor pcapng"),
        (write_file(dir.path(), "letter.gz", &packed), "no capture|neither pcap nor pcapng"),
        (write_file(dir.path(), "cut.gz", &packed[..6]), "unexpected end of file"),
        (dir.path().to_owned(), "is a directory"),
        (dir.path().join("nosuch"), "No such file or directory"),
    ] {
        for verb in [&["profile"][..], &["merge", "-w", text(&out)]] {
            let (code, lines) = run_refused(verb, &path);
            assert_eq!((code, lines.len()), (Some(1), 1), "{verb:?} {}: {lines:?}", path.display());
            assert!(
                why.split('|').any(|why| lines[0].contains(why)),
                "{verb:?} {}: {lines:?}",
                path.display()
            );
            assert!(lines[0].contains(text(&path)), "{lines:?}");
        }
    }
    assert!(!out.exists());
}

#[test]
fn one_file_that_is_refused_does_not_hide_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let good =
        write_file(dir.path(), "good", &pcap(Order::Little, 1000, Link::Ethernet, conversation().frames()));
    let empty = write_file(dir.path(), "empty", b"");
    let packets = conversation().frames().len() as u64;
    for (options, profiles, each) in [(&[][..], 2, packets), (&["--together"], 1, 2 * packets)] {
        let files = [text(&good), text(&empty), text(&good)];
        let output = toll(&[&["profile", "--json"], options, &files].concat());
        assert_eq!(output.status.code(), Some(1));
        let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let found = document["profiles"].as_array().unwrap();
        assert_eq!(found.len(), profiles);
        assert!(found.iter().all(|profile| profile["packets"] == each), "{document}");
    }
}

#[test]
fn what_is_cut_or_damaged_is_profiled_up_to_there_and_said() {
    let dir = tempfile::tempdir().unwrap();
    let capture = pcap(Order::Little, 1000, Link::Ethernet, conversation().frames());
    let packets = conversation().frames().len();
    let mut damaged = capture.clone();
    damaged[24 + 8..24 + 12].fill(0xff);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::none());
    gz.write_all(&capture).unwrap();
    let gz = gz.finish().unwrap();
    for (name, bytes, found, why) in [
        ("cut", &capture[..capture.len() - 5], packets - 1, "it ends within a record"),
        ("header", &capture[..24], 0, "0 packets"),
        ("half a header", &capture[..10], 0, "it ends within a record: 10 bytes unread"),
        ("damaged", &damaged, 0, "byte 24 of the capture: a record claims 4294967295"),
        // What is compressed ends before its end.
        ("cut.gz", &gz[..gz.len() - 40], packets - 1, "after"),
    ] {
        let path = write_file(dir.path(), name, bytes);
        let output = toll(&["profile", text(&path)]);
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{name}");
        assert!(printed.contains(why), "{name}: {printed}");
        assert!(printed.contains(&format!("packets      {found}")), "{name}: {printed}");
    }
}

#[test]
fn a_page_and_a_closed_pipe_are_no_trouble() {
    let dir = tempfile::tempdir().unwrap();
    let good =
        write_file(dir.path(), "good", &pcap(Order::Little, 1000, Link::Ethernet, conversation().frames()));
    let page = dir.path().join("page.html");
    let output = toll(&["profile", text(&good), "--html", text(&page)]);
    assert!(output.status.success());
    let page = std::fs::read_to_string(page).unwrap();
    // Its script is its own, by hash, and asks for nothing.
    assert!(page.contains("default-src 'none'; script-src 'sha256-"));
    let data = toll_testkit::report_page::page_data(&page);
    assert!(data.contains(r#""title":"Packets by protocol""#) && data.contains("Packets by length: "));
    assert!(data.contains("good"));
    let nowhere = dir.path().join("no/such/page.html");
    let output = toll(&["profile", text(&good), "--html", text(&nowhere)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write"));
}
