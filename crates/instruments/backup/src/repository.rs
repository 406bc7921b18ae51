//! Commit of a dump to a git repository.
//!
//! `git fast-import` writes blobs while the dump runs. The target is a new bare repository, or a branch of
//! its own in an existing one. The branch moves only after the dump is complete and its tree differs from the
//! previous one. Never reads or changes the user's git configuration.

use super::cost::{ProcessMonitor, ProcessUsage};
use crate::archive::git::{
    Commit, FastImport, MANIFEST, PIECE_MAX_BYTES, Tree, TreeFile, TreeSource, read_blob,
};
use crate::archive::{ContentHash, FileSummary, SignKey, VerifyKey, manifest_limit};
use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use toll_journal::{Journal, Undo, UndoId};
use toll_store::Error;
use toll_sys::cancel::CancelToken;
use toll_sys::child_process;

/// A branch in a repository.
#[derive(Debug)]
pub struct Repository {
    dir: PathBuf,
    branch: String,
}

/// What a backup made of the branch.
#[derive(Debug, Clone, Serialize)]
pub struct CommitSummary {
    pub commit: String,
    /// The database is as it was: there is no new commit.
    pub unchanged: bool,
    pub repository_bytes_before: u64,
    pub repository_bytes: u64,
}

/// A dump that is being written into it.
pub struct GitImport<'j> {
    repository: Repository,
    /// Nobody else writes meanwhile.
    _lock: Flock<File>,
    parent: Option<String>,
    child: Child,
    id: UndoId,
    /// What a git that breaks off writes beside the repository's files.
    crash_report: UndoId,
    journal: &'j Journal,
    cancel: CancelToken,
    monitor: ProcessMonitor,
    stderr_tail: std::thread::JoinHandle<String>,
    bytes_before: u64,
}

/// Where the dump is committed first, until it is known to differ.
const INCOMING: &str = "refs/toll/incoming";
const GRACE: Duration = Duration::from_secs(5);
/// Between two versions of a blob git stores what differs. The next of kin of a piece are its own older versions,
/// which its name brings next to it, so a small window finds them; it bounds time and memory.
/// What nothing names stays: in a repository of the user's it may be what somebody is about to push, or to look for.
const REPACK: [&str; 8] =
    ["repack", "-a", "-d", "--keep-unreachable", "-l", "--quiet", "--window=8", "--window-memory=256m"];

impl Repository {
    /// One that is there; `branch` need not be.
    pub fn open(dir: &Path, branch: &str) -> Result<Self> {
        let repository = Self { dir: dir.to_owned(), branch: branch.to_owned() };
        let git_dir = repository.run_git(&["rev-parse", "--absolute-git-dir"]).with_context(|| {
            format!("{} is not a git repository. Name one, or a new directory.", dir.display())
        })?;
        repository.run_git(&["check-ref-format", "--branch", branch]).context("in --git-branch")?;
        Ok(Self { dir: git_dir.into(), ..repository })
    }

    /// The same; where nothing is, a bare one is made, for its owner alone.
    pub fn open_or_create(dir: &Path, branch: &str) -> Result<Self> {
        let is_empty = std::fs::read_dir(dir).map_or(true, |mut entries| entries.next().is_none());
        if is_empty {
            toll_sys::private_file::create_dir(dir)?;
            let repository = Self { dir: dir.to_owned(), branch: branch.to_owned() };
            repository.run_git(&["init", "--quiet", "--bare"])?;
        }
        Self::open(dir, branch)
    }

    /// What is at the branch's end: the tree's manifest, and the commit. With a key, only if it is signed with it.
    pub fn read_tree(
        &self,
        revision: Option<&str>,
        verify_key: Option<&VerifyKey>,
    ) -> Result<(Tree, String)> {
        let named = revision.map_or_else(|| self.branch_ref(), str::to_owned);
        let commit = self
            .run_git(&[
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                &format!("{named}^{{commit}}"),
            ])
            .with_context(|| format!("there is no backup {named} in {}", self.dir.display()))?;
        let mut text = Vec::new();
        let path = format!("{commit}:{MANIFEST}");
        self.read_blobs(std::iter::once((path, manifest_limit())), |blob| {
            text = blob;
            Ok(())
        })?;
        if let Some(key) = verify_key {
            key.check(text.trim_ascii_end())
                .map_err(|reason| Error::Untrusted { id: commit.clone(), reason: reason.to_owned() })?;
        }
        let tree: Tree = serde_json::from_slice(&text)
            .with_context(|| format!("{MANIFEST} of {commit} was not written by toll"))?;
        if tree.format != crate::archive::git::FORMAT {
            bail!(
                "the backup in {} is in format {}. Use a newer version of toll.",
                self.dir.display(),
                tree.format
            );
        }
        Ok((tree, commit))
    }

    /// Hands the pieces of a file to `take`, each once it is known to be what was dumped.
    pub fn read_file(
        &self,
        commit: &str,
        file: &TreeFile,
        mut take: impl FnMut(&[u8]) -> toll_store::Result<()>,
    ) -> Result<()> {
        let blobs =
            file.pieces.iter().map(|piece| (format!("{commit}:{}", file.path(piece)), PIECE_MAX_BYTES));
        let mut expected = file.pieces.iter();
        self.read_blobs(blobs, |blob| match expected.next() {
            Some(piece) if piece.1 == ContentHash::hash(&blob) => take(&blob),
            other => Err(Error::Mismatch {
                id: commit.to_owned(),
                reason: format!(
                    "{} is not what was dumped",
                    other.map_or_else(|| file.summary.file.path.clone(), |piece| file.path(piece))
                ),
            }),
        })
    }

    /// Hands these objects to `take`, one after the other. Each comes with the most bytes that it may have.
    fn read_blobs(
        &self,
        objects: impl Iterator<Item = (String, u64)>,
        mut take: impl FnMut(Vec<u8>) -> toll_store::Result<()>,
    ) -> Result<()> {
        let mut git = self.git(&["cat-file", "--batch"]);
        let mut child = git.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot run git")?;
        let read = (|| -> Result<()> {
            let (Some(mut asks), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
                bail!("git has no input or output");
            };
            let mut answers: BufReader<ChildStdout> = BufReader::new(answers);
            for (object, max) in objects {
                use std::io::Write;
                writeln!(asks, "{object}").context("git does not read")?;
                take(read_blob(&mut answers, &object, max)?)?;
            }
            Ok(())
        })();
        if read.is_err() {
            // It is our own child, and not waited for yet.
            let _ = child.kill();
        }
        child.wait().context("cannot wait for git")?;
        read
    }

    /// When a commit was made, in seconds since 1970.
    pub fn commit_time(&self, commit: &str) -> Result<i64> {
        let time = self.run_git(&["show", "--no-patch", "--format=%ct", commit])?;
        time.parse().with_context(|| format!("git dates {commit} {time:?}"))
    }

    /// Begins a dump of a server. A branch that holds backups of another one is refused.
    pub fn start_import<'j>(
        self,
        source: &TreeSource,
        journal: &'j Journal,
        cancel: &CancelToken,
    ) -> Result<(GitImport<'j>, FastImport<BufWriter<ChildStdin>>)> {
        let folder = File::open(&self.dir).with_context(|| format!("cannot open {}", self.dir.display()))?;
        let Ok(alone) = Flock::lock(folder, FlockArg::LockExclusiveNonblock) else {
            bail!("another backup writes to {}: wait for it", self.dir.display());
        };
        self.remove_unfinished();
        let parent = self.run_git(&["rev-parse", "--verify", "--quiet", &self.branch_ref()]).ok();
        if let Some(parent) = &parent
            && self.run_git(&["cat-file", "-e", &format!("{parent}:{MANIFEST}")]).is_err()
        {
            bail!(
                "the branch {} of {} contains commits other than backups. Choose another with --git-branch.",
                self.branch,
                self.dir.display()
            );
        }
        if let Some(parent) = &parent {
            let (tree, _) = self.read_tree(Some(parent), None)?;
            if let Some(advice) = tree.source.difference(source) {
                bail!(
                    "the branch {} of {} contains backups of another server ({}). Choose another with --git-branch{advice}.",
                    self.branch,
                    self.dir.display(),
                    tree.source.name.as_ref().unwrap_or(&tree.source.host)
                );
            }
        }
        let bytes_before = directory_bytes(&self.dir.join("objects"));
        // It would store each piece as what differs from the one before, which is another: repack looks for the right
        // one, but not where there is one already.
        let mut command = self.git(&["fast-import", "--done", "--quiet", "--force", "--depth=0"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let (mut child, id) = journal.spawn(&mut command, "git fast-import", None, GRACE)?;
        let crash_report = self.dir.join(format!("fast_import_crash_{}", child.id()));
        let crash_report = journal.record(Undo::Path { path: crash_report })?;
        let (Some(stdin), Some(mut stderr)) = (child.stdin.take(), child.stderr.take()) else {
            bail!("git fast-import has no input");
        };
        let complaints = std::thread::spawn(move || {
            let mut said = String::new();
            let _ = stderr.read_to_string(&mut said);
            said
        });
        let watch = ProcessMonitor::start(child.id());
        let import = FastImport::new(BufWriter::with_capacity(1 << 20, stdin));
        let going_on = GitImport {
            crash_report,
            repository: self,
            _lock: alone,
            parent,
            child,
            id,
            journal,
            cancel: cancel.clone(),
            monitor: watch,
            stderr_tail: complaints,
            bytes_before,
        };
        Ok((going_on, import))
    }

    /// Puts the new pack and the old ones together, so that what is alike is stored once.
    fn repack(&self, journal: &Journal, cancel: &CancelToken) -> Result<ProcessUsage> {
        let mut command = self.git(&REPACK);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let (mut child, id) = journal.spawn(&mut command, "git repack", None, GRACE)?;
        let watch = ProcessMonitor::start(child.id());
        let (status, used) =
            cancel.run_interruptible(|| drop(journal.undo(id)), || watch.wait(&mut child))?;
        journal.mark_done(id)?;
        if !status.success() {
            cancel
                .check()
                .context("git repack was broken off; the backup is committed, and the next one repacks")?;
            bail!(
                "git repack failed ({status}); the backup is committed: run git repack -a -d by hand to see why"
            );
        }
        Ok(used)
    }

    /// Packs that a killed git had not finished; under the lock.
    fn remove_unfinished(&self) {
        let packs = std::fs::read_dir(self.dir.join("objects/pack")).into_iter().flatten().flatten();
        for pack in packs.filter(|entry| entry.file_name().to_string_lossy().starts_with("tmp_")) {
            // One that stays is git's to remove.
            let _ = std::fs::remove_file(pack.path());
        }
    }

    fn branch_ref(&self) -> String {
        format!("refs/heads/{}", self.branch)
    }

    fn git(&self, arguments: &[&str]) -> Command {
        let mut command = child_process::clean_env_command("git");
        command
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            // Whatever a repository's own configuration says: nothing is fetched for it, and no program of it is run.
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("GIT_NO_LAZY_FETCH", "1")
            .arg("-C")
            .arg(&self.dir)
            .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"])
            // Blobs are packed, however few; none is too large to be stored as what differs.
            .args(["-c", "fastimport.unpackLimit=0", "-c", "gc.auto=0", "-c", "core.bigFileThreshold=64m"])
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        command
    }

    fn run_git(&self, arguments: &[&str]) -> Result<String> {
        let output =
            self.git(arguments).output().context("cannot run git: install it (apt-get install git)")?;
        if !output.status.success() {
            bail!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl GitImport<'_> {
    /// After a dump that was not read to its end: nothing is committed. Where git was the reason, its own words say why.
    pub fn abort(mut self, error: anyhow::Error) -> anyhow::Error {
        let ended = self.child.try_wait();
        let _ = self.journal.undo(self.id);
        let _ = self.child.wait();
        let _ = self.journal.undo(self.crash_report);
        self.repository.remove_unfinished();
        let said = self.stderr_tail.join().unwrap_or_default();
        match (ended, said.lines().next()) {
            // Still there, or well: it only waited for more.
            (Ok(Some(status)), Some(said)) if !status.success() => {
                error.context(format!("git fast-import ended by itself ({said})"))
            }
            _ => error,
        }
    }

    /// Commits, if anything changed. The answer is what git has used, too.
    pub fn finish(
        mut self,
        stream: FastImport<BufWriter<ChildStdin>>,
        seen: Vec<FileSummary>,
        tree: Tree,
        sign_key: Option<&SignKey>,
        message: &str,
        unix_s: u64,
    ) -> Result<(CommitSummary, ProcessUsage)> {
        let parent = self.parent.clone();
        let commit = Commit { reference: INCOMING, parent: parent.as_deref(), unix_s, message };
        let written = stream.finish(seen, tree, sign_key, &commit);
        let (status, mut used) = self.monitor.wait(&mut self.child)?;
        self.journal.mark_done(self.id)?;
        self.journal.undo(self.crash_report)?;
        let said = self.stderr_tail.join().unwrap_or_default();
        if !status.success() {
            bail!("git fast-import failed ({status}): {}", said.lines().next().unwrap_or_default());
        }
        written?;
        let repository = &self.repository;
        let tree_of = |revision: &str| repository.run_git(&["rev-parse", &format!("{revision}^{{tree}}")]);
        let incoming = repository.run_git(&["rev-parse", INCOMING])?;
        let unchanged = match &parent {
            Some(parent) => tree_of(parent)? == tree_of(&incoming)?,
            None => false,
        };
        if !unchanged {
            let old = parent.as_deref().unwrap_or("0000000000000000000000000000000000000000");
            let reference = repository.branch_ref();
            repository
                .run_git(&["update-ref", "-m", "toll backup", &reference, &incoming, old])
                .context("the branch was moved by somebody else meanwhile: run the backup again")?;
        }
        repository.run_git(&["update-ref", "-d", INCOMING])?;
        used = used.combine(repository.repack(self.journal, &self.cancel)?);
        Ok((
            CommitSummary {
                commit: if unchanged { parent.unwrap_or(incoming) } else { incoming },
                unchanged,
                repository_bytes_before: self.bytes_before,
                repository_bytes: directory_bytes(&repository.dir.join("objects")),
            },
            used,
        ))
    }
}

fn directory_bytes(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(meta) if meta.is_dir() => directory_bytes(&entry.path()),
            Ok(meta) => meta.len(),
            Err(_) => 0,
        })
        .sum()
}
