//! Tests of streaming under failures of the network, the sender, the receiver and its disk.
//!
//! The receiver is the program, the sender is the library's. Tests that need root are skipped visibly without
//! it.

mod concurrent;
#[allow(dead_code, reason = "the tests of `system` use the rest")]
mod ends;
mod keys;
mod malformed;
mod reconnects;
mod tabled;
mod units;

use crate::lab::output_text;
use ends::{Receiver, SyntheticStream, new_sender};
use std::os::unix::fs::PermissionsExt;
use toll_agent::capture::chunk_queue::ChunkSink;

#[test]
fn what_is_sent_is_what_is_written_and_nobody_else_may_read_it() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &[]);
    let mut stream = new_sender(&receiver.address, &receiver.key);
    let sent = SyntheticStream::pcapng(20, 50_000);
    sent.send(&mut stream);
    let account = receiver.one_account();
    let files = receiver.files();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(std::fs::read(&files[0]).unwrap(), sent.whole());
    assert_eq!(std::fs::metadata(&files[0]).unwrap().permissions().mode() & 0o777, 0o600);
    let name = files[0].file_name().unwrap().to_str().unwrap();
    assert!(name.ends_with(".pcapng") && name.contains("-20"), "{name}");
    assert_eq!(
        (&account["items"], &account["lost"], &account["whole"]),
        (&20.into(), &0.into(), &true.into())
    );
    assert_eq!(account["written_bytes"].as_u64(), Some(sent.whole().len() as u64));
    assert_eq!(account["connections"], 1);
    // Of bytes that nothing makes smaller, a chunk is as long as it was, and numbers before it.
    let received = account["received_bytes"].as_u64().unwrap();
    assert!((1_000_000..1_010_000).contains(&received), "{received}");
    let ended = receiver.end("TERM");
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn what_is_streamed_can_be_piped_on() {
    let lab = toll_testkit::lab!();
    let keys = ends::new_keys(&lab);
    let args = ["receive", "--listen", "127.0.0.1:0", "--key", &keys.receiver, "--once", "-w", "-"];
    let (output, words) = (lab.path("output"), lab.path("words"));
    let mut child = lab.spawn_into(&args, &output, &words);
    let mut stream = new_sender(&ends::parse_address(&words), &keys.sender);
    let sent = SyntheticStream::queries(5, 3_000);
    sent.send(&mut stream);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read(output).unwrap(), sent.whole());
    let words = std::fs::read_to_string(words).unwrap();
    assert!(words.contains("5 events in 5 chunks") && words.contains("nothing lost on the way"), "{words}");
}

/// As at the end of an arm: both ends are stopped at once, and the sender still has data.
#[test]
fn a_receiver_of_one_stream_that_is_asked_to_end_lets_the_stream_come_to_its_end() {
    let lab = toll_testkit::lab!();
    let (keys, file, words) = (ends::new_keys(&lab), lab.path("one.pcapng"), lab.path("words"));
    let args = ["receive", "--listen", "127.0.0.1:0", "--key", &keys.receiver, "--once", "-w", &file];
    let mut child = lab.spawn_with_stderr(&args, &words);
    let mut stream = new_sender(&ends::parse_address(&words), &keys.sender);
    let sent = SyntheticStream::pcapng(6, 10_000);
    sent.begin(&mut stream);
    sent.chunks_to(&mut stream, 0..3);
    ends::wait_until("it has begun", || stream.buffer_fill().bytes().0 == 0);
    lab.signal(&child, "TERM");
    let said = || std::fs::read_to_string(&words).unwrap();
    ends::wait_until("it was heard", || said().contains("the stream has 5 s to come to its end"));
    sent.chunks_to(&mut stream, 3..6);
    stream.finish(&sent.closing).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(std::fs::read(&file).unwrap() == sent.whole());
}

#[test]
fn what_is_received_is_in_the_tables_once_though_the_receiver_is_killed() {
    tabled::assert_once_over_kills(&toll_testkit::lab!(), 8);
}

#[test]
fn two_receivers_cannot_make_tables_of_one_directory() {
    let lab = toll_testkit::lab!();
    let tables = lab.path("tables");
    std::fs::create_dir(&tables).unwrap();
    let first = Receiver::start(&lab, &["--rotate", "1m", "--parquet", &tables]);
    let key = &first.keys.receiver;
    let listen = ["receive", "--listen", "127.0.0.1:0", "--key", key, "-w", &first.dir];
    let refused = lab.toll(&[&listen[..], &["--rotate", "1m", "--parquet", &tables]].concat());
    assert_eq!(refused.status.code(), Some(1));
    assert!(output_text(&refused).contains("needs a directory of its own"), "{}", output_text(&refused));
    assert_eq!(first.end("TERM").code(), Some(0));
}

#[test]
fn a_receiver_of_tables_takes_no_packets_and_what_a_quiet_sender_said_last_is_in_them() {
    let lab = toll_testkit::lab!();
    let tables = lab.path("tables");
    std::fs::create_dir(&tables).unwrap();
    let receiver = Receiver::start(&lab, &["--rotate", "1s", "--parquet", &tables]);
    let mut packets = new_sender(&receiver.address, &receiver.key);
    SyntheticStream::pcapng(1, 100).begin(&mut packets);
    ends::wait_until("packets are refused", || {
        receiver.words().contains("start the capture with --stream-queries")
    });
    let mut sender = tabled::QuerySender::start(&receiver.address, &receiver.key, 1);
    sender.send_chunk();
    let sums = || tabled::sums(tables.as_ref()).get("db1").copied().unwrap_or_default();
    ends::wait_until("its queries are in the tables", || sums().0 == tabled::CHUNK_EVENTS as i64);
    assert!(receiver.accounts().is_empty(), "its stream goes on");
}

#[test]
fn a_stream_of_nothing_is_a_file_of_nothing() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &[]);
    let mut stream = new_sender(&receiver.address, &receiver.key);
    let sent = SyntheticStream::pcapng(0, 0);
    sent.send(&mut stream);
    assert_eq!(receiver.one_account()["whole"], true);
    assert_eq!(std::fs::read(&receiver.files()[0]).unwrap(), sent.whole());
}

#[test]
fn wrong_words_are_refused_with_what_to_say_instead() {
    let lab = toll_testkit::lab!();
    let ends::Keys { receiver: key, sender } = ends::new_keys(&lab);
    let file = lab.write("there", "precious");
    let listen = ["--listen", "127.0.0.1:0"];
    let cases: [(&[&str], i32, &str); 14] = [
        (&[], 2, "keygen receiver.key"),
        (&["-w", "x", "--plain"], 2, "--listen"),
        (&["--listen", "127.0.0.1:0", "--plain"], 2, "-w"),
        (&["-w", "x", listen[0], listen[1]], 1, "set --key FILE"),
        (&["-w", "x", listen[0], listen[1], "--key", &key, "--plain"], 2, "cannot be used with"),
        (&["-w", "x", listen[0], listen[1], "--key", "nothere"], 1, "keygen FILE` makes one"),
        (&["-w", "x", listen[0], listen[1], "--key", &sender], 1, "is a sender's key"),
        (&["keygen"], 2, "FILE"),
        (&["keygen", &sender, "--receiver", &key], 1, "has a sender db1 already"),
        (&["-w", "x", "--listen", "here", "--plain"], 1, "write it as ADDRESS:PORT"),
        (&["-w", &file, listen[0], listen[1], "--plain", "--once"], 1, "exists. Choose another file."),
        (&["-w", &file, listen[0], listen[1], "--plain"], 1, "cannot create"),
        (&["-w", "-", listen[0], listen[1], "--plain"], 1, "--once"),
        (&["-w", "x", listen[0], listen[1], "--plain", "--rotate", "fast"], 2, "write"),
    ];
    for (args, code, told) in cases {
        let output = lab.toll(&[&["receive"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", output_text(&output));
        assert!(output_text(&output).contains(told), "{args:?}: {}", output_text(&output));
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    let again = lab.toll(&["receive", "keygen", &key]);
    assert_eq!(again.status.code(), Some(1), "a key is never written over: {}", output_text(&again));
    let full = lab.toll(&["receive", "keygen", "/dev/full/key"]);
    assert!(output_text(&full).contains("cannot make the key file"), "{}", output_text(&full));
}

#[test]
fn a_capture_never_streams_without_being_told_how_nor_captures_its_own_stream() {
    let lab = toll_testkit::lab!();
    let cases: [(&[&str], i32, &str); 3] = [
        (&["--stream", "localhost:3399"], 1, "takes --key FILE"),
        (&["--stream", "localhost:3399", "--key", "nothere"], 1, "keygen FILE --receiver KEY` makes one"),
        (
            &["--stream", "localhost:3399", "--plain", "--port", "3306,3399"],
            1,
            "have the receiver listen on another",
        ),
    ];
    for (args, code, told) in cases {
        let output = lab.toll(&[&["capture"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", output_text(&output));
        assert!(output_text(&output).contains(told), "{args:?}: {}", output_text(&output));
    }
}

/// A sender that is killed, or a receiver that is stopped, leaves a readable file.
#[test]
fn a_stream_that_is_broken_off_leaves_a_file_of_whole_packets() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &[]);
    let mut stream = new_sender(&receiver.address, &receiver.key);
    let sent = SyntheticStream::pcapng(7, 10_000);
    sent.begin(&mut stream);
    sent.chunks_to(&mut stream, 0..7);
    ends::wait_until("all is acknowledged", || stream.buffer_fill().bytes().0 == 0);
    drop(stream);
    let file = receiver.files().remove(0);
    let (accounts, ended) = receiver.end_with_accounts("INT");
    assert_eq!(ended.code(), Some(0));
    assert_eq!(accounts.len(), 1);
    assert_eq!((&accounts[0]["items"], &accounts[0]["whole"]), (&7.into(), &false.into()));
    assert_eq!(std::fs::read(file).unwrap(), sent.part(0..7));
}

#[test]
fn files_are_rotated_and_each_is_whole() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &["--rotate", "25K", "--keep", "3"]);
    let mut stream = new_sender(&receiver.address, &receiver.key);
    let sent = SyntheticStream::pcapng(9, 10_000);
    sent.send(&mut stream);
    let account = receiver.one_account();
    assert_eq!((&account["items"], &account["whole"]), (&9.into(), &true.into()));
    let files = receiver.files();
    let listed: Vec<_> =
        account["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert_eq!(files.iter().map(|file| file.to_str().unwrap()).collect::<Vec<_>>(), listed);
    // Two chunks a file: 0-1, 2-3, 4-5, 6-7, 8; the newest three are kept.
    let read: Vec<_> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    let last = [sent.part(8..9), sent.closing.clone()].concat();
    assert!(read == [sent.part(4..6), sent.part(6..8), last], "{files:?}");
}
