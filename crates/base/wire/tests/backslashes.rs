//! The mode in which a server reads backslashes, as its replies tell.

use toll_testkit::wire::{Conversation, pcap, protocol_packet};
use toll_wire::decoder::{CaptureDecoder, Config};
use toll_wire::event::{Event, Sink};
use toll_wire::fingerprint::BackslashMode::{self, Escapes, Plain, Unknown};
use toll_wire::pcap::Format;

#[derive(Default)]
struct Modes(Vec<(String, BackslashMode)>);

impl Sink for Modes {
    fn on_event(&mut self, event: &Event<'_>) {
        self.0.push((String::from_utf8_lossy(event.text).into_owned(), event.backslashes));
    }
}

#[test]
fn a_statement_has_the_mode_that_the_replies_before_and_after_it_tell() {
    let ok = |status: u8| protocol_packet(1, &[0, 0, 0, 2, status, 0, 0]);
    let mut talk = Conversation::logged_in();
    for (text, status) in [("a", 0), ("set plain", 2), ("b", 2), ("c", 2), ("set back", 0), ("d", 0)] {
        talk.client(&protocol_packet(0, &[b"\x03", text.as_bytes()].concat()));
        talk.server(&ok(status));
    }
    let capture = pcap(talk.frames());
    let mut decoder = CaptureDecoder::new(Format::detect(&capture).unwrap(), &Config::default());
    let mut modes = Modes::default();
    decoder.feed(&capture, &mut modes).unwrap();
    decoder.finish(&mut modes);
    let of = |text: &str| modes.0.iter().find(|(t, _)| t == text).map(|(_, mode)| *mode);
    let expected = [
        ("a", Escapes),
        ("set plain", Unknown),
        ("b", Plain),
        ("c", Plain),
        ("set back", Unknown),
        ("d", Escapes),
    ];
    for (text, mode) in expected {
        assert_eq!(of(text), Some(mode), "{text}");
    }
}
