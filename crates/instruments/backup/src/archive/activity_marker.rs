//! Markers of backups and prunes in progress on a store.
//!
//! A backup and a prune each write a marker first, and then look for the other's: at least one of them sees
//! the other. The owner renews its marker while it works; a marker that is not renewed expires. A marker of
//! an owner known to be dead counts for nothing at once. Backups do not block each other.

use serde::{Deserialize, Serialize};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use toll_store::{Error, Object, Result, Store};
use toll_sys::cancel::CancelToken;

const FOLDER: &str = "running";
/// A marker is put anew this often,
const RENEW_INTERVAL: Duration = Duration::from_secs(60);
/// and believed for so long: ten failed renewals, and clocks that are read at two moments.
const MARKER_LIFETIME: Duration = Duration::from_secs(15 * 60);
/// How soon a backup looks again whether a prune has withdrawn.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// A marker has 200 bytes or so.
const MARKER_MAX_BYTES: u64 = 64 << 10;

/// A process, told apart from all others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MarkerOwner {
    /// Of the boot that it belongs to; another boot of the same host has another.
    pub boot_id: String,
    /// In which its pid is counted.
    pub namespace: String,
    pub pid: i32,
    pub start_ticks: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Activity {
    Backup,
    Prune,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct MarkerRecord {
    work: Activity,
    owner: MarkerOwner,
}

/// A marker in a store, renewed until it is dropped.
#[derive(Debug)]
pub struct ActivityMarker {
    store: Arc<Store>,
    object: String,
    owner: MarkerOwner,
    /// Nothing for a process that it cannot see (another host's).
    is_alive: fn(&MarkerOwner) -> Option<bool>,
    last_renewal: Arc<Mutex<RenewalTime>>,
    end: Option<Sender<()>>,
    renewer: Option<std::thread::JoinHandle<()>>,
    trusts_unreferenced: bool,
    /// Markers of owners who died with their host, for whoever removes what they left.
    dead_markers: Vec<String>,
}

/// When the marker was put last, by two clocks: the one is never set, the other goes on while a host sleeps.
#[derive(Debug, Clone, Copy)]
struct RenewalTime(Instant, SystemTime);

impl RenewalTime {
    fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    fn age(self) -> Duration {
        self.0.elapsed().max(self.1.elapsed().unwrap_or_default())
    }
}

/// State of other markers.
struct OtherMarkers {
    prunes: usize,
    backups: usize,
    /// Of another boot: if it died with its host, what it had written may not have reached the disk.
    from_other_boot: bool,
    dead_markers: Vec<String>,
}

impl ActivityMarker {
    /// Sets the marker of a backup. Waits at most `wait` for a running prune. `is_alive` returns `None` for a
    /// process of another host.
    pub fn start_backup(
        store: Arc<Store>,
        id: &str,
        owner: &MarkerOwner,
        is_alive: fn(&MarkerOwner) -> Option<bool>,
        wait: Duration,
        cancel: &CancelToken,
    ) -> Result<Self> {
        let mut running = Self::create(store, id, Activity::Backup, owner, is_alive)?;
        running.wait_for_prunes(wait, cancel)?;
        Ok(running)
    }

    /// Waits until no prune is at work. To be called again before a look at what was put: a prune that took this
    /// backup for dead has removed some of it, or is about to.
    pub fn wait_for_prunes(&mut self, wait: Duration, cancel: &CancelToken) -> Result<()> {
        let begun = Instant::now();
        loop {
            let others = self.read_others()?;
            self.trusts_unreferenced &= !others.from_other_boot;
            if others.prunes == 0 {
                return Ok(());
            }
            if cancel.is_cancelled() {
                return Err(Error::Interrupted);
            }
            if begun.elapsed() > wait {
                return Err(Error::Busy(format!("a prune is running on {}. Try again later.", self.store)));
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sets the marker of a prune. It fails if a backup is running.
    pub fn start_prune(
        store: Arc<Store>,
        id: &str,
        owner: &MarkerOwner,
        is_alive: fn(&MarkerOwner) -> Option<bool>,
    ) -> Result<Self> {
        let mut running = Self::create(store, id, Activity::Prune, owner, is_alive)?;
        let others = running.read_others()?;
        let what = match (others.backups, others.prunes) {
            (0, 0) => {
                running.dead_markers = others.dead_markers;
                return Ok(running);
            }
            (0, _) => "another prune",
            _ => "a backup",
        };
        Err(Error::Busy(format!("{what} is running on {}. Prune after it.", running.store)))
    }

    /// True if pieces that no manifest names are reliable. Not after a power failure, which can leave a file
    /// with its name and without its content.
    pub fn trusts_unreferenced(&self) -> bool {
        self.trusts_unreferenced
    }

    /// Call it after all unreferenced pieces are removed: all remaining pieces are reliable.
    pub(crate) fn remove_dead_markers(&self) -> Result<()> {
        self.dead_markers.iter().try_for_each(|object| self.store.delete(object))
    }

    /// Call it right before the manifest is written, or anything is removed. Fails if the marker was not
    /// renewed for so long that it may have expired for others.
    pub fn ensure_valid(&self) -> Result<()> {
        self.check_age(MARKER_LIFETIME / 2)
    }

    /// Call it right after the manifest was written. Fails if the marker may have expired for others before.
    pub fn ensure_was_valid(&self) -> Result<()> {
        self.check_age(MARKER_LIFETIME)
    }

    fn check_age(&self, most: Duration) -> Result<()> {
        let since = self.last_renewal.lock().unwrap_or_else(PoisonError::into_inner).age();
        if since < most {
            return Ok(());
        }
        Err(Error::Busy(format!(
            "no answer from {} for {} minutes (or this host was suspended): the marker of this run may have \
             expired. Run it again: stored pieces are reused.",
            self.store,
            since.as_secs() / 60
        )))
    }

    fn create(
        store: Arc<Store>,
        id: &str,
        work: Activity,
        owner: &MarkerOwner,
        is_alive: fn(&MarkerOwner) -> Option<bool>,
    ) -> Result<Self> {
        let object = format!("{FOLDER}/{id}.json");
        let text = serde_json::to_vec(&MarkerRecord { work, owner: owner.clone() })
            .map_err(|error| Error::Busy(format!("cannot write a marker: {error}")))?;
        // Where the answer to a first try was lost, a second one finds what the first has put.
        if !store.put_if_absent(&object, text.clone())?
            && store.get_if_exists(&object, MARKER_MAX_BYTES)?.as_ref() != Some(&text)
        {
            return Err(Error::Busy(format!("{object} is there already: another run has the same name")));
        }
        let renewed = Arc::new(Mutex::new(RenewalTime::now()));
        let (end, ended) = channel::<()>();
        let renewer = {
            let (store, object, renewed) = (store.clone(), object.clone(), renewed.clone());
            std::thread::Builder::new().name("marker".into()).spawn(move || {
                while ended.recv_timeout(RENEW_INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    if store.put(&object, text.clone()).is_ok() {
                        *renewed.lock().unwrap_or_else(PoisonError::into_inner) = RenewalTime::now();
                    }
                }
            })
        };
        let renewer = renewer.map_err(|cause| Error::Write { what: "a thread", cause })?;
        Ok(Self {
            store,
            object,
            owner: owner.clone(),
            is_alive,
            last_renewal: renewed,
            end: Some(end),
            renewer: Some(renewer),
            trusts_unreferenced: true,
            dead_markers: Vec::new(),
        })
    }

    fn read_others(&self) -> Result<OtherMarkers> {
        let mut objects: Vec<Object> = Vec::new();
        self.store.list(FOLDER, |object| {
            objects.push(object);
            Ok(())
        })?;
        // The store's clock, by which all markers are dated.
        let now = objects.iter().find(|object| object.path == self.object).map(|own| own.modified_unix_ms);
        let mut others =
            OtherMarkers { prunes: 0, backups: 0, from_other_boot: false, dead_markers: Vec::new() };
        for object in objects.iter().filter(|object| object.path != self.object) {
            let Some(text) = self.store.get_if_exists(&object.path, MARKER_MAX_BYTES)? else { continue };
            let marker: Option<MarkerRecord> = serde_json::from_slice(&text).ok();
            let alive = marker.as_ref().and_then(|marker| (self.is_alive)(&marker.owner));
            let age_ms = now.unwrap_or(object.modified_unix_ms).saturating_sub(object.modified_unix_ms);
            let lives = alive.unwrap_or(u128::from(age_ms) < MARKER_LIFETIME.as_millis());
            let is_of_this_boot =
                marker.as_ref().is_some_and(|marker| marker.owner.boot_id == self.owner.boot_id);
            others.from_other_boot |= !is_of_this_boot;
            match marker.map(|marker| marker.work) {
                Some(Activity::Prune) if lives => others.prunes += 1,
                Some(Activity::Backup) | None if lives => others.backups += 1,
                // Its process alone was killed, and what it wrote is in the host's memory at least.
                _ if is_of_this_boot => self.store.delete(&object.path)?,
                _ => others.dead_markers.push(object.path.clone()),
            }
        }
        Ok(others)
    }
}

impl Drop for ActivityMarker {
    /// What was put is safe before the marker goes: whoever finds none may rely on what lies there.
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(renewer) = self.renewer.take() {
            let _ = renewer.join();
        }
        if self.store.sync_to_disk().is_ok() {
            self.store.delete_best_effort(&self.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_store::{Destination, RetryPolicy};

    #[test]
    fn a_run_whose_marker_may_have_expired_is_not_valid_whichever_clock_went_on() {
        let dir = tempfile::tempdir().unwrap();
        let patience = RetryPolicy { retry_for: Duration::ZERO, stop: Arc::default(), report: |_| {} };
        let store = Store::open(Destination::Folder(dir.path().to_owned()), true, patience).unwrap();
        let owner = MarkerOwner { boot_id: "b".into(), namespace: "n".into(), pid: 1, start_ticks: 1 };
        let marker = ActivityMarker::start_prune(Arc::new(store), "p", &owner, |_| Some(true)).unwrap();
        let renewed_before = |minutes: u64| {
            // A host that was suspended: its other clock stood still.
            let time = SystemTime::now() - Duration::from_secs(minutes * 60);
            *marker.last_renewal.lock().unwrap() = RenewalTime(Instant::now(), time);
            (marker.ensure_valid().is_ok(), marker.ensure_was_valid().is_ok())
        };
        assert_eq!(renewed_before(1), (true, true));
        assert_eq!(renewed_before(8), (false, true));
        assert_eq!(renewed_before(16), (false, false));
        let refused = marker.ensure_valid().unwrap_err().to_string();
        assert!(refused.contains("for 16 minutes (or this host was suspended)"), "{refused}");
    }
}
