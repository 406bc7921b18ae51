//! Stamp of sequence number and send time in a packet's payload. Changes the end of a payload in place, never
//! its length.
//!
//! The last bytes of a TCP or UDP payload become a marker, the packet's number among all packets sent, and
//! the sender's monotonic time. The checksum is updated. A packet whose payload is too short stays unchanged.

use toll_wire::frame::{self, IpVersion, TCP, UDP};
use toll_wire::pcap::Link;

/// Mark, number, nanoseconds; the latter two with the highest byte first.
const LENGTH: usize = MARK.len() + 8 + 8;
const MARK: [u8; 4] = *b"toll";

/// Content of a stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// Counts from 0, those without a stamp too.
    pub number: u64,
    /// CLOCK_MONOTONIC of the sender.
    pub sent_ns: u64,
}

/// Puts a stamp where there is room for one.
pub fn write(frame: &mut [u8], stamp: Stamp) {
    let Some(place) = StampLocation::locate(frame) else { return };
    // The words of the checksum that hold a byte of the stamp; the payload's last byte may be half of one.
    let words = place.begin - (place.begin - place.transport) % 2..place.begin + LENGTH;
    let before = sum_words(&frame[words.clone()]);
    let (mark, rest) = frame[place.begin..place.begin + LENGTH].split_at_mut(MARK.len());
    mark.copy_from_slice(&MARK);
    rest[..8].copy_from_slice(&stamp.number.to_be_bytes());
    rest[8..].copy_from_slice(&stamp.sent_ns.to_be_bytes());
    let after = sum_words(&frame[words]);
    let at = place.checksum;
    let old = u16::from_be_bytes([frame[at], frame[at + 1]]);
    if place.is_udp && old == 0 {
        // None was computed.
        return;
    }
    // RFC 1624, equation 3: HC' = ~(~HC + ~m + m'), m being all words that changed.
    let new = !fold_sum(u64::from(!old) + u64::from(!fold_sum(before)) + after);
    // Zero would say that there is none (RFC 768).
    let new = if place.is_udp && new == 0 { 0xffff } else { new };
    frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
}

/// The stamp of a packet that was captured whole.
pub fn read(frame: &[u8]) -> Option<Stamp> {
    let place = StampLocation::locate(frame)?;
    let bytes = frame.get(place.begin..place.begin + LENGTH)?;
    let (mark, rest) = bytes.split_at(MARK.len());
    let number = |bytes: &[u8]| bytes.try_into().map(u64::from_be_bytes).ok();
    (mark == MARK).then_some(())?;
    Some(Stamp { number: number(&rest[..8])?, sent_ns: number(&rest[8..])? })
}

/// Where in a frame what stands.
struct StampLocation {
    /// Of the TCP or UDP header.
    transport: usize,
    checksum: usize,
    is_udp: bool,
    /// Of the stamp, which ends with the payload.
    begin: usize,
}

impl StampLocation {
    /// `None`: no TCP or UDP of one piece, cut, or with too little payload.
    fn locate(frame: &[u8]) -> Option<Self> {
        let (network, ip) = frame::find_network_layer(Link::Ethernet, frame).ok()?;
        let packet = frame.get(ip..)?;
        let length =
            |at: usize| Some(usize::from(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?])));
        let (protocol, header, end) = match network {
            IpVersion::V4 => {
                // More fragments, or not the first.
                (length(6)? & 0x3fff == 0).then_some(())?;
                (*packet.get(9)?, usize::from(packet[0] & 0x0f) * 4, length(2)?)
            }
            IpVersion::V6 => (*packet.get(6)?, 40, 40 + length(4)?),
        };
        let (checksum, headers) = match protocol {
            TCP => (16, usize::from(packet.get(header + 12)? >> 4) * 4),
            UDP => (6, 8),
            _ => return None,
        };
        let begin = end.checked_sub(LENGTH)?;
        let has_room = header >= 20 && headers >= 8 && begin >= header + headers && end <= packet.len();
        let transport = ip + header;
        has_room.then(|| Self {
            transport,
            checksum: transport + checksum,
            is_udp: protocol == UDP,
            begin: ip + begin,
        })
    }
}

/// Of 16-bit words, not yet folded; half a word counts as its higher byte.
fn sum_words(words: &[u8]) -> u64 {
    words
        .chunks(2)
        .map(|pair| u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)])))
        .sum()
}

fn fold_sum(mut sum: u64) -> u16 {
    while sum >> 16 > 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_wire::packet_builder::{self, AddressPair, ETHERTYPE_V4, ETHERTYPE_V6, IpHeader, TcpHeader};

    const STAMP: Stamp = Stamp { number: 0x0102_0304_0506_0708, sent_ns: 0xfffe_fdfc_fbfa_f9f8 };

    fn frame(is_tcp: bool, is_v6: bool, payload: usize) -> Vec<u8> {
        let mut frame = Vec::new();
        let ethertype = if is_v6 { ETHERTYPE_V6 } else { ETHERTYPE_V4 };
        packet_builder::append_ethernet(&mut frame, [2; 6], [4; 6], is_tcp.then_some(7), ethertype);
        let (source, destination) =
            if is_v6 { ("[fd00::1]:9", "[fd00::2]:8") } else { ("10.1.0.1:9", "10.2.0.1:8") };
        let ends = AddressPair { source: source.parse().unwrap(), destination: destination.parse().unwrap() };
        let ip = IpHeader { addresses: ends, ttl: 64, id: 3 };
        let payload: Vec<u8> = (0..payload).map(|i| i as u8).collect();
        if is_tcp {
            let head = TcpHeader { seq: 1, ack: 2, flags: 0x18, window: 9, options: &[1, 1, 1, 1] };
            packet_builder::append_tcp(&mut frame, &ip, &head, &payload);
        } else {
            packet_builder::append_udp(&mut frame, &ip, &payload);
        }
        frame
    }

    /// What a builder would have put there for these bytes.
    fn rebuilt(frame: &[u8], is_tcp: bool, is_v6: bool) -> u16 {
        let place = StampLocation::locate(frame).unwrap();
        let mut bare = frame.to_vec();
        bare[place.checksum..place.checksum + 2].fill(0);
        let length = bare.len() - place.transport;
        let addresses =
            if is_v6 { place.transport - 32..place.transport } else { place.transport - 8..place.transport };
        let protocol = u64::from(if is_tcp { TCP } else { UDP });
        !fold_sum(
            sum_words(&bare[addresses]) + protocol + length as u64 + sum_words(&bare[place.transport..]),
        )
    }

    #[test]
    fn a_stamp_reads_back_and_the_checksum_is_that_of_the_new_bytes() {
        for (is_tcp, is_v6) in [(false, false), (false, true), (true, false), (true, true)] {
            // Odd and even places; none but the stamp as well.
            for payload in [20, 21, 22, 333, 1_200] {
                let mut stamped = frame(is_tcp, is_v6, payload);
                assert_eq!(read(&stamped), None);
                write(&mut stamped, STAMP);
                assert_eq!(read(&stamped), Some(STAMP), "{payload}");
                let place = StampLocation::locate(&stamped).unwrap();
                let told = u16::from_be_bytes([stamped[place.checksum], stamped[place.checksum + 1]]);
                assert_eq!(told, rebuilt(&stamped, is_tcp, is_v6), "{is_tcp} {is_v6} {payload}");
                // Padding behind the packet, as short frames have it, is none of its payload.
                stamped.extend([0; 7]);
                assert_eq!(read(&stamped), Some(STAMP));
            }
        }
    }

    #[test]
    fn what_has_no_room_or_is_cut_stays_as_it_is() {
        for (is_tcp, payload) in [(false, 19), (true, 19), (true, 0)] {
            let mut small = frame(is_tcp, false, payload);
            let before = small.clone();
            write(&mut small, STAMP);
            assert_eq!((read(&small), small), (None, before));
        }
        let mut whole = frame(true, false, 60);
        write(&mut whole, STAMP);
        for length in 0..whole.len() {
            let mut cut = whole[..length].to_vec();
            write(&mut cut, STAMP);
            assert_eq!((cut.as_slice(), read(&cut)), (&whole[..length], None));
        }
    }

    #[test]
    fn udp_without_a_checksum_has_none_afterwards() {
        let mut frame = frame(false, false, 40);
        frame[40..42].fill(0);
        write(&mut frame, STAMP);
        assert_eq!((&frame[40..42], read(&frame)), (&[0, 0][..], Some(STAMP)));
    }
}
