//! Parser of the hex dump text of `tcpdump -x`, `-xx`, `-X` or `-XX`. Never trusts the text beside the dump.
//!
//! Addresses, ports and lengths come from the bytes. Only the time comes from the line above them.

use super::text_clock::TextClock;
use super::{Frame, Link, MAX_FRAME};
use crate::log::Zone;
use memchr::memchr;

/// A line longer than this is no line of tcpdump's; its rest is passed over.
const MAX_LINE: usize = 4096;
/// Bytes dumped on a line.
const PER_LINE: usize = 16;

/// Puts frames together from lines.
pub(super) struct TextReader {
    clock: TextClock,
    /// The head of a line whose end has not arrived.
    line: Vec<u8>,
    time_ns: u64,
    packet: Vec<u8>,
    /// A line of the dump is missing or damaged: what follows it cannot be placed.
    broken: bool,
    link: Option<Link>,
}

impl TextReader {
    pub(super) fn new(zone: Box<dyn Zone + Send>) -> Self {
        TextReader {
            clock: TextClock::new(zone),
            line: Vec::new(),
            time_ns: 0,
            packet: Vec::new(),
            broken: false,
            link: None,
        }
    }

    pub(super) fn feed(&mut self, mut chunk: &[u8], each: &mut impl FnMut(&Frame<'_>)) {
        while let Some(end) = memchr(b'\n', chunk) {
            if self.line.is_empty() {
                self.read_line(&chunk[..end], each);
            } else {
                self.extend_line(&chunk[..end]);
                let line = std::mem::take(&mut self.line);
                self.read_line(&line, each);
                self.line = line;
                self.line.clear();
            }
            chunk = &chunk[end + 1..];
        }
        self.extend_line(chunk);
    }

    fn extend_line(&mut self, bytes: &[u8]) {
        let fits = bytes.len().min(MAX_LINE - self.line.len());
        self.line.extend_from_slice(&bytes[..fits]);
    }

    pub(super) fn finish(&mut self, each: &mut impl FnMut(&Frame<'_>)) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.read_line(&line, each);
        }
        self.emit(each);
    }

    fn read_line(&mut self, line: &[u8], each: &mut impl FnMut(&Frame<'_>)) {
        let trimmed = line.trim_ascii_start();
        if let Some((offset, hex)) = parse_dump_line(trimmed) {
            self.append_dump(offset, hex);
            return;
        }
        // The second line of `-v`, and lines that a protocol's own printer adds.
        let continues = line.len() - trimmed.len() > 1 || line.first() == Some(&b'\t');
        if trimmed.is_empty() || continues {
            return;
        }
        self.emit(each);
        self.time_ns = self.clock.parse_time(line);
    }

    fn append_dump(&mut self, offset: usize, hex: &[u8]) {
        let (bytes, count) = decode_hex(hex);
        if offset == 0 {
            self.packet.clear();
            self.broken = false;
        }
        self.broken |= offset != self.packet.len() || self.packet.len() + count > MAX_FRAME;
        if !self.broken {
            self.packet.extend_from_slice(&bytes[..count]);
        }
    }

    fn emit(&mut self, each: &mut impl FnMut(&Frame<'_>)) {
        if self.packet.is_empty() {
            return;
        }
        let link = guess_link(&self.packet, self.link);
        self.link = Some(link);
        let wire_len = self.packet.len() as u32;
        each(&Frame { time_ns: self.time_ns, link, wire_len, bytes: &self.packet });
        self.packet.clear();
    }
}

/// True if these first bytes of an input are tcpdump text with a hex dump.
pub(super) fn is_hex_dump(prefix: &[u8]) -> bool {
    prefix.split(|&byte| byte == b'\n').any(|line| {
        matches!(parse_dump_line(line.trim_ascii_start()), Some((0, hex)) if line.first().is_some_and(u8::is_ascii_whitespace) && decode_hex(hex).1 > 0)
    })
}

/// Offset and digits of a line such as `0x0010:  7f00 0001  ....`.
fn parse_dump_line(trimmed: &[u8]) -> Option<(usize, &[u8])> {
    let rest = trimmed.strip_prefix(b"0x")?;
    let colon = rest.iter().take(9).position(|&byte| byte == b':')?;
    let mut offset = 0;
    for &digit in &rest[..colon] {
        offset = offset << 4 | usize::from(hex_digit(digit)?);
    }
    (colon >= 4).then_some((offset, rest[colon + 1..].trim_ascii_start()))
}

/// Groups of two or four digits, one space between them. Two spaces end them: text follows.
fn decode_hex(hex: &[u8]) -> ([u8; PER_LINE], usize) {
    let mut bytes = [0; PER_LINE];
    let mut count = 0;
    let mut rest = hex;
    while count < PER_LINE {
        let Some(byte) = hex_byte(rest) else { break };
        bytes[count] = byte;
        count += 1;
        rest = &rest[2..];
        if let [b' ', after @ ..] = rest {
            rest = after;
        }
    }
    (bytes, count)
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let [high, low, ..] = digits else { return None };
    Some(hex_digit(*high)? << 4 | hex_digit(*low)?)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// Links in the order in which they are tried, with where IP begins in them.
const LINKS: [(Link, usize); 7] = [
    (Link::Raw, 0),
    (Link::Ethernet, 14),
    (Link::LinuxSll2, 20),
    (Link::LinuxSll, 16),
    (Link::Ethernet, 18),
    (Link::VlanTag, 4),
    (Link::Null, 4),
];

/// The text does not say what the bytes begin with: `-x` leaves the link layer out, `-xx` has
/// it. An IP header shows itself by its own length.
fn guess_link(bytes: &[u8], former: Option<Link>) -> Link {
    let fits = |link: Link, at: usize, exactly: bool| {
        is_ip(bytes.get(at..).unwrap_or_default(), exactly) && type_agrees(bytes, link, at)
    };
    for exactly in [true, false] {
        let former = LINKS.iter().filter(|(link, _)| Some(*link) == former);
        if let Some((link, _)) = former.chain(&LINKS).find(|(link, at)| fits(*link, *at, exactly)) {
            return *link;
        }
    }
    // ARP and others that `-xx` shows with their Ethernet header; nothing is lost in any case.
    former.unwrap_or(Link::Ethernet)
}

/// An IP header whose length is that of the bytes (`exactly`), or more (cut) or a little less (padded).
fn is_ip(bytes: &[u8], exactly: bool) -> bool {
    let (least, length) = match bytes {
        [first, _, high, low, ..] if first >> 4 == 4 && first & 15 >= 5 => {
            (20, usize::from(u16::from_be_bytes([*high, *low])))
        }
        [first, _, _, _, high, low, ..] if first >> 4 == 6 => {
            (40, usize::from(u16::from_be_bytes([*high, *low])) + 40)
        }
        _ => return false,
    };
    // Padding of the shortest Ethernet frame.
    const PADDING: usize = 46;
    if exactly {
        length == bytes.len()
    } else {
        length == 0 || length >= least && length + PADDING >= bytes.len()
    }
}

fn type_agrees(bytes: &[u8], link: Link, ip_at: usize) -> bool {
    let type_at = match (link, ip_at) {
        (Link::Raw | Link::Null | Link::Unsupported(_), _) => return true,
        (Link::LinuxSll2, _) => 0,
        (_, at) => at - 2,
    };
    matches!(bytes[type_at..], [0x08, 0x00, ..] | [0x86, 0xdd, ..])
}
