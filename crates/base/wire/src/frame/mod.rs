//! Frame parser: from a captured frame to its packet and TCP segment. Never keeps state between frames.

mod ip;
mod link;

pub use ip::Packet;
pub use link::IpVersion;

use crate::pcap::{Frame, Link};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IPv4 (as IPv4-mapped) or IPv6 address, in a shape that is quick to compare and hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Address {
    pub(crate) high: u64,
    pub(crate) low: u64,
}

impl Address {
    const V4_MAPPED: u64 = 0xffff << 32;

    pub(crate) fn v4(octets: [u8; 4]) -> Self {
        Address { high: 0, low: Self::V4_MAPPED | u64::from(u32::from_be_bytes(octets)) }
    }

    pub(crate) fn v6(octets: [u8; 16]) -> Self {
        let bits = u128::from_be_bytes(octets);
        Address { high: (bits >> 64) as u64, low: bits as u64 }
    }
}

impl From<IpAddr> for Address {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Address::v4(ip.octets()),
            IpAddr::V6(ip) => Address::v6(ip.octets()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.high == 0 && self.low >> 32 == 0xffff {
            return Ipv4Addr::from(self.low as u32).fmt(f);
        }
        Ipv6Addr::from(u128::from(self.high) << 64 | u128::from(self.low)).fmt(f)
    }
}

/// A TCP segment; `payload` is shorter than `payload_len` where a snap length cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment<'a> {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    pub payload: &'a [u8],
    /// Bytes of payload on the wire.
    pub payload_len: u32,
}

/// A segment, and between whom it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressedSegment<'a> {
    pub source: Address,
    pub destination: Address,
    pub source_port: u16,
    pub destination_port: u16,
    pub segment: Segment<'a>,
}

impl AddressedSegment<'_> {
    /// A number that both directions of a connection share, evenly spread; other seeds spread it otherwise.
    #[inline]
    pub fn connection_hash(&self, seed: u64) -> u64 {
        let end = |address: Address, port: u16| {
            mix_bits(mix_bits(address.high ^ seed) ^ address.low ^ u64::from(port) << 48)
        };
        let ends = (end(self.source, self.source_port), end(self.destination, self.destination_port));
        mix_bits(ends.0.wrapping_add(ends.1))
    }
}

/// Numbers that differ in a bit become numbers that differ in half of theirs (the last step of SplitMix64,
/// Steele, Lea and Flood, OOPSLA 2014).
#[inline]
pub fn mix_bits(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

pub const FIN: u8 = 0x01;
pub const SYN: u8 = 0x02;
pub const RST: u8 = 0x04;
pub const ACK: u8 = 0x10;

/// Protocol numbers of what has ports.
pub const TCP: u8 = 6;
pub const UDP: u8 = 17;

/// Why a frame yields no packet, or no segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameError {
    /// Another protocol than the requested one: nothing was lost.
    OtherProtocol,
    /// Possibly the requested protocol, in an unsupported encapsulation: a fragment, a tunnel, a link type.
    Unsupported,
    /// The snap length cut within the headers.
    Truncated,
    /// Headers that contradict themselves.
    Malformed,
}

/// The network layer of a frame, and where it begins.
///
/// # Errors
/// [`FrameError`] says why there is none that is known.
#[inline]
pub fn find_network_layer(link: Link, bytes: &[u8]) -> Result<(IpVersion, usize), FrameError> {
    let (network, rest) = link::strip_link_header(link, bytes)?;
    Ok((network, bytes.len() - rest.len()))
}

/// Finds the TCP segment in a frame.
///
/// # Errors
/// [`FrameError`] says why there is none.
#[inline]
pub fn parse_segment<'a>(frame: &Frame<'a>) -> Result<AddressedSegment<'a>, FrameError> {
    parse_tcp(&parse_ip(frame, |protocol, fragment| match protocol {
        TCP if !fragment => Ok(()),
        // IP in IP, IPv6 in IP, GRE, ESP: TCP may be inside.
        TCP | 4 | 41 | 47 | 50 => Err(FrameError::Unsupported),
        _ => Err(FrameError::OtherProtocol),
    })?)
}

/// Finds the IP packet in a frame, whatever it carries. [`FrameError::OtherProtocol`]: it is not IP.
///
/// # Errors
/// [`FrameError`] says why there is none.
#[inline]
pub fn parse_packet<'a>(frame: &Frame<'a>) -> Result<Packet<'a>, FrameError> {
    parse_ip(frame, |_, _| Ok(()))
}

#[inline]
fn parse_ip<'a>(frame: &Frame<'a>, accept: impl ip::ProtocolFilter) -> Result<Packet<'a>, FrameError> {
    let (network, link_len) = find_network_layer(frame.link, frame.bytes)?;
    let wire_len = (frame.wire_len as usize).max(frame.bytes.len()) - link_len;
    match network {
        IpVersion::V4 => ip::parse_v4(&frame.bytes[link_len..], wire_len, accept),
        IpVersion::V6 => ip::parse_v6(&frame.bytes[link_len..], wire_len, accept),
    }
}

#[inline]
fn parse_tcp<'a>(packet: &Packet<'a>) -> Result<AddressedSegment<'a>, FrameError> {
    let Some(head) = packet.payload.first_chunk::<20>() else {
        return Err(if packet.payload_len < 20 { FrameError::Malformed } else { FrameError::Truncated });
    };
    let header_len = usize::from(head[12] >> 4) * 4;
    if header_len < 20 || header_len > packet.payload_len {
        return Err(FrameError::Malformed);
    }
    let payload_len = packet.payload_len - header_len;
    let available = packet.payload.get(header_len..).unwrap_or_default();
    Ok(AddressedSegment {
        source: packet.source,
        destination: packet.destination,
        source_port: u16::from_be_bytes([head[0], head[1]]),
        destination_port: u16::from_be_bytes([head[2], head[3]]),
        segment: Segment {
            seq: u32::from_be_bytes([head[4], head[5], head[6], head[7]]),
            ack: u32::from_be_bytes([head[8], head[9], head[10], head[11]]),
            flags: head[13],
            payload: &available[..available.len().min(payload_len)],
            payload_len: payload_len as u32,
        },
    })
}
