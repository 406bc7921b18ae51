//! Location and removal of a treatment's artefact.
//!
//! A tool's artefact is in the run, in a directory of its own. All files that a rotating tool writes beside the
//! first are part of it. A server writes a log in its data directory: it may write there under any user and any
//! confinement. That file is created beforehand, for the server and root alone: a log holds literals of users'
//! queries.

use anyhow::Context;
use nix::unistd::{Gid, Uid, fchown, geteuid};
use std::path::{Path, PathBuf};
use toll_journal::{Journal, UndoId};
use toll_model::artefacts::Shape;
use toll_sys::private_dir::PrivateDir;
use toll_sys::private_file;
use toll_sys::server_process::ServerProcess;

/// A directory that the server may write to.
#[derive(Debug, Clone)]
pub struct LogDirectory {
    /// The path as toll sees it, and as the server calls it.
    local_path: PathBuf,
    server_path: PathBuf,
    /// The server's user and group. Absent if they are toll's.
    owner: Option<(Uid, Gid)>,
}

/// An artefact, in the journal until it is removed or kept.
#[derive(Debug)]
pub struct ArtefactFile {
    /// The path as toll sees it, and as the writer calls it.
    pub local_path: PathBuf,
    pub writer_path: PathBuf,
    undo: UndoId,
    /// The directory of a tool's artefact. Absent for a server's log.
    own: Option<PathBuf>,
    shape: Shape,
    /// Bytes of the tool's earlier runs, which were removed.
    earlier_bytes: u64,
}

impl LogDirectory {
    /// The data directory of a sandbox.
    pub fn for_sandbox(datadir: &Path) -> Self {
        Self { local_path: datadir.to_owned(), server_path: datadir.to_owned(), owner: None }
    }

    /// The data directory of an existing server. The error explains why arms with logs cannot run.
    pub fn for_server(local: Option<ServerProcess>, datadir: &Path) -> Result<Self, String> {
        let local = local.ok_or(
            "the server writes its log on its own host, where toll does not run or may not look: run toll \
             there, as root",
        )?;
        let own = geteuid();
        if !own.is_root() && own.as_raw() != local.uid {
            return Err(format!(
                "the server runs as user {}, and its log is for that user and root: run toll with sudo",
                local.uid
            ));
        }
        let owner = Some((Uid::from_raw(local.uid), Gid::from_raw(local.gid)));
        Ok(Self { local_path: local.to_host_path(datadir), server_path: datadir.to_owned(), owner })
    }

    /// Creates the file `name`, empty.
    pub fn create_log(&self, name: &str, journal: &Journal) -> anyhow::Result<ArtefactFile> {
        let (here, there) = (self.local_path.join(name), self.server_path.join(name));
        // Never opens what somebody else has put there, nor removes it.
        let (file, undo) = journal.create_private_file(&here).context("no file for the server's log")?;
        if let Some((uid, gid)) = self.owner
            && let Err(error) = fchown(&file, Some(uid), Some(gid))
        {
            journal.undo(undo)?;
            return Err(error).with_context(|| format!("cannot give {} to the server", here.display()));
        }
        Ok(ArtefactFile {
            local_path: here,
            writer_path: there,
            undo,
            own: None,
            shape: Shape::Files,
            earlier_bytes: 0,
        })
    }
}

impl ArtefactFile {
    /// An artefact that a tool will create in a directory of its own, which is new in `place`. `shape`: it may be a
    /// directory itself.
    pub fn for_tool(place: &Path, name: &str, shape: Shape, journal: &Journal) -> anyhow::Result<Self> {
        let (own, undo) = journal.create_private_dir(place, "toll")?;
        let here = own.path().join(name);
        let made = Self {
            writer_path: here.clone(),
            local_path: here,
            undo,
            own: Some(own.path().to_owned()),
            shape,
            earlier_bytes: 0,
        };
        if let Err(error) = made.create_directory() {
            journal.undo(undo)?;
            return Err(error);
        }
        Ok(made)
    }

    fn create_directory(&self) -> anyhow::Result<()> {
        if self.own.is_none() || self.shape != Shape::Directory {
            return Ok(());
        }
        PrivateDir::create(&self.local_path)
            .map(drop)
            .with_context(|| format!("cannot make {}", self.local_path.display()))
    }

    /// Removes what is there before another run of its tool; its bytes still count. A server's log stays.
    ///
    /// The directory itself stays: its name is known by now, and another user could make one of that name.
    pub fn reset(&mut self) -> anyhow::Result<()> {
        let Some(own) = &self.own else { return Ok(()) };
        let held = self.bytes();
        empty_directory(own).with_context(|| format!("cannot empty {}", own.display()))?;
        self.earlier_bytes = held;
        self.create_directory()
    }

    /// Its files, oldest first.
    pub fn files(&self) -> Vec<PathBuf> {
        let Some(own) = &self.own else { return vec![self.local_path.clone()] };
        let mut files = Vec::new();
        let mut places = vec![own.clone()];
        while let Some(place) = places.pop() {
            for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
                match entry.metadata() {
                    Ok(meta) if meta.is_dir() => places.push(entry.path()),
                    Ok(meta) => files.push((meta.modified().ok(), entry.path())),
                    Err(_) => {}
                }
            }
        }
        files.sort();
        files.into_iter().map(|(_, path)| path).collect()
    }

    /// Bytes of all runs of its tool so far; 0 before it has created a file.
    pub fn bytes(&self) -> u64 {
        let there = self.files().into_iter().map(|file| std::fs::metadata(file).map_or(0, |meta| meta.len()));
        self.earlier_bytes + there.sum::<u64>()
    }

    /// Removes the artefact. A tool that wrote nothing has none.
    pub fn remove(&self, journal: &Journal) -> anyhow::Result<()> {
        journal.undo(self.undo).map(drop)
    }

    /// Moves it into the run's directory `dir`. Returns the name of its first file, or directory, there.
    pub fn move_to_run(&self, dir: &Path, name: &str, journal: &Journal) -> anyhow::Result<Option<String>> {
        let Some(own) = &self.own else {
            let kept = dir.join(name);
            let mut target = private_file::create(&kept)?;
            let mut source = std::fs::File::open(&self.local_path)?;
            std::io::copy(&mut source, &mut target)
                .with_context(|| format!("cannot keep {}", kept.display()))?;
            self.remove(journal)?;
            return Ok(Some(name.to_owned()));
        };
        let mut names: Vec<_> = std::fs::read_dir(own)?.flatten().map(|entry| entry.file_name()).collect();
        names.sort();
        for name in &names {
            let kept = dir.join(name);
            move_path(&own.join(name), &kept).with_context(|| format!("cannot keep {}", kept.display()))?;
        }
        self.remove(journal)?;
        Ok(names.first().map(|name| name.to_string_lossy().into_owned()))
    }
}

fn empty_directory(path: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Moves a file, or a directory within one file system.
fn move_path(from: &Path, to: &Path) -> std::io::Result<()> {
    match std::fs::rename(from, to) {
        // From memory to a disk; what is left there goes with its directory.
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => std::fs::copy(from, to).map(drop),
        renamed => renamed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(dir: &Path) -> Journal {
        Journal::begin_in(&dir.join("journal"), "test-artefact").unwrap()
    }

    #[test]
    fn a_file_of_somebody_elses_in_the_place_of_a_log_is_neither_written_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        let theirs = dir.path().join("theirs.log");
        std::fs::write(&theirs, "precious").unwrap();
        let logs = LogDirectory::for_sandbox(dir.path());
        let refused = format!("{:#}", logs.create_log("theirs.log", &journal).unwrap_err());
        assert!(refused.contains("theirs.log") && refused.contains("File exists"), "{refused}");
        logs.create_log("own.log", &journal).unwrap();
        assert!(journal.undo_all().failures.is_empty());
        assert_eq!(std::fs::read_to_string(&theirs).unwrap(), "precious");
        assert!(!dir.path().join("own.log").exists());
    }

    #[test]
    fn a_tools_artefacts_have_a_directory_of_their_own_whose_name_nobody_predicts() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        for shape in [Shape::Files, Shape::Directory] {
            let place = dir.path();
            let [mut one, other] =
                [(); 2].map(|()| ArtefactFile::for_tool(place, "a-1.pcap", shape, &journal).unwrap());
            assert_ne!(one.local_path, other.local_path);
            let own = one.local_path.parent().unwrap().to_owned();
            assert_eq!(own.parent(), Some(place));
            std::fs::write(own.join("first"), "12345").unwrap();
            let before = own.metadata().unwrap();
            one.reset().unwrap();
            assert_eq!((one.bytes(), one.files().len()), (5, 0));
            assert_eq!(one.local_path.is_dir(), shape == Shape::Directory);
            use std::os::unix::fs::MetadataExt;
            assert_eq!(own.metadata().unwrap().ino(), before.ino());
            one.remove(&journal).unwrap();
            assert!(!own.exists());
        }
        assert!(journal.undo_all().failures.is_empty());
    }
}
