//! Query identifier: the MD5 of the fingerprint. Never reads a statement.

use md5::{Digest, Md5};
use std::fmt;

/// pt-query-digest's query ID: the MD5 of the fingerprint, shown as 32 upper-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryId(pub [u8; 16]);

impl QueryId {
    pub fn from_fingerprint(fingerprint: &[u8]) -> Self {
        Self(Md5::digest(fingerprint).into())
    }
}

impl fmt::Display for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}
