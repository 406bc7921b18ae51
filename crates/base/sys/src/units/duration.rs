//! Duration parser: `300ms`, `5s`, `2m`, or a bare number of seconds.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::str::FromStr;

/// The longest that can be written, in seconds: a day.
pub const LONGEST_S: f64 = 86_400.0;

/// A length of time in seconds, never negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Seconds(pub f64);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let scale = match unit.trim() {
            "" | "s" => 1.0,
            "ms" => 1e-3,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            other => return Err(format!("`{other}` is no unit of time: use ms, s, m or h")),
        };
        let value: f64 = number.parse().map_err(|_| format!("`{text}` is no length of time, such as 5s"))?;
        if value * scale > LONGEST_S {
            return Err(format!("`{text}` is more than a day"));
        }
        Ok(Self(value * scale))
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Text(String),
        }
        let seconds = match Written::deserialize(from)? {
            Written::Number(n) => Self(n),
            Written::Text(text) => text.parse().map_err(D::Error::custom)?,
        };
        if seconds.0.is_finite() && seconds.0 >= 0.0 {
            Ok(seconds)
        } else {
            Err(D::Error::custom("a length of time is finite and not negative"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Seconds;

    #[test]
    fn lengths_of_time_read_as_people_write_them() {
        for (text, want) in [("300ms", 0.3), ("5s", 5.0), ("2m", 120.0), ("1.5", 1.5), ("1h", 3600.0)] {
            assert!((text.parse::<Seconds>().unwrap().0 - want).abs() < 1e-9, "{text}");
        }
        for text in ["", "s", "5 parsecs", "-1s", "1.2.3s", "25h", &"9".repeat(400)] {
            assert!(text.parse::<Seconds>().is_err(), "{text} should be refused");
        }
    }
}
