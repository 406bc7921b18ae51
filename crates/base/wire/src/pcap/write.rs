//! Encoder of pcap and pcapng files. Returns bytes, never writes them anywhere.
//!
//! Little-endian, times in nanoseconds.

use super::{Frame, Interface};
use thiserror::Error;

/// What the header of a pcap names: libpcap's own bound.
const SNAP_LEN: u32 = 262_144;
const NS: u64 = 1_000_000_000;

/// A frame that does not fit into the format.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum WriteError {
    #[error("pcap cannot store times after February 2106: use pcapng")]
    TimeOutOfRange,
}

/// The header of a pcap file whose frames are all of one link type.
pub fn encode_pcap_header(link: u16) -> [u8; 24] {
    let mut header = [0; 24];
    header[..4].copy_from_slice(&0xa1b2_3c4du32.to_le_bytes());
    header[4..8].copy_from_slice(&[2, 0, 4, 0]);
    header[16..20].copy_from_slice(&SNAP_LEN.to_le_bytes());
    header[20..24].copy_from_slice(&u32::from(link).to_le_bytes());
    header
}

/// Appends a record of a pcap file.
///
/// # Errors
/// The frame's time is beyond what 32 bits of seconds hold.
#[inline]
pub fn append_pcap_record(out: &mut Vec<u8>, frame: &Frame<'_>) -> Result<(), WriteError> {
    let seconds = u32::try_from(frame.time_ns / NS).map_err(|_| WriteError::TimeOutOfRange)?;
    out.extend(seconds.to_le_bytes());
    out.extend(((frame.time_ns % NS) as u32).to_le_bytes());
    out.extend((frame.bytes.len() as u32).to_le_bytes());
    out.extend(frame.wire_len.to_le_bytes());
    out.extend(frame.bytes);
    Ok(())
}

/// Appends what a pcapng file begins with.
pub fn append_ng_section(out: &mut Vec<u8>) {
    // Byte order, version 1.0, a length that is not known yet.
    let mut body = 0x1a2b_3c4du32.to_le_bytes().to_vec();
    body.extend([1, 0, 0, 0]);
    body.extend([0xff; 8]);
    append_block(out, 0x0a0d_0d0a, &body);
}

/// Appends the description of an interface; the first is number 0, and so on. Its own number is not
/// looked at.
pub fn append_ng_interface(out: &mut Vec<u8>, interface: &Interface<'_>) {
    let mut body = interface.link.to_le_bytes().to_vec();
    body.extend([0; 2]);
    body.extend(interface.snap_len.to_le_bytes());
    // Its name, its clock (10^-9 s), the end of options.
    for (code, value) in [(2u16, interface.name), (9, &[9][..])] {
        if !value.is_empty() {
            body.extend(code.to_le_bytes());
            body.extend((value.len() as u16).to_le_bytes());
            body.extend(value);
            body.resize(body.len().next_multiple_of(4), 0);
        }
    }
    body.extend([0; 4]);
    append_block(out, 1, &body);
}

/// Appends a frame of an interface that was described before.
#[inline]
pub fn append_ng_packet(out: &mut Vec<u8>, interface: u32, frame: &Frame<'_>) {
    let length = frame.bytes.len();
    let padding = length.next_multiple_of(4) - length;
    let total = (32 + length + padding) as u32;
    let fields = [
        6,
        total,
        interface,
        (frame.time_ns >> 32) as u32,
        frame.time_ns as u32,
        length as u32,
        frame.wire_len,
    ];
    let mut head = [0; 28];
    for (bytes, field) in head.as_chunks_mut::<4>().0.iter_mut().zip(fields) {
        *bytes = field.to_le_bytes();
    }
    // Live captures come this way: the room is looked for once.
    out.reserve(total as usize);
    out.extend_from_slice(&head);
    out.extend_from_slice(frame.bytes);
    out.extend_from_slice(&[0; 3][..padding]);
    out.extend_from_slice(&total.to_le_bytes());
}

/// What was captured on an interface between two times (Unix, ns), and the drop counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InterfaceStatistics {
    pub begin_ns: u64,
    pub end_ns: u64,
    /// Packets that the capture was to have.
    pub received: u64,
    /// Of these, those that it has not.
    pub dropped: u64,
}

/// Appends the statistics of an interface that was described: what a file ends with.
pub fn append_ng_statistics(out: &mut Vec<u8>, interface: u32, statistics: &InterfaceStatistics) {
    let mut body = interface.to_le_bytes().to_vec();
    // Times are written upper half first, in the interface's clock; counters as one number.
    let time = |out: &mut Vec<u8>, ns: u64| {
        out.extend(((ns >> 32) as u32).to_le_bytes());
        out.extend((ns as u32).to_le_bytes());
    };
    time(&mut body, statistics.end_ns);
    for (code, ns) in [(2u16, statistics.begin_ns), (3, statistics.end_ns)] {
        body.extend(code.to_le_bytes());
        body.extend(8u16.to_le_bytes());
        time(&mut body, ns);
    }
    for (code, count) in [(4u16, statistics.received), (5, statistics.dropped)] {
        body.extend(code.to_le_bytes());
        body.extend(8u16.to_le_bytes());
        body.extend(count.to_le_bytes());
    }
    body.extend([0; 4]);
    append_block(out, 5, &body);
}

fn append_block(out: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let padded = body.len().next_multiple_of(4);
    let total = ((12 + padded) as u32).to_le_bytes();
    out.extend(kind.to_le_bytes());
    out.extend(total);
    out.extend_from_slice(body);
    out.extend(&[0; 3][..padded - body.len()]);
    out.extend(total);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::{Format, Link, ParseStep, Reader, RecordParser};

    fn read(file: &[u8]) -> Vec<(u64, Link, u32, Vec<u8>)> {
        let mut seen = Vec::new();
        let mut reader = Reader::new(Format::detect(file).unwrap());
        reader
            .feed(file, &mut |frame| {
                seen.push((frame.time_ns, frame.link, frame.wire_len, frame.bytes.to_vec()))
            })
            .unwrap();
        assert_eq!(reader.unread_tail_bytes(), 0);
        seen
    }

    const FRAMES: [(u64, u32, &[u8]); 3] =
        [(1_700_000_000_123_456_789, 5, b"12345"), (0, 1000, b""), (u32::MAX as u64 * NS, 4, b"abcd")];

    #[test]
    fn a_pcap_is_read_as_it_was_written() {
        let mut file = encode_pcap_header(1).to_vec();
        for (time_ns, wire_len, bytes) in FRAMES {
            append_pcap_record(&mut file, &Frame { time_ns, link: Link::Ethernet, wire_len, bytes }).unwrap();
        }
        let expected = FRAMES.map(|(ns, wire, bytes)| (ns, Link::Ethernet, wire, bytes.to_vec()));
        assert_eq!(read(&file), expected);
        let late = Frame { time_ns: (1 << 32) * NS, link: Link::Ethernet, wire_len: 0, bytes: b"" };
        assert_eq!(append_pcap_record(&mut file, &late), Err(WriteError::TimeOutOfRange));
    }

    #[test]
    fn a_pcapng_is_read_as_it_was_written_with_its_interfaces() {
        let mut file = Vec::new();
        append_ng_section(&mut file);
        let described = [(1, 96, &b"eth0"[..]), (113, 0, b"")];
        for (link, snap_len, name) in described {
            append_ng_interface(&mut file, &Interface { number: 0, link, snap_len, name });
        }
        for (at, (time_ns, wire_len, bytes)) in FRAMES.into_iter().enumerate() {
            append_ng_packet(&mut file, at as u32 % 2, &Frame { time_ns, link: Link::Raw, wire_len, bytes });
        }
        let links = [Link::Ethernet, Link::LinuxSll, Link::Ethernet];
        let expected: Vec<_> = FRAMES
            .into_iter()
            .zip(links)
            .map(|((ns, wire, bytes), link)| (ns, link, wire, bytes.to_vec()))
            .collect();
        assert_eq!(read(&file), expected);
        // Their interfaces, one record after the other.
        let mut records = RecordParser::new(Format::PcapNg).unwrap();
        let (mut rest, mut seen) = (file.as_slice(), Vec::new());
        while !rest.is_empty() {
            let used = match records.next_record(rest).unwrap() {
                ParseStep::Frame { used, .. } => {
                    let found = records.interface().unwrap();
                    seen.push((found.number, found.link, found.snap_len, found.name.to_vec()));
                    used
                }
                ParseStep::Skip { used } => used,
                ParseStep::SkipAhead { used } => used as usize,
                ParseStep::Incomplete(need) => panic!("{need} bytes are needed"),
            };
            rest = &rest[used..];
        }
        let first = (0, 1, 96, b"eth0".to_vec());
        assert_eq!(seen, [first.clone(), (1, 113, 0, Vec::new()), first]);
    }

    #[test]
    fn statistics_are_read_as_they_were_written() {
        let mut file = Vec::new();
        append_ng_section(&mut file);
        append_ng_interface(&mut file, &Interface { number: 0, link: 101, snap_len: 0, name: b"lo" });
        let told =
            InterfaceStatistics { begin_ns: 1 << 60, end_ns: (1 << 60) + 5, received: 1 << 33, dropped: 7 };
        append_ng_statistics(&mut file, 0, &told);
        let mut reader = Reader::new(Format::PcapNg);
        reader.feed(&file, &mut |_| panic!("there is no packet")).unwrap();
        assert_eq!((reader.dropped_by_capture(), reader.unread_tail_bytes()), (Some(7), 0));
    }
}
