//! Rewriting of flows, so that each pass through a capture has flows of its own. Changes frames in place,
//! never their length.

use toll_wire::frame::{self, IpVersion, TCP, UDP};
use toll_wire::pcap::Link;

/// Adds one to both addresses of an IP packet, and puts its checksums right.
///
/// Both directions of a conversation change alike, so that it stays one. A checksum that was wrong is as wrong
/// afterwards (RFC 1624: from what changed alone). What is no IP stays as it is.
pub fn next_addresses(frame: &mut [u8]) {
    let Ok((network, begin)) = frame::find_network_layer(Link::Ethernet, frame) else { return };
    let Some(packet) = frame.get_mut(begin..) else { return };
    match network {
        IpVersion::V4 => rewrite_ipv4(packet),
        IpVersion::V6 => rewrite_ipv6(packet),
    }
}

fn rewrite_ipv4(packet: &mut [u8]) {
    if packet.len() < 20 {
        return;
    }
    let header_len = usize::from(packet[0] & 0x0f) * 4;
    let changes = [12, 16].map(|at| increment_address(packet, at));
    update_checksum(packet, 10, &changes);
    let is_first_fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff == 0;
    if is_first_fragment && header_len >= 20 {
        rewrite_transport(packet, packet[9], header_len, &changes);
    }
}

fn rewrite_ipv6(packet: &mut [u8]) {
    if packet.len() < 40 {
        return;
    }
    // The last four bytes of each address.
    let changes = [20, 36].map(|at| increment_address(packet, at));
    rewrite_transport(packet, packet[6], 40, &changes);
}

/// The checksum of TCP or UDP covers the addresses too.
fn rewrite_transport(packet: &mut [u8], protocol: u8, begin: usize, changes: &[AddressChange; 2]) {
    match protocol {
        TCP => update_checksum(packet, begin + 16, changes),
        // None was computed.
        UDP if packet.get(begin + 6..begin + 8) == Some(&[0, 0]) => {}
        UDP => {
            update_checksum(packet, begin + 6, changes);
            // Zero says that there is none: its other form stands for it (RFC 768).
            if let Some(sum) = packet.get_mut(begin + 6..begin + 8)
                && sum == [0, 0]
            {
                sum.fill(0xff);
            }
        }
        _ => {}
    }
}

/// Four bytes before and after.
struct AddressChange {
    old: u32,
    new: u32,
}

fn increment_address(packet: &mut [u8], at: usize) -> AddressChange {
    let old = u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]]);
    let new = old.wrapping_add(1);
    packet[at..at + 4].copy_from_slice(&new.to_be_bytes());
    AddressChange { old, new }
}

/// RFC 1624, equation 3: HC' = ~(~HC + ~m + m').
fn update_checksum(packet: &mut [u8], at: usize, changes: &[AddressChange; 2]) {
    let Some([high, low]) = packet.get(at..at + 2) else { return };
    let mut sum = u64::from(!u16::from_be_bytes([*high, *low]));
    for AddressChange { old, new } in changes {
        for word in [!old >> 16, !old & 0xffff, new >> 16, new & 0xffff] {
            sum += u64::from(word & 0xffff);
        }
    }
    while sum >> 16 > 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 1071.
    fn sum(words: &[u8], begin: u32) -> u16 {
        let mut sum = begin;
        for pair in words.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
        while sum >> 16 > 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    fn v4_frame(protocol: u8, payload: &[u8], checksum_at: usize) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
        let mut head = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0, 10, 255, 255, 255, 10, 0, 0, 9];
        let length = (head.len() + payload.len()) as u16;
        head[2..4].copy_from_slice(&length.to_be_bytes());
        let own = sum(&head, 0);
        head[10..12].copy_from_slice(&own.to_be_bytes());
        let mut payload = payload.to_vec();
        let checked = transport_sum(&head, protocol, &payload);
        payload[checksum_at..checksum_at + 2].copy_from_slice(&checked.to_be_bytes());
        frame.extend(head);
        frame.extend(payload);
        frame
    }

    fn transport_sum(head: &[u8], protocol: u8, payload: &[u8]) -> u16 {
        let addresses: u32 =
            head[12..20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        sum(payload, addresses + u32::from(protocol) + payload.len() as u32)
    }

    fn is_right(frame: &[u8]) -> bool {
        let head = &frame[14..34];
        sum(head, 0) == 0 && transport_sum(head, head[9], &frame[34..]) == 0
    }

    #[test]
    fn checksums_stay_right_through_a_thousand_rounds() {
        let mut tcp = vec![7; 33];
        tcp[12] = 0x50;
        tcp[16..18].fill(0);
        let mut udp = vec![5; 20];
        udp[6..8].fill(0);
        for (protocol, payload, at) in [(TCP, tcp, 16), (UDP, udp, 6)] {
            let mut frame = v4_frame(protocol, &payload, at);
            assert!(is_right(&frame));
            for round in 0..1_000 {
                next_addresses(&mut frame);
                assert!(is_right(&frame), "protocol {protocol}, round {round}");
            }
            // 10.255.255.255 goes on at 11.0.0.0.
            assert_eq!(&frame[26..34], &[11, 0, 3, 231, 10, 0, 3, 241]);
        }
    }

    #[test]
    fn what_is_no_ip_or_is_cut_stays_as_it_is_or_as_long() {
        let mut arp = vec![0; 60];
        arp[12..14].copy_from_slice(&[8, 6]);
        let before = arp.clone();
        next_addresses(&mut arp);
        assert_eq!(arp, before);
        let whole = v4_frame(TCP, &[7; 20], 16);
        for length in 0..whole.len() {
            let mut cut = whole[..length].to_vec();
            next_addresses(&mut cut);
            assert_eq!(cut.len(), length);
        }
    }

    #[test]
    fn udp_without_a_checksum_has_none_afterwards() {
        let mut frame = v4_frame(UDP, &[0; 12], 6);
        frame[40..42].fill(0);
        next_addresses(&mut frame);
        assert_eq!(frame[40..42], [0, 0]);
    }
}
