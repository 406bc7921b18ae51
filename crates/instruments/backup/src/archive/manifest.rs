//! Manifest of a backup: its content, and the proof that it is complete.
//!
//! One object for each backup, written last, named by the SHA-256 of what is stored. A truncated or changed
//! manifest is not valid, and that can be checked without a key.

use crate::archive::ContentHash;
use crate::archive::content::FileSummary;
use crate::archive::piece_codec::{PieceDecoder, PieceEncoder};
use serde::{Deserialize, Serialize};
use toll_store::{Error, Result, Store};

/// Of this program. Fields may be added; one that means something else is another format.
pub const FORMAT: u32 = 1;

const FOLDER: &str = "backups";
/// Each piece takes 90 bytes of it: 2 TB in pieces of 128 KiB.
const MANIFEST_MAX_BYTES: u64 = 2 << 30;
/// Whatever a host has: 90 GB in pieces of 128 KiB.
const MANIFEST_MIN_BYTES: u64 = 64 << 20;

/// How long a manifest or an index of pieces may be here. It is read into memory, on a host where a database
/// server may need it, and parsing doubles it.
pub(crate) fn manifest_limit() -> u64 {
    (toll_sys::memory::available_bytes() / 4).clamp(MANIFEST_MIN_BYTES, MANIFEST_MAX_BYTES)
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    /// Begins with the time of the snapshot, so that names sort by it; ends with what stands for its source.
    pub id: String,
    /// Unix time in milliseconds: the dump's start, and when all pieces were in the store.
    pub begun_unix_ms: u64,
    pub ended_unix_ms: u64,
    pub source: SourceServer,
    pub program: DumpProgram,
    pub schemas: Vec<String>,
    /// Names of pieces are keyed by it; absent where pieces are not encrypted. 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_key: Option<String>,
    pub totals: Totals,
    /// In the order of the dump: one after the other they are what the program wrote.
    pub files: Vec<StoredFile>,
    /// Accounts that views, triggers, routines and events run as, `user@host`: a restore does not make them.
    pub definers: Vec<String>,
    /// Limits of this backup's consistency, in sentences.
    pub warnings: Vec<String>,
}

/// The server that was dumped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceServer {
    /// `mariadb`, `mysql` or `percona`.
    pub flavour: String,
    pub version: String,
    /// As the host that backed up reached it.
    pub address: String,
    /// As the server calls its host.
    #[serde(default)]
    pub host: String,
    /// The server's own (MySQL's server_uuid), or one that the host that backed up keeps for it.
    #[serde(default)]
    pub server_id: String,
    /// Given by the administrator (`--source`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The dump program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DumpProgram {
    pub version: String,
    /// Without those that say where the server is.
    pub options: Vec<String>,
    pub options_for_bodies: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    pub bytes: u64,
    pub rows: u64,
    pub pieces: u64,
    /// In the store, of all pieces of this backup.
    pub stored_bytes: u64,
    /// Of these, what was not there before.
    pub new_pieces: u64,
    pub new_stored_bytes: u64,
    /// Of what was there before, what was read again and was as it should be, or has been stored again.
    #[serde(default)]
    pub reread_pieces: u64,
    /// As a statement: a server takes it back only if its max_allowed_packet is no smaller. 0: not known.
    #[serde(default)]
    pub longest_row_bytes: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredFile {
    #[serde(flatten)]
    pub summary: FileSummary,
    pub pieces: Vec<StoredPiece>,
}

/// A piece: its name, its bytes, and how many bytes it takes in the store. Written as `[name, bytes, stored]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPiece(pub ContentHash, pub u32, pub u32);

impl StoredPiece {
    pub fn name(&self) -> ContentHash {
        self.0
    }
}

/// A backup, as listed.
#[derive(Debug, Clone)]
pub struct BackupEntry {
    pub id: String,
    /// Its manifest in the store.
    pub object: String,
    pub manifest_bytes: u64,
    sha256: ContentHash,
    encrypted: bool,
}

/// An invalid manifest.
#[derive(Debug, Clone)]
pub struct InvalidBackup {
    pub object: String,
    pub reason: String,
}

impl Manifest {
    /// Writes the manifest, which makes the backup valid. Call it after everything it names is safely in the
    /// store.
    pub fn write(&self, store: &Store, sealing: &PieceEncoder) -> Result<BackupEntry> {
        let text = serde_json::to_vec(self).map_err(|error| Error::Mismatch {
            id: self.id.clone(),
            reason: format!("its manifest cannot be written ({error})"),
        })?;
        let stored = sealing.encrypt(sealing.sign(text))?;
        let sha256 = ContentHash::hash(&stored);
        let encrypted = sealing.encrypts();
        let ending = if encrypted { "json.age" } else { "json" };
        let object = format!("{FOLDER}/{}.{sha256}.{ending}", self.id);
        let manifest_bytes = stored.len() as u64;
        store.put(&object, stored)?;
        store.sync_to_disk()?;
        Ok(BackupEntry { id: self.id.clone(), object, manifest_bytes, sha256, encrypted })
    }

    /// Every piece, in the order of the dump.
    pub fn pieces(&self) -> impl Iterator<Item = &StoredPiece> {
        self.files.iter().flat_map(|file| &file.pieces)
    }
}

/// The backups in a store.
#[derive(Debug)]
pub struct Backups {
    /// Oldest first.
    pub valid: Vec<BackupEntry>,
    pub invalid: Vec<InvalidBackup>,
}

impl Backups {
    /// Those whose manifests have a name as this toll gives them; [`BackupEntry::read_manifest`] says whether it fits.
    pub fn list(store: &Store) -> Result<Self> {
        let mut backups = Self { valid: Vec::new(), invalid: Vec::new() };
        store.list(FOLDER, |object| {
            match parse_object_name(&object.path) {
                Some((id, sha256, encrypted)) => backups.valid.push(BackupEntry {
                    id,
                    object: object.path,
                    manifest_bytes: object.bytes,
                    sha256,
                    encrypted,
                }),
                None => backups.invalid.push(InvalidBackup {
                    object: object.path,
                    reason: "its name is not a manifest's".into(),
                }),
            }
            Ok(())
        })?;
        backups.valid.sort_by(|one, other| (&one.id, &one.object).cmp(&(&other.id, &other.object)));
        // A list that broke off in the middle tells some twice: one that counts twice would push out another.
        backups.valid.dedup_by(|one, other| one.object == other.object);
        Ok(backups)
    }

    /// Finds a backup by its whole id, a unique prefix, or `latest`, which never chooses between sources: the newest
    /// backup of all may be another server's. `source`: the whole or a unique beginning of a source.
    pub fn find(&self, id: &str, source: Option<&str>) -> Result<&BackupEntry> {
        let none = |why: &str| Error::Destination(format!("{why}: toll backup list shows what there is"));
        let source = source.map(|wanted| self.find_source(wanted)).transpose()?;
        let of_source = |listed: &&BackupEntry| source.is_none_or(|source| listed.source() == source);
        let candidates = || self.valid.iter().filter(of_source);
        if id == "latest" {
            let newest = self.newest_of_each_source();
            if let (None, [_, _, ..]) = (source, newest.as_slice()) {
                let lines: Vec<String> = newest
                    .iter()
                    .map(|listed| format!("\n  {} (latest: {})", listed.source(), listed.id))
                    .collect();
                return Err(Error::Destination(format!(
                    "these are backups of {} sources. Choose one with --source, or name a backup; toll backup list \
                     shows their servers.{}",
                    newest.len(),
                    lines.concat()
                )));
            }
            return candidates().next_back().ok_or_else(|| none("there is no backup here"));
        }
        let mut found = candidates().filter(|listed| listed.id.starts_with(id));
        match (found.next(), found.next()) {
            (Some(one), None) => Ok(one),
            (Some(_), Some(_)) => Err(none(&format!("several backups begin with {id}"))),
            (None, _) => Err(none(&format!("there is no backup {id} here"))),
        }
    }

    /// The whole of a source's name comes before another's beginning.
    fn find_source(&self, wanted: &str) -> Result<&str> {
        let newest = self.newest_of_each_source();
        let sources = || newest.iter().map(|listed| listed.source());
        if let Some(whole) = sources().find(|source| *source == wanted) {
            return Ok(whole);
        }
        let mut found = sources().filter(|source| source.starts_with(wanted));
        let (one, all) = (found.next(), sources().collect::<Vec<_>>().join(", "));
        match (one, found.next()) {
            (Some(one), None) => Ok(one),
            (Some(_), Some(_)) => {
                Err(Error::Destination(format!("several sources begin with {wanted}; there are: {all}")))
            }
            (None, _) => Err(Error::Destination(format!("there is no source {wanted}; there are: {all}"))),
        }
    }

    fn newest_of_each_source(&self) -> Vec<&BackupEntry> {
        let mut newest: Vec<&BackupEntry> = Vec::new();
        for listed in self.valid.iter().rev() {
            if newest.iter().all(|other| other.source() != listed.source()) {
                newest.push(listed);
            }
        }
        newest
    }
}

impl BackupEntry {
    /// Fetches the manifest, and checks it against its name and, before anything of it is used, its signature if there
    /// is a key for it. In the clear it is refused if there is a key that decrypts: anybody could have written it.
    pub fn read_manifest(&self, store: &Store, opening: &PieceDecoder) -> Result<Manifest> {
        let untrusted = |reason: &str| Error::Untrusted { id: self.id.clone(), reason: reason.to_owned() };
        if opening.has_identity() && !self.encrypted {
            return Err(untrusted(
                "it is not encrypted, and a key was given. Leave the key out if it is known to be yours",
            ));
        }
        let manifest = self.read_text(store, opening)?;
        opening.check_signature(&manifest).map_err(untrusted)?;
        self.parse(&manifest)
    }

    /// The same whoever wrote it: for prune, which a manifest too many keeps from removing something, and no more.
    pub(crate) fn read_unverified(&self, store: &Store, opening: &PieceDecoder) -> Result<Manifest> {
        self.parse(&self.read_text(store, opening)?)
    }

    fn damaged(&self, reason: String) -> Error {
        Error::Mismatch { id: self.id.clone(), reason }
    }

    fn read_text(&self, store: &Store, opening: &PieceDecoder) -> Result<Vec<u8>> {
        let stored = store.get(&self.object, manifest_limit())?;
        if ContentHash::hash(&stored) != self.sha256 {
            return Err(self.damaged("its manifest is not what was stored".into()));
        }
        if self.encrypted { opening.decrypt(&stored) } else { Ok(stored) }
    }

    fn parse(&self, text: &[u8]) -> Result<Manifest> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        let version: Version = serde_json::from_slice(text)
            .map_err(|error| self.damaged(format!("its manifest is none ({error})")))?;
        if version.format != FORMAT {
            return Err(Error::Format { name: self.object.clone(), found: version.format });
        }
        let manifest: Manifest = serde_json::from_slice(text)
            .map_err(|error| self.damaged(format!("its manifest is none ({error})")))?;
        // An old backup under a newer name would pass for the latest, one under another's for that source's.
        if manifest.id != self.id {
            return Err(self.damaged(format!("its manifest is of {}", manifest.id)));
        }
        Ok(manifest)
    }

    /// The same for backups of one source (a server, and what of it was asked for), however the server was reached:
    /// the last part of the id. Empty where it has none.
    pub fn source(&self) -> &str {
        self.id.splitn(3, '-').nth(2).unwrap_or_default()
    }

    /// The day of UTC that its id begins with, if it does.
    pub fn date(&self) -> Option<jiff::civil::Date> {
        jiff::civil::Date::strptime("%Y%m%d", self.id.get(..8)?).ok()
    }

    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }
}

/// `backups/ID.SHA256.json`, or with `.age` behind it.
fn parse_object_name(path: &str) -> Option<(String, ContentHash, bool)> {
    let name = path.strip_prefix(FOLDER)?.strip_prefix('/')?;
    let (name, encrypted) = match name.strip_suffix(".json.age") {
        Some(name) => (name, true),
        None => (name.strip_suffix(".json")?, false),
    };
    let (id, sha256) = name.rsplit_once('.')?;
    Some((id.to_owned(), ContentHash::parse(sha256)?, encrypted))
}
