//! Splitter of a pcapng file into frames, with the clock of each interface. Never interprets a frame.
//!
//! Layout: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-04.html>.

use super::{ByteOrder, Frame, Interface as Described, Link, MAX_FRAME, ParseStep};

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const ENHANCED_PACKET: u32 = 6;

/// Room for a frame with its options; other blocks are skipped unread, whatever their size.
const MAX_BLOCK: usize = MAX_FRAME + (64 << 10);
/// A section with more interfaces than this is not a capture of a host.
const MAX_INTERFACES: usize = 65_536;
/// Of an interface's name no more is kept; Linux allows 15 bytes, Windows names devices by their GUID.
const MAX_NAME: usize = 64;

#[derive(Debug, Default)]
pub(super) struct NgParser {
    order: ByteOrder,
    in_section: bool,
    interfaces: Vec<Interface>,
    /// Of the packet read last.
    last_interface_index: usize,
    /// Dropped packets of the sections that have ended.
    dropped_before: Option<u64>,
}

#[derive(Debug)]
struct Interface {
    link_number: u16,
    link: Link,
    name: Box<[u8]>,
    snap_len: u32,
    resolution: Resolution,
    offset_s: i64,
    dropped: Option<u64>,
}

/// Ticks of an interface's clock (option `if_tsresol`).
#[derive(Debug, Clone, Copy)]
enum Resolution {
    /// Ticks of this many ns.
    Nanos(u64),
    /// This many ticks a second.
    PerSecond(u128),
}

impl Resolution {
    fn from_option(value: u8) -> Self {
        let exponent = u32::from(value & 0x7f);
        if value & 0x80 != 0 {
            return Resolution::PerSecond(1 << exponent.min(100));
        }
        match exponent {
            0..=9 => Resolution::Nanos(10u64.pow(9 - exponent)),
            _ => Resolution::PerSecond(10u128.pow(exponent.min(30))),
        }
    }

    fn nanos(self, ticks: u64) -> u64 {
        match self {
            Resolution::Nanos(each) => ticks.saturating_mul(each),
            Resolution::PerSecond(rate) => (u128::from(ticks) * 1_000_000_000 / rate) as u64,
        }
    }
}

impl Interface {
    fn time(&self, high: u32, low: u32) -> u64 {
        let ticks = u64::from(high) << 32 | u64::from(low);
        let offset_ns = self.offset_s.saturating_mul(1_000_000_000);
        self.resolution.nanos(ticks).saturating_add_signed(offset_ns)
    }
}

impl NgParser {
    pub(super) fn dropped(&self) -> Option<u64> {
        let now = self.interfaces.iter().filter_map(|interface| interface.dropped);
        now.chain(self.dropped_before).reduce(u64::saturating_add)
    }

    pub(super) fn last_interface(&self) -> Option<Described<'_>> {
        let Interface { link_number: link, snap_len, name, .. } =
            self.interfaces.get(self.last_interface_index)?;
        Some(Described { number: self.last_interface_index as u32, link: *link, snap_len: *snap_len, name })
    }

    pub(super) fn next_block<'a>(&mut self, bytes: &'a [u8]) -> Result<ParseStep<'a>, String> {
        let Some(head) = bytes.first_chunk::<12>() else {
            return Ok(ParseStep::Incomplete(12));
        };
        // The section header's type reads the same in both orders; its magic then tells which.
        if head[..4] == SECTION.to_le_bytes() {
            self.order = match head[8..12] {
                [0x4d, 0x3c, 0x2b, 0x1a] => ByteOrder::Little,
                [0x1a, 0x2b, 0x3c, 0x4d] => ByteOrder::Big,
                _ => return Err("a section header without its byte-order magic".to_owned()),
            };
            self.in_section = true;
            self.dropped_before = self.dropped();
            self.interfaces.clear();
        } else if !self.in_section {
            return Err("not a pcapng file: it does not begin with a section header".to_owned());
        }
        let kind = self.u32(head, 0);
        let length = self.u32(head, 4);
        if length < 12 || !length.is_multiple_of(4) {
            return Err(format!("a block claims {length} bytes; the file is damaged from here on"));
        }
        let used = length as usize;
        if !matches!(kind, INTERFACE | OLD_PACKET | SIMPLE_PACKET | STATISTICS | ENHANCED_PACKET) {
            return Ok(ParseStep::SkipAhead { used: u64::from(length) });
        }
        if used > MAX_BLOCK {
            return Err(format!(
                "a block of type {kind} claims {length} bytes (at most {MAX_BLOCK} are believed); \
                 the file is damaged from here on"
            ));
        }
        let Some(block) = bytes.get(8..used - 4) else {
            return Ok(ParseStep::Incomplete(used));
        };
        if bytes.len() < used {
            return Ok(ParseStep::Incomplete(used));
        }
        let frame = match kind {
            ENHANCED_PACKET => Some(self.parse_packet(block, self.field(block, 0)? as usize)?),
            OLD_PACKET => {
                Some(self.parse_packet(block, usize::from(self.field(block, 0)?.to_ne_half(self.order)))?)
            }
            SIMPLE_PACKET => Some(self.parse_simple_packet(block)?),
            INTERFACE => {
                self.add_interface(block)?;
                None
            }
            _ => {
                self.add_statistics(block)?;
                None
            }
        };
        Ok(match frame {
            Some(frame) => ParseStep::Frame { frame, used },
            None => ParseStep::Skip { used },
        })
    }

    fn u32(&self, bytes: &[u8], at: usize) -> u32 {
        self.order.u32([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
    }

    fn field(&self, block: &[u8], at: usize) -> Result<u32, String> {
        if block.len() < at + 4 {
            return Err("a block is shorter than its fields".to_owned());
        }
        Ok(self.u32(block, at))
    }

    fn parse_packet<'a>(&mut self, block: &'a [u8], interface: usize) -> Result<Frame<'a>, String> {
        self.last_interface_index = interface;
        let interface =
            self.interfaces.get(interface).ok_or("a packet of an interface that was not described")?;
        let captured = self.field(block, 12)? as usize;
        let wire_len = self.field(block, 16)?;
        let bytes =
            block.get(20..20usize.saturating_add(captured)).ok_or("a packet is longer than its block")?;
        let time_ns = interface.time(self.u32(block, 4), self.u32(block, 8));
        Ok(Frame { time_ns, link: interface.link, wire_len, bytes })
    }

    /// Has no clock of its own and no captured length: the snap length decides.
    fn parse_simple_packet<'a>(&mut self, block: &'a [u8]) -> Result<Frame<'a>, String> {
        self.last_interface_index = 0;
        let interface = self.interfaces.first().ok_or("a packet of an interface that was not described")?;
        let wire_len = self.field(block, 0)?;
        let snap = if interface.snap_len == 0 { u32::MAX } else { interface.snap_len };
        let captured = wire_len.min(snap) as usize;
        let bytes =
            block.get(4..4usize.saturating_add(captured)).ok_or("a packet is longer than its block")?;
        Ok(Frame { time_ns: 0, link: interface.link, wire_len, bytes })
    }

    fn add_interface(&mut self, block: &[u8]) -> Result<(), String> {
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(format!("a section with more than {MAX_INTERFACES} interfaces"));
        }
        let link_number = match self.order {
            ByteOrder::Little => self.field(block, 0)? as u16,
            ByteOrder::Big => (self.field(block, 0)? >> 16) as u16,
        };
        let mut interface = Interface {
            link_number,
            link: Link::from_number(link_number),
            name: Box::default(),
            snap_len: self.field(block, 4)?,
            resolution: Resolution::Nanos(1000),
            offset_s: 0,
            dropped: None,
        };
        self.for_each_option(&block[8..], |code, value| match (code, value) {
            (2, name) => interface.name = name[..name.len().min(MAX_NAME)].into(),
            (9, [resolution, ..]) => interface.resolution = Resolution::from_option(*resolution),
            (14, value) => {
                if let Some(offset) = self.u64(value) {
                    interface.offset_s = offset.cast_signed();
                }
            }
            _ => {}
        });
        self.interfaces.push(interface);
        Ok(())
    }

    fn add_statistics(&mut self, block: &[u8]) -> Result<(), String> {
        let index = self.field(block, 0)? as usize;
        let mut dropped = None;
        if let Some(options) = block.get(12..) {
            self.for_each_option(options, |code, value| {
                if code == 5 {
                    dropped = self.u64(value);
                }
            });
        }
        // A later block replaces an earlier one: the counters are totals.
        if let (Some(interface), Some(dropped)) = (self.interfaces.get_mut(index), dropped) {
            interface.dropped = Some(dropped);
        }
        Ok(())
    }

    fn u64(&self, value: &[u8]) -> Option<u64> {
        let value: [u8; 8] = value.get(..8)?.try_into().ok()?;
        Some(match self.order {
            ByteOrder::Little => u64::from_le_bytes(value),
            ByteOrder::Big => u64::from_be_bytes(value),
        })
    }

    fn for_each_option(&self, mut rest: &[u8], mut each: impl FnMut(u16, &[u8])) {
        while let Some((head, tail)) = rest.split_first_chunk::<4>() {
            let code = self.order.u16([head[0], head[1]]);
            let length = usize::from(self.order.u16([head[2], head[3]]));
            let Some(value) = tail.get(..length) else { return };
            if code == 0 {
                return;
            }
            each(code, value);
            rest = tail.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// The old packet block packs two 16-bit fields where the newer one has an interface number.
trait FirstHalf {
    fn to_ne_half(self, order: ByteOrder) -> u16;
}

impl FirstHalf for u32 {
    fn to_ne_half(self, order: ByteOrder) -> u16 {
        match order {
            ByteOrder::Little => self as u16,
            ByteOrder::Big => (self >> 16) as u16,
        }
    }
}
