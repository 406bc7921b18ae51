//! IP header parser: addresses, protocol and payload. Fragments are reported, never reassembled.

use super::{Address, FrameError};

/// IP packet without its headers: addresses, protocol and payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    pub source: Address,
    pub destination: Address,
    /// As IANA numbers them (<https://www.iana.org/assignments/protocol-numbers>): 6 is TCP, 17 UDP.
    pub protocol: u8,
    /// A part of a larger packet, the first or another: only the first begins with a transport header.
    pub fragment: bool,
    /// What was captured of the payload; padding of the link is not part of it.
    pub payload: &'a [u8],
    /// Bytes of payload on the wire.
    pub payload_len: usize,
}

/// Filter on the protocol number, called as soon as it is known. The flag is true for a fragment.
pub(super) trait ProtocolFilter: Fn(u8, bool) -> Result<(), FrameError> {}

impl<F: Fn(u8, bool) -> Result<(), FrameError>> ProtocolFilter for F {}

/// `wire_len` counts from the IP header on; it stands in for a total length of 0, which is
/// what segments above 64 KiB and offloaded ones carry.
#[inline]
pub(super) fn parse_v4(
    bytes: &[u8],
    wire_len: usize,
    accept: impl ProtocolFilter,
) -> Result<Packet<'_>, FrameError> {
    let head = bytes.first_chunk::<20>().ok_or(FrameError::Truncated)?;
    let header_len = usize::from(head[0] & 0x0f) * 4;
    if head[0] >> 4 != 4 || header_len < 20 {
        return Err(FrameError::Malformed);
    }
    // More fragments follow, or this is not the first.
    let fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
    accept(head[9], fragment)?;
    let total_len = match u16::from_be_bytes([head[2], head[3]]) {
        0 => wire_len,
        length => usize::from(length),
    };
    let payload_len = total_len.checked_sub(header_len).ok_or(FrameError::Malformed)?;
    let available = bytes.get(header_len..).ok_or(FrameError::Truncated)?;
    Ok(Packet {
        source: Address::v4([head[12], head[13], head[14], head[15]]),
        destination: Address::v4([head[16], head[17], head[18], head[19]]),
        protocol: head[9],
        fragment,
        payload: &available[..available.len().min(payload_len)],
        payload_len,
    })
}

pub(super) fn parse_v6(
    bytes: &[u8],
    wire_len: usize,
    accept: impl ProtocolFilter,
) -> Result<Packet<'_>, FrameError> {
    let (head, mut rest) = bytes.split_first_chunk::<40>().ok_or(FrameError::Truncated)?;
    if head[0] >> 4 != 6 {
        return Err(FrameError::Malformed);
    }
    let mut payload_len = match u16::from_be_bytes([head[4], head[5]]) {
        // A jumbogram: its length is in an option, and also that of the frame.
        0 => wire_len.saturating_sub(40),
        length => usize::from(length),
    };
    let mut next = head[6];
    let mut fragment = false;
    while !fragment && is_extension(next) {
        let extension = rest.first_chunk::<8>().ok_or(FrameError::Truncated)?;
        let length = match next {
            // A fragment header whose packet is whole all the same is none (RFC 6946).
            44 => {
                fragment = u16::from_be_bytes([extension[2], extension[3]]) & 0xfff9 != 0;
                8
            }
            51 => usize::from(extension[1]) * 4 + 8,
            _ => usize::from(extension[1]) * 8 + 8,
        };
        next = extension[0];
        payload_len = payload_len.checked_sub(length).ok_or(FrameError::Malformed)?;
        rest = rest.get(length..).ok_or(FrameError::Truncated)?;
    }
    accept(next, fragment)?;
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&head[at..at + 16]);
        Address::v6(octets)
    };
    Ok(Packet {
        source: address(8),
        destination: address(24),
        protocol: next,
        fragment,
        payload: &rest[..rest.len().min(payload_len)],
        payload_len,
    })
}

/// Hop-by-hop, routing, fragment, authentication, destination options, mobility, host identity, shim.
fn is_extension(protocol: u8) -> bool {
    matches!(protocol, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140)
}
