//! Conversion of socket records to the decoder's input. The only place that knows both sides.
//!
//! Tests and examples of `toll-taps`, which knows no decoder, include this file unchanged.

use toll_taps::sockets::{Record, What};
use toll_wire::decoder::{Said, Spoken};

pub fn spoken<'a>(record: &Record<'a>) -> Spoken<'a> {
    Spoken {
        time_ns: record.time_ns,
        socket: record.socket,
        by: if record.what == What::Server { Said::Server } else { Said::Client },
        position: record.position,
        after: record.after,
        length: record.length,
        bytes: record.bytes,
        opened: record.what == What::Opened,
        closed: record.what == What::Closed,
        deciphered: record.deciphered,
        client: record.peer,
    }
}
