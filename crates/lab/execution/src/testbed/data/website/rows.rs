//! Generator of the web site's rows, as SQL.
//!
//! All rows of a table come from one random stream of the seed, in the order of their numbers.

use super::tables::{TABLES, Table};
use super::text::{Lexicon, Vocabulary};
use std::io::Write;
use toll_stats::random::Rng;

/// Generator of a column's values.
#[derive(Debug, Clone, Copy)]
pub enum Value {
    /// The row's own number, from 1.
    Id,
    /// The number of a row in that table.
    ForeignKey(&'static str),
    /// The same, or NULL for that many percent of the rows.
    NullableForeignKey(&'static str, u64),
    /// A number between these bounds.
    Between(u64, u64),
    OneOf(&'static [&'static str]),
    /// At most that many words.
    Words(u64),
    /// At most that many words for an address, joined by dashes.
    Slug(u64),
    Email,
    Address,
    UserAgent,
    /// That many hexadecimal digits.
    Hex(u64),
    /// Prose of about that many bytes, on average.
    Prose(u64),
    Html(u64),
    /// Names and values in a program's serialised form.
    Serialised(u64),
    /// Bytes of a picture, which cannot be compressed.
    Picture(u64),
    /// Timestamps over several years, in the order of the rows.
    Timestamp,
}

/// Writer of one table's rows, one after the other.
pub struct RowWriter<'a> {
    lexicon: &'a Lexicon,
    pub table: &'static Table,
    rng: Rng,
    scale: f64,
    rows: u64,
    done: u64,
}

/// First timestamp of the site, Unix time (1 March 2009), and its age, seconds.
const FOUNDED_S: u64 = 1_235_865_600;
const LASTED_S: u64 = 4 * 365 * 86_400;
/// Text lengths relative to the mean, percent, in sixteen equally frequent classes: most are short, a few
/// long.
const LENGTHS_PCT: [u64; 16] = [5, 10, 15, 20, 30, 40, 50, 60, 75, 90, 110, 130, 160, 200, 270, 335];
/// First random stream of the seed. The loads' tables use 1, 2, ...
const STREAM: u64 = 1_000;

impl<'a> RowWriter<'a> {
    /// Writer for the table with that number, counted from 0.
    pub fn new(lexicon: &'a Lexicon, seed: u64, scale: f64, number: usize) -> Self {
        let table = &TABLES[number];
        let rng = Rng::new(seed, STREAM + number as u64);
        Self { lexicon, table, rng, scale, rows: table.rows(scale), done: 0 }
    }

    pub fn is_done(&self) -> bool {
        self.done == self.rows
    }

    /// Appends the next row, `(1,'...',...)`.
    pub fn write_row(&mut self, out: &mut Vec<u8>) {
        self.done += 1;
        let language = self.lexicon.random_language(&mut self.rng);
        for (i, column) in self.table.columns.iter().enumerate() {
            out.push(if i == 0 { b'(' } else { b',' });
            self.write_value(out, column.value, language);
        }
        out.push(b')');
    }

    fn write_value(&mut self, out: &mut Vec<u8>, value: Value, language: &Vocabulary) {
        let rng = &mut self.rng;
        match value {
            Value::Id => write_number(out, self.done),
            Value::ForeignKey(other) => write_number(out, 1 + rng.below(row_count(other, self.scale))),
            Value::NullableForeignKey(_, none) if rng.below(100) < none => out.extend_from_slice(b"NULL"),
            Value::NullableForeignKey(other, _) => {
                write_number(out, 1 + rng.below(row_count(other, self.scale)))
            }
            Value::Between(from, to) => write_number(out, from + rng.below(to - from + 1)),
            Value::Timestamp => {
                let step = LASTED_S / self.rows;
                let at = (self.done - 1) * LASTED_S / self.rows + rng.below(step.max(1));
                write_timestamp(out, FOUNDED_S + at);
            }
            _ => {
                if matches!(value, Value::Picture(_)) {
                    out.extend_from_slice(b"_binary");
                }
                out.push(b'\'');
                self.write_text(out, value, language);
                out.push(b'\'');
            }
        }
    }

    /// Between quotes.
    fn write_text(&mut self, out: &mut Vec<u8>, value: Value, language: &Vocabulary) {
        let own = self.lexicon.main_language();
        let rng = &mut self.rng;
        match value {
            Value::OneOf(choices) => {
                out.extend_from_slice(choices[rng.below(choices.len() as u64) as usize].as_bytes());
            }
            Value::Words(most) => {
                let count = 1 + rng.below(most);
                language.words(out, rng, count);
            }
            Value::Slug(count) => {
                for i in 0..count {
                    if i > 0 {
                        out.push(b'-');
                    }
                    out.extend_from_slice(own.word(rng).as_bytes());
                }
            }
            Value::Email => {
                out.extend_from_slice(own.word(rng).as_bytes());
                append(out, format_args!(".{}@example.org", self.done));
            }
            Value::Address => {
                let [a, b] = [rng.below(256), rng.below(256)];
                // Those that are kept free for documents (RFC 5737).
                append(out, format_args!("{}.{a}.{b}", ["192.0", "198.51", "203.0"][rng.below(3) as usize]));
            }
            Value::UserAgent => append(
                out,
                format_args!(
                    "Mozilla/5.0 ({}) AppleWebKit/537.{} (KHTML, like Gecko) Chrome/{}.0.{}.{} Safari/537.{}",
                    ["Windows NT 6.1", "Macintosh; Intel Mac OS X 10_8_2", "X11; Linux x86_64"]
                        [rng.below(3) as usize],
                    rng.below(40),
                    20 + rng.below(8),
                    rng.below(2_000),
                    rng.below(200),
                    rng.below(40)
                ),
            ),
            Value::Hex(digits) => {
                (0..digits).for_each(|_| out.push(b"0123456789abcdef"[rng.below(16) as usize]))
            }
            Value::Prose(mean) => {
                let bytes = draw_length(rng, mean);
                language.prose(out, rng, bytes);
            }
            Value::Html(mean) => {
                let bytes = draw_length(rng, mean);
                language.html(out, rng, bytes);
            }
            Value::Serialised(mean) => {
                let end = out.len() + draw_length(rng, mean);
                while out.len() < end {
                    let name = own.word(rng);
                    append(out, format_args!("s:{}:\"{name}\";", name.len()));
                    if rng.below(3) == 0 {
                        append(out, format_args!("i:{};", rng.below(1_000_000)));
                    } else {
                        let at = out.len();
                        language.words(out, rng, 3);
                        let text = out.split_off(at);
                        append(out, format_args!("s:{}:\"", text.len()));
                        out.extend_from_slice(&text);
                        out.extend_from_slice(b"\";");
                    }
                }
            }
            Value::Picture(mean) => write_jpeg(out, rng, mean),
            // Numbers and moments have no quotes.
            Value::Id
            | Value::ForeignKey(_)
            | Value::NullableForeignKey(..)
            | Value::Between(..)
            | Value::Timestamp => {}
        }
    }
}

fn row_count(table: &str, scale: f64) -> u64 {
    TABLES.iter().find(|other| other.name == table).map_or(1, |other| other.rows(scale))
}

/// Length of a text whose mean length is `mean` bytes.
fn draw_length(rng: &mut Rng, mean: u64) -> usize {
    let pct = LENGTHS_PCT[rng.below(16) as usize] * (75 + rng.below(51)) / 100;
    (mean * pct / 100) as usize
}

/// A JPEG header, and then uniformly random bytes.
fn write_jpeg(out: &mut Vec<u8>, rng: &mut Rng, mean: u64) {
    out.extend_from_slice(b"\xff\xd8\xff\xe0\\0\x10JFIF");
    for _ in 0..draw_length(rng, mean).div_ceil(8) {
        for byte in rng.next_u64().to_le_bytes() {
            match byte {
                0 => out.extend_from_slice(b"\\0"),
                b'\'' | b'\\' => out.extend_from_slice(&[b'\\', byte]),
                byte => out.push(byte),
            }
        }
    }
}

/// `'2009-03-01 17:04:59'`
fn write_timestamp(out: &mut Vec<u8>, unix_s: u64) {
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = date_from_days(days);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    append(out, format_args!("'{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}'", second % 60));
}

/// Year, month and day from days since 1970 (Hinnant's `civil_from_days`).
fn date_from_days(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let part = (5 * of_year + 2) / 153;
    let month = if part < 10 { part + 3 } else { part - 9 };
    (year + era * 400 + u64::from(month <= 2), month, of_year - (153 * part + 2) / 5 + 1)
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    append(out, format_args!("{number}"));
}

fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // Writing to memory cannot fail.
    let _ = out.write_fmt(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_servers_read_them() {
        for (unix_s, expected) in [
            (FOUNDED_S, "'2009-03-01 00:00:00'"),
            (951_827_696, "'2000-02-29 12:34:56'"),
            (1_366_847_999, "'2013-04-24 23:59:59'"),
        ] {
            let mut out = Vec::new();
            write_timestamp(&mut out, unix_s);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn lengths_have_the_mean_that_is_asked_for_and_a_long_tail() {
        let mut rng = Rng::new(1, 1);
        let lengths: Vec<usize> = (0..20_000).map(|_| draw_length(&mut rng, 1_000)).collect();
        let mean = lengths.iter().sum::<usize>() as f64 / 20_000.0;
        assert!((mean - 1_000.0).abs() < 30.0, "{mean}");
        assert!(lengths.iter().any(|&l| l > 3_500) && lengths.iter().any(|&l| l < 50));
    }
}
