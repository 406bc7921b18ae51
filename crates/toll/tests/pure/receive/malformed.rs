//! Tests that a malicious peer is refused with a message, while the other streams continue.

use super::ends::{Receiver, SyntheticStream, new_keys, new_sender, wait_until};
use crate::lab::Lab;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Child;
use toll_agent::capture::chunk_queue::ChunkSink;
use toll_agent::capture::stream::{SenderKey, StreamSink};
use toll_wire::stream_protocol::{self, Chunk, End, Hello, MAX_CHUNK, MAX_PAYLOAD, Message, StreamContent};

#[test]
fn strangers_are_refused_and_those_who_belong_go_on() {
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &[]);
    let mut stream = new_sender(&receiver.address, &receiver.key);
    let sent = SyntheticStream::pcapng(10, 10_000);
    sent.begin(&mut stream);
    sent.chunks_to(&mut stream, 0..5);

    // Another receiver's sender: both ends say so, and nothing is captured for nothing.
    let elsewhere = toll_testkit::lab!();
    let other = SenderKey::read(Path::new(&new_keys(&elsewhere).sender)).unwrap();
    let refused = StreamSink::connect(&receiver.address, &other).err().unwrap();
    assert!(format!("{refused:#}").contains("the receiver has another key"), "{refused:#}");
    wait_until("the receiver says so", || {
        receiver.words().contains("refused: its key was made for another receiver")
    });
    // No key at all, and no toll at all.
    let mut plain = StreamSink::connect(&receiver.address, &SenderKey::Plain).unwrap();
    plain.begin(&sent.opening).unwrap();
    for garbage in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], &[0xff; 100_000], b"\x16\x03\x01\xff\xff", b""]
    {
        let mut tcp = TcpStream::connect(&receiver.address).unwrap();
        let _ = tcp.write_all(garbage);
        let _ = tcp.shutdown(std::net::Shutdown::Write);
        // Whatever it answers, it hangs up.
        let _ = tcp.read_to_end(&mut Vec::new());
    }
    // Some who say nothing, and hold on.
    let silent: Vec<_> = (0..20).map(|_| TcpStream::connect(&receiver.address).unwrap()).collect();
    wait_until("those without TLS are told", || {
        receiver.words().contains("the other end does not speak TLS")
    });

    sent.chunks_to(&mut stream, 5..10);
    stream.finish(&sent.closing).unwrap();
    let account = receiver.one_account();
    assert!(std::fs::read(&receiver.files()[0]).unwrap() == sent.whole(), "{account}");
    assert_eq!(account["connections"], 1, "{account}");
    assert_eq!(receiver.files().len(), 1, "strangers have no file");
    drop((silent, plain));
}

#[test]
fn strangers_who_take_all_they_can_keep_no_sender_out_and_fill_no_log() {
    const MANY: usize = 250;
    let lab = toll_testkit::lab!();
    let receiver = Receiver::start(&lab, &[]);
    // More than there are places, and they say nothing.
    let silent: Vec<_> = (0..MANY).map(|_| TcpStream::connect(&receiver.address).unwrap()).collect();
    let mut stream = new_sender(&receiver.address, &receiver.key);
    let sent = SyntheticStream::pcapng(10, 10_000);
    sent.begin(&mut stream);
    sent.chunks_to(&mut stream, 0..5);
    wait_until("the sender is heard", || stream.buffer_fill().bytes().0 == 0);
    for _ in 0..MANY {
        let mut tcp = TcpStream::connect(&receiver.address).unwrap();
        let _ = tcp.write_all(b"GET / HTTP/1.1\r\n\r\n");
        let _ = tcp.read_to_end(&mut Vec::new());
    }
    sent.chunks_to(&mut stream, 5..10);
    stream.finish(&sent.closing).unwrap();
    let account = receiver.one_account();
    assert_eq!((&account["items"], &account["connections"]), (&10.into(), &1.into()), "{account}");
    drop(silent);
    let words = receiver.words.clone();
    receiver.end("TERM");
    let words = std::fs::read_to_string(words).unwrap();
    let lines = words.lines().filter(|line| line.contains("127.0.0.1:")).count();
    // Ten a minute, in what may be two minutes on a busy host, and the line that says where it listens.
    assert!((11..=21).contains(&lines), "{lines} lines: {words}");
    assert!(words.contains("more ended like these"), "{words}");
}

/// A receiver without a key, and its output.
struct PlainReceiver {
    child: Child,
    address: String,
    dir: String,
}

impl PlainReceiver {
    fn start(lab: &Lab) -> Self {
        let (dir, words) = (lab.path("captures"), lab.path("words"));
        let args = ["receive", "--listen", "127.0.0.1:0", "--plain", "-w", &dir];
        let child = lab.spawn_with_stderr(&args, &words);
        Self { child, address: super::ends::parse_address(&words), dir }
    }

    /// Answers to these messages, in order, until the receiver hangs up or has sent that many.
    fn answers(&self, said: &[Vec<u8>], most: usize) -> Vec<String> {
        let mut tcp = TcpStream::connect(&self.address).unwrap();
        // It may hang up before all is said.
        let _ = tcp.write_all(&said.concat());
        let (mut got, mut answers, mut some) = (Vec::new(), Vec::new(), [0; 4_096]);
        while answers.len() < most {
            while let Some(length) = stream_protocol::message_length(&got, MAX_PAYLOAD)
                .unwrap()
                .filter(|whole| *whole <= got.len())
            {
                answers.push(format!("{:?}", stream_protocol::parse_message(&got[..length]).unwrap()));
                got.drain(..length);
            }
            match tcp.read(&mut some) {
                Ok(0) | Err(_) => break,
                Ok(read) => got.extend_from_slice(&some[..read]),
            }
        }
        answers
    }
}

impl Drop for PlainReceiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn encode_message(message: Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode_into(&mut bytes);
    bytes
}

fn hello(stream: u8, host: &str) -> Vec<u8> {
    let hello = Hello {
        stream: [stream; 16],
        content: StreamContent::Queries,
        begun_ns: 1,
        first: 0,
        host,
        file_header: b"opening",
    };
    encode_message(Message::Hello(hello))
}

fn chunk(number: u64, plain: usize, frame: &[u8]) -> Vec<u8> {
    let plain = plain as u32;
    encode_message(Message::Chunk(Chunk {
        number,
        items: 1,
        first_ns: 1,
        last_ns: 1,
        lost: 0,
        plain_len: plain,
        frame,
    }))
}

#[test]
fn those_who_lie_in_messages_are_told_what_was_wrong_with_them() {
    let lab = toll_testkit::lab!();
    let receiver = PlainReceiver::start(&lab);
    let frame = zstd::bulk::compress(b"items", 1).unwrap();
    let bomb = zstd::bulk::compress(&vec![0; MAX_CHUNK * 4], 1).unwrap();
    let end = |chunks| encode_message(Message::End(End { chunks, items: 0, lost: 0, file_footer: b"" }));
    let mut another = hello(9, "h");
    another[9] = 7;
    let mut huge = chunk(0, 5, &frame);
    huge[1..5].fill(0xff);
    let cases: [(Vec<Vec<u8>>, &str); 12] = [
        (vec![b"GET / HTTP/1.1\r\n\r\n".to_vec()], "is not a message type"),
        (vec![b"HEAD / HTTP/1.1\r\n\r\n".to_vec()], "the maximum is"),
        (vec![another], "the peer uses stream version 7, this toll 1"),
        (vec![chunk(0, 5, &frame)], "no hello message"),
        (vec![hello(1, "h"), hello(1, "h")], "unexpected message from the sender"),
        (vec![hello(2, "h"), chunk(1, 5, &frame)], "chunk 1 came where 0 was due"),
        (vec![hello(3, "h"), chunk(0, 4, &frame)], "no zstd frame of 4 bytes"),
        (vec![hello(4, "h"), chunk(0, MAX_CHUNK, &bomb)], "no zstd frame of 8388608 bytes"),
        (vec![hello(5, "h"), chunk(0, MAX_CHUNK + 1, &bomb)], "8388609 bytes: the maximum is 8388608"),
        (vec![hello(6, "h"), huge], "4294967295 bytes: the maximum is"),
        (vec![hello(7, "h"), end(1)], "the end was said after 0 chunks of 1"),
        (vec![hello(8, "h"), encode_message(Message::Done)], "unexpected message from the sender"),
    ];
    for (said, told) in &cases {
        let answers = receiver.answers(said, usize::MAX);
        let last = answers.last().unwrap_or_else(|| panic!("{told}: no answer"));
        assert!(last.starts_with("Refused") && last.contains(told), "{told}: {answers:?}");
    }
    // One who belongs is served all the same, and a name that leads elsewhere leads nowhere.
    let good = [hello(10, "../../x\u{1b}[2J/\u{e4}"), chunk(0, 5, &frame), chunk(0, 5, &frame), end(1)];
    let expected = ["Welcome { next: 0 }", "Acknowledged { below: 1 }", "Acknowledged { below: 1 }", "Done"];
    assert_eq!(receiver.answers(&good, 4), expected);
    let files: Vec<_> =
        std::fs::read_dir(&receiver.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["_.._x__2J__-19700101-000000.queries"], "nothing is written for those who lie");
    assert_eq!(std::fs::read(Path::new(&receiver.dir).join(&files[0])).unwrap(), b"openingitems");
    // Its sender did not hear that it was done, and asks again.
    assert_eq!(
        receiver.answers(&[hello(10, "../../x\u{1b}[2J/\u{e4}"), end(1)], 2),
        ["Welcome { next: 1 }", "Done"]
    );
}

#[test]
fn a_sender_that_expects_a_key_is_told_by_a_receiver_that_has_none() {
    let lab = toll_testkit::lab!();
    let receiver = PlainReceiver::start(&lab);
    let key = SenderKey::read(Path::new(&new_keys(&lab).sender)).unwrap();
    let refused = StreamSink::connect(&receiver.address, &key).err().unwrap();
    assert!(format!("{refused:#}").contains("is it started with --plain"), "{refused:#}");
}

#[test]
fn a_stream_in_the_clear_arrives_too() {
    let lab = toll_testkit::lab!();
    let receiver = PlainReceiver::start(&lab);
    let mut stream = StreamSink::connect(&receiver.address, &SenderKey::Plain).unwrap();
    let sent = SyntheticStream::queries(8, 20_000);
    sent.send(&mut stream);
    let file = std::fs::read_dir(&receiver.dir).unwrap().next().unwrap().unwrap().path();
    assert!(std::fs::read(file).unwrap() == sent.whole());
}

#[test]
fn there_is_nobody_of_this_name() {
    let lab = toll_testkit::lab!();
    let key = SenderKey::read(Path::new(&new_keys(&lab).sender)).unwrap();
    for wrong in ["nowhere.invalid:1", "localhost", "localhost:x"] {
        let refused = format!("{:#}", StreamSink::connect(wrong, &key).err().unwrap());
        assert!(refused.contains("HOST:PORT") && refused.contains(wrong), "{refused}");
    }
}
