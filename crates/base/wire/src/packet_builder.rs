//! Packet builder: headers and checksums. Never decides what is sent, nor when.
//!
//! Each part appends itself to a buffer, outermost first: a link header, then the whole IP packet.

use crate::frame::{TCP, UDP};
use std::net::SocketAddr;

/// Source and destination of a packet; both have the same IP version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressPair {
    pub source: SocketAddr,
    pub destination: SocketAddr,
}

/// Variable fields of an IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpHeader {
    pub addresses: AddressPair,
    /// Hops that are left (hop limit).
    pub ttl: u8,
    /// IPv4 only.
    pub id: u16,
}

/// Variable fields of a TCP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpHeader<'a> {
    pub seq: u32,
    pub ack: u32,
    pub flags: u8,
    /// As it stands in the header, unscaled.
    pub window: u16,
    /// At most 40 bytes, a multiple of four.
    pub options: &'a [u8],
}

pub const ETHERTYPE_V4: u16 = 0x0800;
pub const ETHERTYPE_V6: u16 = 0x86dd;

/// IPv4's flags: routers may not split it.
const DO_NOT_FRAGMENT: u16 = 0x4000;

/// An Ethernet header, with a tag (IEEE 802.1Q) if a VLAN is named.
pub fn append_ethernet(
    out: &mut Vec<u8>,
    destination: [u8; 6],
    source: [u8; 6],
    vlan: Option<u16>,
    ethertype: u16,
) {
    out.extend(destination);
    out.extend(source);
    if let Some(vlan) = vlan {
        out.extend([0x81, 0x00]);
        out.extend((vlan & 0x0fff).to_be_bytes());
    }
    out.extend(ethertype.to_be_bytes());
}

/// An IP packet with a TCP segment. The header has 16 bits for its length: of a longer packet it tells the
/// lower ones; who keeps an MTU never comes near.
pub fn append_tcp(out: &mut Vec<u8>, ip: &IpHeader, head: &TcpHeader<'_>, payload: &[u8]) {
    let options = &head.options[..head.options.len().min(40) & !3];
    let length = 20 + options.len() + payload.len();
    let start = append_ip_header(out, ip, TCP, length);
    out.extend(ip.addresses.source.port().to_be_bytes());
    out.extend(ip.addresses.destination.port().to_be_bytes());
    out.extend(head.seq.to_be_bytes());
    out.extend(head.ack.to_be_bytes());
    out.extend([((20 + options.len()) as u8 / 4) << 4, head.flags]);
    out.extend(head.window.to_be_bytes());
    out.extend([0; 4]);
    out.extend(options);
    out.extend(payload);
    let sum = pseudo_header_sum(ip, TCP, length) + sum_words(&out[start..]);
    out[start + 16..start + 18].copy_from_slice(&fold_checksum(sum).to_be_bytes());
}

/// An IP packet with a UDP datagram; of lengths see [`append_tcp`].
pub fn append_udp(out: &mut Vec<u8>, ip: &IpHeader, payload: &[u8]) {
    let length = 8 + payload.len();
    let start = append_ip_header(out, ip, UDP, length);
    out.extend(ip.addresses.source.port().to_be_bytes());
    out.extend(ip.addresses.destination.port().to_be_bytes());
    out.extend((length as u16).to_be_bytes());
    out.extend([0; 2]);
    out.extend(payload);
    let sum = pseudo_header_sum(ip, UDP, length) + sum_words(&out[start..]);
    // Zero would say that there is none (RFC 768).
    let checksum = match fold_checksum(sum) {
        0 => 0xffff,
        checksum => checksum,
    };
    out[start + 6..start + 8].copy_from_slice(&checksum.to_be_bytes());
}

/// Appends the header of a packet with `length` bytes of payload; returns where the payload begins.
fn append_ip_header(out: &mut Vec<u8>, ip: &IpHeader, protocol: u8, length: usize) -> usize {
    let start = out.len();
    match (ip.addresses.source, ip.addresses.destination) {
        (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            out.extend([0x45, 0]);
            out.extend(((20 + length) as u16).to_be_bytes());
            out.extend(ip.id.to_be_bytes());
            out.extend(DO_NOT_FRAGMENT.to_be_bytes());
            out.extend([ip.ttl, protocol, 0, 0]);
            out.extend(source.ip().octets());
            out.extend(destination.ip().octets());
            let checksum = fold_checksum(sum_words(&out[start..]));
            out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        (source, destination) => {
            out.extend([0x60, 0, 0, 0]);
            out.extend((length as u16).to_be_bytes());
            out.extend([protocol, ip.ttl]);
            out.extend(v6_octets(source));
            out.extend(v6_octets(destination));
        }
    }
    out.len()
}

fn v6_octets(end: SocketAddr) -> [u8; 16] {
    match end {
        SocketAddr::V4(end) => end.ip().to_ipv6_mapped().octets(),
        SocketAddr::V6(end) => end.ip().octets(),
    }
}

/// What a transport's checksum takes from the IP header (RFC 9293, 3.1; RFC 8200, 8.1).
fn pseudo_header_sum(ip: &IpHeader, protocol: u8, length: usize) -> u64 {
    let addresses = match (ip.addresses.source, ip.addresses.destination) {
        (SocketAddr::V4(source), SocketAddr::V4(destination)) => {
            sum_words(&source.ip().octets()) + sum_words(&destination.ip().octets())
        }
        (source, destination) => sum_words(&v6_octets(source)) + sum_words(&v6_octets(destination)),
    };
    addresses + u64::from(protocol) + length as u64
}

/// 16-bit words, big-endian, added up; an odd last byte counts as the upper half of one (RFC 1071).
/// Eight bytes at a time: carries wait in the upper half and are folded in later.
fn sum_words(bytes: &[u8]) -> u64 {
    let (eights, rest) = bytes.as_chunks::<8>();
    let mut sum = 0;
    for eight in eights {
        let number = u64::from_be_bytes(*eight);
        // Two halves of 32 bits each: what is carried beyond is still a number of 16-bit words.
        sum += (number >> 32) + (number & 0xffff_ffff);
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let number = u64::from_be_bytes(last);
    sum + (number >> 32) + (number & 0xffff_ffff)
}

/// The checksum that a header holds, of a sum of words.
fn fold_checksum(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(source: &str, destination: &str) -> AddressPair {
        AddressPair { source: source.parse().unwrap(), destination: destination.parse().unwrap() }
    }

    /// The header that Wikipedia's page on IPv4's checksum works out by hand.
    #[test]
    fn a_header_worked_out_by_hand_has_its_checksum() {
        let mut header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
            0xa8, 0x00, 0xc7,
        ];
        assert_eq!(fold_checksum(sum_words(&header)), 0xb861);
        header[10..12].copy_from_slice(&[0xb8, 0x61]);
        assert_eq!(fold_checksum(sum_words(&header)), 0, "with its checksum a header sums to nothing");
    }

    #[test]
    fn what_was_built_sums_to_nothing_whatever_its_length() {
        for (source, destination) in
            [("10.0.0.1:1234", "10.0.0.2:53"), ("[fd00::1]:1234", "[fd00::2]:53")].map(|(a, b)| (a, b))
        {
            let ip = IpHeader { addresses: ends(source, destination), ttl: 64, id: 7 };
            for length in (0..40).chain([1447, 1448]) {
                let payload: Vec<u8> = (0..length).map(|n| (n * 7 + 255) as u8).collect();
                let mut segment = Vec::new();
                let head =
                    TcpHeader { seq: u32::MAX, ack: 3, flags: 0x18, window: 502, options: &[1, 1, 1, 0] };
                append_tcp(&mut segment, &ip, &head, &payload);
                let mut datagram = Vec::new();
                append_udp(&mut datagram, &ip, &payload);
                let at = if source.starts_with('[') { 40 } else { 20 };
                for (packet, protocol) in [(&segment, TCP), (&datagram, UDP)] {
                    let transport = &packet[at..];
                    let sum = pseudo_header_sum(&ip, protocol, transport.len()) + sum_words(transport);
                    assert_eq!(fold_checksum(sum), 0, "{source}, {protocol}, {length} bytes");
                }
                assert_eq!(segment.len(), at + 24 + length);
                assert_eq!(datagram.len(), at + 8 + length);
            }
        }
    }

    #[test]
    fn a_datagram_whose_checksum_would_be_zero_says_so_in_ones() {
        let ip = IpHeader { addresses: ends("0.0.0.0:0", "0.0.0.0:0"), ttl: 64, id: 0 };
        let mut out = Vec::new();
        // Protocol and twice the length make up what is missing to 0xffff.
        let missing = 0xffff - 17 - 2 * 10;
        append_udp(&mut out, &ip, &u16::to_be_bytes(missing));
        assert_eq!(out[26..28], [0xff, 0xff]);
    }
}
