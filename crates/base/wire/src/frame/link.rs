//! Link-layer header parser: finds the start of the IP packet. Never reads past the type field.

use super::FrameError;
use crate::pcap::Link;

/// IP version of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    V4,
    V6,
}

/// Maximum number of nested VLAN tags; QinQ has two.
const MAX_TAGS: usize = 4;

/// The network layer of a frame, and the bytes from there on.
#[inline]
pub(super) fn strip_link_header(link: Link, bytes: &[u8]) -> Result<(IpVersion, &[u8]), FrameError> {
    match link {
        Link::Ethernet => strip_by_ethertype(bytes, 12, 14),
        Link::VlanTag => strip_by_ethertype(bytes, 2, 4),
        Link::LinuxSll => strip_by_ethertype(bytes, 14, 16),
        Link::LinuxSll2 => strip_by_ethertype(bytes, 0, 20),
        Link::Raw => Ok((ip_version(bytes)?, bytes)),
        Link::Null => strip_by_family(bytes),
        Link::Unsupported(_) => Err(FrameError::Unsupported),
    }
}

#[inline]
fn strip_by_ethertype(
    bytes: &[u8],
    type_at: usize,
    payload_at: usize,
) -> Result<(IpVersion, &[u8]), FrameError> {
    if bytes.len() < payload_at {
        return Err(FrameError::Truncated);
    }
    let mut kind = u16::from_be_bytes([bytes[type_at], bytes[type_at + 1]]);
    let mut rest = &bytes[payload_at..];
    for _ in 0..=MAX_TAGS {
        match kind {
            0x0800 => return Ok((IpVersion::V4, rest)),
            0x86dd => return Ok((IpVersion::V6, rest)),
            // 802.1Q, 802.1ad, and the old QinQ number.
            0x8100 | 0x88a8 | 0x9100 => {
                let (tag, inner) = rest.split_first_chunk::<4>().ok_or(FrameError::Truncated)?;
                kind = u16::from_be_bytes([tag[2], tag[3]]);
                rest = inner;
            }
            // MPLS, PPPoE, MACsec may hold IP.
            0x8847 | 0x8848 | 0x8864 | 0x88e5 => return Err(FrameError::Unsupported),
            _ => return Err(FrameError::OtherProtocol),
        }
    }
    Err(FrameError::Unsupported)
}

fn ip_version(bytes: &[u8]) -> Result<IpVersion, FrameError> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => Ok(IpVersion::V4),
        Some(6) => Ok(IpVersion::V6),
        Some(_) => Err(FrameError::Malformed),
        None => Err(FrameError::Truncated),
    }
}

/// The family is in the capturing host's byte order; IPv6's number differs from system to system.
fn strip_by_family(bytes: &[u8]) -> Result<(IpVersion, &[u8]), FrameError> {
    let (family, rest) = bytes.split_first_chunk::<4>().ok_or(FrameError::Truncated)?;
    let family = match *family {
        [0, 0, high, low] => u16::from_be_bytes([high, low]),
        [low, high, 0, 0] => u16::from_le_bytes([low, high]),
        _ => return Err(FrameError::Malformed),
    };
    match family {
        2 => Ok((IpVersion::V4, rest)),
        10 | 24 | 28 | 30 => Ok((IpVersion::V6, rest)),
        _ => Err(FrameError::OtherProtocol),
    }
}
