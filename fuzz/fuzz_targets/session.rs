//! What two sides say, in segments that fit together. A byte tells who speaks and what happens to
//! the segment (lost, doubled, cut), another its length; the payload follows.
#![no_main]

use toll_wire::decoder::Decoder;
use toll_wire::pcap::{Frame, Link};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut decoder = Decoder::new(&toll_fuzz::config());
    let mut seqs = [1000u32, 2000];
    let mut time_ns = 1;
    let mut send = |server: usize, flags: u8, payload: &[u8], cut: usize, seqs: [u32; 2]| {
        let ports = [40_000u16, 3306];
        let mut frame = vec![0x45, 0];
        frame.extend(((40 + payload.len()) as u16).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, server as u8, 10, 0, 0, 1 - server as u8]);
        frame.extend(ports[server].to_be_bytes());
        frame.extend(ports[1 - server].to_be_bytes());
        frame.extend(seqs[server].to_be_bytes());
        frame.extend(seqs[1 - server].to_be_bytes());
        frame.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
        frame.extend(payload);
        let wire_len = frame.len() as u32;
        frame.truncate(frame.len() - cut);
        decoder.frame(&Frame { time_ns, link: Link::Raw, wire_len, bytes: &frame }, &mut toll_fuzz::Reader);
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
    toll_fuzz::check(&decoder.ledger());
});
