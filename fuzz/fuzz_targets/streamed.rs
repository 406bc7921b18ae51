#![no_main]

//! Fuzz target of the streaming protocol.
//!
//! Every accepted message is the same for input in any pieces, and encodes back to the same bytes.

use toll_wire::streamed::{self, LONGEST, LONGEST_EDGE, LONGEST_GREETING, Message};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    for longest in [LONGEST, LONGEST_GREETING] {
        let mut rest = input;
        while let Ok(Some(length)) = streamed::length(rest, longest) {
            assert!(length <= longest + 5, "more is waited for than was allowed");
            // What is not whole yet is of the same length as long as it comes.
            for cut in [5, rest.len() / 2] {
                let known = streamed::length(&rest[..cut.min(rest.len())], longest);
                assert!(known.is_ok_and(|known| known.is_none_or(|known| known == length)));
            }
            let Some((message, after)) = rest.split_at_checked(length) else { break };
            if let Ok(parsed) = streamed::parse(message) {
                if let Message::Hello(hello) = &parsed {
                    assert!(hello.host.len() <= 255 && hello.opening.len() <= LONGEST_EDGE);
                }
                let mut said = Vec::new();
                parsed.put(&mut said);
                assert_eq!(said, message);
            }
            rest = after;
        }
    }
});
