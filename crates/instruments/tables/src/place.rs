//! Places of files: by table, grain, day, hour and shard, under names that are hashes.
//!
//! A file that is written again, since nobody knows whether it arrived, has the same name.

use super::VERSION;
use super::store::Store;
use anyhow::{Context, bail};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use sha2::{Digest as _, Sha256};
use std::io::Read;
use std::path::{Path, PathBuf};
use toll_input::{DecompressedInput, Progress};
use toll_wire::first_event::{FirstEvent, find_first_event};

/// Of a log, its first entry among it.
const HEAD_BYTES: u64 = 64 << 10;
/// In place of an hour, of files with rows of a day.
const WHOLE_DAY: &str = "all";
/// A cluster's rows lie in one of so many shards.
const SHARDS: u8 = 16;

pub const HOUR_US: i64 = 3_600_000_000;

/// Table of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Table {
    Digests,
    /// Digests without their hosts, made of those: the rows of a cluster are one.
    ClusterDigests,
    /// And without their clusters.
    FleetDigests,
    Texts,
    Coverage,
}

impl Table {
    pub const ALL: [Self; 5] =
        [Self::Digests, Self::ClusterDigests, Self::FleetDigests, Self::Texts, Self::Coverage];

    /// The table whose rows this one has with fewer columns; `None`: it is made of no other.
    #[must_use]
    pub fn finer(self) -> Option<Self> {
        match self {
            Self::FleetDigests => Some(Self::ClusterDigests),
            Self::ClusterDigests => Some(Self::Digests),
            Self::Digests | Self::Texts | Self::Coverage => None,
        }
    }

    /// Where its rows come from in the end.
    #[must_use]
    pub fn finest(self) -> Self {
        self.finer().map_or(self, Self::finest)
    }

    /// Columns that it lacks of those of the finest.
    pub fn folded_columns(self) -> &'static [&'static str] {
        match self {
            Self::ClusterDigests => &["host"],
            Self::FleetDigests => &["host", "cluster"],
            Self::Digests | Self::Texts | Self::Coverage => &[],
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Digests => "digests",
            Self::ClusterDigests => "cluster_digests",
            Self::FleetDigests => "fleet_digests",
            Self::Texts => "texts",
            Self::Coverage => "coverage",
        }
    }
}

/// Hour since 1970, of rows that lie together.
pub fn hour_of(ts_us: i64) -> i64 {
    ts_us.div_euclid(HOUR_US)
}

/// Time that the rows of a file begin in: an hour or a day, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Span {
    Hour(i64),
    Day(i64),
}

impl Span {
    pub fn day(self) -> i64 {
        match self {
            Self::Hour(hour) => hour.div_euclid(24),
            Self::Day(day) => day,
        }
    }

    /// Of its end, Unix time.
    pub fn end_us(self) -> i64 {
        self.begin_us().saturating_add(self.width_us())
    }

    pub fn begin_us(self) -> i64 {
        match self {
            Self::Hour(hour) => hour.saturating_mul(HOUR_US),
            Self::Day(day) => day.saturating_mul(24 * HOUR_US),
        }
    }

    fn width_us(self) -> i64 {
        match self {
            Self::Hour(_) => HOUR_US,
            Self::Day(_) => 24 * HOUR_US,
        }
    }
}

/// Of a file, whose path is below the root; `None`: another path.
pub fn span_of_path(path: &str) -> Option<Span> {
    let day = path.split('/').find_map(day_of_directory)?;
    let hour = path.split('/').find_map(|part| part.strip_prefix("hour="))?;
    if hour == WHOLE_DAY {
        return Some(Span::Day(day));
    }
    let hour: i64 = hour.parse().ok()?;
    (0..24).contains(&hour).then_some(Span::Hour(day * 24 + hour))
}

/// Day since 1970 of a directory's name, `day=2025-11-26`; `None`: another name.
pub fn day_of_directory(name: &str) -> Option<i64> {
    let day: jiff::civil::Date = name.strip_prefix("day=")?.parse().ok()?;
    Some(day.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second().div_euclid(86_400))
}

/// Table of a file, whose path is below the root; `None`: another path.
pub fn table_of_path(path: &str) -> Option<Table> {
    let name = path.split('/').next()?;
    Table::ALL.into_iter().find(|table| table.name() == name)
}

/// Path of the file that holds the rows of a file of digests as another table has them; `None`: a path of another table.
pub fn folded_path(path: &str, table: Table) -> Option<String> {
    let rest = path.strip_prefix(Table::Digests.name())?.strip_prefix('/')?;
    Some(format!("{}/{rest}", table.name()))
}

/// Shard of a file, whose path is below the root; `None`: another path.
pub fn shard_of_path(path: &str) -> Option<u8> {
    let shard = path.split('/').find_map(|part| part.strip_prefix("shard="))?.parse().ok()?;
    (shard < SHARDS).then_some(shard)
}

/// Shard of a cluster's rows.
pub fn shard_of(cluster: &str) -> u8 {
    Sha256::digest(cluster.as_bytes())[0] % SHARDS
}

/// Directory of a file, with `/`, below the root.
///
/// # Errors
/// No such day.
pub fn shard_directory(table: Table, span: Span, shard: u8) -> anyhow::Result<String> {
    let day = day_directory(table.name(), span.day())?;
    let hour = match span {
        Span::Hour(hour) => format!("{:02}", hour.rem_euclid(24)),
        Span::Day(_) => WHOLE_DAY.to_owned(),
    };
    Ok(format!("{day}/hour={hour}/shard={shard:02}"))
}

/// Directory of a day of a table or of the manifests.
///
/// # Errors
/// No such day.
pub fn day_directory(table: &str, day: i64) -> anyhow::Result<String> {
    Ok(format!("{}/day={}", table_directory(table), day_name(day)?))
}

/// Directory of a table or of the manifests.
pub fn table_directory(table: &str) -> String {
    format!("{table}/v={VERSION}")
}

/// Days (since 1970) of a table or of the manifests, and their directories; none, where the table is not there.
///
/// # Errors
/// The root cannot be read.
pub fn day_directories(store: &dyn Store, table: &str) -> anyhow::Result<Vec<(i64, String)>> {
    let dir = table_directory(table);
    let names = store.list(&dir)?.directories;
    Ok(names.iter().filter_map(|name| Some((day_of_directory(name)?, format!("{dir}/{name}")))).collect())
}

fn day_name(day: i64) -> anyhow::Result<String> {
    let seconds = day.checked_mul(86_400).context("no such day")?;
    Ok(Timestamp::from_second(seconds).context("no such day")?.to_zoned(TimeZone::UTC).date().to_string())
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

/// An ID of logs and captures by their first entries or packets: that of a log which has grown since stays the same, and so does that of one
/// which was compressed.
///
/// # Errors
/// A file cannot be read, or its first entry is not whole yet.
pub fn id_of_files(files: &[PathBuf]) -> anyhow::Result<[u8; 16]> {
    let mut hash = Sha256::new();
    for path in files {
        // What comes through a pipe can be read only once.
        let start = if std::fs::metadata(path).is_ok_and(|meta| meta.is_file()) {
            start_of_file(path, files.len() == 1)
                .with_context(|| format!("cannot digest {}", path.display()))?
        } else {
            toll_sys::private_dir::random_bytes()?.to_vec()
        };
        hash.update((start.len() as u64).to_be_bytes());
        hash.update(&start);
    }
    let mut id = [0; 16];
    id.copy_from_slice(&hash.finalize()[..16]);
    Ok(id)
}

/// What stays as it is while the file grows, and no other file begins with.
fn start_of_file(path: &Path, is_alone: bool) -> anyhow::Result<Vec<u8>> {
    let DecompressedInput { reader, .. } = DecompressedInput::open(path, &Progress::hidden())?;
    let mut head = Vec::new();
    // Damage behind the first entry is reported by the digest, which reads all of it.
    let _until_there = reader.take(HEAD_BYTES).read_to_end(&mut head);
    match find_first_event(&head) {
        FirstEvent::EndsAt(end) => head.truncate(end),
        FirstEvent::Unknown => {}
        // It becomes no row. Among other files it would change the ID of theirs once it has an entry.
        FirstEvent::Absent if is_alone => {}
        FirstEvent::Absent | FirstEvent::Partial if head.len() as u64 >= HEAD_BYTES => {}
        FirstEvent::Absent | FirstEvent::Partial => {
            bail!("its first entry is not there whole yet: leave it out until it is")
        }
    }
    Ok(head)
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
        let place = shard_directory(Table::Digests, Span::Hour(hour), shard_of("shop")).unwrap();
        assert!(place.starts_with("digests/v=1/day=2025-11-26/hour=14/shard="), "{place}");
        assert_eq!((hour_of(-1), span_of_path(&place)), (-1, Some(Span::Hour(hour))));
        for other in ["day=2025-13-26/hour=14", "day=2025-11-26/hour=24", "day=2025-11-26"] {
            assert_eq!(span_of_path(&format!("digests/v=1/{other}/a.parquet")), None);
        }
        let day = Span::Day(hour.div_euclid(24));
        let of_day = shard_directory(Table::Digests, day, 3).unwrap();
        assert_eq!(
            (&*of_day, span_of_path(&of_day)),
            ("digests/v=1/day=2025-11-26/hour=all/shard=03", Some(day))
        );
        assert_eq!((day.begin_us(), day.end_us()), ((hour - 14) * HOUR_US, (hour + 10) * HOUR_US));
        assert_eq!((Span::Hour(hour).day(), Span::Hour(-1).day()), (day.day(), -1));
        assert_eq!(shard_of_path(&place), Some(shard_of("shop")));
        assert_eq!((table_of_path(&place), table_of_path("manifests/a")), (Some(Table::Digests), None));
        assert_eq!(shard_of_path("digests/shard=16/a.parquet"), None);
        let of_cluster = folded_path(&place, Table::ClusterDigests).unwrap();
        assert_eq!(table_of_path(&of_cluster), Some(Table::ClusterDigests));
        assert_eq!(folded_path(&of_cluster, Table::FleetDigests), None);
        assert!(shard_directory(Table::Texts, Span::Hour(i64::MAX), 0).is_err());
        assert_eq!(day_directory("manifests", day.day()).unwrap(), "manifests/v=1/day=2025-11-26");
        assert_eq!(day_of_directory("day=2025-11-26"), Some(hour.div_euclid(24)));
        assert_eq!(day_of_directory("day=2025-11-31"), None);
        let name = file_name("db1", [7; 16], 3);
        assert_eq!((name.len(), &name), (32, &file_name("db1", [7; 16], 3)));
        assert_ne!(name, file_name("db1", [7; 16], 4));
        assert_ne!(file_name("a", [0; 16], 0), file_name("b", [0; 16], 0));
    }
}
