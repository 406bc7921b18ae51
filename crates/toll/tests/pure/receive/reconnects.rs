//! Tests that a stream arrives unchanged over a broken network, or at a receiver that stalls, ends or starts
//! late.

use super::ends::{CuttingProxy, Receiver, SyntheticStream, new_keys, new_sender, wait_until};
use std::sync::atomic::Ordering;
use toll_agent::capture::chunk_queue::ChunkSink;
use toll_agent::capture::stream::{SenderKey, StreamSink};
use toll_testkit::small_disk::SmallDisk;

#[test]
fn a_stream_that_breaks_ten_times_arrives_as_it_was_sent() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &[]);
    // In the handshake, in the greeting, within and between chunks.
    let after = [1, 500, 2_500, 4_000, 90_000, 300_000, 1_000_000, 150_000, 5_000, 700_000];
    let way = CuttingProxy::before(&receiver.address, &after);
    // Whoever finds out whether it is the right receiver may be cut off too.
    let key = SenderKey::read(receiver.key.as_ref()).unwrap();
    let mut stream = loop {
        match StreamSink::connect(&way.address, &key) {
            Ok(stream) => break stream,
            Err(error) => assert!(!format!("{error:#}").contains("another key"), "{error:#}"),
        }
    };
    let sent = SyntheticStream::pcapng(60, 100_000);
    sent.send(&mut stream);
    assert_eq!(way.cuts.load(Ordering::Relaxed), after.len() as u64, "every cut was made");
    let account = receiver.one_account();
    assert!(std::fs::read(&receiver.files()[0]).unwrap() == sent.whole(), "{account}");
    assert_eq!(
        (&account["items"], &account["lost"], &account["whole"]),
        (&60.into(), &0.into(), &true.into())
    );
    assert!(account["connections"].as_u64().unwrap() >= 6, "{account}");
    assert_eq!(stream.lost_items(), (0, 0));
}

#[test]
fn a_stream_whose_answers_get_lost_again_and_again_is_not_given_up_while_it_arrives() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &[]);
    // Pauses that grow to their longest would take longer than a stream waits that nobody takes.
    let way = CuttingProxy::without_answers(&receiver.address, &[450_000; 14]);
    let mut stream = new_sender(&way.address, &receiver.key);
    let sent = SyntheticStream::pcapng(60, 100_000);
    sent.send(&mut stream);
    let account = receiver.one_account();
    assert!(std::fs::read(&receiver.files()[0]).unwrap() == sent.whole(), "{account}");
    assert_eq!((&account["items"], &account["lost"]), (&60.into(), &0.into()));
    assert!(account["connections"].as_u64().unwrap() > 10, "{account}");
}

#[test]
fn a_receiver_that_reads_no_more_costs_what_there_is_no_room_for_and_both_ends_say_so() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &[]);
    let mut stream = new_sender(&receiver.address, &receiver.key).with_buffer_bytes(1_000_000);
    let sent = SyntheticStream::pcapng(40, 100_000);
    sent.begin(&mut stream);
    sent.chunks_to(&mut stream, 0..1);
    wait_until("the first is acknowledged", || stream.buffer_fill().bytes().0 == 0);
    receiver.stop();
    // None of these calls waits for anybody, or this test would not end.
    sent.chunks_to(&mut stream, 1..30);
    let (_, lost) = stream.lost_items();
    assert_eq!(lost, 20, "nine chunks of 100 kB and their heads fit into 1 MB");
    receiver.signal("CONT");
    wait_until("what was kept is acknowledged", || stream.buffer_fill().bytes().0 == 0);
    for number in 30..40 {
        sent.chunks_to(&mut stream, number..number + 1);
        wait_until("it is acknowledged", || stream.buffer_fill().bytes().0 == 0);
    }
    stream.finish(&sent.closing).unwrap();
    let account = receiver.one_account();
    let expected = [sent.part(0..10), sent.chunks[30..].concat(), sent.closing.clone()].concat();
    assert!(std::fs::read(&receiver.files()[0]).unwrap() == expected, "{account}");
    assert_eq!(
        (&account["items"], &account["lost"], &account["whole"]),
        (&20.into(), &20.into(), &true.into())
    );
    assert_eq!(stream.lost_items(), (0, 20));
}

#[test]
fn a_receiver_that_is_started_late_has_everything() {
    let lab = toll_testkit::lab!();
    let keys = new_keys(&lab);
    // Taken for a moment, so that nobody else has it.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut stream = new_sender(&address, &keys.sender);
    let sent = SyntheticStream::pcapng(5, 10_000);
    sent.begin(&mut stream);
    sent.chunks_to(&mut stream, 0..5);
    assert!(stream.buffer_fill().bytes().0 > 50_000, "it waits");
    let receiver = Receiver::start_at(&lab, &address, &keys, "captures", &[]);
    stream.finish(&sent.closing).unwrap();
    assert_eq!(receiver.one_account()["chunks_before"], 0);
    assert!(std::fs::read(&receiver.files()[0]).unwrap() == sent.whole());
}

#[test]
fn a_receiver_that_nobody_starts_is_waited_for_and_what_it_missed_is_counted_and_dated() {
    let lab = toll_testkit::lab!();
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let mut stream = new_sender(&address, &new_keys(&lab).sender);
    let sent = SyntheticStream::pcapng(5, 10_000);
    sent.begin(&mut stream);
    sent.chunks_to(&mut stream, 0..5);
    let told = format!("{:#}", stream.finish(&sent.closing).unwrap_err());
    assert_eq!(stream.lost_items(), (0, 5));
    let words = "5 packets lost, including those of the last 5 chunks, seen from 2026-01-01T00:00:00.000Z \
                 to 2026-01-01T00:00:04.000Z";
    assert!(told.contains(words) && told.contains("no receiver ("), "{told}");
}

#[test]
fn a_receiver_that_is_ended_in_order_and_another_have_each_chunk_once() {
    let lab = toll_testkit::lab!();
    let first = Receiver::start(&lab, &[]);
    let (address, keys) = (first.address.clone(), first.keys.clone());
    let mut stream = new_sender(&address, &keys.sender);
    let sent = SyntheticStream::pcapng(30, 20_000);
    sent.begin(&mut stream);
    sent.chunks_to(&mut stream, 0..10);
    wait_until("some are written", || !first.files().is_empty());
    let file = first.files().remove(0);
    let (accounts, ended) = first.end_with_accounts("TERM");
    assert_eq!((ended.code(), accounts.len()), (Some(0), 1));
    sent.chunks_to(&mut stream, 10..30);
    let second = Receiver::start_at(&lab, &address, &keys, "later", &[]);
    stream.finish(&sent.closing).unwrap();
    let later = second.one_account();
    let before = accounts[0]["chunks"].as_u64().unwrap();
    assert!((1..=10).contains(&before), "{accounts:?}");
    assert_eq!((&later["chunks_before"], &later["whole"]), (&before.into(), &true.into()), "{later}");
    let split = before as usize;
    assert!(std::fs::read(file).unwrap() == sent.part(0..split), "{accounts:?}");
    let rest = [sent.part(split..30), sent.closing.clone()].concat();
    assert!(std::fs::read(&second.files()[0]).unwrap() == rest, "{later}");
}

#[test]
fn a_full_disk_of_the_receiver_loses_nothing_once_there_is_room_again() {
    let lab = toll_testkit::lab!();
    let Some(disk) = SmallDisk::mount(lab.path("captures"), "1m") else { return };
    let receiver = Receiver::start(&lab, &[]);
    let mut stream = new_sender(&receiver.address, &receiver.key);
    let sent = SyntheticStream::pcapng(20, 100_000);
    sent.begin(&mut stream);
    sent.chunks_to(&mut stream, 0..20);
    wait_until("the disk is full", || receiver.words().contains("No space left on device"));
    // What fits is whole.
    let written = std::fs::read(&receiver.files()[0]).unwrap();
    let chunks = written.len() / 100_000;
    assert!((5..=10).contains(&chunks), "{}", written.len());
    assert!(written == sent.part(0..chunks), "{} bytes", written.len());
    disk.resize("16m");
    stream.finish(&sent.closing).unwrap();
    assert_eq!(receiver.one_account()["items"], 20);
    assert!(std::fs::read(&receiver.files()[0]).unwrap() == sent.whole());
    assert_eq!(stream.lost_items(), (0, 0));
    drop(receiver);
}
