//! Tests that many simultaneous streams do not interfere.

use super::ends::{Receiver, SyntheticStream, new_sender, wait_until};
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
