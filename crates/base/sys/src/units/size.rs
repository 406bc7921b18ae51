//! Memory size parser: `16G`, `512M`, or a number of bytes.

use serde::{Deserialize, Deserializer};

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl std::str::FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.trim_end_matches(['K', 'M', 'G', 'T']);
        let shift = match &text[digits.len()..] {
            "" => Some(0),
            "K" => Some(10),
            "M" => Some(20),
            "G" => Some(30),
            "T" => Some(40),
            _ => None,
        };
        let bytes = shift.zip(digits.parse::<u64>().ok()).and_then(|(shift, n)| n.checked_mul(1 << shift));
        bytes.map(Self).ok_or_else(|| format!("{text:?} is not a size: write 512M or 16G"))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn sizes_are_read_as_servers_read_them() {
        for (text, bytes) in [("16G", 16 << 30), ("512M", 512 << 20), ("64K", 64 << 10), ("1024", 1024)] {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes));
        }
        for text in ["", "G", "16GB", "16 G", "-1M", "99999999T"] {
            let said = text.parse::<Bytes>().unwrap_err();
            assert!(said.contains("is not a size"), "{said}");
        }
    }
}
