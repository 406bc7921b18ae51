//! Record format that the kernel programs write for each call. Only encodes and decodes bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where each field of a record lies, for the program that writes it and for [`Record::read`](super::Record::read).
pub mod layout {
    pub const TIME: i16 = 0;
    pub const SOCKET: i16 = 8;
    pub const POSITION: i16 = 16;
    pub const AFTER: i16 = 24;
    pub const LENGTH: i16 = 32;
    pub const AT: i16 = 36;
    pub const KEPT: i16 = 40;
    /// Lowest byte: what happened; the next: how many bytes of `HEAD` count.
    pub const KIND: i16 = 44;
    /// The four bytes that this side said just before, right in front of the others.
    pub const HEAD: i16 = 48;
    pub const DATA: i16 = 52;
}

/// Bytes of one record at most; a longer call of a client becomes several.
pub const PIECE: usize = 32 << 10;
/// A socket's address: sockaddr_in6 is the longest that counts.
pub const PEER: usize = 28;

pub const CLIENT: u8 = 1;
pub const SERVER: u8 = 2;
pub const OPENED: u8 = 3;
pub const CLOSED: u8 = 4;
pub const SEEN_FIRST: u8 = 5;
/// Added to `CLIENT` and `SERVER`: the bytes are those inside TLS.
pub const DECRYPTED: u8 = 0x80;

/// Event of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// The server has accepted it.
    Opened,
    /// It is seen for the first time: it was open before, or has just been opened.
    Existing,
    Client,
    Server,
    Closed,
}

/// A call on a socket of the server, or a piece of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// When the call returned, Unix ns.
    pub time_ns: u64,
    /// Unique for as long as the connection lives.
    pub socket: u64,
    pub kind: RecordKind,
    /// Bytes that this side had said on this socket before these, since the tap was opened.
    pub position: u64,
    /// Bytes that the other side had said by then.
    pub after: u64,
    /// Bytes of the call that this record stands for.
    pub length: u64,
    /// The first of them; fewer than `length` where the tap cuts.
    pub bytes: &'a [u8],
    /// Said inside TLS.
    pub decrypted: bool,
    /// Who is on the other end; `None`: a Unix socket, or said before.
    pub peer: Option<(IpAddr, u16)>,
}

/// Bytes that the kernel programs keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapLengths {
    /// Bytes of a call by which the server receives; rounded up to whole pieces.
    pub client: usize,
    /// Bytes of a call by which it sends.
    pub server: usize,
}

impl<'a> Record<'a> {
    /// A record as the program wrote it; times of CLOCK_MONOTONIC become Unix times by adding `to_unix_ns`.
    /// `None`: it is none.
    pub fn read(bytes: &'a [u8], keep: SnapLengths, to_unix_ns: u64) -> Option<Self> {
        use layout::{AFTER, AT, DATA, HEAD, KEPT, KIND, LENGTH, POSITION, SOCKET, TIME};
        let long = |at: i16| Some(u64::from_ne_bytes(*bytes.get(at as usize..)?.first_chunk()?));
        let word = |at: i16| Some(u32::from_ne_bytes(*bytes.get(at as usize..)?.first_chunk()?));
        let (length, at, kept) = (u64::from(word(LENGTH)?), u64::from(word(AT)?), word(KEPT)? as usize);
        let [kind, head, ..] = word(KIND)?.to_le_bytes();
        let data = bytes.get(DATA as usize..)?.get(..kept)?;
        let record = Record {
            time_ns: long(TIME)?.wrapping_add(to_unix_ns),
            socket: long(SOCKET)?,
            kind: RecordKind::Closed,
            position: long(POSITION)?,
            after: long(AFTER)?,
            length: 0,
            bytes: &[],
            decrypted: kind & DECRYPTED != 0,
            peer: None,
        };
        let (what, stands_for) = match kind & !DECRYPTED {
            OPENED => return Some(Record { kind: RecordKind::Opened, peer: parse_peer(data), ..record }),
            SEEN_FIRST => {
                return Some(Record { kind: RecordKind::Existing, peer: parse_peer(data), ..record });
            }
            CLOSED => return Some(record),
            SERVER => (RecordKind::Server, length),
            CLIENT => (RecordKind::Client, piece_length(length, at, keep.client)),
            _ => return None,
        };
        // What was held back lies in front, so that a command is one run of bytes again.
        let held = usize::from(head).min(4);
        let bytes = if kept == 0 && stands_for > 0 {
            // The server's memory could not be read: only what was held back is there.
            &bytes.get(HEAD as usize..)?[..held]
        } else {
            bytes.get(DATA as usize - held..)?.get(..held + kept)?
        };
        let position = record.position.wrapping_add(at).wrapping_sub(held as u64);
        Some(Record { kind: what, position, length: stands_for + held as u64, bytes, ..record })
    }
}

/// How many bytes of a call of `length` the piece at `at` stands for: the last one that is kept, for all that follow.
fn piece_length(length: u64, at: u64, keep: usize) -> u64 {
    let left = length.saturating_sub(at);
    if at + PIECE as u64 >= keep as u64 { left } else { left.min(PIECE as u64) }
}

/// The address in a `sockaddr`; Unix sockets have none worth telling.
fn parse_peer(address: &[u8]) -> Option<(IpAddr, u16)> {
    let family = u16::from_ne_bytes(*address.first_chunk()?);
    let port = u16::from_be_bytes(*address.get(2..)?.first_chunk()?);
    let ip = match i32::from(family) {
        libc::AF_INET => IpAddr::V4(Ipv4Addr::from(*address.get(4..)?.first_chunk::<4>()?)),
        libc::AF_INET6 => IpAddr::V6(Ipv6Addr::from(*address.get(8..)?.first_chunk::<16>()?)).to_canonical(),
        _ => return None,
    };
    Some((ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEP: SnapLengths = SnapLengths { client: 3 * PIECE, server: 128 };

    fn raw(position: u64, length: u32, at: u32, kind: [u8; 2], head: &[u8; 4], data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for long in [1_000u64, 77, position, 31] {
            bytes.extend(long.to_ne_bytes());
        }
        for word in [length, at, data.len() as u32, u32::from_le_bytes([kind[0], kind[1], 0, 0])] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(head);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn what_was_held_back_lies_in_front_and_counts() {
        let bytes = raw(14, 6, 0, [CLIENT, 4], b"\x06\0\0\0", b"\x03DO 1X");
        let record = Record::read(&bytes, KEEP, 5).unwrap();
        assert_eq!(record.bytes, b"\x06\0\0\0\x03DO 1X");
        assert_eq!((record.time_ns, record.socket, record.kind), (1_005, 77, RecordKind::Client));
        assert_eq!((record.position, record.after, record.length), (10, 31, 10));
        // Its memory was gone: four bytes are there, six are not.
        let unread = raw(14, 6, 0, [CLIENT, 4], b"\x06\0\0\0", b"");
        let record = Record::read(&unread, KEEP, 0).unwrap();
        assert_eq!((record.bytes, record.length), (&b"\x06\0\0\0"[..], 10));
    }

    #[test]
    fn pieces_of_a_call_stand_for_all_of_it_and_the_last_for_what_is_not_kept() {
        let length = 10 * PIECE as u64 + 5;
        let piece_at = |at: usize| {
            let bytes = raw(100, length as u32, at as u32, [CLIENT, 0], &[0; 4], &vec![b'x'; PIECE]);
            let record = Record::read(&bytes, KEEP, 0).unwrap();
            assert_eq!((record.position, record.bytes.len()), (100 + at as u64, PIECE));
            record.length
        };
        let lengths = [0, PIECE, 2 * PIECE].map(piece_at);
        assert_eq!(lengths, [PIECE as u64, PIECE as u64, length - 2 * PIECE as u64]);
        assert_eq!(lengths.iter().sum::<u64>(), length);
        let server = raw(0, 5_000, 0, [SERVER | DECRYPTED, 0], &[0; 4], &[1; 128]);
        let record = Record::read(&server, KEEP, 0).unwrap();
        assert!(record.decrypted && record.kind == RecordKind::Server);
        assert_eq!((record.length, record.bytes.len()), (5_000, 128));
    }

    #[test]
    fn clients_are_known_by_their_addresses_and_those_of_a_unix_socket_have_none() {
        let opened = |address: &[u8]| {
            let [peer, met] = [OPENED, SEEN_FIRST]
                .map(|kind| Record::read(&raw(0, 0, 0, [kind, 0], &[0; 4], address), KEEP, 0).unwrap().peer);
            assert_eq!(peer, met);
            peer
        };
        let v4 = [&(libc::AF_INET as u16).to_ne_bytes()[..], &[0x9c, 0x40, 10, 0, 0, 7], &[0; 20]].concat();
        assert_eq!(opened(&v4), Some(("10.0.0.7".parse().unwrap(), 40_000)));
        let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 8];
        let v6 = [&(libc::AF_INET6 as u16).to_ne_bytes()[..], &[0x9c, 0x40, 0, 0, 0, 0], &mapped, &[0; 4]]
            .concat();
        assert_eq!(opened(&v6), Some(("10.0.0.8".parse().unwrap(), 40_000)));
        assert_eq!(opened(&(libc::AF_UNIX as u16).to_ne_bytes()), None);
        assert_eq!(opened(b""), None);
    }

    #[test]
    fn a_record_that_is_cut_or_of_no_kind_is_none() {
        let whole = raw(0, 4, 0, [CLIENT, 0], &[0; 4], b"abcd");
        assert!(Record::read(&whole, KEEP, 0).is_some());
        for length in 0..whole.len() {
            assert_eq!(Record::read(&whole[..length], KEEP, 0), None, "{length}");
        }
        assert_eq!(Record::read(&raw(0, 4, 0, [9, 0], &[0; 4], b"abcd"), KEEP, 0), None);
    }
}
