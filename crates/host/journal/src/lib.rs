//! Undo journal of every change that toll makes, so that it is reverted even if toll is killed.
//!
//! Each change is written here, and reaches the disk, *before* it is made. Undoing goes backwards through the
//! entries that are not marked done. `toll clean` does the same for journals whose owner has died.
//! Order of undoing: processes, then those that carry the run's mark without an entry, control groups, settings and
//! network, sandbox servers, files; within each, the last change first.
//!
//! # Invariants
//! Never holds a password.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod clean;
pub mod deferred_start;
mod server;
mod stored;
mod undo;

pub use clean::{CleanResult, CleanState, PendingRun, clean, clean_run, pending_runs, undo_treatments};
pub use server::{Credentials, ServerRef, is_already_gone};
pub use undo::{Undo, check_removable};

pub use server::OWNER_TABLE;
pub use undo::quoted_name;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use toll_sys::private_dir::{self, PrivateDir};
use toll_sys::private_file;
use toll_sys::process::{self, ProcessId, RUN_ID_VARIABLE};

/// Names one change within its journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UndoId(u64);

/// A line of a journal file.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
enum JournalLine {
    /// First of all: whose journal this is.
    Begin {
        run_id: String,
        boot_id: String,
        namespace: String,
        owner: ProcessId,
    },
    /// From now on this process answers for what is left (a server that outlives its starter).
    Owner {
        owner: ProcessId,
    },
    Change {
        id: UndoId,
        change: Box<Undo>,
    },
    Done {
        id: UndoId,
    },
}

/// The undo journal of one run. Shared between threads by reference.
///
/// [`Journal::undo_all`] closes it and says what was done. One that is dropped, on the way out of an
/// error or a panic, undoes everything just the same.
#[derive(Debug)]
pub struct Journal {
    run_id: String,
    path: PathBuf,
    open: Mutex<OpenJournal>,
}

#[derive(Debug)]
struct OpenJournal {
    file: File,
    next: u64,
    pending: BTreeMap<UndoId, Undo>,
    /// The file ends within a line, which could not be written whole nor cut off.
    is_torn: bool,
    /// Everything was put back, or is another process's business.
    closed: bool,
}

/// Result of an undo.
#[derive(Debug, Default)]
pub struct UndoSummary {
    /// Actions taken, one line each.
    pub actions: Vec<String>,
    /// Failed actions, with the reason.
    pub failures: Vec<String>,
}

impl Journal {
    /// Opens a journal of this name in the state directory. `run_id` must be new, and a file name.
    pub fn begin(run_id: &str) -> Result<Self> {
        Self::begin_in(&toll_sys::paths::journal_dir()?, run_id)
    }

    /// The same in a directory of the caller's choice.
    pub fn begin_in(dir: &Path, run_id: &str) -> Result<Self> {
        // What it says of a server is for its owner alone.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("cannot make {} for the undo journal", dir.display()))?;
        stored::check_directory(dir)?;
        let path = dir.join(format!("{run_id}.ndjson"));
        let failed = || format!("cannot make the undo journal {}", path.display());
        let owner = ProcessId::current().context("cannot read /proc/self/stat: is /proc mounted?")?;
        let unnamed = dir.join(format!("{}-{}-{run_id}.new", owner.pid, owner.start_ticks));
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .mode(0o600)
            .open(&unnamed)
            .with_context(failed)?;
        let open = OpenJournal { file, next: 0, pending: BTreeMap::new(), is_torn: false, closed: false };
        let journal = Self { run_id: run_id.to_owned(), path: path.clone(), open: Mutex::new(open) };
        let begin = JournalLine::Begin {
            run_id: run_id.to_owned(),
            boot_id: process::boot_id(),
            namespace: process::pid_namespace(),
            owner,
        };
        // Linked under its name once it says whose it is: `toll clean` never sees a nameless one.
        let linked = journal.append(&mut journal.lock(), &begin).and_then(|()| {
            std::fs::hard_link(&unnamed, &path)
                .and_then(|()| File::open(dir)?.sync_all())
                .with_context(failed)
        });
        let _ = std::fs::remove_file(&unnamed);
        linked.map(|()| journal)
    }

    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// To be called before the change is made. When it fails, the change must not be made.
    pub fn record(&self, change: Undo) -> Result<UndoId> {
        let mut open = self.lock();
        let id = UndoId(open.next);
        self.append(&mut open, &JournalLine::Change { id, change: Box::new(change.clone()) })?;
        open.next += 1;
        open.pending.insert(id, change);
        Ok(id)
    }

    /// Makes a new directory for this user alone, of a name that nobody can predict, in `place`. It goes with the journal.
    pub fn create_private_dir(&self, place: &Path, prefix: &str) -> Result<(PrivateDir, UndoId)> {
        let path = private_dir::unpredictable_path(place, prefix)?;
        self.create_recorded(&path, || PrivateDir::create(&path))
    }

    /// The same of this name, which nothing may have.
    pub fn create_private_dir_at(&self, path: &Path) -> Result<(PrivateDir, UndoId)> {
        self.create_recorded(path, || PrivateDir::create(path))
    }

    /// Makes a file for this user alone, of a name that nothing may have. It goes with the journal.
    pub fn create_private_file(&self, path: &Path) -> Result<(File, UndoId)> {
        self.create_recorded(path, || private_file::create(path))
    }

    /// What cannot be made is somebody else's, or not there: it is not to be removed.
    fn create_recorded<T>(&self, path: &Path, create: impl FnOnce() -> io::Result<T>) -> Result<(T, UndoId)> {
        let id = self.record(Undo::Path { path: path.to_owned() })?;
        match create() {
            Ok(made) => Ok((made, id)),
            Err(error) => {
                self.mark_done(id)?;
                Err(error).with_context(|| format!("cannot make {}", path.display()))
            }
        }
    }

    /// The change has been put back by other means.
    pub fn mark_done(&self, id: UndoId) -> Result<()> {
        let mut open = self.lock();
        if open.pending.remove(&id).is_some() {
            self.append(&mut open, &JournalLine::Done { id })?;
        }
        Ok(())
    }

    /// Puts one change back now, and says what was done (nothing, where nothing was left to do).
    pub fn undo(&self, id: UndoId) -> Result<Option<String>> {
        let Some(change) = self.lock().pending.get(&id).cloned() else { return Ok(None) };
        let action = change.apply(&self.run_id, true, &Credentials::default())?;
        self.mark_done(id)?;
        Ok(action)
    }

    /// Starts a process in a group of its own, so that it is found and ended whatever happens:
    /// by its mark from the moment it exists, by its pid and start time from this call's return.
    ///
    /// `signal` ends it politely (absent: SIGTERM), each step of the escalation gets `grace`.
    pub fn spawn(
        &self,
        command: &mut Command,
        what: &str,
        signal: Option<nix::sys::signal::Signal>,
        grace: Duration,
    ) -> Result<(Child, UndoId)> {
        let (mut child, leader) = self.spawn_marked(command, what)?;
        let recorded = self.record(Undo::ProcessGroup {
            leader,
            what: what.to_owned(),
            signal: signal.map(|s| s.as_str().to_owned()),
            grace_ms: grace.as_millis() as u64,
        });
        match recorded {
            Ok(id) => Ok((child, id)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Like [`Journal::spawn`], for a program that hides its mark: it begins once its entry is on disk.
    /// `command` is one of [`deferred_start::command`].
    pub fn spawn_deferred(
        &self,
        command: &mut Command,
        what: &str,
        signal: Option<nix::sys::signal::Signal>,
        grace: Duration,
    ) -> Result<(Child, UndoId)> {
        let hold =
            deferred_start::DeferredStart::attach(command).with_context(|| format!("cannot start {what}"))?;
        let started = self.spawn(command, what, signal, grace)?;
        // Where it has ended already, whoever waits for it says so.
        let _ = hold.release();
        Ok(started)
    }

    /// Starts a server of toll's own; like [`Journal::spawn`], but ended after everything else.
    pub fn spawn_sandbox(&self, command: &mut Command, what: &str) -> Result<(Child, ProcessId, UndoId)> {
        let (mut child, leader) = self.spawn_marked(command, what)?;
        match self.record(Undo::Sandbox { leader, what: what.to_owned() }) {
            Ok(id) => Ok((child, leader, id)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn spawn_marked(&self, command: &mut Command, what: &str) -> Result<(Child, ProcessId)> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .env(RUN_ID_VARIABLE, &self.run_id)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {what}: cannot run {program}"))?;
        // Not reaped yet, so the entry in /proc is there even if it has ended already.
        match ProcessId::from_pid(child.id() as i32) {
            Ok(leader) => Ok((child, leader)),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error).with_context(|| format!("cannot watch {what}"))
            }
        }
    }

    /// Leaves what is still to be undone to `owner`: `toll clean` waits until it has ended.
    pub fn transfer_to(self, owner: ProcessId) -> Result<()> {
        let mut open = self.lock();
        self.append(&mut open, &JournalLine::Owner { owner })?;
        open.closed = true;
        Ok(())
    }

    /// Puts everything back, last change first, ends whatever still carries the run's mark, and
    /// removes the journal if nothing failed.
    pub fn undo_all(&self) -> UndoSummary {
        let changes = self.lock().pending.clone();
        let left = PendingUndo { changes, run_id: &self.run_id, same_boot: true };
        let undone = left.undo(&Credentials::default(), |id| self.mark_done(id));
        if undone.failures.is_empty() {
            let _ = std::fs::remove_file(&self.path);
        }
        self.lock().closed = true;
        undone
    }

    fn lock(&self) -> MutexGuard<'_, OpenJournal> {
        // Each update is whole before the lock is let go, so a panic elsewhere spoils nothing.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn append(&self, open: &mut OpenJournal, line: &JournalLine) -> Result<()> {
        let mut text = if open.is_torn { vec![b'\n'] } else { Vec::new() };
        serde_json::to_writer(&mut text, line)?;
        text.push(b'\n');
        let written = open.file.metadata().and_then(|before| {
            let written = open.file.write_all(&text).and_then(|()| open.file.sync_data());
            // The next line must not begin behind the torso of this one.
            open.is_torn = written.is_err() && open.file.set_len(before.len()).is_err();
            written
        });
        written.with_context(|| {
            format!("cannot write the undo journal {}: is the disk full?", self.path.display())
        })
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        if self.lock().closed {
            return;
        }
        for failure in self.undo_all().failures {
            tracing::warn!("cannot undo: {failure}. Run `toll clean`.");
        }
    }
}

/// Changes of a run that are not undone yet.
struct PendingUndo<'a> {
    changes: BTreeMap<UndoId, Undo>,
    run_id: &'a str,
    /// Pids and network devices are still those that the journal means.
    same_boot: bool,
}

impl PendingUndo<'_> {
    /// Treatments first, then what carries the run's mark but was killed before it was written
    /// down, then everything else, backwards within each order of [`Undo::undo_order`]. Goes on after a
    /// failure.
    fn undo(self, credentials: &Credentials, mut done: impl FnMut(UndoId) -> Result<()>) -> UndoSummary {
        let mut undone = UndoSummary::default();
        let mut changes: Vec<_> = self.changes.iter().collect();
        changes.sort_by_key(|(id, change)| (change.undo_order(), std::cmp::Reverse(*id)));
        let treatments = changes.partition_point(|(_, change)| change.undo_order() == 0);
        let mut silent: Vec<String> = Vec::new();
        let mut put_back = |undone: &mut UndoSummary, id: UndoId, change: &Undo| {
            // Each change would wait for it anew.
            let server = change.server().map(ToString::to_string);
            if let Some(server) = server.as_ref().filter(|server| silent.contains(server)) {
                undone.failures.push(format!("{change}: the server at {server} does not answer"));
                return;
            }
            let outcome = change.apply(self.run_id, self.same_boot, credentials);
            let is_silent = |error: &toll_mysql::Error| error.is_timeout();
            if outcome.as_ref().is_err_and(|e| e.downcast_ref().is_some_and(is_silent)) {
                silent.extend(server);
            }
            undone.record_outcome(change, outcome.and_then(|said| done(id).map(|()| said)));
        };
        for (id, change) in &changes[..treatments] {
            put_back(&mut undone, **id, change);
        }
        if self.same_boot {
            let servers: Vec<ProcessId> =
                changes.iter().filter_map(|(_, change)| change.sandbox_leader()).collect();
            undone.end_orphans(self.run_id, &servers);
        }
        for (id, change) in &changes[treatments..] {
            put_back(&mut undone, **id, change);
        }
        undone
    }
}

impl UndoSummary {
    fn record_outcome(&mut self, change: &Undo, outcome: Result<Option<String>>) {
        match outcome {
            Ok(action) => self.actions.extend(action),
            Err(error) => self.failures.push(format!("{change}: {error:#}")),
        }
    }

    fn end_orphans(&mut self, run_id: &str, servers: &[ProcessId]) {
        match process::terminate_by_run_id(run_id, servers, Duration::from_secs(2)) {
            process::Termination::AlreadyExited => {}
            process::Termination::Stuck => self.failures.push(format!("processes of run {run_id} are stuck")),
            ending => self.actions.push(format!("processes without an entry, by their mark: {ending}")),
        }
    }
}
