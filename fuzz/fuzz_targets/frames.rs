//! Fuzz target of the decoder with frames of any link type.
//!
//! The input is a sequence of: one byte for the link type, two for the length, then the frame.
#![no_main]

use toll_wire::decoder::Decoder;
use toll_wire::pcap::{Frame, Link};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let mut decoder = Decoder::new(&toll_fuzz::config());
    let mut rest = input;
    let mut time_ns = 1;
    while let [link, length, over, after @ ..] = rest {
        let (bytes, after) = after.split_at(usize::from(*length).min(after.len()));
        let link = match link % 7 {
            0 => Link::Ethernet,
            1 => Link::VlanTag,
            2 => Link::LinuxSll,
            3 => Link::LinuxSll2,
            4 => Link::Raw,
            5 => Link::Null,
            _ => Link::Unsupported(147),
        };
        let wire_len = bytes.len() as u32 + u32::from(*over);
        decoder.decode_frame(&Frame { time_ns, link, wire_len, bytes }, &mut toll_fuzz::Reader);
        time_ns += 1000;
        rest = after;
    }
    decoder.finish(&mut toll_fuzz::Reader);
    toll_fuzz::check(&decoder.accounting());
});
