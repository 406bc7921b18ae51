//! Places of files: by table, grain, day, hour and shard, under names that are hashes.
//!
//! A file that is written again, since nobody knows whether it arrived, has the same name.

use super::VERSION;
use anyhow::Context;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use sha2::{Digest as _, Sha256};

/// A cluster's rows lie in one of so many shards.
const SHARDS: u8 = 16;

/// Table of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Digests,
    Texts,
    Coverage,
}

impl Table {
    fn name(self) -> &'static str {
        match self {
            Self::Digests => "digests",
            Self::Texts => "texts",
            Self::Coverage => "coverage",
        }
    }
}

/// Hour since 1970, of rows that lie together.
pub fn hour_of(ts_us: i64) -> i64 {
    ts_us.div_euclid(3_600_000_000)
}

/// Directory of a file, with `/`, below the root.
///
/// # Errors
/// No such hour.
pub fn directory(table: Table, hour: i64, cluster: &str) -> anyhow::Result<String> {
    let (day, hour) = day_and_hour(hour)?;
    let shard = Sha256::digest(cluster.as_bytes())[0] % SHARDS;
    Ok(format!("{}/v={VERSION}/day={day}/hour={hour:02}/shard={shard:02}", table.name()))
}

/// The same of a manifest.
///
/// # Errors
/// No such hour.
pub fn manifest_directory(hour: i64) -> anyhow::Result<String> {
    let (day, hour) = day_and_hour(hour)?;
    Ok(format!("manifests/v={VERSION}/day={day}/hour={hour:02}"))
}

fn day_and_hour(hour: i64) -> anyhow::Result<(String, i8)> {
    let seconds = hour.checked_mul(3_600).context("no such hour")?;
    let time = Timestamp::from_second(seconds).context("no such hour")?.to_zoned(TimeZone::UTC);
    Ok((time.date().to_string(), time.hour()))
}

/// Name of the files of a capture's flush, but for their ends.
pub fn file_name(host: &str, capture: [u8; 16], flush: u64) -> String {
    let mut hash = Sha256::new();
    // A length before each part: no two lists of parts run together.
    for part in [host.as_bytes(), &capture, &flush.to_be_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex(&hash.finalize()[..16])
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_says_when_and_a_name_is_of_its_flush_alone() {
        let hour = hour_of(1_764_165_600_000_000);
        let place = directory(Table::Digests, hour, "shop").unwrap();
        assert!(place.starts_with("digests/v=1/day=2025-11-26/hour=14/shard="), "{place}");
        assert_eq!(hour_of(-1), -1);
        assert!(directory(Table::Texts, i64::MAX, "").is_err());
        assert_eq!(manifest_directory(hour).unwrap(), "manifests/v=1/day=2025-11-26/hour=14");
        let name = file_name("db1", [7; 16], 3);
        assert_eq!((name.len(), &name), (32, &file_name("db1", [7; 16], 3)));
        assert_ne!(name, file_name("db1", [7; 16], 4));
        assert_ne!(file_name("a", [0; 16], 0), file_name("b", [0; 16], 0));
    }
}
