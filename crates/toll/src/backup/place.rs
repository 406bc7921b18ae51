//! In which store are backups, and with which keys?

use crate::journal::ProcessId;
use crate::journal::process;
use crate::{clock, signals};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use toll_backup::prune::Pruned;
use toll_backup::{Destination, Opening, Owner, Patience, Running, Sealing, Store};

/// A store as it was asked for.
#[derive(Debug, Clone)]
pub struct Place {
    pub destination: Destination,
    pub retry_for: Duration,
}

/// What encrypts and decrypts; files, since a command line is for all to see.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    /// age recipients.
    pub encrypt_to: Vec<String>,
    pub passphrase_file: Option<PathBuf>,
    /// age identities.
    pub identity_file: Option<PathBuf>,
}

impl Keys {
    /// For a backup: how pieces are put away, and what can be read meanwhile.
    pub fn for_writing(&self, store: &Store) -> Result<(Sealing, Opening)> {
        match &self.passphrase_file {
            Some(file) if self.encrypt_to.is_empty() => {
                Ok(toll_backup::with_passphrase(store, &passphrase(file)?)?)
            }
            Some(_) => bail!("--encrypt-to and --passphrase-file exclude each other: choose one"),
            None => Ok((Sealing::to(&self.encrypt_to)?, Opening::default())),
        }
    }

    pub fn for_reading(&self, store: &Store) -> Result<Opening> {
        match (&self.identity_file, &self.passphrase_file) {
            (Some(file), _) => {
                let text = std::fs::read_to_string(file)
                    .with_context(|| format!("cannot read the identity file {}", file.display()))?;
                Ok(Opening::with_identities(&text)?)
            }
            (None, Some(file)) => Ok(Opening::with_passphrase(store, &passphrase(file)?)?),
            (None, None) => Ok(Opening::default()),
        }
    }
}

/// The first line of a file.
fn passphrase(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read the passphrase file {}", file.display()))?;
    match text.lines().next() {
        Some(line) if !line.is_empty() => Ok(line.to_owned()),
        _ => bail!("{} begins with an empty line: the first line is the passphrase", file.display()),
    }
}

/// Opens the store; `make`: a folder that is not there is made.
pub fn opened(place: &Place, make: bool) -> Result<Arc<Store>> {
    let patience = Patience { retry_for: place.retry_for, stop: stopped };
    Ok(Arc::new(Store::open(place.destination.clone(), make, patience)?))
}

pub fn stopped() -> bool {
    signals::RAISED.load(Ordering::Relaxed)
}

/// This process, for a marker in a store.
pub fn owner() -> Result<Owner> {
    let own = ProcessId::own().context("cannot read /proc/self/stat: is /proc mounted?")?;
    Ok(Owner {
        boot_id: process::boot_id(),
        namespace: process::namespace(),
        pid: own.pid,
        start_ticks: own.start_ticks,
    })
}

/// Nothing for a process that cannot be seen from here: one of another host, or in another container.
pub fn is_alive(owner: &Owner) -> Option<bool> {
    let seen = owner.boot_id == process::boot_id() && owner.namespace == process::namespace();
    seen.then(|| ProcessId { pid: owner.pid, start_ticks: owner.start_ticks }.alive())
}

/// `20261122T052000Z-` and what tells two of the same second apart: names sort by time.
pub fn id() -> String {
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ");
    format!("{time}-{:05x}{:04x}", clock::wall_us() % 1_000_000, std::process::id() & 0xffff)
}

/// Removes old backups and what nobody needs.
pub fn pruned(store: &Arc<Store>, opening: &Opening, keep: Option<usize>, dry_run: bool) -> Result<Pruned> {
    let alone = Running::prune(store.clone(), &format!("prune-{}", id()), &owner()?, is_alive)?;
    Ok(toll_backup::prune::prune(store, opening, keep, dry_run, &alone)?)
}
