//! Manifests: what a flush wrote, itself written last. Readers take files from manifests, and list no directory.

use super::place;
use super::store::Store;
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::path::{Component, Path};

/// Version of manifests.
pub const FORMAT: u32 = 1;

/// Files of one flush, or of one compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub files: Vec<ManifestFile>,
    /// Length of the stretches that a compaction has merged rows to, microseconds; 0: a flush, whose rows are as they came.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub grain_us: i64,
    /// Paths of files whose rows are in these: they count no more, whoever names them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaces: Vec<String>,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

impl Manifest {
    pub fn new() -> Self {
        Self { format: FORMAT, ..Self::default() }
    }

    /// Writes it. All its files are of this day (since 1970).
    ///
    /// # Errors
    /// There is no room.
    pub fn write(&self, store: &dyn Store, day: i64, name: &str) -> anyhow::Result<()> {
        let at = format!("{}/{name}.json", place::day_directory("manifests", day)?);
        store.put(&at, &serde_json::to_vec(self)?)
    }
}

/// Lists of manifests that are read at most, where a compaction removes some that a list names.
const LISTINGS_MAX: u32 = 10;

pub const ALL_DAYS: RangeInclusive<i64> = i64::MIN..=i64::MAX;

/// Manifests of these days (since 1970), by their paths, as they were all there at one moment.
///
/// # Errors
/// One cannot be read, or names a file that is not below the root.
pub fn read_manifests(
    store: &dyn Store,
    days: RangeInclusive<i64>,
) -> anyhow::Result<BTreeMap<String, Manifest>> {
    let mut found = BTreeMap::new();
    for _ in 0..LISTINGS_MAX {
        let listed = list_manifests(store, &days)?;
        found.retain(|path, _| listed.contains(path));
        let new: Vec<String> = listed.into_iter().filter(|path| !found.contains_key(path)).collect();
        let mut has_all = true;
        for (path, text) in new.iter().zip(store.get_all(&new)?) {
            // A compaction has removed it meanwhile: what replaces it may be newer than the list.
            let Some(text) = text else {
                has_all = false;
                continue;
            };
            let manifest = parse(&text).with_context(|| format!("{path} in {}", store.location()))?;
            found.insert(path.clone(), manifest);
        }
        if has_all {
            return Ok(found);
        }
    }
    bail!("manifests in {} are removed faster than they are read: ask again", store.location())
}

/// Days (since 1970) that have manifests, of these.
///
/// # Errors
/// The root cannot be read.
pub fn days_with_manifests(store: &dyn Store, days: &RangeInclusive<i64>) -> anyhow::Result<Vec<i64>> {
    let found = place::day_directories(store, "manifests")?.into_iter().map(|(day, _)| day);
    Ok(found.filter(|day| days.contains(day)).collect())
}

/// Paths of the manifests of these days.
fn list_manifests(store: &dyn Store, days: &RangeInclusive<i64>) -> anyhow::Result<BTreeSet<String>> {
    let mut paths = BTreeSet::new();
    let (first, last) = (*days.start(), *days.end());
    // Of one day, no list of all is needed.
    let days = if first == last { vec![first] } else { days_with_manifests(store, days)? };
    for day in days {
        let dir = place::day_directory("manifests", day)?;
        let names = store.list(&dir)?.files;
        let manifests = names.iter().filter(|name| name.ends_with(".json") && !name.starts_with('.'));
        paths.extend(manifests.map(|name| format!("{dir}/{name}")));
    }
    Ok(paths)
}

/// True if there are no manifests of any day; none is read.
///
/// # Errors
/// The root cannot be read.
pub fn is_empty(store: &dyn Store) -> anyhow::Result<bool> {
    Ok(place::day_directories(store, "manifests")?.is_empty())
}

fn parse(text: &[u8]) -> anyhow::Result<Manifest> {
    let manifest: Manifest = serde_json::from_slice(text).context("it is no manifest of tables")?;
    // It is data of other hosts: none may lead out of the directory.
    let leads_out =
        |path: &&String| Path::new(path).components().any(|part| !matches!(part, Component::Normal(_)));
    let mut paths = manifest.files.iter().map(|file| &file.path).chain(&manifest.replaces);
    if let Some(out) = paths.find(leads_out) {
        bail!("it names {out:?}, which is not below the tables");
    }
    Ok(manifest)
}

/// Paths of the files that count: those that a manifest names and none replaces, each once, with what the manifest says of it.
pub fn live_files<'a>(
    manifests: impl IntoIterator<Item = &'a Manifest> + Clone,
) -> BTreeMap<&'a str, &'a ManifestFile> {
    let replaced: HashSet<&str> =
        manifests.clone().into_iter().flat_map(|manifest| &manifest.replaces).map(String::as_str).collect();
    let named = manifests.into_iter().flat_map(|manifest| &manifest.files);
    named.map(|file| (file.path.as_str(), file)).filter(|(path, _)| !replaced.contains(path)).collect()
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManifestFile {
    /// Below the root, with `/`.
    pub path: String,
    pub rows: u64,
    pub bytes: u64,
    /// Hexadecimal.
    pub sha256: String,
}

impl ManifestFile {
    pub fn of(path: String, rows: usize, bytes: &[u8]) -> Self {
        let sha256 = place::hex(&Sha256::digest(bytes));
        Self { path, rows: rows as u64, bytes: bytes.len() as u64, sha256 }
    }

    /// Its bytes.
    ///
    /// # Errors
    /// It is not as its manifest says.
    pub fn read(&self, store: &dyn Store) -> anyhow::Result<Vec<u8>> {
        let name = || format!("{} in {}", self.path, store.location());
        let bytes = store.get(&self.path)?.with_context(|| format!("{} is not there", name()))?;
        if place::hex(&Sha256::digest(&bytes)) != self.sha256 {
            bail!(
                "{} is not the file that its manifest names: it was changed, or copied in part; copy it again",
                name()
            );
        }
        Ok(bytes)
    }
}

/// True if a compaction has replaced a file of this day.
pub fn is_replaced(store: &dyn Store, day: i64, path: &str) -> anyhow::Result<bool> {
    let manifests = read_manifests(store, day..=day)?;
    Ok(manifests.values().any(|manifest| manifest.replaces.iter().any(|replaced| replaced == path)))
}
