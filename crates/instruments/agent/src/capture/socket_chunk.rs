//! Conversion of socket records to the decoder's input. The only place that knows both sides.
//!
//! Tests and examples of `toll-taps`, which knows no decoder, include this file unchanged.

use toll_taps::sockets::{Record, RecordKind};
use toll_wire::decoder::{CallDirection, SocketChunk};

pub fn to_socket_chunk<'a>(record: &Record<'a>) -> SocketChunk<'a> {
    SocketChunk {
        time_ns: record.time_ns,
        socket: record.socket,
        direction: if record.kind == RecordKind::Server {
            CallDirection::FromServer
        } else {
            CallDirection::FromClient
        },
        stream_offset: record.position,
        peer_offset: record.after,
        full_len: record.length,
        bytes: record.bytes,
        opened: record.kind == RecordKind::Opened,
        closed: record.kind == RecordKind::Closed,
        decrypted: record.decrypted,
        client: record.peer,
    }
}
