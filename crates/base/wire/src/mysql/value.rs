//! Formatter of binary protocol values as SQL literals. Never allocates.

use crate::protocol::FieldReader;
use std::fmt::Write;

/// Room for any value that is not a string: the longest is a double in full (`-1.7976931348623157e308`)
/// or a time of eleven digits of days.
const MAX_LITERAL: usize = 64;

/// A short piece of SQL.
#[derive(Clone, Copy)]
pub(super) struct SqlLiteral {
    bytes: [u8; MAX_LITERAL],
    len: usize,
}

impl Default for SqlLiteral {
    fn default() -> Self {
        SqlLiteral { bytes: [0; MAX_LITERAL], len: 0 }
    }
}

impl SqlLiteral {
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    pub fn clear(&mut self) {
        self.len = 0;
    }

    pub fn push_text(&mut self, text: &[u8]) {
        let fits = text.len().min(MAX_LITERAL - self.len);
        self.bytes[self.len..self.len + fits].copy_from_slice(&text[..fits]);
        self.len += fits;
    }

    pub fn push_number(&mut self, mut number: u64) {
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
        self.push_text(&digits[at..]);
    }

    fn push_signed(&mut self, number: i64) {
        if number < 0 {
            self.push_text(b"-");
        }
        self.push_number(number.unsigned_abs());
    }

    fn push_padded(&mut self, number: u32, width: usize) {
        // 64 bytes hold every value that is rendered here.
        let _ = write!(self, "{number:0width$}");
    }
}

impl Write for SqlLiteral {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push_text(text.as_bytes());
        Ok(())
    }
}

const UNSIGNED: u16 = 0x8000;

/// Reads a value of a binary parameter. Strings are returned, to be quoted; anything else is
/// rendered. `None`: the type is unknown, or the packet ends within the value.
pub(super) fn render_value<'a>(
    kind: u16,
    fields: &mut FieldReader<'a>,
    out: &mut SqlLiteral,
) -> Option<Option<&'a [u8]>> {
    let unsigned = kind & UNSIGNED != 0;
    match kind & 0xff {
        // TINY
        1 => {
            let byte = fields.u8()?;
            if unsigned {
                out.push_number(u64::from(byte))
            } else {
                out.push_signed(i64::from(byte.cast_signed()))
            }
        }
        // SHORT, YEAR
        2 | 13 => {
            let short = fields.u16()?;
            if unsigned {
                out.push_number(u64::from(short))
            } else {
                out.push_signed(i64::from(short.cast_signed()))
            }
        }
        // LONG, INT24
        3 | 9 => {
            let long = fields.u32()?;
            if unsigned {
                out.push_number(u64::from(long))
            } else {
                out.push_signed(i64::from(long.cast_signed()))
            }
        }
        // LONGLONG
        8 => {
            let long = fields.u64()?;
            if unsigned { out.push_number(long) } else { out.push_signed(long.cast_signed()) }
        }
        4 => write!(out, "{}", f32::from_bits(fields.u32()?)).ok()?,
        5 => {
            let double = f64::from_bits(fields.u64()?);
            // Beyond this, digits in full would not fit.
            let plain = double == 0.0 || (1e-5..1e17).contains(&double.abs());
            if plain { write!(out, "{double}").ok()? } else { write!(out, "{double:e}").ok()? }
        }
        6 => out.push_text(b"NULL"),
        // TIMESTAMP, DATE, DATETIME, NEWDATE and their newer forms
        7 | 10 | 12 | 14 | 17 | 18 => render_date(kind & 0xff == 10, fields, out)?,
        11 | 19 => render_time(fields, out)?,
        // DECIMAL, VARCHAR, BIT, JSON, NEWDECIMAL, ENUM, SET, BLOBs, strings, GEOMETRY, VECTOR
        0 | 15 | 16 | 242 | 245..=255 => return Some(Some(fields.lenenc_bytes()?)),
        _ => return None,
    }
    Some(None)
}

fn render_date(only_date: bool, fields: &mut FieldReader<'_>, out: &mut SqlLiteral) -> Option<()> {
    let length = fields.u8()?;
    let bytes = fields.bytes(usize::from(length))?;
    let mut parts = FieldReader(bytes);
    let (year, month, day) =
        (parts.u16().unwrap_or_default(), parts.u8().unwrap_or_default(), parts.u8().unwrap_or_default());
    out.push_text(b"'");
    out.push_padded(u32::from(year), 4);
    out.push_text(b"-");
    out.push_padded(u32::from(month), 2);
    out.push_text(b"-");
    out.push_padded(u32::from(day), 2);
    if length >= 7 || !only_date {
        out.push_text(b" ");
        render_time_of_day(&mut parts, out);
    }
    out.push_text(b"'");
    Some(())
}

/// Hours, minutes, seconds, and microseconds where they are sent.
fn render_time_of_day(parts: &mut FieldReader<'_>, out: &mut SqlLiteral) {
    for at in 0..3 {
        if at > 0 {
            out.push_text(b":");
        }
        out.push_padded(u32::from(parts.u8().unwrap_or_default()), 2);
    }
    render_fraction(parts, out);
}

fn render_fraction(parts: &mut FieldReader<'_>, out: &mut SqlLiteral) {
    if let Some(micros) = parts.u32() {
        out.push_text(b".");
        out.push_padded(micros, 6);
    }
}

fn render_time(fields: &mut FieldReader<'_>, out: &mut SqlLiteral) -> Option<()> {
    let length = fields.u8()?;
    let mut parts = FieldReader(fields.bytes(usize::from(length))?);
    out.push_text(b"'");
    if parts.u8().unwrap_or_default() != 0 {
        out.push_text(b"-");
    }
    let days = parts.u32().unwrap_or_default();
    let hours = u64::from(days) * 24 + u64::from(parts.u8().unwrap_or_default());
    if hours < 10 {
        out.push_text(b"0");
    }
    out.push_number(hours);
    for _ in 0..2 {
        out.push_text(b":");
        out.push_padded(u32::from(parts.u8().unwrap_or_default()), 2);
    }
    render_fraction(&mut parts, out);
    out.push_text(b"'");
    Some(())
}

/// Pieces of a string as it stands between single quotes.
pub(super) fn escape_pieces(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (&first, after) = rest.split_first()?;
        if let Some(escape) = escape_byte(first) {
            rest = after;
            return Some(escape);
        }
        let end = rest.iter().position(|&byte| escape_byte(byte).is_some()).unwrap_or(rest.len());
        let (plain, after) = rest.split_at(end);
        rest = after;
        Some(plain)
    })
}

fn escape_byte(byte: u8) -> Option<&'static [u8]> {
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
