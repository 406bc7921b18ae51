//! Conversion of socket records to the decoder's input. The only place that knows both sides.
//!
//! Tests and examples of `toll-taps`, which knows no decoder, include this file unchanged.

use toll_taps::sockets::{Record, What};
use toll_wire::decoder::{CallDirection, SocketChunk};

pub fn spoken<'a>(record: &Record<'a>) -> SocketChunk<'a> {
    SocketChunk {
        time_ns: record.time_ns,
        socket: record.socket,
        direction: if record.what == What::Server {
            CallDirection::FromServer
        } else {
            CallDirection::FromClient
        },
        stream_offset: record.position,
        peer_offset: record.after,
        full_len: record.length,
        bytes: record.bytes,
        opened: record.what == What::Opened,
        closed: record.what == What::Closed,
        decrypted: record.deciphered,
        client: record.peer,
    }
}
