//! Output files of a capture, single or rotated, written by a thread of their own.
//!
//! Each file is readable by its owner only, and complete by itself: header, items, trailer. Only files that
//! this process created are ever removed.

use super::chunk_queue::ChunkSink;
use crate::rotation::{Rotate, Series};
use anyhow::{Context, bail, ensure};
use nix::libc::O_PATH;
use nix::sys::stat::fstat;
use nix::unistd::geteuid;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, ErrorKind, IsTerminal, pipe};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;
use toll_sys::private_file;
use toll_taps::{DiskFile, WriteMode};

/// Nobody but its owner reads what people's queries hold.
const OWNER_ONLY: u32 = 0o600;

/// Options of the output files.
#[derive(Debug)]
pub struct FileOptions {
    /// What rotates is named after it, with date, time and number.
    pub path: PathBuf,
    /// What is written to instead of the path, open already: standard output.
    pub open: Option<File>,
    pub rotation: Rotate,
    /// Number of rotated files to keep.
    pub keep: Option<usize>,
    /// True if a non-empty file may be overwritten.
    pub overwrite: bool,
}

/// Function that returns the trailer of a file.
pub type TrailerFn = Box<dyn Fn() -> Vec<u8> + Send>;

/// Writes chunks to files.
pub struct FileSink {
    options: FileOptions,
    header: Vec<u8>,
    trailer: TrailerFn,
    open: Option<OpenFile>,
    made: Series,
    number: u64,
    lost: u64,
    has_failed: bool,
}

struct OpenFile {
    disk: DiskFile,
    name: String,
    begun: Instant,
}

impl FileSink {
    /// `tail`: what those files end with after which another is begun; of the last one it is said at the end.
    ///
    /// # Errors
    /// The options contradict each other.
    pub fn new(options: FileOptions, tail: TrailerFn) -> anyhow::Result<Self> {
        let is_enabled = options.rotation.rotates();
        ensure!(is_enabled || options.keep.is_none(), "--keep needs --rotate, for example --rotate 1G");
        ensure!(!is_enabled || options.open.is_none(), "standard output cannot be rotated: name a file");
        Ok(Self {
            options,
            header: Vec::new(),
            trailer: tail,
            open: None,
            made: Series::default(),
            number: 0,
            lost: 0,
            has_failed: false,
        })
    }

    fn begin_file(&mut self) -> anyhow::Result<()> {
        let (file, path) = if self.options.rotation.rotates() {
            self.create_next()?
        } else {
            let path = self.options.path.clone();
            let name = path.display().to_string();
            (file_of(&self.options).map_err(|error| describe_error(error, &name))?, path)
        };
        let name = path.display().to_string();
        let mut disk = DiskFile::new(file).map_err(|error| describe_error(error, &name))?;
        disk.write(&self.header).map_err(|error| describe_error(error, &name))?;
        self.open = Some(OpenFile { disk, name, begun: Instant::now() });
        Ok(())
    }

    fn create_next(&mut self) -> anyhow::Result<(File, PathBuf)> {
        let path = &self.options.path;
        let part = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let stem = part(path.file_stem()).with_context(|| format!("{} names no file", path.display()))?;
        let end = part(path.extension()).map_or(String::new(), |end| format!(".{end}"));
        loop {
            self.number += 1;
            let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
            let path = path.with_file_name(format!("{stem}-{now}-{}{end}", self.number));
            let cannot = |error: io::Error| describe_error(error, &path.display().to_string());
            match private_file::create(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(cannot(error)),
                Ok(file) => {
                    self.made.add(&path, &file).map_err(cannot)?;
                    return Ok((file, path));
                }
            }
        }
    }

    fn end_file(&mut self, tail: &[u8]) -> anyhow::Result<()> {
        let Some(OpenFile { mut disk, name, .. }) = self.open.take() else { return Ok(()) };
        let written = disk.write(tail);
        let ended = disk.finish();
        written.and(ended).map_err(|error| describe_error(error, &name))
    }

    fn is_full(&self, more: usize) -> bool {
        let Some(open) = &self.open else { return false };
        let holds_something = open.disk.length() > self.header.len() as u64;
        let length = open.disk.length() + more as u64;
        holds_something && self.options.rotation.is_due(length, open.begun.elapsed())
    }

    fn write(&mut self, bytes: &[u8]) -> anyhow::Result<()> {
        if self.is_full(bytes.len()) {
            let tail = (self.trailer)();
            self.end_file(&tail)?;
            self.begin_file()?;
            self.made.keep_newest(self.options.keep);
        }
        match &mut self.open {
            Some(open) => open.disk.write(bytes).map_err(|error| describe_error(error, &open.name)),
            None => bail!("{} is not open", self.options.path.display()),
        }
    }
}

impl ChunkSink for FileSink {
    fn begin(&mut self, header: &[u8]) -> anyhow::Result<()> {
        self.header = header.to_vec();
        self.begin_file()?;
        if let Some(open) = &self.open {
            tracing::info!("writing {}{}", open.name, describe_mode(open.disk.mode()));
        }
        Ok(())
    }

    fn write_chunk(&mut self, bytes: &[u8], items: u64, _first_ns: u64, _last_ns: u64) -> anyhow::Result<()> {
        if self.has_failed {
            self.lost += items;
            return Ok(());
        }
        self.write(bytes).inspect_err(|_| {
            self.lost += items;
            self.has_failed = true;
            // What was written stays readable; of the end there may be room for the last words.
            let tail = (self.trailer)();
            let _ = self.end_file(&tail);
        })
    }

    fn lost_items(&self) -> (u64, u64) {
        (self.lost, 0)
    }

    fn finish(&mut self, tail: &[u8]) -> anyhow::Result<()> {
        self.end_file(tail)
    }
}

fn describe_mode(way: WriteMode) -> &'static str {
    match way {
        WriteMode::DontCache => " past the page cache (RWF_DONTCACHE)",
        WriteMode::Direct => " past the page cache (O_DIRECT)",
        WriteMode::WriteBehind => ", dropped from the page cache 16 MiB behind the writer (sync_file_range)",
        WriteMode::Stream => "",
    }
}

/// What became of a file, and what to do.
fn describe_error(error: impl Into<anyhow::Error>, name: &str) -> anyhow::Error {
    let error = error.into();
    let advice = match error.downcast_ref::<io::Error>().map(io::Error::kind) {
        Some(ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge) => {
            "; the file is readable up to here. Free space, or limit it with --rotate and --keep."
        }
        Some(ErrorKind::BrokenPipe) => "; the reader has exited",
        Some(ErrorKind::NotFound) => "; create its directory first, or choose another",
        Some(ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) => {
            "; choose a file that you can write"
        }
        _ => "",
    };
    anyhow::anyhow!("cannot write {name}: {error:#}{advice}")
}

/// The file that was named, or whatever else has that name.
fn file_of(FileOptions { path, open, overwrite, .. }: &FileOptions) -> anyhow::Result<File> {
    if let Some(open) = open {
        ensure!(!open.is_terminal(), "a terminal cannot show it: name a file, or pipe it on");
        return Ok(open.try_clone()?);
    }
    check_link(path)?;
    // One look at one file: whatever has its name a moment later.
    let found = match OpenOptions::new().read(true).custom_flags(O_PATH).open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(private_file::create(path)?),
        found => found?,
    };
    let there = found.metadata()?;
    ensure!(!there.is_dir(), "it is a directory: name a file in it");
    let open = || OpenOptions::new().write(true).open(format!("/proc/self/fd/{}", found.as_raw_fd()));
    if !there.is_file() {
        // The maker of a named pipe may read it. A device is root's, and a pipe without a name this process's.
        let is_trusted = [0, geteuid().as_raw()].contains(&there.uid());
        let is_named = there.file_type().is_fifo() && fstat(&pipe()?.0)?.st_dev != there.dev();
        ensure!(is_trusted || !is_named, "{}", another_users(&there));
        return Ok(open()?);
    }
    ensure!(
        *overwrite || there.len() == 0,
        "the file exists with {} bytes. Choose another, or use --overwrite.",
        there.len()
    );
    // Its owner could read what is written, whatever its mode.
    ensure!(there.uid() == geteuid().as_raw(), "{}", another_users(&there));
    let file = open()?;
    file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
    file.set_len(0)?;
    Ok(file)
}

/// Refuses a link that another user has put there, as the kernel does in directories like /tmp where it is set to.
fn check_link(path: &Path) -> anyhow::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(link) if link.is_symlink() && ![0, geteuid().as_raw()].contains(&link.uid()) => {
            bail!("it is a link of another user's (uid {}). Choose another file.", link.uid())
        }
        _ => Ok(()),
    }
}

fn another_users(file: &Metadata) -> String {
    format!(
        "it belongs to another user (uid {}), who could read the capture. Choose another file, or write to standard \
         output (-w -) if that user is meant to have it.",
        file.uid()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use std::os::unix::fs::{chown, symlink};
    use std::time::Duration;

    fn asked(path: PathBuf) -> FileOptions {
        FileOptions { path, open: None, rotation: Rotate::default(), keep: None, overwrite: false }
    }

    fn files(options: FileOptions) -> FileSink {
        FileSink::new(options, Box::new(|| b"|".to_vec())).unwrap()
    }

    fn in_order(dir: &Path) -> Vec<String> {
        let number = |path: &PathBuf| {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            stem.rsplit('-').next().unwrap().parse::<u64>().unwrap()
        };
        let mut paths: Vec<PathBuf> =
            std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort_by_key(number);
        paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
    }

    #[test]
    fn each_of_several_files_is_whole_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let rotate = Rotate { bytes: Some(8), every: None };
        let mut files =
            files(FileOptions { rotation: rotate, keep: Some(3), ..asked(dir.path().join("a.b.pcapng")) });
        files.begin(b"<").unwrap();
        for chunk in [&b"1234"[..], b"56", b"7", b"8", b"90", b"a very long one", b"b", b"c"] {
            files.write_chunk(chunk, 1, 0, 0).unwrap();
        }
        files.finish(b">").unwrap();
        assert_eq!(in_order(dir.path()), ["<890|", "<a very long one|", "<bc>"]);
        let name = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().file_name();
        let name = name.into_string().unwrap();
        assert!(name.starts_with("a.b-20") && name.ends_with(".pcapng"), "{name}");
    }

    #[test]
    fn a_file_that_took_the_place_of_an_old_one_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let rotate = Rotate { bytes: Some(3), every: None };
        let mut files = files(FileOptions { rotation: rotate, keep: Some(1), ..asked(dir.path().join("a")) });
        files.begin(b"").unwrap();
        let first = std::fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        std::fs::rename(&first, dir.path().join("moved-0")).unwrap();
        std::fs::write(&first, "another's").unwrap();
        files.write_chunk(b"123", 1, 0, 0).unwrap();
        files.write_chunk(b"456", 1, 0, 0).unwrap();
        files.finish(b"").unwrap();
        assert_eq!(in_order(dir.path()), ["123|", "another's", "456"]);
    }

    #[test]
    fn files_are_their_owners_and_are_not_written_over_unasked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f.pcapng");
        let written = |asked: FileOptions, bytes: &[u8]| {
            let mut files = files(asked);
            files.begin(bytes)?;
            files.finish(b"")
        };
        written(asked(path.clone()), b"new").unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, OWNER_ONLY);
        let said = format!("{:#}", written(asked(path.clone()), b"again").unwrap_err());
        assert!(said.contains("the file exists with 3 bytes") && said.contains("--overwrite"), "{said}");
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        written(FileOptions { overwrite: true, ..asked(path.clone()) }, b"2").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"2");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, OWNER_ONLY);
        let said = format!("{:#}", written(asked(dir.path().into()), b"").unwrap_err());
        assert!(said.contains("it is a directory"), "{said}");
        let nowhere = asked(dir.path().join("nowhere/a.pcapng"));
        let rotated =
            FileOptions { rotation: Rotate { bytes: Some(8), every: None }, ..asked(nowhere.path.clone()) };
        for asked in [nowhere, rotated] {
            let said = written(asked, b"").unwrap_err().to_string();
            assert!(said.contains("nowhere/a") && said.contains("create its directory first"), "{said}");
        }
    }

    #[test]
    fn a_file_a_pipe_and_a_link_of_another_users_are_refused() {
        if !geteuid().is_root() {
            toll_testkit::skip!("making another user's files needs root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("own.pcapng");
        std::fs::write(&own, "").unwrap();
        let [file, fifo, link] = ["file", "fifo", "link"].map(|name| dir.path().join(name));
        std::fs::write(&file, "").unwrap();
        nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o666)).unwrap();
        symlink(&own, &link).unwrap();
        for path in [&file, &fifo] {
            chown(path, Some(65_534), None).unwrap();
        }
        std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
        for path in [&file, &fifo, &link] {
            for overwrite in [false, true] {
                let mut refused = files(FileOptions { overwrite, ..asked(path.clone()) });
                let said = format!("{:#}", refused.begin(b"secret").unwrap_err());
                assert!(said.contains("another user") && said.contains("uid 65534"), "{said}");
            }
        }
        assert_eq!([&file, &own].map(|path| path.metadata().unwrap().len()), [0, 0]);
    }

    #[test]
    fn a_pipe_of_ones_own_is_written_to_with_a_name_or_without() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::from_bits_truncate(0o600)).unwrap();
        let named = fifo.clone();
        let reader = std::thread::spawn(move || std::fs::read_to_string(named).unwrap());
        let written = |path: PathBuf| {
            let mut files = files(asked(path));
            files.begin(b"begin").unwrap();
            files.finish(b"end").unwrap();
        };
        written(fifo);
        assert_eq!(reader.join().unwrap(), "beginend");
        // As a shell's `>(gzip)` and /dev/stdout.
        let (from, to) = pipe().unwrap();
        if geteuid().is_root() {
            nix::unistd::fchown(&to, Some(65_534.into()), None).unwrap();
        }
        written(format!("/dev/fd/{}", to.as_raw_fd()).into());
        drop(to);
        assert_eq!(io::read_to_string(from).unwrap(), "beginend");
    }

    #[test]
    fn after_a_failure_everything_is_counted_as_lost_and_said_once() {
        // A device that is always full.
        let mut files = files(asked("/dev/full".into()));
        files.begin(b"").unwrap();
        let said = files.write_chunk(b"123", 2, 0, 0).unwrap_err().to_string();
        assert!(said.contains("cannot write /dev/full") && said.contains("Free space"), "{said}");
        files.write_chunk(b"123", 5, 0, 0).unwrap();
        files.finish(b"").unwrap();
        assert_eq!(files.lost_items(), (7, 0));
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let kept = FileOptions { keep: Some(2), ..asked("a".into()) };
        assert!(FileSink::new(kept, Box::new(Vec::new)).is_err());
        let rotate = Rotate { bytes: None, every: Some(Duration::from_secs(1)) };
        assert!(
            FileSink::new(
                FileOptions {
                    rotation: rotate,
                    open: Some(File::open("/dev/null").unwrap()),
                    ..asked("-".into())
                },
                Box::new(Vec::new)
            )
            .is_err()
        );
    }
}
