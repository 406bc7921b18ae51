//! Parser of the time in the lines that tcpdump prints above each packet. Never reads a clock.
//!
//! The caller names the time zone of dates and times of day: the text does not. `-ttt` (time since the packet
//! before) and `-ttttt` (since the first) look alike; they are parsed as `-ttt`.

use crate::log::{Civil, Zone};

const SECOND_NS: u64 = 1_000_000_000;
const MINUTE_NS: u64 = 60 * SECOND_NS;
const DAY_NS: u64 = 86_400 * SECOND_NS;

/// What was read so far, for the forms in which a line says only a part.
pub(super) struct TextClock {
    zone: Box<dyn Zone + Send>,
    last_ns: u64,
    /// Midnights passed, where no date is printed.
    days: u64,
    /// The minute read last and its Unix time, s: to ask a zone costs more than to read a line.
    minute: Option<(Civil, i64)>,
}

impl TextClock {
    pub(super) fn new(zone: Box<dyn Zone + Send>) -> Self {
        TextClock { zone, last_ns: 0, days: 0, minute: None }
    }

    /// Unix time in ns. Without a date it counts from the midnight before the first packet; with
    /// `-ttt` from the first packet (which is at 1 ns). 0: the line has no time (`-t`).
    pub(super) fn parse_time(&mut self, line: &[u8]) -> u64 {
        let relative = matches!(line.first(), Some(b' ' | b'-'));
        let negative = line.first() == Some(&b'-');
        let line = if relative { &line[1..] } else { line };
        let mut words = line.split(|&byte| byte == b' ');
        let first = words.next().unwrap_or_default();
        let time_ns = if let Some(date) = parse_date(first) {
            match words.next().and_then(parse_time_of_day).and_then(|ns| self.unix_ns_of_date(date, ns)) {
                Some(ns) => ns,
                None => return 0,
            }
        } else if let Some(ns) = parse_time_of_day(first) {
            if relative {
                self.last_ns.max(1).saturating_add_signed(if negative {
                    -ns.cast_signed()
                } else {
                    ns.cast_signed()
                })
            } else {
                self.add_days(ns)
            }
        } else if let Some(ns) = parse_epoch(first) {
            ns
        } else {
            return 0;
        };
        self.last_ns = time_ns;
        time_ns
    }

    /// Unix time, ns, of year, month and day, and a time of that day.
    fn unix_ns_of_date(&mut self, (year, month, day): (i16, u8, u8), of_day_ns: u64) -> Option<u64> {
        let minutes = of_day_ns / MINUTE_NS;
        let (hour, minute) = ((minutes / 60) as u8, (minutes % 60) as u8);
        let civil = Civil { year, month, day, hour, minute, second: 0 };
        let unix_s = match self.minute {
            Some((known, unix_s)) if known == civil => unix_s,
            _ => {
                let unix_s = self.zone.unix_seconds(civil)?;
                self.minute = Some((civil, unix_s));
                unix_s
            }
        };
        u64::try_from(unix_s).ok()?.checked_mul(SECOND_NS)?.checked_add(of_day_ns % MINUTE_NS)
    }

    /// A time far before the last one is of the next day; a little before, it is disorder.
    fn add_days(&mut self, ns: u64) -> u64 {
        let time_ns = self.days.saturating_mul(DAY_NS).saturating_add(ns);
        if time_ns.saturating_add(DAY_NS / 2) < self.last_ns {
            self.days += 1;
            return time_ns.saturating_add(DAY_NS);
        }
        time_ns
    }
}

fn parse_digits(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 11 {
        return None;
    }
    digits
        .iter()
        .try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0')))
}

/// `2009-04-12`: year, month, day.
fn parse_date(word: &[u8]) -> Option<(i16, u8, u8)> {
    let &[_, _, _, _, b'-', _, _, b'-', _, _] = word else { return None };
    let year = i16::try_from(parse_digits(&word[..4])?).ok()?;
    // Nanoseconds since 1970 fit into 64 bits up to the year 2554.
    if !(1970..=2500).contains(&year) {
        return None;
    }
    Some((
        year,
        u8::try_from(parse_digits(&word[5..7])?).ok()?,
        u8::try_from(parse_digits(&word[8..])?).ok()?,
    ))
}

/// `21:18:40.638244`, with six or nine digits behind the point.
fn parse_time_of_day(word: &[u8]) -> Option<u64> {
    let (&[a, b, b':', c, d, b':', e, f], rest) = word.split_first_chunk::<8>()? else { return None };
    let (hours, minutes, seconds) = (parse_digits(&[a, b])?, parse_digits(&[c, d])?, parse_digits(&[e, f])?);
    Some((hours * 3600 + minutes * 60 + seconds) * SECOND_NS + parse_fraction(rest)?)
}

/// `1795224158.795523`.
fn parse_epoch(word: &[u8]) -> Option<u64> {
    let point = word.iter().position(|&byte| byte == b'.')?;
    parse_digits(&word[..point])?.checked_mul(SECOND_NS)?.checked_add(parse_fraction(&word[point..])?)
}

/// `.638244` in ns.
fn parse_fraction(text: &[u8]) -> Option<u64> {
    let [b'.', digits @ ..] = text else { return None };
    if digits.len() > 9 {
        return None;
    }
    Some(parse_digits(digits)? * 10u64.pow(9 - digits.len() as u32))
}
