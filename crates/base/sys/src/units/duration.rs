//! Duration parser: `300ms`, `5s`, `2m`, `1h`, or a bare number of seconds.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::str::FromStr;
use std::time::Duration;

/// The longest time of a run's plan, in seconds: a day.
pub const MAX_DURATION_S: f64 = 86_400.0;

/// Length of time in a scenario or a plan, in seconds; as written, a day at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, PartialOrd)]
pub struct Seconds(pub f64);

/// Any length of time.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| c.is_ascii_alphabetic() || c == ' ').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let scale = match unit.trim() {
        "" | "s" => Some(1.0),
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "m" | "min" => Some(60.0),
        "h" => Some(3_600.0),
        "d" => Some(86_400.0),
        _ => None,
    };
    let seconds = scale.zip(number.parse::<f64>().ok()).map(|(scale, number)| scale * number);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{text:?} is not a duration: write 300ms, 5s, 2m or 1h"))
}

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let seconds = duration(text)?.as_secs_f64();
        if seconds > MAX_DURATION_S {
            return Err(format!("{text:?} is more than a day"));
        }
        Ok(Self(seconds))
    }
}

/// As the number of seconds, which it is read from too.
impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.0)
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum NumberOrText {
            Number(f64),
            Text(String),
        }
        let seconds = match NumberOrText::deserialize(from)? {
            NumberOrText::Number(n) => Self(n),
            NumberOrText::Text(text) => text.parse().map_err(D::Error::custom)?,
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
    use super::{Seconds, duration};

    #[test]
    fn lengths_of_time_read_as_people_write_them() {
        for (text, us) in [
            ("20us", 20.0),
            ("300ms", 3e5),
            ("1.5", 1.5e6),
            (".5s", 5e5),
            ("5 s", 5e6),
            ("2m", 1.2e8),
            ("2min", 1.2e8),
            ("1h", 3.6e9),
            ("1d", 8.64e10),
        ] {
            assert!((duration(text).unwrap().as_secs_f64() * 1e6 - us).abs() < 0.5, "{text}");
            assert!((text.parse::<Seconds>().unwrap().0 * 1e6 - us).abs() < 0.5, "{text}");
        }
        for text in ["", "s", "5 parsecs", "-1s", "1.2.3s", "1e3", "inf", "NaN", "1y", &"9".repeat(400)] {
            let said = duration(text).unwrap_err();
            assert!(said.contains("is not a duration: write"), "{said}");
            assert_eq!(text.parse::<Seconds>(), Err(said));
        }
    }

    #[test]
    fn a_run_s_times_end_with_a_day_and_a_command_s_do_not() {
        assert_eq!(duration("25h").unwrap().as_secs(), 90_000);
        assert_eq!("25h".parse::<Seconds>().unwrap_err(), "\"25h\" is more than a day");
    }
}
