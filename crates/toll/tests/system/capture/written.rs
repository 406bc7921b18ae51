//! Tests of a capture's files, whenever and however it ends.

use super::live::{
    Dir, EndedCapture, LiveCapture, Packet, free_port, lacks, lacks_root, payloads_to, program_output, read,
    send_query,
};
use std::os::unix::fs::MetadataExt;

#[test]
fn whatever_ends_it_leaves_a_whole_file() {
    if lacks_root() {
        return;
    }
    let port = free_port("127.0.0.1");
    let ended_by = |end: fn(LiveCapture) -> EndedCapture, options: &[&str]| {
        let dir = Dir::new();
        let file = dir.path("a.pcapng");
        let capture =
            LiveCapture::start(&[&["-w", &file, "--port", &port.to_string()][..], options].concat());
        send_query(port, &[b'q'; 100_000]);
        let captured = end(capture).assert_whole();
        let (packets, dropped) = read(&file);
        assert_eq!((packets.len() as u64, dropped), (captured, Some(0)));
        let segments: Vec<_> = packets.iter().map(Packet::segment).collect();
        assert!(payloads_to(port, &segments) == [vec![b'q'; 100_000]]);
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    };
    let by: [fn(LiveCapture) -> EndedCapture; 3] = [
        LiveCapture::end,
        |live| {
            live.signal("TERM");
            live.wait()
        },
        |live| {
            live.signal("HUP");
            live.wait()
        },
    ];
    for end in by {
        ended_by(end, &[]);
    }
    ended_by(LiveCapture::wait, &["--duration", "5s"]);
}

#[test]
fn asked_by_signal_it_says_how_far_it_is_and_goes_on() {
    if lacks_root() {
        return;
    }
    let dir = Dir::new();
    let (file, port) = (dir.path("a.pcapng"), free_port("127.0.0.1"));
    let mut capture = LiveCapture::start(&["-w", &file, "--port", &port.to_string()]);
    capture.signal("USR1");
    capture.wait_for_output("packets captured, 0 packets received by filter, 0 packets dropped by kernel");
    send_query(port, b"question");
    assert!(capture.end().assert_whole() > 0);
}

#[test]
fn every_second_it_says_how_far_it_is_where_that_is_asked() {
    if lacks_root() {
        return;
    }
    let dir = Dir::new();
    let capture =
        LiveCapture::start(&["-w", &dir.path("a.pcapng"), "--port", "1", "--status", "--duration", "2500ms"]);
    let ended = capture.wait();
    ended.assert_whole();
    let last: Vec<bool> = ended.ledgers.iter().map(|ledger| ledger["ended"] == true).collect();
    assert!(last.len() >= 2 && last[..last.len() - 1].iter().all(|ended| !ended), "{last:?}");
}

#[test]
fn each_of_several_files_can_be_read_alone_and_the_oldest_go() {
    if lacks_root() {
        return;
    }
    let dir = Dir::new();
    let (name, port) = (dir.path("q.pcapng"), free_port("127.0.0.1"));
    let port_text = port.to_string();
    let arguments = ["-w", &name, "--port", &port_text, "--rotate", "3M,1h"];
    for keep in [None, Some(2)] {
        let kept = keep.map(|keep: usize| keep.to_string());
        let mut arguments = arguments.to_vec();
        if let Some(kept) = &kept {
            arguments.extend(["--keep", kept]);
        }
        let capture = LiveCapture::start(&arguments);
        for _ in 0..12 {
            send_query(port, &vec![b'q'; 1 << 20]);
        }
        let captured = capture.end().assert_whole();
        let files = dir.files();
        let mut found = 0;
        for file in &files {
            let (packets, dropped) = read(file);
            assert_eq!(dropped, Some(0), "{}", file.display());
            assert!(
                !packets.is_empty() && std::fs::metadata(file).unwrap().len() <= 3 << 20,
                "{}",
                file.display()
            );
            assert_eq!(std::fs::metadata(file).unwrap().mode() & 0o777, 0o600);
            found += packets.len() as u64;
            for (program, arguments) in [("tcpdump", &["-nn", "-r"][..]), ("capinfos", &[])] {
                if !lacks(program) {
                    program_output(program, &[arguments, &[file.to_str().unwrap()]].concat());
                }
            }
        }
        match keep {
            None => assert!(files.len() >= 4 && found == captured, "{files:?}: {found} of {captured}"),
            Some(keep) => {
                assert!(files.len() == keep && found < captured, "{files:?}: {found} of {captured}")
            }
        }
        for file in files {
            std::fs::remove_file(file).unwrap();
        }
    }
}

#[test]
fn files_end_by_time_too() {
    if lacks_root() {
        return;
    }
    let dir = Dir::new();
    let port = free_port("127.0.0.1");
    let capture =
        LiveCapture::start(&["-w", &dir.path("q.pcapng"), "--port", &port.to_string(), "--rotate", "300ms"]);
    let mut files = Vec::new();
    while files.len() < 3 {
        send_query(port, b"question");
        files = dir.files();
    }
    let captured = capture.end().assert_whole();
    let found: usize = dir.files().iter().map(|file| read(file).0.len()).sum();
    assert_eq!(found as u64, captured);
}

#[test]
fn standard_output_takes_a_capture_that_toll_digest_reads() {
    if lacks_root() {
        return;
    }
    let port = free_port("127.0.0.1");
    let mut child = super::live::command(&[], &["-w", "-", "--port", &port.to_string()])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut words = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("listening on") {
        line.clear();
        assert!(std::io::BufRead::read_line(&mut words, &mut line).unwrap() > 0);
    }
    send_query(port, b"question");
    assert!(
        std::process::Command::new("kill")
            .args(["-INT", &child.id().to_string()])
            .status()
            .unwrap()
            .success()
    );
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let (packets, dropped) = super::live::packets_in(&output.stdout);
    assert!(packets.len() >= 4 && dropped == Some(0), "{packets:?}");
}
