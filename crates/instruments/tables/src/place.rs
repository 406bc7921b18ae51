//! Places of files: by table, grain, day, hour and shard, under names that are hashes.
//!
//! A file that is written again, since nobody knows whether it arrived, has the same name.

use super::VERSION;
use anyhow::Context;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

/// What a log begins with, its first times among it.
const HEAD_BYTES: u64 = 64 << 10;
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

/// Hour of a file, whose path is below the root; `None`: another path.
pub fn hour_of_path(path: &str) -> Option<i64> {
    let part = |name: &str| path.split('/').find_map(|part| part.strip_prefix(name));
    let day: jiff::civil::Date = part("day=")?.parse().ok()?;
    let hour: i64 = part("hour=")?.parse().ok()?;
    let begin = day.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second();
    Some(begin.div_euclid(3_600) + hour)
}

/// Table of a file, whose path is below the root; `None`: another path.
pub fn table_of_path(path: &str) -> Option<Table> {
    let name = path.split('/').next()?;
    [Table::Digests, Table::Texts, Table::Coverage].into_iter().find(|table| table.name() == name)
}

/// Shard of a file, whose path is below the root; `None`: another path.
pub fn shard_of_path(path: &str) -> Option<u8> {
    let shard = path.split('/').find_map(|part| part.strip_prefix("shard="))?.parse().ok()?;
    (shard < SHARDS).then_some(shard)
}

/// Directory of a file, with `/`, below the root.
///
/// # Errors
/// No such hour.
pub fn directory(table: Table, hour: i64, cluster: &str) -> anyhow::Result<String> {
    shard_directory(table, hour, Sha256::digest(cluster.as_bytes())[0] % SHARDS)
}

/// The same of a shard.
///
/// # Errors
/// No such hour.
pub fn shard_directory(table: Table, hour: i64, shard: u8) -> anyhow::Result<String> {
    let (day, hour) = day_and_hour(hour)?;
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

/// Directory of the manifests of an hour's day.
///
/// # Errors
/// No such hour.
pub fn manifest_day(hour: i64) -> anyhow::Result<String> {
    Ok(format!("manifests/v={VERSION}/day={}", day_and_hour(hour)?.0))
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

/// An ID of logs and captures by how they begin: that of a log which has grown since stays the same.
///
/// # Errors
/// A file cannot be read.
pub fn id_of_files(files: &[PathBuf]) -> anyhow::Result<[u8; 16]> {
    let mut hash = Sha256::new();
    for path in files {
        let mut head = Vec::new();
        let failed = || format!("cannot read {}", path.display());
        // What comes through a pipe can be read only once.
        if std::fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
            File::open(path)
                .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head))
                .with_context(failed)?;
        } else {
            head = toll_sys::private_dir::random_bytes()?.to_vec();
        }
        hash.update((head.len() as u64).to_be_bytes());
        hash.update(&head);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&hash.finalize()[..16]);
    Ok(id)
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
        assert_eq!((hour_of(-1), hour_of_path(&place)), (-1, Some(hour)));
        assert_eq!(hour_of_path("digests/v=1/day=2025-13-26/hour=14/a.parquet"), None);
        let shard = shard_of_path(&place).unwrap();
        assert_eq!(shard_directory(Table::Digests, hour, shard).unwrap(), place);
        assert_eq!((table_of_path(&place), table_of_path("manifests/a")), (Some(Table::Digests), None));
        assert_eq!(shard_of_path("digests/shard=16/a.parquet"), None);
        assert!(directory(Table::Texts, i64::MAX, "").is_err());
        assert_eq!(manifest_directory(hour).unwrap(), "manifests/v=1/day=2025-11-26/hour=14");
        let name = file_name("db1", [7; 16], 3);
        assert_eq!((name.len(), &name), (32, &file_name("db1", [7; 16], 3)));
        assert_ne!(name, file_name("db1", [7; 16], 4));
        assert_ne!(file_name("a", [0; 16], 0), file_name("b", [0; 16], 0));
    }
}
