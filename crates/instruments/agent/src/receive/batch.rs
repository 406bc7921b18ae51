//! Batches of received files: each is digested to tables as a whole, and its files are removed after.
//!
//! A batch is a list, a hidden file beside those that it names. It is written at once before anything is digested, and renamed once
//! the tables are written.
//!
//! # Invariants
//! A file is in one batch alone. Digested again after a kill, a batch has the same files, the same ID, and so the same tables.

use super::capture_ends::NAME as CAPTURE_ENDS;
use super::file_names::{elsewhere_mark, host_of_file, place_in_order};
use anyhow::{Context, Result};
use std::collections::HashSet;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use toll_sys::{private_dir, private_file};

/// Files of a batch, in bytes together: beyond it the rest waits for the next one.
const MAX_BYTES: u64 = 256 << 20;
const BEGUN: &str = ".batch";
const DIGESTED: &str = ".digested";
const UNREAD: &str = ".unread";
const MAX_SAME_NAME: u32 = 10_000;

/// Files that are digested together.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    dir: PathBuf,
    /// Hexadecimal, 16 bytes.
    id: String,
    names: Vec<String>,
    /// Of all or some of it there may be tables, which a compaction may have merged.
    was_begun: bool,
}

impl Batch {
    /// A batch that was begun before and is not digested yet, or a new one of files in `dir` that nobody writes to; `None`: there
    /// are no files. `open_files` is asked once the directory is read.
    ///
    /// # Errors
    /// The directory cannot be read or written.
    pub fn take(dir: &Path, open_files: impl FnOnce() -> HashSet<PathBuf>) -> Result<Option<Self>> {
        // Before anything else: files of a batch that is digested must be in no other.
        for name in names_in(dir)? {
            if let Some(id) = id_of(&name, DIGESTED) {
                Self::read(dir, id, DIGESTED)?.remove_files()?;
            } else if is_unfinished(&name) {
                let _gone = std::fs::remove_file(dir.join(&name));
            }
        }
        let names = names_in(dir)?;
        if let Some(id) = names.iter().find_map(|name| id_of(name, BEGUN)) {
            return Self::read(dir, id, BEGUN).map(Some);
        }
        let bytes = |name: &String| std::fs::metadata(dir.join(name)).map_or(0, |meta| meta.len());
        let received = names.into_iter().filter(|name| host_of_file(name).is_some());
        let mut found: Vec<(String, u64)> = received.map(|name| (name.clone(), bytes(&name))).collect();
        let open = open_files();
        found.retain(|(name, _)| !open.contains(&dir.join(name)));
        found.sort_by(|(a, _), (b, _)| place_in_order(a).cmp(&place_in_order(b)));
        let mut bytes = 0_u64;
        let fits = |(_, more): &(String, u64)| {
            bytes = bytes.saturating_add(*more);
            bytes <= MAX_BYTES || bytes == *more
        };
        let names: Vec<String> = found.into_iter().take_while(fits).map(|(name, _)| name).collect();
        if names.is_empty() {
            return Ok(None);
        }
        let id = format!("{:032x}", u128::from_be_bytes(private_dir::random_bytes()?));
        let batch = Self { dir: dir.to_owned(), id, names, was_begun: false };
        private_file::write(&batch.list(BEGUN), &batch.names.join("\n"))?;
        Ok(Some(batch))
    }

    fn read(dir: &Path, id: &str, end: &str) -> Result<Self> {
        let mut batch = Self { dir: dir.to_owned(), id: id.to_owned(), names: Vec::new(), was_begun: true };
        let path = batch.list(end);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        // None leads out of the directory.
        batch.names = text.lines().filter(|name| host_of_file(name).is_some()).map(str::to_owned).collect();
        batch.names.retain(|name| !name.contains('/'));
        Ok(batch)
    }

    fn list(&self, end: &str) -> PathBuf {
        self.dir.join(format!(".{}{end}", self.id))
    }

    pub fn hex_id(&self) -> &str {
        &self.id
    }

    /// Of the tables' names.
    pub fn id(&self) -> [u8; 16] {
        let number = u128::from_str_radix(&self.id, 16).unwrap_or_default();
        number.to_be_bytes()
    }

    /// It was taken before, and may be digested in part.
    pub fn was_begun(&self) -> bool {
        self.was_begun
    }

    /// Host and path of each file that is there.
    pub fn files(&self) -> impl Iterator<Item = (&str, PathBuf)> {
        let paths = self.names.iter().filter_map(|name| Some((host_of_file(name)?, self.dir.join(name))));
        paths.filter(|(_, path)| path.is_file())
    }

    /// Keeps a file of the batch that a reader of this version cannot read all of. The answer: under which name.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn keep_unread(path: &Path) -> Result<PathBuf> {
        let inode = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
        let mut number = 1;
        loop {
            let mut name = path.as_os_str().to_owned();
            name.push(UNREAD);
            if number > 1 {
                name.push(format!("-{number}"));
            }
            let kept = PathBuf::from(name);
            match std::fs::hard_link(path, &kept) {
                // By an earlier attempt.
                Err(_) if inode(&kept).is_some_and(|known| Some(known) == inode(path)) => return Ok(kept),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MAX_SAME_NAME => {
                    number += 1
                }
                linked => {
                    return linked.with_context(|| format!("cannot make {}", kept.display())).map(|()| kept);
                }
            }
        }
    }

    /// The tables have all of it.
    ///
    /// # Errors
    /// The disk refuses it; the batch is then digested again.
    pub fn finish(self) -> Result<()> {
        let (begun, digested) = (self.list(BEGUN), self.list(DIGESTED));
        std::fs::rename(&begun, &digested).with_context(|| format!("cannot rename {}", begun.display()))?;
        self.remove_files()
    }

    fn remove_files(&self) -> Result<()> {
        let paths = self.names.iter().map(|name| self.dir.join(name));
        let marks = paths.clone().map(|path| elsewhere_mark(&path));
        for path in paths.chain(marks).chain([self.list(DIGESTED)]) {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("cannot remove {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// A list that a kill cut short, such as `.ID.batch.RANDOM.part`.
fn is_unfinished(name: &str) -> bool {
    let list = name.strip_suffix(".part").and_then(|rest| rest.rsplit_once('.'));
    list.is_some_and(|(list, _)| {
        list == CAPTURE_ENDS || id_of(list, BEGUN).or_else(|| id_of(list, DIGESTED)).is_some()
    })
}

fn names_in(dir: &Path) -> Result<Vec<String>> {
    let failed = || format!("cannot read {}", dir.display());
    let entries = std::fs::read_dir(dir).with_context(failed)?;
    let names = entries.map(|entry| Ok(entry.with_context(failed)?.file_name().into_string().ok()));
    names.filter_map(Result::transpose).collect()
}

/// ID of a batch by the name of its list.
fn id_of<'a>(name: &'a str, end: &str) -> Option<&'a str> {
    let id = name.strip_prefix('.')?.strip_suffix(end)?;
    (id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(batch: &Batch) -> Vec<&str> {
        batch.names.iter().map(String::as_str).collect()
    }

    #[test]
    fn a_batch_stays_as_it_was_begun_until_it_is_digested_and_takes_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(dir.path().join(name), "events").unwrap();
        ["db1-20231114-221320.queries", "db2-20231114-221320.queries", "notes.txt"]
            .into_iter()
            .for_each(write);
        let open = || HashSet::from([dir.path().join("db2-20231114-221320.queries")]);
        let first = Batch::take(dir.path(), open).unwrap().unwrap();
        assert_eq!(names(&first), ["db1-20231114-221320.queries"]);
        assert_eq!(first.files().map(|(host, _)| host).collect::<Vec<_>>(), ["db1"]);
        write("db1-20231114-221330.queries");
        // Killed, while another list was written, and begun again.
        let id = "1".repeat(32);
        write(&format!(".{id}{BEGUN}.aBc9.part"));
        write(&format!("{CAPTURE_ENDS}.aBc9.part"));
        let again = Batch::take(dir.path(), open).unwrap().unwrap();
        assert_eq!((names(&again), again.id()), (names(&first), first.id()));
        assert!(again.was_begun() && !first.was_begun());
        again.finish().unwrap();
        let second = Batch::take(dir.path(), HashSet::new).unwrap().unwrap();
        assert_eq!(names(&second), ["db1-20231114-221330.queries", "db2-20231114-221320.queries"]);
        assert_ne!(second.id(), first.id());
        // Killed between the two steps of its end.
        std::fs::rename(second.list(BEGUN), second.list(DIGESTED)).unwrap();
        assert_eq!(Batch::take(dir.path(), HashSet::new).unwrap(), None);
        let left: Vec<_> =
            std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["notes.txt"]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_kept_under_a_name_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db1-20231114-221320.queries");
        let keep = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let kept = [(); 2].map(|()| Batch::keep_unread(&path).unwrap());
            assert_eq!(kept[0], kept[1], "kept again after a kill");
            std::fs::remove_file(&path).unwrap();
            kept[0].clone()
        };
        let kept = ["first", "second"].map(keep);
        assert_eq!(kept.map(|path| std::fs::read_to_string(path).unwrap()), ["first", "second"]);
    }

    #[test]
    fn a_list_names_no_file_of_another_directory() {
        let dir = tempfile::tempdir().unwrap();
        let id = "0".repeat(32);
        let list = "../db1-20231114-221320.queries\nnotes.txt\ndb1-20231114-221320.queries";
        std::fs::write(dir.path().join(format!(".{id}{BEGUN}")), list).unwrap();
        let batch = Batch::take(dir.path(), HashSet::new).unwrap().unwrap();
        assert_eq!(names(&batch), ["db1-20231114-221320.queries"]);
    }
}
