//! Splitter of a pcap file into records. Never interprets a frame.
//!
//! Layout: <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-05.html>.

use super::{ByteOrder, Frame, Interface, Link, MAX_FRAME, ParseStep};

const FILE_HEADER: usize = 24;

/// A parser for one file; its header decides the rest.
#[derive(Debug, Default)]
pub(super) struct ClassicParser {
    header: Option<Header>,
}

#[derive(Debug, Clone, Copy)]
struct Header {
    order: ByteOrder,
    /// Nanoseconds in one unit of the record's fraction field.
    fraction_ns: u32,
    record_len: usize,
    snap_len: u32,
    link_number: u16,
    link: Link,
}

pub(super) fn is_known_magic(magic: [u8; 4]) -> bool {
    parse_magic(magic).is_some()
}

/// Byte order, unit of fractions, length of a record header.
fn parse_magic(magic: [u8; 4]) -> Option<(ByteOrder, u32, usize)> {
    match magic {
        [0xd4, 0xc3, 0xb2, 0xa1] => Some((ByteOrder::Little, 1000, 16)),
        [0xa1, 0xb2, 0xc3, 0xd4] => Some((ByteOrder::Big, 1000, 16)),
        [0x4d, 0x3c, 0xb2, 0xa1] => Some((ByteOrder::Little, 1, 16)),
        [0xa1, 0xb2, 0x3c, 0x4d] => Some((ByteOrder::Big, 1, 16)),
        // Kuznetsov's variant: eight more bytes in each record header.
        [0x34, 0xcd, 0xb2, 0xa1] => Some((ByteOrder::Little, 1000, 24)),
        [0xa1, 0xb2, 0xcd, 0x34] => Some((ByteOrder::Big, 1000, 24)),
        _ => None,
    }
}

impl ClassicParser {
    pub(super) fn next_record<'a>(&mut self, bytes: &'a [u8]) -> Result<ParseStep<'a>, String> {
        match self.header {
            Some(header) => header.parse_record(bytes),
            None => self.parse_file_header(bytes),
        }
    }

    fn parse_file_header<'a>(&mut self, bytes: &'a [u8]) -> Result<ParseStep<'a>, String> {
        let Some(head) = bytes.first_chunk::<FILE_HEADER>() else {
            return Ok(ParseStep::Incomplete(FILE_HEADER));
        };
        let (order, fraction_ns, record_len) = parse_magic([head[0], head[1], head[2], head[3]])
            .ok_or_else(|| "not a pcap file: its magic number is unknown".to_owned())?;
        // The upper bits tell of frame check sequences; what trails the IP packet is ignored anyway.
        let link_number = order.u32([head[20], head[21], head[22], head[23]]) as u16;
        let snap_len = order.u32([head[16], head[17], head[18], head[19]]);
        let link = Link::from_number(link_number);
        self.header = Some(Header { order, fraction_ns, record_len, snap_len, link_number, link });
        Ok(ParseStep::Skip { used: FILE_HEADER })
    }

    /// The file's only one; `None`: its header was not read.
    pub(super) fn interface(&self) -> Option<Interface<'_>> {
        let Header { snap_len, link_number: link, .. } = self.header?;
        Some(Interface { number: 0, link, snap_len, name: b"" })
    }
}

impl Header {
    #[inline]
    fn parse_record<'a>(&self, bytes: &'a [u8]) -> Result<ParseStep<'a>, String> {
        let Some(head) = bytes.first_chunk::<16>() else {
            return Ok(ParseStep::Incomplete(self.record_len));
        };
        let field = |at: usize| self.order.u32([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let captured = field(8) as usize;
        if captured > MAX_FRAME {
            return Err(format!(
                "a record claims {captured} captured bytes (at most {MAX_FRAME} are believed); \
                 the file is damaged from here on"
            ));
        }
        let used = self.record_len + captured;
        let Some(frame) = bytes.get(self.record_len..used) else {
            return Ok(ParseStep::Incomplete(used));
        };
        let time_ns = u64::from(field(0)) * 1_000_000_000 + u64::from(field(4)) * u64::from(self.fraction_ns);
        Ok(ParseStep::Frame {
            frame: Frame { time_ns, link: self.link, wire_len: field(12), bytes: frame },
            used,
        })
    }
}
