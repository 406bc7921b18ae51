//! What is a record of a server's sockets to the decoder? The one place where both sides are known; tests and examples of
//! `toll-taps`, which knows no decoder, take this file as it is.

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
