//! Tests that many simultaneous streams do not interfere.

use super::ends::{Receiver, SyntheticStream, new_keys, new_sender, new_sender_key, wait_until};
use std::collections::BTreeSet;
use toll_agent::capture::chunk_queue::ChunkSink;

#[test]
fn many_senders_at_once_have_files_of_their_own() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &[]);
    let all: Vec<_> = (1..=6).map(|seed| SyntheticStream::pcapng_of(seed, 20, 20_000)).collect();
    std::thread::scope(|scope| {
        for sent in &all {
            scope.spawn(|| sent.send(&mut new_sender(&receiver.address, &receiver.key)));
        }
    });
    wait_until("all have ended", || receiver.accounts().len() == 6);
    let written: BTreeSet<_> = receiver.files().iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(written == all.iter().map(SyntheticStream::whole).collect(), "{:?}", receiver.files());
    for account in receiver.accounts() {
        assert_eq!((&account["items"], &account["whole"]), (&20.into(), &true.into()), "{account}");
        assert_eq!(account["files"].as_array().unwrap().len(), 1, "{account}");
    }
}

#[test]
fn one_stream_too_many_waits_until_there_is_room_for_it() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &["--streams", "1"]);
    let (one, another) = (SyntheticStream::pcapng_of(1, 4, 10_000), SyntheticStream::pcapng_of(2, 4, 10_000));
    let mut first = new_sender(&receiver.address, &receiver.key);
    one.begin(&mut first);
    one.chunks_to(&mut first, 0..4);
    wait_until("the first has begun", || first.buffer_fill().bytes().0 == 0);
    let mut second = new_sender(&receiver.address, &receiver.key);
    another.begin(&mut second);
    another.chunks_to(&mut second, 0..4);
    wait_until("the second is refused", || receiver.words().contains("has its maximum of 1 stream at once"));
    first.finish(&one.closing).unwrap();
    second.finish(&another.closing).unwrap();
    wait_until("both have ended", || receiver.accounts().len() == 2);
    let written: Vec<_> = receiver.files().iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(written.contains(&one.whole()) && written.contains(&another.whole()) && written.len() == 2);
}

/// Whoever broke into one sender may not keep the others out.
#[test]
fn a_sender_has_at_most_a_quarter_of_the_streams_and_leaves_room_for_others() {
    let lab = toll_testkit::lab!();
    let keys = new_keys(&lab);
    let other = new_sender_key(&lab, &keys.receiver, "db2");
    let receiver = Receiver::start_at(&lab, "127.0.0.1:0", &keys, "captures", &["--streams", "8"]);
    let begin = |key: &str, seed: u64| {
        let (sent, mut stream) =
            (SyntheticStream::pcapng_of(seed, 4, 1_000), new_sender(&receiver.address, key));
        sent.begin(&mut stream);
        sent.chunks_to(&mut stream, 0..4);
        (sent, stream)
    };
    let mut two: Vec<_> = (1..=2).map(|seed| begin(&keys.sender, seed)).collect();
    wait_until("both have begun", || two.iter().all(|(_, stream)| stream.buffer_fill().bytes().0 == 0));
    let (third, mut waiting) = begin(&keys.sender, 3);
    wait_until("the third is refused", || {
        receiver.words().contains("a sender has at most 2 streams at once")
    });
    let (fourth, mut of_other) = begin(&other, 4);
    of_other.finish(&fourth.closing).unwrap();
    // A stream of its own that is over, or whose connection broke, makes room.
    drop(two.remove(0));
    waiting.finish(&third.closing).unwrap();
    wait_until("three have ended", || receiver.accounts().len() == 3);
    let whole = receiver.accounts().iter().filter(|account| account["whole"] == true).count();
    assert_eq!(whole, 2, "{:?}", receiver.accounts());
}

#[test]
fn a_stream_whose_sender_left_makes_room_for_another() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &["--streams", "1"]);
    let (one, another) = (SyntheticStream::pcapng_of(1, 4, 10_000), SyntheticStream::pcapng_of(2, 4, 10_000));
    let mut first = new_sender(&receiver.address, &receiver.key);
    one.begin(&mut first);
    one.chunks_to(&mut first, 0..4);
    wait_until("the first has begun", || first.buffer_fill().bytes().0 == 0);
    drop(first);
    wait_until("it has left", || {
        receiver.words().contains("it closed the connection before the end of the stream")
    });
    another.send(&mut new_sender(&receiver.address, &receiver.key));
    wait_until("both have ended", || receiver.accounts().len() == 2);
    let accounts = receiver.accounts();
    assert_eq!((&accounts[0]["whole"], &accounts[1]["whole"]), (&false.into(), &true.into()), "{accounts:?}");
    let read = |at: usize| std::fs::read(accounts[at]["files"][0].as_str().unwrap()).unwrap();
    assert!(read(0) == one.part(0..4) && read(1) == another.whole());
}
