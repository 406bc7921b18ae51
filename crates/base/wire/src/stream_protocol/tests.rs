//! Round-trip and rejection tests of the streaming protocol.

use super::*;
use proptest::prelude::*;

/// One message of each kind, the longest words included.
fn every_message() -> Vec<Message<'static>> {
    const HOST: &str = "web-1.example.com";
    let hello = Hello {
        stream: [7; 16],
        content: StreamContent::Pcapng,
        begun_ns: 1_700_000_000_123_456_789,
        first: 5,
        host: HOST,
        file_header: b"section, interfaces",
    };
    let chunk = Chunk {
        number: u64::MAX,
        items: 3,
        first_ns: 1,
        last_ns: 2,
        lost: 4,
        plain_len: MAX_CHUNK as u32,
        frame: b"(zstd)",
    };
    vec![
        Message::Hello(hello),
        Message::Hello(Hello { content: StreamContent::Queries, host: "", file_header: b"", ..hello }),
        Message::Chunk(chunk),
        Message::Chunk(Chunk { frame: b"", plain_len: 0, ..chunk }),
        Message::KeepAlive,
        Message::End(End { chunks: 9, items: 27, lost: 1, file_footer: b"statistics" }),
        Message::Welcome { next: 5 },
        Message::Acknowledged { below: 6 },
        Message::Refused { why: "no room left" },
        Message::Done,
    ]
}

fn encode(message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.encode_into(&mut bytes);
    bytes
}

#[test]
fn what_is_said_is_what_is_heard_one_after_the_other() {
    let mut line = Vec::new();
    for message in every_message() {
        message.encode_into(&mut line);
    }
    let mut rest = line.as_slice();
    for message in every_message() {
        let length = message_length(rest, MAX_PAYLOAD).unwrap().unwrap();
        assert_eq!(parse_message(&rest[..length]).unwrap(), message);
        rest = &rest[length..];
    }
    assert!(rest.is_empty());
}

#[test]
fn a_message_that_is_cut_short_is_waited_for_and_never_taken_for_whole() {
    for message in every_message() {
        let whole = encode(&message);
        for cut in 0..whole.len() {
            let found = message_length(&whole[..cut], MAX_PAYLOAD).unwrap();
            assert!(found.is_none_or(|length| length == whole.len()), "{message:?} at {cut}");
        }
        // A payload with a byte less, and a length that says so. What ends in free bytes is then another.
        if whole.len() > MESSAGE_HEADER {
            let mut less = whole[..whole.len() - 1].to_vec();
            let said = (less.len() - MESSAGE_HEADER) as u32;
            less[1..MESSAGE_HEADER].copy_from_slice(&said.to_le_bytes());
            assert_ne!(parse_message(&less), Ok(message));
        }
    }
}

#[test]
fn strangers_and_huge_lengths_are_refused_before_anything_is_kept_for_them() {
    for stranger in [&b"GET / HTTP/1.1\r\n"[..], b"\x16\x03\x01\x02\x00", b"\0\0\0\0\0"] {
        let broken = message_length(stranger, MAX_PAYLOAD).unwrap_err();
        assert_eq!(broken, MessageError::UnknownKind(stranger[0]));
        assert!(broken.to_string().contains("is not a message type"), "{broken}");
    }
    // Words that begin with the letter of a kind.
    for stranger in [&b"HEAD / HTTP/1.1"[..], b"SSH-2.0-OpenSSH"] {
        assert!(matches!(message_length(stranger, MAX_PAYLOAD), Err(MessageError::TooLong { .. })));
    }
    let long = [b'C', 1, 0, 2, 0];
    assert_eq!(message_length(&long, MAX_PAYLOAD), Ok(Some(MESSAGE_HEADER + 0x2_0001)));
    assert!(matches!(message_length(&long, MAX_HELLO), Err(MessageError::TooLong { length: 0x2_0001, .. })));
    let inflated =
        Chunk { number: 0, items: 0, first_ns: 0, last_ns: 0, lost: 0, plain_len: u32::MAX, frame: b"" };
    assert!(matches!(parse_message(&encode(&Message::Chunk(inflated))), Err(MessageError::TooLong { .. })));
}

#[test]
fn another_version_is_named() {
    let mut hello = encode(&every_message()[0]);
    hello[MESSAGE_HEADER + MAGIC.len()] = 2;
    assert_eq!(parse_message(&hello), Err(MessageError::UnsupportedVersion(2)));
    hello[MESSAGE_HEADER] = b'T';
    assert_eq!(parse_message(&hello), Err(MessageError::InvalidContent(b'H')));
}

#[test]
fn a_host_with_a_long_name_is_cut_between_two_letters() {
    let host = "ü".repeat(200);
    let Message::Hello(hello) = every_message()[0] else { panic!("the first is a greeting") };
    let bytes = encode(&Message::Hello(Hello { host: &host, ..hello }));
    let Message::Hello(heard) = parse_message(&bytes).unwrap() else { panic!("a greeting") };
    assert_eq!((heard.host, heard.file_header), (&host[..254], hello.file_header));
}

proptest! {
    #[test]
    fn any_chunk_is_heard_as_it_was_said(
        numbers: [u64; 5],
        plain_len in 0..=MAX_CHUNK as u32,
        frame in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let [number, items, first_ns, last_ns, lost] = numbers;
        let chunk = Message::Chunk(Chunk { number, items, first_ns, last_ns, lost, plain_len, frame: &frame });
        let bytes = encode(&chunk);
        prop_assert_eq!(message_length(&bytes, MAX_PAYLOAD), Ok(Some(bytes.len())));
        prop_assert_eq!(parse_message(&bytes), Ok(chunk));
    }

    #[test]
    fn whatever_is_taken_for_a_message_is_one(
        kind in prop::sample::select(b"HCSEWARDX".to_vec()),
        mut bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut message = vec![kind];
        message.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        if kind == b'H' && bytes.len() > 23 {
            bytes[..4].copy_from_slice(&MAGIC);
            bytes[4..6].copy_from_slice(&VERSION.to_le_bytes());
            bytes[22] = bytes[22] % 2 + 1;
        }
        message.extend_from_slice(&bytes);
        if let Ok(parsed) = parse_message(&message) {
            prop_assert_eq!(encode(&parsed), message);
        }
    }
}
