//! Parser of `--since` and `--until`, with the grammar of pt-query-digest.

use anyhow::{Context, bail};
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use std::str::FromStr;
use toll_sys::units;

/// A moment, Unix ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeBound(pub u64);

impl FromStr for TimeBound {
    type Err = anyhow::Error;

    /// A duration ago, `YYYY-MM-DD [HH:MM:SS]`, `YYMMDD [HH:MM:SS]`, or Unix seconds.
    fn from_str(text: &str) -> anyhow::Result<Self> {
        Self::parse(text, Timestamp::now(), &TimeZone::system())
    }
}

impl TimeBound {
    fn parse(text: &str, now: Timestamp, zone: &TimeZone) -> anyhow::Result<Self> {
        let text = text.trim();
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let rest = &text[digits..];
        let moment = match (digits, units::duration(text)) {
            (1..=5, Ok(ago)) => now.checked_sub(SignedDuration::try_from(ago)?)?,
            (9.., _) => parse_unix_seconds(text)?,
            (6, _) => {
                let date = format!("20{}-{}-{}", &text[..2], &text[2..4], &text[4..6]);
                parse_civil(&date, rest, zone)?
            }
            (4, _) if text.len() >= 10 && text.is_char_boundary(10) => {
                parse_civil(&text[..10], &text[10..], zone)?
            }
            _ => bail!(
                "`{text}` is no time: use 10m, 2h or 1d (ago), 2026-11-21 [10:00:00], \
                 261121 [10:00:00] or Unix seconds"
            ),
        };
        let ns = u64::try_from(moment.as_nanosecond()).context("times before 1970 are in no log")?;
        Ok(Self(ns))
    }
}

/// Unix seconds, with a fraction perhaps.
fn parse_unix_seconds(text: &str) -> anyhow::Result<Timestamp> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut ns = 0_i32;
    for n in 0..9 {
        let digit = fraction.as_bytes().get(n).copied().unwrap_or(b'0');
        if !digit.is_ascii_digit() {
            bail!("`{text}` is no number of seconds");
        }
        ns = ns * 10 + i32::from(digit - b'0');
    }
    Ok(Timestamp::new(whole.parse()?, ns)?)
}

fn parse_civil(date: &str, clock: &str, zone: &TimeZone) -> anyhow::Result<Timestamp> {
    let date: Date = date.parse().with_context(|| format!("`{date}` is no date"))?;
    let clock = clock.trim_start_matches([' ', 'T']);
    let time = if clock.is_empty() {
        Time::midnight()
    } else {
        let padded = if clock.find(':') == Some(1) { format!("0{clock}") } else { clock.to_owned() };
        padded.parse().with_context(|| format!("`{clock}` is no time of day"))?
    };
    Ok(DateTime::from_parts(date, time).to_zoned(zone.clone())?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, seconds: u64) {
        let now = Timestamp::new(1_700_000_000, 0).unwrap();
        assert_eq!(
            TimeBound::parse(text, now, &TimeZone::UTC).unwrap(),
            TimeBound(seconds * 1_000_000_000),
            "of {text}"
        );
    }

    #[test]
    fn times_read_like_those_of_pt_query_digest() {
        check("10", 1_699_999_990);
        check("2h", 1_700_000_000 - 7_200);
        check("1d", 1_700_000_000 - 86_400);
        check("90min", 1_700_000_000 - 5_400);
        check("1.5h", 1_700_000_000 - 5_400);
        check("1234567890", 1_234_567_890);
        check("2009-02-13 23:31:30", 1_234_567_890);
        check("2009-02-13T23:31:30", 1_234_567_890);
        check("2009-02-13", 1_234_483_200);
        check("090213", 1_234_483_200);
        check("090213  1:00:00", 1_234_483_200 + 3_600);
    }

    #[test]
    fn what_is_no_time_says_what_one_is() {
        let error = "yesterday".parse::<TimeBound>().unwrap_err().to_string();
        assert!(error.contains("2h or 1d"), "{error}");
        assert!("2009-02-31".parse::<TimeBound>().is_err());
    }
}
