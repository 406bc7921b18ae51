//! Cleanup of killed runs: finds their journals and undoes their changes.

use super::stored::{StoredJournal, check_directory};
use super::{Credentials, JournalLine, PendingUndo, ServerRef, Undo, UndoId, UndoSummary};
use anyhow::{Context, Result};
use nix::libc::O_NOFOLLOW;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use toll_sys::cgroup;
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
///
/// # Errors
/// Other users can write to the directory: what journals there ask for is not done.
pub fn clean(dir: &Path, dry_run: bool, credentials: &Credentials) -> Result<Vec<CleanResult>> {
    if dir.exists() {
        check_directory(dir)?;
    }
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
    /// Why its journal, or a part of it, cannot be read: there may be more changes.
    pub unreadable: Vec<String>,
}

/// Journals in `dir` whose owner has died, and that still hold something to put back or cannot be read. Only looks.
pub fn pending_runs(dir: &Path) -> Vec<PendingRun> {
    let is_usable = if dir.exists() { check_directory(dir) } else { Ok(()) };
    if let Err(error) = is_usable {
        let unreadable = vec![format!("{error:#}")];
        return vec![PendingRun { run_id: dir.display().to_string(), changes: Vec::new(), unreadable }];
    }
    let paths = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = paths.filter(|path| path.extension().is_some_and(|e| e == "ndjson"));
    found.filter_map(|path| pending_run(&path)).collect()
}

fn pending_run(path: &Path) -> Option<PendingRun> {
    match StoredJournal::read(path) {
        Ok(found) if found.in_use() || (found.pending.is_empty() && found.damaged.is_empty()) => None,
        Ok(found) => Some(PendingRun {
            unreadable: found.damaged.iter().map(ToString::to_string).collect(),
            run_id: found.run_id,
            changes: found.pending.into_values().collect(),
        }),
        // Put back meanwhile.
        Err(_) if !path.exists() => None,
        Err(error) => Some(PendingRun {
            run_id: journal_name(path),
            changes: Vec::new(),
            unreadable: vec![format!("{error:#}")],
        }),
    }
}

fn journal_name(path: &Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
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
    let found = match StoredJournal::read(path) {
        Ok(found) => found,
        Err(error) => {
            return CleanResult {
                run_id: journal_name(path),
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
        let changes = found.pending.values().rev().map(ToString::to_string);
        let unread = found.torn.iter().chain(&found.damaged).map(ToString::to_string);
        let changes = changes.chain(unread).collect();
        return CleanResult { run_id: found.run_id, state: CleanState::WouldUndo { changes } };
    }
    if same_boot {
        process::wait_for_pending_execs();
    }
    let left = PendingUndo { changes: found.pending, run_id: &found.run_id, same_boot };
    let mut undone = left.undo(credentials, |id| {
        mark_done(path, found.whole_bytes, id).context("cannot mark a change as undone")
    });
    undone.actions.extend(found.torn.iter().map(ToString::to_string));
    undone.failures.extend(
        found
            .damaged
            .iter()
            .map(|line| format!("{line}: put back by hand what it says, then remove {}", path.display())),
    );
    if undone.failures.is_empty() {
        let _ = std::fs::remove_file(path);
    }
    CleanResult { run_id: found.run_id, state: CleanState::Undone(undone) }
}

/// Appends after the last whole line; the file grows by each mark, so later ones go to its end.
fn mark_done(path: &Path, whole_bytes: u64, id: UndoId) -> Result<()> {
    let mut line = serde_json::to_vec(&JournalLine::Done { id })?;
    line.push(b'\n');
    let mut file = OpenOptions::new().append(true).read(true).custom_flags(O_NOFOLLOW).open(path)?;
    let mut last = [b'\n'];
    std::os::unix::fs::FileExt::read_at(&file, &mut last, file.metadata()?.len().saturating_sub(1))?;
    if last != [b'\n'] {
        file.set_len(whole_bytes)?;
    }
    file.write_all(&line)?;
    Ok(file.sync_data()?)
}

/// Longest wait for a treatment's process to end by itself once it must go at once.
const URGENT_GRACE: Duration = Duration::from_millis(500);

/// Puts back what a run has switched on, while its owner lives: settings first, which takes milliseconds, then the kernel's
/// settings, processes and control groups. Files, schemas and networks stay for the owner, or for `toll clean`. What an owner that
/// `has_gone` had switched on is marked as undone: an administrator may change the same setting before anybody cleans up.
/// `run_statements` runs statements on a server, over a connection that is open already.
///
/// # Errors
/// The journal cannot be read: what it says must be put back by hand.
pub fn undo_treatments(
    dir: &Path,
    run_id: &str,
    has_gone: bool,
    mut run_statements: impl FnMut(&ServerRef, &[String]) -> Result<()>,
) -> Result<UndoSummary> {
    let path = dir.join(format!("{run_id}.ndjson"));
    if has_gone && !path.exists() {
        // `toll clean` was faster.
        return Ok(UndoSummary::default());
    }
    let found = StoredJournal::read(&path)
        .with_context(|| format!("cannot read the undo journal {}", path.display()))?;
    let urgency = |change: &Undo| match change {
        Undo::Settings { .. } => Some(0),
        Undo::Sysctl { .. } => Some(1),
        Undo::ProcessGroup { .. } => Some(2),
        // An empty one is in nobody's way, and the next variant needs it.
        Undo::Cgroup { path } if !cgroup::members(path).is_empty() => Some(3),
        _ => None,
    };
    let mut changes: Vec<(u8, UndoId, Undo)> =
        found.pending.into_iter().filter_map(|(id, change)| Some((urgency(&change)?, id, change))).collect();
    changes.sort_by_key(|(urgency, id, _)| (*urgency, std::cmp::Reverse(*id)));
    let mut undone = UndoSummary::default();
    for (_, id, change) in changes {
        let outcome = match &change {
            Undo::Settings { server, statements, what } => run_statements(server, statements)
                .map(|()| Some(format!("restored the {what}: {}", statements.join("; ")))),
            Undo::ProcessGroup { leader, what, signal, grace_ms } => {
                let grace_ms = (*grace_ms).min(URGENT_GRACE.as_millis() as u64);
                let (leader, what, signal) = (*leader, what.clone(), signal.clone());
                Undo::ProcessGroup { leader, what, signal, grace_ms }.apply(
                    &found.run_id,
                    true,
                    &Credentials::default(),
                )
            }
            other => other.apply(&found.run_id, true, &Credentials::default()),
        };
        if has_gone && outcome.is_ok() {
            // On a full disk it is not written down, and `toll clean` puts it back once more.
            let _ = mark_done(&path, found.whole_bytes, id);
        }
        undone.record_outcome(&change, outcome);
    }
    undone.failures.extend(found.damaged.iter().map(ToString::to_string));
    Ok(undone)
}
