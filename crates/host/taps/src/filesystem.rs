//! Landlock ruleset that bounds where a process may write, also one of root's. Never bounds what it reads.

use landlock::{
    ABI, AccessFs, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError,
    RulesetStatus, Scope,
};
use std::fs::Metadata;
use std::path::{Path, PathBuf};

/// Of this ABI (Linux 6.2); earlier ones have fewer kinds of access, which are then not bounded.
const KNOWN: ABI = ABI::V3;

/// Where a process writes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WritePlaces {
    /// Files, and directories in which files are made and removed.
    pub files: Vec<PathBuf>,
    /// Directories in which directories are made, too.
    pub trees: Vec<PathBuf>,
}

impl From<Vec<PathBuf>> for WritePlaces {
    fn from(files: Vec<PathBuf>) -> Self {
        Self { files, trees: Vec::new() }
    }
}

impl WritePlaces {
    pub fn iter(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().chain(&self.trees).map(PathBuf::as_path)
    }
}

/// Denies to this thread and all that it starts, for good, to write, make and remove files and to start programs, except
/// for files in the directories of `writes` and for those of `writes` that are no directories. Signals and memory of other
/// processes are out of reach, too. The thread must have no_new_privs set.
///
/// False: this kernel has no Landlock, and nothing is denied.
///
/// # Errors
/// The kernel refuses the ruleset.
pub fn bound_writes(writes: &WritePlaces) -> Result<bool, RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_write(KNOWN) | AccessFs::Execute)?
        .scope(Scope::Signal)?
        .create()?;
    for path in writes.iter() {
        // What is not there when this is called cannot be written to.
        let (Ok(meta), Ok(fd)) = (std::fs::metadata(path), PathFd::new(path)) else { continue };
        let added = (&mut ruleset)
            .add_rule(PathBeneath::new(fd, needed(&meta, writes.trees.iter().any(|tree| tree == path))));
        // A pipe without a name has no place in the file system, and nothing bounds it.
        if meta.is_file() || meta.is_dir() {
            added?;
        }
    }
    Ok(ruleset.restrict_self()?.ruleset != RulesetStatus::NotEnforced)
}

fn needed(meta: &Metadata, is_tree: bool) -> BitFlags<AccessFs> {
    let mut needed = AccessFs::WriteFile | AccessFs::Truncate;
    if meta.is_dir() {
        needed |= AccessFs::MakeReg | AccessFs::RemoveFile;
    }
    if is_tree {
        needed |= AccessFs::MakeDir;
    }
    needed
}

/// What must be in `writes` for a file of this name to be made or written, with others beside it.
pub fn places_of(file: &Path) -> Vec<PathBuf> {
    let directory = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match std::fs::metadata(file) {
        // A device, or a pipe: what is beside it is nobody's business.
        Ok(meta) if !meta.is_file() && !meta.is_dir() => vec![file.to_owned()],
        // It may be a link to elsewhere.
        Ok(meta) if meta.is_file() => vec![file.to_owned(), directory.to_owned()],
        _ => vec![directory.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::Write;

    /// In a thread of its own, which is bounded for good.
    fn bounded<T: Send + 'static>(
        files: &[&Path],
        trees: &[&Path],
        then: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let [files, trees] =
            [files, trees].map(|paths| paths.iter().map(|path| path.to_path_buf()).collect::<Vec<_>>());
        let writes = WritePlaces { files, trees };
        let thread = std::thread::spawn(move || {
            nix::sys::prctl::set_no_new_privs().unwrap();
            bound_writes(&writes).unwrap().then(then)
        });
        let outcome = thread.join().unwrap();
        if outcome.is_none() {
            toll_testkit::skip!("this kernel has no Landlock");
        }
        outcome
    }

    #[test]
    fn files_are_made_and_removed_in_named_directories_alone() {
        let (ours, others) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (inside, outside) = (ours.path().to_owned(), others.path().to_owned());
        std::fs::write(outside.join("there"), "precious").unwrap();
        let denied = bounded(&[ours.path()], &[], move || {
            std::fs::write(inside.join("a.part"), "new").unwrap();
            std::fs::rename(inside.join("a.part"), inside.join("a")).unwrap();
            std::fs::write(inside.join("b"), "new").unwrap();
            std::fs::remove_file(inside.join("b")).unwrap();
            assert_eq!(std::fs::read_to_string(outside.join("there")).unwrap(), "precious");
            [
                File::create(outside.join("new")).is_err(),
                OpenOptions::new().append(true).open(outside.join("there")).is_err(),
                std::fs::remove_file(outside.join("there")).is_err(),
                std::fs::create_dir(outside.join("directory")).is_err(),
                std::fs::create_dir(inside.join("directory")).is_err(),
                std::os::unix::fs::symlink("/", inside.join("link")).is_err(),
                OpenOptions::new().write(true).open("/proc/sys/kernel/core_pattern").is_err(),
            ]
        });
        assert_eq!(denied.unwrap_or([true; 7]), [true; 7]);
    }

    #[test]
    fn directories_are_made_in_a_tree_alone() {
        let (tree, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (inside, outside) = (tree.path().join("hour=14"), beside.path().to_owned());
        let made = bounded(&[beside.path()], &[tree.path()], move || {
            std::fs::create_dir(&inside).unwrap();
            std::fs::write(inside.join("a.tmp"), "new").unwrap();
            std::fs::rename(inside.join("a.tmp"), inside.join("a")).unwrap();
            (std::fs::write(outside.join("a"), "new").is_ok(), std::fs::create_dir(outside.join("b")).is_ok())
        });
        assert_eq!(made.unwrap_or((true, false)), (true, false));
    }

    #[test]
    fn a_device_is_written_to_without_what_is_beside_it() {
        assert_eq!(places_of(Path::new("/dev/null")), [Path::new("/dev/null")]);
        assert_eq!(places_of(Path::new("a.pcapng")), [Path::new(".")]);
        assert_eq!(places_of(Path::new("/nowhere/a")), [Path::new("/nowhere")]);
        let written = bounded(&[Path::new("/dev/null"), Path::new("/nowhere")], &[], || {
            let null = OpenOptions::new().write(true).open("/dev/null");
            (
                null.and_then(|mut null| null.write_all(b"x")).is_ok(),
                OpenOptions::new().write(true).open("/dev/zero").is_ok(),
            )
        });
        assert_eq!(written.unwrap_or((true, false)), (true, false));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a");
        std::fs::write(&file, "").unwrap();
        assert_eq!(places_of(&file), [file.as_path(), dir.path()]);
    }
}
