//! Invariants that must hold for any input. Shared by all targets.

use toll_wire::accounting::DecodeAccounting;
use toll_wire::decoder::{CaptureDecoder, Config, Limits};
use toll_wire::event::{Event, Sink};
use toll_wire::pcap::Format;

/// Looks at every event as a digest would.
pub struct Reader;

impl Sink for Reader {
    fn on_event(&mut self, event: &Event<'_>) {
        assert!(event.text.len() <= 1 << 20);
        if let (Some(first), Some(last)) = (event.first_byte_ns, event.query_ns) {
            assert!(event.tainted || first <= last || last == 0);
        }
    }
}

/// Tight bounds, so that short inputs reach them.
pub fn config() -> Config {
    let limits = Limits {
        text: 64,
        connections: 4,
        pipeline: 4,
        statements: 2,
        reorder_segments: 4,
        ..Limits::default()
    };
    Config { limits, ..Config::default() }
}

pub fn check(accounting: &DecodeAccounting) {
    assert!(accounting.is_consistent(), "{accounting:#?}");
}

pub fn decode(format: Format, input: &[u8]) {
    let mut decoder = CaptureDecoder::new(format, &config());
    // An error is an answer; what was read before it must be accounted for all the same.
    for chunk in input.chunks(700) {
        if decoder.feed(chunk, &mut Reader).is_err() {
            break;
        }
    }
    decoder.finish(&mut Reader);
    check(&decoder.accounting());
}
