#![no_main]

//! Fuzz target of the streaming protocol.
//!
//! Every accepted message is the same for input in any pieces, and encodes back to the same bytes.

use toll_wire::stream_protocol::{
    MAX_HEADER_OR_FOOTER, MAX_HELLO, MAX_PAYLOAD, Message, message_length, parse_message,
};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    for longest in [MAX_PAYLOAD, MAX_HELLO] {
        let mut rest = input;
        while let Ok(Some(length)) = message_length(rest, longest) {
            assert!(length <= longest + 5, "more is waited for than was allowed");
            // What is not whole yet is of the same length as long as it comes.
            for cut in [5, rest.len() / 2] {
                let known = message_length(&rest[..cut.min(rest.len())], longest);
                assert!(known.is_ok_and(|known| known.is_none_or(|known| known == length)));
            }
            let Some((message, after)) = rest.split_at_checked(length) else { break };
            if let Ok(parsed) = parse_message(message) {
                if let Message::Hello(hello) = &parsed {
                    assert!(hello.host.len() <= 255 && hello.file_header.len() <= MAX_HEADER_OR_FOOTER);
                }
                let mut encoded = Vec::new();
                parsed.encode_into(&mut encoded);
                assert_eq!(encoded, message);
            }
            rest = after;
        }
    }
});
