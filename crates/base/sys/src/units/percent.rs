//! Percentage parser: `2%`, `0.5%`.

use serde::{Deserialize, Deserializer};

/// Percent, 0 or more.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Percent(pub f64);

impl std::str::FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
        let percent = number.filter(|percent| percent.is_finite() && *percent >= 0.0);
        percent.map(Self).ok_or_else(|| format!("{text:?} is not a percentage: write 2% or 0.5%"))
    }
}

impl<'de> Deserialize<'de> for Percent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Percent;

    #[test]
    fn shares_are_read_with_their_sign() {
        assert_eq!("2%".parse::<Percent>().unwrap(), Percent(2.0));
        assert_eq!("0.5%".parse::<Percent>().unwrap(), Percent(0.5));
        for text in ["2", "%", "-1%", "inf%", "2 %", "0.02"] {
            let said = text.parse::<Percent>().unwrap_err();
            assert!(said.contains("is not a percentage"), "{said}");
        }
    }
}
