//! Formatter of binary protocol values as SQL literals. Never allocates.

use crate::protocol::Fields;
use std::fmt::Write;

/// Room for any value that is not a string: the longest is a double in full (`-1.7976931348623157e308`)
/// or a time of eleven digits of days.
const LONGEST: usize = 64;

/// A short piece of SQL.
#[derive(Clone, Copy)]
pub(super) struct Rendered {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Default for Rendered {
    fn default() -> Self {
        Rendered { bytes: [0; LONGEST], len: 0 }
    }
}

impl Rendered {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn text(&mut self, text: &[u8]) {
        let fits = text.len().min(LONGEST - self.len);
        self.bytes[self.len..self.len + fits].copy_from_slice(&text[..fits]);
        self.len += fits;
    }

    pub fn number(&mut self, mut number: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        loop {
            at -= 1;
            digits[at] = b'0' + (number % 10) as u8;
            number /= 10;
            if number == 0 {
                break;
            }
        }
        self.text(&digits[at..]);
    }

    fn signed(&mut self, number: i64) {
        if number < 0 {
            self.text(b"-");
        }
        self.number(number.unsigned_abs());
    }

    fn padded(&mut self, number: u32, width: usize) {
        // 64 bytes hold every value that is rendered here.
        let _ = write!(self, "{number:0width$}");
    }
}

impl Write for Rendered {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.text(text.as_bytes());
        Ok(())
    }
}

const UNSIGNED: u16 = 0x8000;

/// Reads a value of a binary parameter. Strings are returned, to be quoted; anything else is
/// rendered. `None`: the type is unknown, or the packet ends within the value.
pub(super) fn render<'a>(kind: u16, fields: &mut Fields<'a>, out: &mut Rendered) -> Option<Option<&'a [u8]>> {
    let unsigned = kind & UNSIGNED != 0;
    match kind & 0xff {
        // TINY
        1 => {
            let byte = fields.u8()?;
            if unsigned { out.number(u64::from(byte)) } else { out.signed(i64::from(byte.cast_signed())) }
        }
        // SHORT, YEAR
        2 | 13 => {
            let short = fields.u16()?;
            if unsigned { out.number(u64::from(short)) } else { out.signed(i64::from(short.cast_signed())) }
        }
        // LONG, INT24
        3 | 9 => {
            let long = fields.u32()?;
            if unsigned { out.number(u64::from(long)) } else { out.signed(i64::from(long.cast_signed())) }
        }
        // LONGLONG
        8 => {
            let long = fields.u64()?;
            if unsigned { out.number(long) } else { out.signed(long.cast_signed()) }
        }
        4 => write!(out, "{}", f32::from_bits(fields.u32()?)).ok()?,
        5 => {
            let double = f64::from_bits(fields.u64()?);
            // Beyond this, digits in full would not fit.
            let plain = double == 0.0 || (1e-5..1e17).contains(&double.abs());
            if plain { write!(out, "{double}").ok()? } else { write!(out, "{double:e}").ok()? }
        }
        6 => out.text(b"NULL"),
        // TIMESTAMP, DATE, DATETIME, NEWDATE and their newer forms
        7 | 10 | 12 | 14 | 17 | 18 => date(kind & 0xff == 10, fields, out)?,
        11 | 19 => time(fields, out)?,
        // DECIMAL, VARCHAR, BIT, JSON, NEWDECIMAL, ENUM, SET, BLOBs, strings, GEOMETRY, VECTOR
        0 | 15 | 16 | 242 | 245..=255 => return Some(Some(fields.lenenc_bytes()?)),
        _ => return None,
    }
    Some(None)
}

fn date(only_date: bool, fields: &mut Fields<'_>, out: &mut Rendered) -> Option<()> {
    let length = fields.u8()?;
    let bytes = fields.bytes(usize::from(length))?;
    let mut parts = Fields(bytes);
    let (year, month, day) =
        (parts.u16().unwrap_or_default(), parts.u8().unwrap_or_default(), parts.u8().unwrap_or_default());
    out.text(b"'");
    out.padded(u32::from(year), 4);
    out.text(b"-");
    out.padded(u32::from(month), 2);
    out.text(b"-");
    out.padded(u32::from(day), 2);
    if length >= 7 || !only_date {
        out.text(b" ");
        clock(&mut parts, out);
    }
    out.text(b"'");
    Some(())
}

/// Hours, minutes, seconds, and microseconds where they are sent.
fn clock(parts: &mut Fields<'_>, out: &mut Rendered) {
    for at in 0..3 {
        if at > 0 {
            out.text(b":");
        }
        out.padded(u32::from(parts.u8().unwrap_or_default()), 2);
    }
    fraction(parts, out);
}

fn fraction(parts: &mut Fields<'_>, out: &mut Rendered) {
    if let Some(micros) = parts.u32() {
        out.text(b".");
        out.padded(micros, 6);
    }
}

fn time(fields: &mut Fields<'_>, out: &mut Rendered) -> Option<()> {
    let length = fields.u8()?;
    let mut parts = Fields(fields.bytes(usize::from(length))?);
    out.text(b"'");
    if parts.u8().unwrap_or_default() != 0 {
        out.text(b"-");
    }
    let days = parts.u32().unwrap_or_default();
    let hours = u64::from(days) * 24 + u64::from(parts.u8().unwrap_or_default());
    if hours < 10 {
        out.text(b"0");
    }
    out.number(hours);
    for _ in 0..2 {
        out.text(b":");
        out.padded(u32::from(parts.u8().unwrap_or_default()), 2);
    }
    fraction(&mut parts, out);
    out.text(b"'");
    Some(())
}

/// Pieces of a string as it stands between single quotes.
pub(super) fn escaped(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (&first, after) = rest.split_first()?;
        if let Some(escape) = escape(first) {
            rest = after;
            return Some(escape);
        }
        let end = rest.iter().position(|&byte| escape(byte).is_some()).unwrap_or(rest.len());
        let (plain, after) = rest.split_at(end);
        rest = after;
        Some(plain)
    })
}

fn escape(byte: u8) -> Option<&'static [u8]> {
    Some(match byte {
        b'\'' => b"\\'",
        b'\\' => b"\\\\",
        b'\n' => b"\\n",
        b'\r' => b"\\r",
        0 => b"\\0",
        0x1a => b"\\Z",
        _ => return None,
    })
}
