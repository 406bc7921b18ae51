//! Name of a piece: the SHA-256 of its content, or a keyed hash if it is encrypted.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use toll_store::{Error, Result};

/// 32 bytes, written as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// SHA-256 of the bytes.
    pub fn hash(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// HMAC-SHA-256 (RFC 2104): whoever reads the store but has no key cannot confirm a guess of what a piece holds.
    pub fn keyed_hash(key: &[u8; 32], bytes: &[u8]) -> Self {
        let padded = |with: u8| {
            let mut block = [with; 64];
            block.iter_mut().zip(key).for_each(|(byte, key)| *byte ^= key);
            block
        };
        let inner = Sha256::new().chain_update(padded(0x36)).chain_update(bytes).finalize();
        Self(Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into())
    }

    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 64 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks(2)) {
            let [high, low] = [pair[0], pair[1]].map(|digit| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            });
            *byte = high? << 4 | low?;
        }
        Some(Self(bytes))
    }
}

impl std::fmt::Display for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl std::fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl Serialize for ContentHash {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContentHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(from)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("64 hexadecimal digits are expected"))
    }
}

/// Reads a key that stands in a manifest.
pub fn parse_key(text: &str) -> Result<[u8; 32]> {
    ContentHash::parse(text)
        .map(|name| name.0)
        .ok_or_else(|| Error::Key("the manifest's key is damaged".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_digest_that_other_programs_compute() {
        // FIPS 180-2, and test case 2 of RFC 4231 (its key, "Jefe", filled up with zeros).
        assert_eq!(
            ContentHash::hash(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let mut key = [0; 32];
        key[..4].copy_from_slice(b"Jefe");
        assert_eq!(
            ContentHash::keyed_hash(&key, b"what do ya want for nothing?").to_string(),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn only_64_lower_case_digits_are_a_name() {
        let name = ContentHash::hash(b"");
        assert_eq!(ContentHash::parse(&name.to_string()), Some(name));
        assert_eq!(ContentHash::parse(&name.to_string().to_uppercase()), None);
        assert_eq!(ContentHash::parse("ab"), None);
        assert_eq!(ContentHash::parse(&"+1".repeat(32)), None);
    }
}
