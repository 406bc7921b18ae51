//! Parser of the time formats in server logs. Never reads a clock.

use super::decimal::{parse_fraction_ns, parse_integer};

/// A date and time of day without a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Civil {
    pub year: i16,
    pub month: u8,
    pub day: u8,
    pub hour: u8,
    pub minute: u8,
    pub second: u8,
}

/// The zone that a server wrote its log in. Only the caller can know it.
pub trait Zone {
    /// Unix time in seconds; `None`: no such time.
    fn unix_seconds(&self, civil: Civil) -> Option<i64>;
}

/// For servers whose clock is UTC.
#[derive(Debug, Clone, Copy, Default)]
pub struct Utc;

impl Zone for Utc {
    fn unix_seconds(&self, civil: Civil) -> Option<i64> {
        civil.utc_seconds()
    }
}

impl Civil {
    /// Unix time if this is UTC. Days by Howard Hinnant's `days_from_civil`.
    pub fn utc_seconds(&self) -> Option<i64> {
        let is_valid = (1..=12).contains(&self.month)
            && (1..=31).contains(&self.day)
            && self.hour < 24
            && self.minute < 60
            && self.second <= 60;
        if !is_valid {
            return None;
        }
        let (month, day) = (i64::from(self.month), i64::from(self.day));
        let year = i64::from(self.year) - i64::from(month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * 146_097 + day_of_era - 719_468;
        Some(
            days * 86_400
                + i64::from(self.hour) * 3_600
                + i64::from(self.minute) * 60
                + i64::from(self.second),
        )
    }
}

/// A time as written: zone known or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParsedTime {
    pub civil: Civil,
    pub fraction_ns: u64,
    /// Seconds east of UTC, where the text says so.
    pub offset: Option<i64>,
    /// Bytes of text it took.
    pub length: usize,
}

impl ParsedTime {
    pub(super) fn unix_ns(&self, zone: &dyn Zone) -> Option<u64> {
        let seconds = match self.offset {
            Some(offset) => self.civil.utc_seconds()? - offset,
            None => zone.unix_seconds(self.civil)?,
        };
        u64::try_from(seconds).ok()?.checked_mul(1_000_000_000)?.checked_add(self.fraction_ns)
    }
}

/// `071015 21:43:52`, `090127  1:23:34`, `2016-07-20T18:13:25.698433Z`, `2016-07-20 18:13:25+02:00`.
pub(crate) fn parse_time(text: &[u8]) -> Option<ParsedTime> {
    // An audit log writes the century too.
    if text.len() >= 17 && text[..8].iter().all(u8::is_ascii_digit) && text[8] == b' ' {
        let mut time = parse_time(&text[2..])?;
        time.civil.year = i16::try_from(parse_integer(&text[..4])?).ok()?;
        time.length += 2;
        return Some(time);
    }
    let is_short = text.len() >= 15 && text[..6].iter().all(u8::is_ascii_digit) && text[6] == b' ';
    let (year, month, day, clock) = if is_short {
        let number = |at: usize| parse_integer(&text[at..at + 2]);
        let spaces = text[6..].iter().take_while(|b| **b == b' ').count();
        (2000 + number(0)?, number(2)?, number(4)?, 6 + spaces)
    } else {
        let shape = text.len() >= 19 && text[4] == b'-' && matches!(text[10], b'T' | b' ');
        if !shape {
            return None;
        }
        let month = parse_integer(&text[5..7])?;
        (parse_integer(&text[..4])?, month, parse_integer(&text[8..10])?, 11)
    };
    let mut at = clock;
    let mut part = |separator: Option<u8>| -> Option<u8> {
        if let Some(separator) = separator {
            if text.get(at) != Some(&separator) {
                return None;
            }
            at += 1;
        }
        let digits = text.get(at..)?.iter().take(2).take_while(|b| b.is_ascii_digit()).count();
        let value = parse_integer(&text[at..at + digits])?;
        at += digits;
        u8::try_from(value).ok()
    };
    let (hour, minute, second) = (part(None)?, part(Some(b':'))?, part(Some(b':'))?);
    let mut fraction_ns = 0;
    if text.get(at) == Some(&b'.') {
        fraction_ns = parse_fraction_ns(&text[at + 1..]);
        at += 1 + text[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count();
    }
    let (offset, length) = zone_offset(&text[at..]);
    let civil = Civil {
        year: i16::try_from(year).ok()?,
        month: u8::try_from(month).ok()?,
        day: u8::try_from(day).ok()?,
        hour,
        minute,
        second,
    };
    Some(ParsedTime { civil, fraction_ns, offset, length: at + length })
}

fn zone_offset(text: &[u8]) -> (Option<i64>, usize) {
    let sign = match text.first() {
        Some(b'Z') => return (Some(0), 1),
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return (None, 0),
    };
    let hours_minutes = text
        .get(1..6)
        .filter(|t| t[2] == b':')
        .and_then(|t| Some((parse_integer(&t[..2])?, parse_integer(&t[3..])?)));
    match hours_minutes {
        Some((hours, minutes)) => (i64::try_from(hours * 3600 + minutes * 60).ok().map(|s| sign * s), 6),
        None => (None, 0),
    }
}

/// The last time that was read: neighbours in a log often share it.
#[derive(Debug, Default)]
pub(super) struct TimeCache {
    text: Vec<u8>,
    ns: Option<u64>,
}

impl TimeCache {
    pub(super) fn read(&mut self, text: &[u8], zone: &dyn Zone) -> Option<u64> {
        let key = &text[..text.len().min(40)];
        if self.text != key {
            self.text.clear();
            self.text.extend_from_slice(key);
            self.ns = parse_time(key).and_then(|time| time.unix_ns(zone));
        }
        self.ns
    }
}
