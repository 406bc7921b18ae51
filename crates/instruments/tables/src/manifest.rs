//! Manifests: what a flush wrote, itself written last. Readers take files from manifests, and list no directory.

use super::place;
use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Write;
use std::ops::RangeInclusive;
use std::path::{Component, Path, PathBuf};

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

    /// Writes it. All its files are of the day of this hour.
    ///
    /// # Errors
    /// There is no room.
    pub fn write(&self, root: &Path, hour: i64, name: &str) -> anyhow::Result<()> {
        let at = format!("{}/{name}.json", place::manifest_directory(hour)?);
        write_whole(root, &at, &serde_json::to_vec(self)?)
    }
}

pub const ALL_DAYS: RangeInclusive<i64> = i64::MIN..=i64::MAX;

/// Manifests of these days (since 1970), by their paths.
///
/// # Errors
/// One cannot be read, or names a file that is not below the root.
pub fn read_manifests(root: &Path, days: RangeInclusive<i64>) -> anyhow::Result<BTreeMap<PathBuf, Manifest>> {
    let mut found = BTreeMap::new();
    for dir in place::day_directories(root, "manifests")?.into_iter().filter(|(day, _)| days.contains(day)) {
        for entry in std::fs::read_dir(&dir.1).into_iter().flatten() {
            let path = entry.with_context(|| format!("cannot read {}", dir.1.display()))?.path();
            if path.extension().is_some_and(|end| end == "json")
                && let Some(manifest) = read_manifest(root, &path)?
            {
                found.insert(path, manifest);
            }
        }
    }
    Ok(found)
}

/// True if there are no manifests of any day; none is read.
///
/// # Errors
/// The root cannot be read.
pub fn is_empty(root: &Path) -> anyhow::Result<bool> {
    Ok(place::day_directories(root, "manifests")?.is_empty())
}

/// `None`: it is not there.
fn read_manifest(root: &Path, path: &Path) -> anyhow::Result<Option<Manifest>> {
    let read = std::fs::read(path);
    // A compaction has removed it meanwhile: what replaces it is read, too.
    if read.as_ref().is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(None);
    }
    let text = read.with_context(|| format!("cannot read {}", path.display()))?;
    let manifest: Manifest = serde_json::from_slice(&text)
        .with_context(|| format!("{} is no manifest of tables", path.display()))?;
    // It is data of other hosts: none may lead out of the directory.
    let leads_out =
        |path: &&String| Path::new(path).components().any(|part| !matches!(part, Component::Normal(_)));
    let mut paths = manifest.files.iter().map(|file| &file.path).chain(&manifest.replaces);
    if let Some(out) = paths.find(leads_out) {
        bail!("{} names {out:?}, which is not below {}", path.display(), root.display());
    }
    Ok(Some(manifest))
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
}

/// True if a compaction has replaced a file of this hour.
pub fn is_replaced(root: &Path, hour: i64, path: &str) -> anyhow::Result<bool> {
    let day = hour.div_euclid(24);
    let manifests = read_manifests(root, day..=day)?;
    Ok(manifests.values().any(|manifest| manifest.replaces.iter().any(|replaced| replaced == path)))
}

/// Writes a file that is whole or not there, and there after a crash of the host once this returns.
///
/// # Errors
/// The directory cannot be made, or there is no room.
pub fn write_whole(root: &Path, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let path = root.join(path);
    let dir = path.parent().context("a file needs a directory")?;
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut file = tempfile_in(dir).with_context(|| format!("cannot make a file in {}", dir.display()))?;
    let written = file.1.write_all(bytes).and_then(|()| file.1.sync_all());
    let placed =
        written.and_then(|()| std::fs::rename(&file.0, &path)).and_then(|()| File::open(dir)?.sync_all());
    placed
        .inspect_err(|_| drop(std::fs::remove_file(&file.0)))
        .with_context(|| format!("cannot write {}: free space there, or name another place", path.display()))
}

/// Under a name that readers take for no table.
fn tempfile_in(dir: &Path) -> anyhow::Result<(std::path::PathBuf, File)> {
    let random = u128::from_le_bytes(toll_sys::private_dir::random_bytes()?);
    let path = dir.join(format!(".{random:032x}.tmp"));
    let file = File::options().write(true).create_new(true).open(&path)?;
    Ok((path, file))
}
