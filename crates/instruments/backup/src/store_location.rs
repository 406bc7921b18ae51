//! Store location and keys of backups.

use crate::archive::prune::{PruneSummary, RetentionPolicy};
use crate::archive::{ActivityMarker, Backups, MarkerOwner, PieceDecoder, PieceEncoder, SignKey, VerifyKey};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use toll_store::{Destination, RetryPolicy, Store};
use toll_sys::cancel::CancelToken;
use toll_sys::clock;
use toll_sys::count_format::format_count;
use toll_sys::private_file;
use toll_sys::process::{self, ProcessId};

/// A store as it was asked for.
#[derive(Debug, Clone)]
pub struct StoreLocation {
    pub destination: Destination,
    pub retry_for: Duration,
}

/// What encrypts and decrypts; files, since a command line is for all to see.
#[derive(Debug, Clone, Default)]
pub struct KeyOptions {
    /// age recipients.
    pub encrypt_to: Vec<String>,
    pub passphrase_file: Option<PathBuf>,
    /// age identities.
    pub identity_file: Option<PathBuf>,
    /// Ed25519 keys in PEM. A passphrase signs and verifies by itself.
    pub sign_key_file: Option<PathBuf>,
    pub verify_key_file: Option<PathBuf>,
}

impl KeyOptions {
    /// True if backups are encrypted.
    pub fn encrypts(&self) -> bool {
        !self.encrypt_to.is_empty() || self.passphrase_file.is_some()
    }

    /// For a backup: how pieces are put away, and what can be read meanwhile.
    pub fn for_writing(&self, store: &Store) -> Result<(PieceEncoder, PieceDecoder)> {
        if let Some(file) = &self.passphrase_file {
            if !self.encrypt_to.is_empty() || self.sign_key_file.is_some() {
                bail!(
                    "--passphrase-file encrypts and signs by itself: leave out --encrypt-to and --sign-key"
                );
            }
            return Ok(crate::archive::codec_with_passphrase(store, &read_passphrase(file)?)?);
        }
        let encoder = PieceEncoder::for_recipients(&self.encrypt_to)?;
        Ok(match self.sign_key()? {
            Some(key) => (encoder.with_sign_key(key), PieceDecoder::default()),
            None => (encoder, PieceDecoder::default()),
        })
    }

    /// What signs manifests.
    pub fn sign_key(&self) -> Result<Option<SignKey>> {
        let read = |file| Ok(SignKey::from_pem(&private_file::read_secret(file, "the signing key")?)?);
        self.sign_key_file.as_deref().map(read).transpose()
    }

    /// What their signatures are checked with.
    pub fn verify_key(&self) -> Result<Option<VerifyKey>> {
        let read = |file: &Path| {
            let text = std::fs::read_to_string(file);
            let text =
                text.with_context(|| format!("cannot read the verification key {}", file.display()))?;
            Ok(VerifyKey::from_pem(&text)?)
        };
        self.verify_key_file.as_deref().map(read).transpose()
    }

    pub fn for_reading(&self, store: &Store) -> Result<PieceDecoder> {
        let decoder = match (&self.identity_file, &self.passphrase_file) {
            (Some(file), _) => {
                let text = private_file::read_secret(file, "the identity file")?;
                PieceDecoder::with_identities(&text)?
            }
            (None, Some(file)) => PieceDecoder::with_passphrase(store, &read_passphrase(file)?)?,
            (None, None) => PieceDecoder::default(),
        };
        Ok(match self.verify_key()? {
            Some(key) => decoder.with_verify_key(key),
            None => decoder,
        })
    }
}

/// The first line of a file.
fn read_passphrase(file: &Path) -> Result<String> {
    let text = private_file::read_secret(file, "the passphrase file")?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => bail!("{} begins with an empty line: the first line is the passphrase", file.display()),
    }
}

/// Opens the store; `make`: a folder that is not there is made.
pub fn open_store(place: &StoreLocation, make: bool, cancel: &CancelToken) -> Result<Arc<Store>> {
    let report = |what: &str| tracing::warn!("{what}");
    let patience = RetryPolicy { retry_for: place.retry_for, stop: cancel.shared_flag(), report };
    Ok(Arc::new(Store::open(place.destination.clone(), make, patience)?))
}

/// This process, for a marker in a store.
pub fn current_owner() -> Result<MarkerOwner> {
    let own = ProcessId::current().context("cannot read /proc/self/stat: is /proc mounted?")?;
    Ok(MarkerOwner {
        boot_id: process::boot_id(),
        namespace: process::pid_namespace(),
        pid: own.pid,
        start_ticks: own.start_ticks,
    })
}

/// Nothing for a process that cannot be seen from here: one of another host, or in another container.
pub fn is_alive(owner: &MarkerOwner) -> Option<bool> {
    let seen = owner.boot_id == process::boot_id() && owner.namespace == process::pid_namespace();
    seen.then(|| ProcessId { pid: owner.pid, start_ticks: owner.start_ticks }.is_alive())
}

/// `20261122T052000Z-` and what tells two of the same second apart: names sort by time.
pub fn new_id() -> String {
    let unique = format!("{:05x}{:04x}", clock::wall_us() % 1_000_000, std::process::id() & 0xffff);
    format!("{}-{unique}", format_timestamp(jiff::Timestamp::now()))
}

fn format_timestamp(time: jiff::Timestamp) -> String {
    time.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Clocks of hosts that back up into one store may be apart by so much.
const MAX_CLOCK_SKEW: jiff::SignedDuration = jiff::SignedDuration::from_hours(1);

/// Says which backups are dated later than now, if any: a clock was wrong, and they pass for the latest.
pub fn warn_future_backups(backups: &Backups) -> Option<String> {
    let soon = format_timestamp(jiff::Timestamp::now().checked_add(MAX_CLOCK_SKEW).ok()?);
    let is_ahead = |id: &str| id.starts_with(|c: char| c.is_ascii_digit()) && id > soon.as_str();
    let ahead: Vec<&str> = backups
        .valid
        .iter()
        .filter(|listed| is_ahead(&listed.id))
        .map(|listed| listed.object.as_str())
        .collect();
    (!ahead.is_empty()).then(|| {
        format!(
            "{} dated in the future (a clock was wrong) and count as the latest. Remove their manifests \
             ({}) and prune.",
            format_count(ahead.len() as u64, "backup"),
            ahead.join(", ")
        )
    })
}

/// Removes old backups and what nobody needs.
pub fn prune_store(
    store: &Arc<Store>,
    opening: &PieceDecoder,
    stay: RetentionPolicy<'_>,
    dry_run: bool,
) -> Result<PruneSummary> {
    let alone = ActivityMarker::start_prune(
        store.clone(),
        &format!("prune-{}", new_id()),
        &current_owner()?,
        is_alive,
    )?;
    Ok(crate::archive::prune::prune(store, opening, stay, dry_run, &alone)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_that_a_wrong_clock_dated_ahead_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let destination = Destination::Folder(dir.path().to_owned());
        let place = StoreLocation { destination, retry_for: Duration::ZERO };
        let store = open_store(&place, true, &CancelToken::new()).unwrap();
        let warning_beside = |id: &str| {
            std::fs::write(dir.path().join(format!("backups/{id}.{}.json", "0".repeat(64))), "").unwrap();
            warn_future_backups(&Backups::list(&store).unwrap())
        };
        assert_eq!(warning_beside(&format!("{}-a", new_id())), None);
        let warning = warning_beside("20990101T000000Z-1-a").unwrap();
        assert!(
            warning.starts_with("1 backup") && warning.contains("backups/20990101T000000Z-1-a."),
            "{warning}"
        );
    }
}
