//! Undo journals as read back, by another process than the one that wrote them.
//!
//! A line that cannot be read never hides those behind it.
//!
//! # Invariants
//! Never believes a journal that another user could have written: what it asks for is done with this user's rights.

use super::{JournalLine, Undo, UndoId};
use anyhow::{Context, Result, bail, ensure};
use nix::libc::{O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use toll_sys::private_dir::check_owner;
use toll_sys::process::{self, ProcessId};

/// Beginning of every line, by which one is found behind the torso of another.
const LINE_BEGIN: &[u8] = b"{\"line\":";

pub(super) struct StoredJournal {
    pub run_id: String,
    pub boot_id: String,
    pub namespace: String,
    /// Up to the end of the last whole line.
    pub whole_bytes: u64,
    pub owner: ProcessId,
    pub pending: BTreeMap<UndoId, Undo>,
    /// Lines cut short, by a full disk: their changes were not made.
    pub torn: Vec<UnreadLine>,
    /// Other lines that cannot be read: their changes may have been made.
    pub damaged: Vec<UnreadLine>,
}

/// A line of a journal that was passed over.
pub(super) struct UnreadLine {
    number: usize,
    reason: String,
}

impl Display for UnreadLine {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of its journal cannot be read: {}", self.number, self.reason)
    }
}

/// Fails if others than this user can put journals into the directory.
pub(super) fn check_directory(dir: &Path) -> Result<()> {
    let open = OpenOptions::new().read(true).custom_flags(O_DIRECTORY).open(dir);
    open.map_err(anyhow::Error::from).and_then(|open| check_only_writer(&open)).with_context(|| {
        format!(
            "undo journals in {} are not used. Run toll as its owner (or sudo -H), or set XDG_STATE_HOME to a \
             directory of your own",
            dir.display()
        )
    })
}

fn check_only_writer(open: &File) -> Result<()> {
    check_owner(open)?;
    ensure!(open.metadata()?.mode() & 0o022 == 0, "other users can write to it");
    Ok(())
}

impl StoredJournal {
    /// The owner is alive, or not visible from here.
    pub fn in_use(&self) -> bool {
        self.boot_id == process::boot_id()
            && (self.namespace != process::pid_namespace() || self.owner.is_alive())
    }

    /// A last line cut short by a crash is left out: its change was not made.
    pub fn read(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().read(true).custom_flags(O_NOFOLLOW | O_NONBLOCK).open(path)?;
        check_only_writer(&file).with_context(|| format!("{} is not used", path.display()))?;
        let mut reader = BufReader::new(file);
        let (mut line, mut number, mut whole_bytes) = (Vec::new(), 0, 0);
        let mut found: Option<Self> = None;
        while reader.read_until(b'\n', &mut line)? > 0 {
            if line.last() != Some(&b'\n') {
                break;
            }
            whole_bytes += line.len() as u64;
            number += 1;
            match &mut found {
                Some(found) => found.add_line(number, &line),
                None => found = Some(Self::begin(path, &line)?),
            }
            line.clear();
        }
        let found = found.with_context(|| format!("{} is empty: remove it", path.display()))?;
        Ok(Self { whole_bytes, ..found })
    }

    fn begin(path: &Path, line: &[u8]) -> Result<Self> {
        let first = serde_json::from_slice(line)
            .with_context(|| format!("the first line of {} cannot be read", path.display()))?;
        let JournalLine::Begin { run_id, boot_id, namespace, owner } = first else {
            bail!("{} does not begin as a journal does", path.display());
        };
        Ok(Self {
            run_id,
            boot_id,
            namespace,
            whole_bytes: 0,
            owner,
            pending: BTreeMap::new(),
            torn: Vec::new(),
            damaged: Vec::new(),
        })
    }

    fn add_line(&mut self, number: usize, line: &[u8]) {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let unread = |reason: String| UnreadLine { number, reason };
        let cut_short = "it was cut short, and its change was not made";
        let line = match serde_json::from_slice(line) {
            Ok(line) => line,
            Err(error) => {
                // As a full disk leaves it, and then there was room again.
                let behind = (1..line.len()).filter(|&at| line[at..].starts_with(LINE_BEGIN));
                match behind.filter_map(|at| serde_json::from_slice(&line[at..]).ok()).next() {
                    Some(whole) => {
                        self.torn.push(unread(cut_short.into()));
                        whole
                    }
                    None if error.is_eof() => return self.torn.push(unread(cut_short.into())),
                    None => return self.damaged.push(unread(error.to_string())),
                }
            }
        };
        match line {
            JournalLine::Owner { owner } => self.owner = owner,
            JournalLine::Change { id, change } => {
                self.pending.insert(id, *change);
            }
            JournalLine::Done { id } => {
                self.pending.remove(&id);
            }
            JournalLine::Begin { .. } => self.damaged.push(unread("another journal begins there".into())),
        }
    }
}
