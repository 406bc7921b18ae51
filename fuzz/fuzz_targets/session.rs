//! Fuzz target of sessions: two sides send valid consecutive segments.
//!
//! One byte selects the sender and the fate of the segment (lost, duplicated, truncated), another its length.
//! The payload follows.
#![no_main]

use std::net::SocketAddr;
use toll_wire::decoder::Decoder;
use toll_wire::packet_builder::{AddressPair, IpHeader, TcpHeader, append_tcp};
use toll_wire::pcap::{Frame, Link};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut decoder = Decoder::new(&toll_fuzz::config());
    let mut seqs = [1000u32, 2000];
    let mut time_ns = 1;
    let mut send = |server: usize, flags: u8, payload: &[u8], cut: usize, seqs: [u32; 2]| {
        let ends = [SocketAddr::from(([10, 0, 0, 1], 40_000)), SocketAddr::from(([10, 0, 0, 2], 3306))];
        let addresses = AddressPair { source: ends[server], destination: ends[1 - server] };
        let head = TcpHeader { seq: seqs[server], ack: seqs[1 - server], flags, window: 0, options: &[] };
        let mut frame = Vec::new();
        append_tcp(&mut frame, &IpHeader { addresses, ttl: 64, id: 0 }, &head, payload);
        let wire_len = frame.len() as u32;
        frame.truncate(frame.len() - cut);
        decoder.decode_frame(
            &Frame { time_ns, link: Link::Raw, wire_len, bytes: &frame },
            &mut toll_fuzz::Reader,
        );
        time_ns += 1000;
    };
    let mut rest = input;
    // Half of the inputs begin with the opening of the connection.
    if let [first, ..] = rest
        && first & 0x80 != 0
    {
        send(0, 0x02, &[], 0, seqs);
        seqs[0] += 1;
        send(1, 0x12, &[], 0, seqs);
        seqs[1] += 1;
    }
    while let [what, length, after @ ..] = rest {
        let (payload, after) = after.split_at(usize::from(*length).min(after.len()));
        let server = usize::from(what & 1);
        match what >> 1 & 7 {
            0 => {}
            1 => {
                send(server, 0x18, payload, 0, seqs);
                send(server, 0x18, payload, 0, seqs);
            }
            2 => send(server, 0x18, payload, payload.len() / 2, seqs),
            _ => send(server, 0x18, payload, 0, seqs),
        }
        seqs[server] = seqs[server].wrapping_add(payload.len() as u32);
        rest = after;
    }
    decoder.finish(&mut toll_fuzz::Reader);
    toll_fuzz::check(&decoder.accounting());
});
