//! Parser of packets in a block of the receive ring. Validates every offset; never touches the ring itself.
//!
//! Layout: TPACKET_V3 (Documentation/networking/packet_mmap.rst). All fields are native-endian except network
//! data.

use thiserror::Error;

/// A packet as the kernel copied it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedPacket<'a> {
    /// Unix time, ns.
    pub time_ns: u64,
    /// Bytes that it had, of which `bytes` may hold the first only; a cooked header counts in both.
    pub wire_len: u32,
    pub bytes: &'a [u8],
}

/// Bytes before the IP header of the packets returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkType {
    /// Nothing: LINKTYPE_RAW, 101.
    Raw,
    /// What Linux knows of any device's packet, with VLAN tags put back: LINKTYPE_LINUX_SLL, 113.
    Cooked,
}

/// Result of parsing a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BlockSummary {
    pub packets: u64,
    /// Of the first and last packet; 0: there was none.
    pub first_ns: u64,
    pub last_ns: u64,
}

/// The kernel would not write this.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the kernel's ring cannot be read: {0}")]
pub struct DamagedBlock(&'static str);

/// Why a walk ended early.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WalkError<E> {
    Damaged(DamagedBlock),
    /// The callback refused further packets.
    Refused(E),
}

impl<E> From<DamagedBlock> for WalkError<E> {
    fn from(damaged: DamagedBlock) -> Self {
        Self::Damaged(damaged)
    }
}

// Of a block.
pub(crate) const STATUS_AT: usize = 8;
const PACKETS_AT: usize = 12;
const FIRST_PACKET_AT: usize = 16;
const BLOCK_HEADER: usize = 48;
// Of a packet: tpacket3_hdr, then sockaddr_ll.
const PACKET_HEADER: usize = 68;
/// Kinds of packets, addresses and types as they stand in a cooked header.
const COOKED_HEADER: usize = 16;
const TAG: usize = 4;

const ETHERTYPE_V4: u16 = 0x0800;
const ETHERTYPE_V6: u16 = 0x86dd;
const TAGGED: u16 = 0x8100;
const SERVICE_TAGGED: u16 = 0x88a8;

/// Hands every packet of a block to `each`, in order. The room before a packet is written to, for its cooked header.
///
/// # Errors
/// What stands in the block contradicts itself, or `each` refuses; what was handed on before stands.
pub(crate) fn walk_packets<E>(
    block: &mut [u8],
    link: LinkType,
    each: &mut impl FnMut(&CapturedPacket<'_>) -> Result<(), E>,
) -> Result<BlockSummary, WalkError<E>> {
    if block.len() < BLOCK_HEADER {
        return Err(DamagedBlock("a block is shorter than its header").into());
    }
    let count = u32_at(block, PACKETS_AT);
    let mut at = u32_at(block, FIRST_PACKET_AT) as usize;
    let mut walked = BlockSummary::default();
    for nth in 0..count {
        let head = PacketHead::read(block, at)?;
        let captured = head.captured(block, at, link)?;
        if nth == 0 {
            walked.first_ns = captured.time_ns;
        }
        walked.last_ns = captured.time_ns;
        each(&captured).map_err(WalkError::Refused)?;
        walked.packets += 1;
        if head.next == 0 && nth + 1 < count {
            return Err(DamagedBlock("packets are fewer than were counted").into());
        }
        at = at.saturating_add(head.next as usize);
    }
    Ok(walked)
}

/// What is said before a packet.
struct PacketHead {
    next: u32,
    seconds: u32,
    nanoseconds: u32,
    captured_length: u32,
    length: u32,
    status: u32,
    packet_at: u16,
    tag: u32,
    tag_type: u16,
    /// sockaddr_ll from its protocol on: in the network's order.
    protocol: u16,
    hardware: u16,
    kind: u8,
    address_length: u8,
    address: [u8; 8],
}

impl PacketHead {
    #[inline]
    fn read(block: &[u8], at: usize) -> Result<Self, DamagedBlock> {
        let bytes: &[u8; PACKET_HEADER] = block
            .get(at..)
            .and_then(|rest| rest.first_chunk())
            .ok_or(DamagedBlock("a packet's header lies outside its block"))?;
        let mut address = [0; 8];
        address.copy_from_slice(&bytes[60..68]);
        Ok(Self {
            next: u32_at(bytes, 0),
            seconds: u32_at(bytes, 4),
            nanoseconds: u32_at(bytes, 8),
            captured_length: u32_at(bytes, 12),
            length: u32_at(bytes, 16),
            status: u32_at(bytes, 20),
            packet_at: u16_at(bytes, 24),
            tag: u32_at(bytes, 32),
            tag_type: u16_at(bytes, 36),
            protocol: u16::from_be_bytes([bytes[50], bytes[51]]),
            hardware: u16_at(bytes, 56),
            kind: bytes[58],
            address_length: bytes[59],
            address,
        })
    }

    #[inline]
    fn captured<'a>(
        &self,
        block: &'a mut [u8],
        at: usize,
        link: LinkType,
    ) -> Result<CapturedPacket<'a>, DamagedBlock> {
        let begin = at + usize::from(self.packet_at);
        let end = begin + self.captured_length as usize;
        if end > block.len() {
            return Err(DamagedBlock("a packet lies outside its block"));
        }
        let begin = match link {
            LinkType::Raw => begin,
            LinkType::Cooked => {
                let (header, length) = self.cooked_header(block.get(begin).copied());
                if usize::from(self.packet_at) < PACKET_HEADER + length {
                    return Err(DamagedBlock("there is no room before a packet"));
                }
                block[begin - length..begin].copy_from_slice(&header[..length]);
                begin - length
            }
        };
        let time_ns = u64::from(self.seconds) * 1_000_000_000 + u64::from(self.nanoseconds);
        let before = (end - begin) as u32 - self.captured_length;
        let wire_len = self.length.max(self.captured_length).saturating_add(before);
        Ok(CapturedPacket { time_ns, wire_len, bytes: &block[begin..end] })
    }

    /// The header and its length: <https://www.tcpdump.org/linktypes/LINKTYPE_LINUX_SLL.html>; a tag stands where it
    /// stood in the frame, before the type. `first`: byte of the packet.
    fn cooked_header(&self, first: Option<u8>) -> ([u8; COOKED_HEADER + TAG], usize) {
        let is_tag = matches!(self.protocol, TAGGED | SERVICE_TAGGED);
        let protocol = match first.map(|first| first >> 4) {
            // Sent through a device that cannot tag by itself: the kernel named the tag's type, and skipped the tag.
            Some(4) if is_tag => ETHERTYPE_V4,
            Some(6) if is_tag => ETHERTYPE_V6,
            _ => self.protocol,
        };
        let mut header = [0; COOKED_HEADER + TAG];
        header[0..2].copy_from_slice(&u16::from(self.kind).to_be_bytes());
        header[2..4].copy_from_slice(&self.hardware.to_be_bytes());
        header[4..6].copy_from_slice(&u16::from(self.address_length).to_be_bytes());
        header[6..14].copy_from_slice(&self.address);
        if self.status & libc::TP_STATUS_VLAN_VALID == 0 {
            header[14..16].copy_from_slice(&protocol.to_be_bytes());
            return (header, COOKED_HEADER);
        }
        let names_type = self.status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
        let tag_type = if names_type { self.tag_type } else { TAGGED };
        header[14..16].copy_from_slice(&tag_type.to_be_bytes());
        header[16..18].copy_from_slice(&(self.tag as u16).to_be_bytes());
        header[18..20].copy_from_slice(&protocol.to_be_bytes());
        (header, COOKED_HEADER + TAG)
    }
}

#[inline]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::convert::Infallible;

    const ROOM: usize = 96;

    /// A block as the kernel lays it out; `tag`: of each packet.
    fn block(packets: &[(u64, u32, &[u8])], tag: Option<u16>, protocol: u16) -> Vec<u8> {
        let mut block = vec![0u8; BLOCK_HEADER];
        block[PACKETS_AT..PACKETS_AT + 4].copy_from_slice(&(packets.len() as u32).to_ne_bytes());
        block[FIRST_PACKET_AT..FIRST_PACKET_AT + 4].copy_from_slice(&(BLOCK_HEADER as u32).to_ne_bytes());
        for (nth, (time_ns, length, bytes)) in packets.iter().enumerate() {
            let size = (ROOM + bytes.len()).next_multiple_of(16);
            let mut packet = vec![0u8; size];
            let next = if nth + 1 < packets.len() { size as u32 } else { 0 };
            let fields = [
                (0, next),
                (4, (time_ns / 1_000_000_000) as u32),
                (8, (time_ns % 1_000_000_000) as u32),
                (12, bytes.len() as u32),
                (16, *length),
                (20, tag.map_or(1, |_| 1 | libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID)),
                (32, u32::from(tag.unwrap_or(0))),
            ];
            for (at, field) in fields {
                packet[at..at + 4].copy_from_slice(&field.to_ne_bytes());
            }
            packet[24..26].copy_from_slice(&(ROOM as u16).to_ne_bytes());
            packet[36..38].copy_from_slice(&TAGGED.to_ne_bytes());
            packet[50..52].copy_from_slice(&protocol.to_be_bytes());
            packet[56..58].copy_from_slice(&1u16.to_ne_bytes());
            packet[58] = 4;
            packet[59] = 6;
            packet[60..66].copy_from_slice(&[1, 2, 3, 4, 5, 6]);
            packet[ROOM..ROOM + bytes.len()].copy_from_slice(bytes);
            block.extend(packet);
        }
        block
    }

    /// Time, true length and bytes of each packet.
    type Found = Vec<(u64, u32, Vec<u8>)>;

    fn walked(block: &mut [u8], link: LinkType) -> Result<(Found, BlockSummary), WalkError<Infallible>> {
        let mut found = Vec::new();
        let walked = walk_packets(block, link, &mut |packet: &CapturedPacket<'_>| {
            found.push((packet.time_ns, packet.wire_len, packet.bytes.to_vec()));
            Ok(())
        })?;
        Ok((found, walked))
    }

    const PACKETS: [(u64, u32, &[u8]); 3] =
        [(1_700_000_000_123_456_789, 4, b"\x45abc"), (1_700_000_001_000_000_000, 5000, b"\x45"), (7, 0, b"")];

    #[test]
    fn packets_are_found_where_the_kernel_put_them() {
        let (found, summary) = walked(&mut block(&PACKETS, None, ETHERTYPE_V4), LinkType::Raw).unwrap();
        let expected: Vec<_> =
            PACKETS.iter().map(|(ns, length, bytes)| (*ns, *length, bytes.to_vec())).collect();
        assert_eq!(found, expected);
        assert_eq!(summary, BlockSummary { packets: 3, first_ns: 1_700_000_000_123_456_789, last_ns: 7 });
        assert_eq!(walked(&mut block(&[], None, 0), LinkType::Raw).unwrap().1, BlockSummary::default());
    }

    #[test]
    fn a_cooked_header_says_what_the_kernel_said_and_holds_the_tag() {
        let (found, _) = walked(&mut block(&PACKETS[..1], None, ETHERTYPE_V4), LinkType::Cooked).unwrap();
        let header = [0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 8, 0];
        assert_eq!(found, [(PACKETS[0].0, 20, [&header[..], b"\x45abc"].concat())]);
        let (found, _) =
            walked(&mut block(&PACKETS[..1], Some(100), ETHERTYPE_V4), LinkType::Cooked).unwrap();
        let header = [0, 4, 0, 1, 0, 6, 1, 2, 3, 4, 5, 6, 0, 0, 0x81, 0, 0, 100, 8, 0];
        assert_eq!(found, [(PACKETS[0].0, 24, [&header[..], b"\x45abc"].concat())]);
    }

    #[test]
    fn a_type_that_only_names_a_tag_is_told_by_the_packet_itself() {
        let (found, _) = walked(&mut block(&PACKETS[..1], None, TAGGED), LinkType::Cooked).unwrap();
        assert_eq!(found[0].2[14..16], [8, 0]);
        let v6: [(u64, u32, &[u8]); 1] = [(1, 1, b"\x60")];
        let (found, _) = walked(&mut block(&v6, None, SERVICE_TAGGED), LinkType::Cooked).unwrap();
        assert_eq!(found[0].2[14..16], [0x86, 0xdd]);
    }

    #[test]
    fn whoever_refuses_a_packet_is_handed_no_other() {
        let mut seen = 0;
        let ended = walk_packets(
            &mut block(&PACKETS, None, ETHERTYPE_V4),
            LinkType::Raw,
            &mut |_: &CapturedPacket<'_>| {
                seen += 1;
                if seen == 2 { Err("full") } else { Ok(()) }
            },
        );
        assert_eq!((ended, seen), (Err(WalkError::Refused("full")), 2));
    }

    #[test]
    fn offsets_that_lead_astray_are_named() {
        let whole = block(&PACKETS, None, ETHERTYPE_V4);
        let second = BLOCK_HEADER + u32_at(&whole, BLOCK_HEADER) as usize;
        let cases: [(usize, u32, &str); 5] = [
            (FIRST_PACKET_AT, u32::MAX, "a packet's header lies outside its block"),
            (PACKETS_AT, 4, "packets are fewer than were counted"),
            (BLOCK_HEADER, u32::MAX, "a packet's header lies outside its block"),
            (second + 12, 1 << 20, "a packet lies outside its block"),
            (second, 0, "packets are fewer than were counted"),
        ];
        for (at, value, expected) in cases {
            let mut block = whole.clone();
            block[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            assert_eq!(
                walked(&mut block, LinkType::Raw).unwrap_err(),
                WalkError::Damaged(DamagedBlock(expected)),
                "{at}"
            );
        }
        let mut no_room = whole;
        no_room[BLOCK_HEADER + 24..BLOCK_HEADER + 26].copy_from_slice(&70u16.to_ne_bytes());
        let said = walked(&mut no_room, LinkType::Cooked).unwrap_err();
        assert_eq!(said, WalkError::Damaged(DamagedBlock("there is no room before a packet")));
        assert!(matches!(walked(&mut [0; 20], LinkType::Raw), Err(WalkError::Damaged(_))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn no_block_leads_outside_itself(
            noise in prop::collection::vec((0usize..600, any::<u32>()), 0..6), length in 0usize..700, cooked: bool,
        ) {
            let mut block = block(&PACKETS, Some(3), ETHERTYPE_V4);
            block.resize(length, 0);
            for (at, value) in noise {
                let value = if value % 3 == 0 { value % 200 } else { value };
                if let Some(field) = block.get_mut(at & !3..(at & !3) + 4) {
                    field.copy_from_slice(&value.to_ne_bytes());
                }
            }
            // A count of billions with a good offset of 0 would go on for long: it must end by itself.
            let _ = walked(&mut block, if cooked { LinkType::Cooked } else { LinkType::Raw });
        }
    }
}
