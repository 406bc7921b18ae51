//! Cleanup of killed runs: finds their journals and undoes their changes.

use super::{Credentials, JournalLine, PendingUndo, Undo, UndoId, UndoSummary};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use toll_sys::process::{self, ProcessId};

/// A journal that was found, and what came of it.
#[derive(Debug)]
pub struct CleanResult {
    pub run_id: String,
    pub state: CleanState,
}

#[derive(Debug)]
pub enum CleanState {
    /// Its owner lives: left alone.
    Running {
        pid: i32,
    },
    /// Pids in it are counted in another namespace (a container's): left alone.
    OtherNamespace {
        namespace: String,
    },
    /// Dry run (`--dry-run`): changes that would be undone.
    WouldUndo {
        changes: Vec<String>,
    },
    Undone(UndoSummary),
    /// The file cannot be read as a journal.
    Unreadable {
        reason: String,
    },
}

/// Goes through all journals in `dir`. Journals whose owner lives are never touched.
pub fn clean(dir: &Path, dry_run: bool, credentials: &Credentials) -> Result<Vec<CleanResult>> {
    let entries = match std::fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.with_context(|| format!("cannot read {}", dir.display()))?,
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    if !dry_run {
        // Killed before its journal had a name: it had changed nothing yet.
        for path in
            paths.iter().filter(|path| unfinished_journal_owner(path).is_some_and(|owner| !owner.is_alive()))
        {
            std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    paths.retain(|path| path.extension().is_some_and(|e| e == "ndjson"));
    paths.sort();
    Ok(paths.iter().map(|path| clean_one(path, dry_run, credentials)).collect())
}

/// Changes of a killed run that are not undone yet.
#[derive(Debug)]
pub struct PendingRun {
    pub run_id: String,
    pub changes: Vec<Undo>,
}

/// Journals in `dir` whose owner has died, and that still hold something to put back. Only looks.
pub fn pending_runs(dir: &Path) -> Vec<PendingRun> {
    let paths = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = paths.filter(|path| path.extension().is_some_and(|e| e == "ndjson"));
    let dead = found.filter_map(|path| StoredJournal::read(&path).ok()).filter(|found| !found.in_use());
    dead.filter(|found| !found.pending.is_empty())
        .map(|found| PendingRun { run_id: found.run_id, changes: found.pending.into_values().collect() })
        .collect()
}

/// Whose journal is (or was) being begun in this file, `PID-START-RUN.new`.
fn unfinished_journal_owner(path: &Path) -> Option<ProcessId> {
    let mut parts = path.file_name()?.to_str()?.strip_suffix(".new")?.split('-');
    Some(ProcessId { pid: parts.next()?.parse().ok()?, start_ticks: parts.next()?.parse().ok()? })
}

/// The same for one run; none if it has no journal.
pub fn clean_run(dir: &Path, run_id: &str) -> Option<CleanResult> {
    let path = dir.join(format!("{run_id}.ndjson"));
    path.is_file().then(|| clean_one(&path, false, &Credentials::default()))
}

fn clean_one(path: &Path, dry_run: bool, credentials: &Credentials) -> CleanResult {
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let found = match StoredJournal::read(path) {
        Ok(found) => found,
        Err(error) => {
            return CleanResult {
                run_id: name,
                state: CleanState::Unreadable { reason: format!("{error:#}") },
            };
        }
    };
    let same_boot = found.boot_id == process::boot_id();
    if same_boot && found.namespace != process::pid_namespace() {
        let state = CleanState::OtherNamespace { namespace: found.namespace };
        return CleanResult { run_id: found.run_id, state };
    }
    if same_boot && found.owner.is_alive() {
        return CleanResult { run_id: found.run_id, state: CleanState::Running { pid: found.owner.pid } };
    }
    if dry_run {
        let changes = found.pending.values().rev().map(ToString::to_string).collect();
        return CleanResult { run_id: found.run_id, state: CleanState::WouldUndo { changes } };
    }
    if same_boot {
        process::wait_for_pending_execs();
    }
    let left = PendingUndo { changes: found.pending, run_id: &found.run_id, same_boot };
    let undone = left.undo(credentials, |id| {
        mark_done(path, found.whole_bytes, id).context("cannot mark a change as undone")
    });
    if undone.failures.is_empty() {
        let _ = std::fs::remove_file(path);
    }
    CleanResult { run_id: found.run_id, state: CleanState::Undone(undone) }
}

/// Appends after the last whole line; the file grows by each mark, so later ones go to its end.
fn mark_done(path: &Path, whole_bytes: u64, id: UndoId) -> Result<()> {
    let mut line = serde_json::to_vec(&JournalLine::Done { id })?;
    line.push(b'\n');
    let mut file = OpenOptions::new().append(true).read(true).open(path)?;
    let mut last = [b'\n'];
    std::os::unix::fs::FileExt::read_at(&file, &mut last, file.metadata()?.len().saturating_sub(1))?;
    if last != [b'\n'] {
        file.set_len(whole_bytes)?;
    }
    file.write_all(&line)?;
    Ok(file.sync_data()?)
}

/// A journal as read back.
struct StoredJournal {
    run_id: String,
    boot_id: String,
    namespace: String,
    /// Up to the end of the last whole line.
    whole_bytes: u64,
    owner: ProcessId,
    pending: BTreeMap<UndoId, Undo>,
}

impl StoredJournal {
    /// The owner is alive, or not visible from here.
    fn in_use(&self) -> bool {
        self.boot_id == process::boot_id()
            && (self.namespace != process::pid_namespace() || self.owner.is_alive())
    }

    /// A last line cut short by a crash is left out: its change was not made.
    fn read(path: &Path) -> Result<Self> {
        let mut reader = BufReader::new(File::open(path)?);
        let mut line = Vec::new();
        let mut found: Option<Self> = None;
        let mut whole_bytes = 0;
        while reader.read_until(b'\n', &mut line)? > 0 {
            if line.last() != Some(&b'\n') {
                break;
            }
            whole_bytes += line.len() as u64;
            match (serde_json::from_slice(&line)?, &mut found) {
                (JournalLine::Begin { run_id, boot_id, namespace, owner }, None) => {
                    let pending = BTreeMap::new();
                    found = Some(Self { run_id, boot_id, namespace, whole_bytes, owner, pending });
                }
                (JournalLine::Owner { owner }, Some(found)) => found.owner = owner,
                (JournalLine::Change { id, change }, Some(found)) => {
                    found.pending.insert(id, change);
                }
                (JournalLine::Done { id }, Some(found)) => {
                    found.pending.remove(&id);
                }
                (JournalLine::Begin { .. }, Some(_)) | (_, None) => {
                    bail!("{} is not in order", path.display())
                }
            }
            line.clear();
        }
        let found = found.with_context(|| format!("{} is empty: remove it", path.display()))?;
        Ok(Self { whole_bytes, ..found })
    }
}
