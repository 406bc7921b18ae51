//! Encoder of statements into request bytes, with minimal work for each request.

use super::{Param, write_digits};
use toll_mysql::placeholder::split_at_placeholders;
use toll_stats::random::Rng;
use toll_wire::protocol::command::{COM_QUERY, COM_STMT_EXECUTE};
use toll_wire::protocol::{MAX_PAYLOAD, put_lenenc, put_packets};

const TYPE_LONG: u8 = 3;
const TYPE_LONGLONG: u8 = 8;
const TYPE_STRING: u8 = 254;

/// A statement with everything encoded beforehand that does not change from one to the next.
#[derive(Debug, Clone)]
pub struct Statement {
    pub sql: String,
    pub params: Vec<Param>,
    /// True: sent as text even if the run prepares statements.
    pub text_only: bool,
    /// Header, COM_STMT_EXECUTE, id (0), flags, iterations, NULL bitmap.
    head: Vec<u8>,
    /// "New types follow", and the types.
    types: Vec<u8>,
    /// The text between placeholders, one piece more than there are placeholders.
    pieces: Vec<Vec<u8>>,
}

/// Offset of the statement id within an EXECUTE request.
const ID_AT: usize = 5;

impl Statement {
    /// `sql` has one `?` for each of `params`; a `?` inside quotes or backticks is text.
    pub fn new(sql: impl Into<String>, params: Vec<Param>) -> Result<Self, String> {
        let sql = sql.into();
        let pieces = split_at_placeholders(&sql);
        if pieces.len() != params.len() + 1 {
            return Err(format!(
                "{sql:?} has {} placeholders and {} parameters: give one for each",
                pieces.len() - 1,
                params.len()
            ));
        }
        let mut head = vec![0, 0, 0, 0, COM_STMT_EXECUTE, 0, 0, 0, 0, 0, 1, 0, 0, 0];
        let mut types = Vec::new();
        if !params.is_empty() {
            head.resize(head.len() + params.len().div_ceil(8), 0);
            types.push(1);
            types.extend(params.iter().flat_map(|p| [p.wire_type(), 0]));
        }
        Ok(Self { sql, params, text_only: false, head, types, pieces })
    }

    /// A statement that is sent as it stands: its `?`s are its own.
    pub fn literal(sql: impl Into<String>) -> Self {
        let sql = sql.into();
        let pieces = vec![sql.clone().into_bytes()];
        Self { sql, params: Vec::new(), text_only: true, head: Vec::new(), types: Vec::new(), pieces }
    }

    pub fn as_text(mut self) -> Self {
        self.text_only = true;
        self
    }

    /// Appends an EXECUTE. The server remembers types: they travel only where `typed` is false.
    #[inline]
    pub fn write_execute(&self, out: &mut Vec<u8>, id: u32, typed: bool, rng: &mut Rng, kept: &mut i64) {
        let begin = out.len();
        out.extend_from_slice(&self.head);
        out[begin + ID_AT..begin + ID_AT + 4].copy_from_slice(&id.to_le_bytes());
        if !self.params.is_empty() {
            if typed {
                out.push(0);
            } else {
                out.extend_from_slice(&self.types);
            }
            for param in &self.params {
                param.write_binary(out, rng, kept);
            }
        }
        write_length(out, begin);
    }

    /// Appends a QUERY with the values written into the text.
    #[inline]
    pub fn write_query(&self, out: &mut Vec<u8>, rng: &mut Rng, kept: &mut i64) {
        let begin = out.len();
        out.extend_from_slice(&[0, 0, 0, 0, COM_QUERY]);
        out.extend_from_slice(&self.pieces[0]);
        for (param, piece) in self.params.iter().zip(&self.pieces[1..]) {
            param.write_text(out, rng, kept);
            out.extend_from_slice(piece);
        }
        write_length(out, begin);
    }
}

/// A QUERY of a text that has no parameters.
pub fn write_plain_query(out: &mut Vec<u8>, sql: &str) {
    let begin = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, COM_QUERY]);
    out.extend_from_slice(sql.as_bytes());
    write_length(out, begin);
}

/// Writes the length of what follows the header at `begin`; splits a payload too long for one packet.
#[inline]
fn write_length(out: &mut Vec<u8>, begin: usize) {
    let length = out.len() - begin - 4;
    if length >= MAX_PAYLOAD {
        let payload = out.split_off(begin + 4);
        out.truncate(begin);
        put_packets(out, 0, &payload);
        return;
    }
    out[begin..begin + 3].copy_from_slice(&(length as u32).to_le_bytes()[..3]);
}

impl Param {
    fn wire_type(&self) -> u8 {
        match self {
            Self::Id { rows, .. } | Self::Number { rows, .. } if *rows <= i32::MAX as u64 => TYPE_LONG,
            Self::Id { .. } | Self::Number { .. } | Self::Kept { .. } | Self::Uniform { .. } => TYPE_LONGLONG,
            Self::Digits { .. } | Self::Choice(_) => TYPE_STRING,
        }
    }

    /// The number to send, where this is one.
    #[inline]
    fn draw_number(&self, rng: &mut Rng, kept: &mut i64) -> Option<i64> {
        Some(match self {
            Self::Id { rows, distribution } => {
                *kept = distribution.draw(rng, *rows) as i64;
                *kept
            }
            Self::Number { rows, distribution } => distribution.draw(rng, *rows) as i64,
            Self::Kept { plus } => kept.wrapping_add(*plus),
            Self::Uniform { low, high } => {
                low.wrapping_add(rng.below(high.abs_diff(*low).saturating_add(1)) as i64)
            }
            Self::Digits { .. } | Self::Choice(_) => return None,
        })
    }

    #[inline]
    fn write_binary(&self, out: &mut Vec<u8>, rng: &mut Rng, kept: &mut i64) {
        if let Some(number) = self.draw_number(rng, kept) {
            let width = if self.wire_type() == TYPE_LONG { 4 } else { 8 };
            out.extend_from_slice(&number.to_le_bytes()[..width]);
            return;
        }
        match self {
            Self::Digits { groups } => {
                put_lenenc(out, (groups * 12).saturating_sub(1) as u64);
                write_digits(out, rng, *groups);
            }
            Self::Choice(texts) => {
                let text = texts[rng.below(texts.len() as u64) as usize].as_bytes();
                put_lenenc(out, text.len() as u64);
                out.extend_from_slice(text);
            }
            _ => {}
        }
    }

    #[inline]
    fn write_text(&self, out: &mut Vec<u8>, rng: &mut Rng, kept: &mut i64) {
        if let Some(number) = self.draw_number(rng, kept) {
            write_decimal(out, number);
            return;
        }
        out.push(b'\'');
        match self {
            Self::Digits { groups } => write_digits(out, rng, *groups),
            Self::Choice(texts) => {
                for &byte in texts[rng.below(texts.len() as u64) as usize].as_bytes() {
                    if byte == b'\'' || byte == b'\\' {
                        out.push(byte);
                    }
                    out.push(byte);
                }
            }
            _ => {}
        }
        out.push(b'\'');
    }
}

/// Appends a number without going through a formatter.
#[inline]
pub fn write_decimal(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        out.push(b'-');
    }
    let mut rest = number.unsigned_abs();
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mix::Distribution;

    fn text(sql: &str, params: Vec<Param>) -> String {
        let (mut out, mut kept) = (Vec::new(), 41);
        Statement::new(sql, params).unwrap().write_query(&mut out, &mut Rng::new(1, 1), &mut kept);
        assert_eq!(usize::from(out[0]) | usize::from(out[1]) << 8, out.len() - 4);
        String::from_utf8(out[5..].to_vec()).unwrap()
    }

    #[test]
    fn values_are_written_where_the_placeholders_stand() {
        let uniform = |n| Param::Uniform { low: n, high: n };
        assert_eq!(
            text("SELECT ? + ?, '?' AS `?`", vec![uniform(-7), uniform(0)]),
            "SELECT -7 + 0, '?' AS `?`"
        );
        assert_eq!(text("SELECT ?", vec![Param::Choice(vec!["it's".into()])]), "SELECT 'it''s'");
        assert_eq!(text("SELECT 'a\\'?', ?", vec![Param::Kept { plus: 1 }]), "SELECT 'a\\'?', 42");
        assert!(Statement::new("SELECT ?", vec![]).is_err());
    }

    #[test]
    fn an_execute_sends_its_types_once() {
        let id = Param::Id { rows: 1, distribution: Distribution::Uniform };
        let statement = Statement::new("x ? ?", vec![id, Param::Digits { groups: 1 }]).unwrap();
        let (mut first, mut next, mut kept) = (Vec::new(), Vec::new(), 0);
        statement.write_execute(&mut first, 0x0102_0304, false, &mut Rng::new(1, 1), &mut kept);
        statement.write_execute(&mut next, 0x0102_0304, true, &mut Rng::new(1, 1), &mut kept);
        assert_eq!(&first[5..9], &[4, 3, 2, 1]);
        assert_eq!(first[14..20], [0, 1, TYPE_LONG, 0, TYPE_STRING, 0]);
        assert_eq!(next[14..21], [0, 0, 1, 0, 0, 0, 11]);
        assert_eq!(first.len(), next.len() + 4);
        assert_eq!(kept, 1);
    }

    #[test]
    fn numbers_are_written_in_full() {
        for n in [0, 9, 10, -1, i64::MAX, i64::MIN] {
            let mut out = Vec::new();
            write_decimal(&mut out, n);
            assert_eq!(String::from_utf8(out).unwrap(), n.to_string());
        }
    }
}
