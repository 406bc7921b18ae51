//! Execution of a backup.
//!
//! One dump of one snapshot goes to git and to the store at once. The commit is made when the dump is
//! complete. The manifest, which makes the backup valid, is written when the store holds everything it names.

use super::cost::{self, Cost, Stage, Used, since};
use super::dump::Dump;
use super::place::{self, Keys, Place, dated_ahead, is_alive};
use super::program::{OptionFile, Program};
use super::repository::{Committed, Import, Repository};
use super::source::Source;
use crate::archive::git::{FastImport, Tree, TreeSource};
use crate::archive::prune::{self, Pruned, Stay};
use crate::archive::{
    Backups, Content, FileSeen, Keep, Manifest, Progress, Running, Totals, Upload, Uploaded,
};
use anyhow::{Context, Result, anyhow};
use std::collections::HashSet;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toll_journal::Journal;
use toll_mysql::Target;
use toll_store::Store;
use toll_sys::cancel::CancelToken;
use toll_sys::clock;
use toll_sys::number_format::format_megabytes;
use toll_throttle::{Throttle, Throttled};

/// A backup as it was asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    pub server: Target,
    /// None: all but the system's.
    pub schemas: Vec<String>,
    pub dump_program: Option<PathBuf>,
    pub to: Option<Place>,
    pub keys: Keys,
    /// A repository and its branch.
    pub git: Option<(PathBuf, String)>,
    /// How many backups are left in the store afterwards.
    pub keep: Option<usize>,
    /// What the dump promises to users of the server; none: it goes as fast as it can.
    pub promise: Option<toll_throttle::Asked>,
}

/// A backup that was taken.
#[derive(Debug)]
pub struct Taken {
    pub id: String,
    pub source: Source,
    pub program: String,
    pub bytes: u64,
    pub rows: u64,
    pub tables: u64,
    pub stored: Option<Totals>,
    pub committed: Option<Committed>,
    pub pruned: Option<Pruned>,
    pub warnings: Vec<String>,
    /// Requests to the store that had to be made again.
    pub retries: u64,
    pub cost: Cost,
    /// What the promise cost, where one was made.
    pub promise: Option<toll_throttle::Account>,
}

/// Takes a backup. `seen` is told how many bytes were dumped, of about how many.
pub fn take(asked: &Asked, cancel: &CancelToken, seen: &dyn Fn(u64, u64)) -> Result<Taken> {
    let id = place::backup_id(&asked.server, &asked.schemas);
    let journal = Journal::begin(&format!("backup-{id}")).context("nothing was changed")?;
    let taken = with_journal(asked, &id, &journal, cancel, seen);
    let undone = journal.undo_all();
    match (taken, undone.failures.as_slice()) {
        (taken, []) => taken,
        (Ok(_), failures) => {
            Err(anyhow::anyhow!("the backup {id} is whole, but left behind: {}", failures.join("; ")))
        }
        (Err(error), failures) => Err(error.context(format!("and left behind: {}", failures.join("; ")))),
    }
}

fn with_journal(
    asked: &Asked,
    id: &str,
    journal: &Journal,
    cancel: &CancelToken,
    seen: &dyn Fn(u64, u64),
) -> Result<Taken> {
    let begun = Instant::now();
    let begun_unix_ms = clock::wall_us() / 1000;
    let mut source = Source::look(&asked.server, &asked.schemas)?;
    let mut program = Program::for_dumps(source.flavour, asked.dump_program.as_deref())?;
    source.check_fit(&program)?;
    source.equip(&mut program);
    let options = OptionFile::write(&asked.server, &program, journal)?;
    let mut going = match &asked.to {
        Some(place) => Some(ToStore::begin(place, &asked.keys, id, cancel)?),
        None => None,
    };
    let mut commit = match &asked.git {
        Some((dir, branch)) => Some(Repository::open_or_make(dir, branch)?.import(journal, cancel)?),
        None => None,
    };

    let promise = asked.promise.as_ref();
    let read =
        Reading { program: &program, options: &options, source: &source, promise, journal, cancel, seen };
    let mut keeps: Vec<&mut dyn Keep> = Vec::new();
    keeps.extend(going.as_mut().map(|going| &mut going.upload as &mut dyn Keep));
    keeps.extend(commit.as_mut().map(|(_, stream)| stream as &mut dyn Keep));
    let (files, read) = match read.all(Content::new(keeps)) {
        Ok(all) => all,
        Err(error) => {
            let retried = going.as_ref().is_some_and(|going| going.store.retries() > 0);
            let gave_up = retried && format!("{error:#}").contains("Lost connection");
            let error = if gave_up { error.context(KEPT_WAITING) } else { error };
            return Err(match commit {
                Some((import, _stream)) => import.give_up(error),
                None => error,
            });
        }
    };

    let committed = match commit {
        Some((import, stream)) => {
            Some(commit_to(import, stream, &files, &source, &program, &read, begun_unix_ms)?)
        }
        None => None,
    };
    let tables =
        files.iter().filter(|file| file.file.kind == crate::archive::sections::Kind::Table).count() as u64;
    let mut taken = Taken {
        id: id.to_owned(),
        program: program.version.clone(),
        bytes: files.iter().map(|file| file.bytes).sum(),
        rows: files.iter().map(|file| file.rows).sum(),
        tables,
        stored: None,
        committed: None,
        pruned: None,
        warnings: [source.warnings.clone(), doubts(asked, read.longest_row_bytes)].concat(),
        retries: 0,
        cost: Cost { dump: read.dump, split: read.split, ..Cost::default() },
        promise: read.promise,
        source,
    };
    if let Some((committed, stage)) = committed {
        taken.committed = Some(committed);
        taken.cost.commit = Some(stage);
    }
    if let Some(going) = going {
        let cpu_of_others_s = taken.cost.split.cpu_s;
        let (store, opening) = (going.store.clone(), going.opening.clone());
        let kept = Kept { files, longest_row_bytes: read.longest_row_bytes, begun_unix_ms, cpu_of_others_s };
        let (stored, stage) = going.finish(&taken, &program, kept)?;
        taken.stored = Some(stored);
        taken.cost.upload = Some(stage);
        taken.retries = store.retries();
        // Whatever comes of this, the backup is whole.
        taken.warnings.extend(Backups::list(&store).ok().and_then(|backups| dated_ahead(&backups)));
        if asked.keep.is_some() {
            // Beside one that is dated ahead, this one may not be among the latest.
            let stay = Stay { latest: asked.keep, also: Some(id) };
            match place::pruned(&store, &opening, stay, false) {
                Ok(pruned) => taken.pruned = Some(pruned),
                // The backup is whole; the next one prunes.
                Err(error) => taken.warnings.push(format!("old backups were not removed: {error:#}")),
            }
        }
    }
    taken.cost.total_s = since(begun);
    Ok(taken)
}

/// Said of a dump that failed after its store had.
const KEPT_WAITING: &str = "the store failed meanwhile and kept the dump waiting, which a server bears for net_write_timeout \
                            (60 s by default): SET GLOBAL net_write_timeout = 600 makes room";
/// No server has a larger max_allowed_packet.
const LONGEST_STATEMENT: u64 = 1 << 30;

/// What the user is to know of this backup, beside what is in its source.
fn doubts(asked: &Asked, longest_row_bytes: u64) -> Vec<String> {
    let mut doubts = Vec::new();
    if asked.git.is_some() && asked.keys.encrypt() {
        doubts.push("the git repository is not encrypted: what is said of keys is for --to alone".to_owned());
    }
    if longest_row_bytes > LONGEST_STATEMENT {
        doubts.push(format!(
            "a row takes {} MB as a statement, more than any server takes back (1 GiB): keep it elsewhere too",
            format_megabytes(longest_row_bytes as f64)
        ));
    }
    doubts
}

/// The dump's way into [`Content`].
struct Reading<'a> {
    program: &'a Program,
    options: &'a OptionFile,
    source: &'a Source,
    promise: Option<&'a toll_throttle::Asked>,
    journal: &'a Journal,
    cancel: &'a CancelToken,
    seen: &'a dyn Fn(u64, u64),
}

/// What reading took.
struct Read {
    dump: Stage,
    split: Stage,
    promise: Option<toll_throttle::Account>,
    longest_row_bytes: u64,
    ended: Instant,
}

impl Reading<'_> {
    fn all(&self, mut content: Content<'_>) -> Result<(Vec<FileSeen>, Read)> {
        let begun = Instant::now();
        let cpu_before_us = clock::thread_cpu_us();
        let bytes = AtomicU64::new(0);
        let seen = |read: usize| {
            let so_far = bytes.fetch_add(read as u64, Ordering::Relaxed) + read as u64;
            (self.seen)(so_far, self.source.estimated_bytes);
            Ok(())
        };
        let start = |options: &[String], what| {
            Dump::start(
                self.program,
                options,
                self.options,
                &self.source.schemas,
                what,
                self.journal,
                self.cancel,
            )
        };
        let asked = self.promise.cloned();
        let throttle = asked.map(|asked| Throttle::begin(asked, self.journal)).transpose()?;
        let (dump, stream) = start(&self.program.options(), "the dump")?;
        let rows = match &throttle {
            None => dump.finish(content.read(stream, seen)),
            Some(throttle) => {
                let gate = throttle.gate();
                let rows = dump.finish(content.read(Throttled::new(stream, Arc::clone(gate)), seen));
                // Its reason says more than that the dump broke off.
                match gate.ended() {
                    Some(why) => Err(anyhow!("{why}; the dump is not whole")),
                    None => rows,
                }
            }
        }?;
        let promise = throttle.map(Throttle::finish).transpose()?;
        let (dump, stream) =
            start(&self.program.options_for_bodies(), "the dump of triggers, routines and events")?;
        let bodies = dump.finish(content.read_bodies(stream, seen))?;
        let Used { cpu_s, memory_peak_bytes } = rows.and(bodies);
        let longest_row_bytes = content.longest_row_bytes();
        let files = content.finish()?;
        let time_s = since(begun);
        let bytes_read = bytes.load(Ordering::Relaxed);
        let dump = Stage { time_s, cpu_s, bytes_read, bytes_stored: 0, memory_peak_bytes };
        let cpu_s = (clock::thread_cpu_us() - cpu_before_us) as f64 / 1e6;
        let memory_peak_bytes = cost::own_peak_bytes();
        let split = Stage { time_s, cpu_s, bytes_read, bytes_stored: 0, memory_peak_bytes };
        Ok((files, Read { dump, split, promise, longest_row_bytes, ended: Instant::now() }))
    }
}

fn commit_to(
    import: Import<'_>,
    stream: FastImport<BufWriter<ChildStdin>>,
    files: &[FileSeen],
    source: &Source,
    program: &Program,
    read: &Read,
    unix_ms: u64,
) -> Result<(Committed, Stage)> {
    let bytes_read = stream.written();
    let tree = Tree {
        format: crate::archive::git::FORMAT,
        source: TreeSource::of(&described(source)),
        program: named(program),
        schemas: source.schemas.clone(),
        files: Vec::new(),
        definers: source.definers.clone(),
        warnings: source.warnings.clone(),
        longest_row_bytes: read.longest_row_bytes,
    };
    let message = format!("{} of {} {}", source.schemas.join(", "), source.flavour.name(), source.version);
    let (committed, used) = import.finish(stream, files.to_vec(), tree, &message, unix_ms / 1000)?;
    let stage = Stage {
        // What it adds to the dump, beside which the blobs were written.
        time_s: since(read.ended),
        cpu_s: used.cpu_s,
        bytes_read,
        bytes_stored: committed.repository_bytes.saturating_sub(committed.repository_bytes_before),
        memory_peak_bytes: used.memory_peak_bytes,
    };
    Ok((committed, stage))
}

/// A backup on its way into a store.
struct ToStore {
    store: Arc<Store>,
    sealing: crate::archive::Sealing,
    opening: crate::archive::Opening,
    running: Running,
    upload: Upload,
    cancel: CancelToken,
    /// For how long a prune that stands in the way is waited for.
    wait: Duration,
    begun: Instant,
    cpu_before_s: f64,
}

/// What there is to be kept.
struct Kept {
    files: Vec<FileSeen>,
    longest_row_bytes: u64,
    begun_unix_ms: u64,
    cpu_of_others_s: f64,
}

impl ToStore {
    fn begin(place: &Place, keys: &Keys, id: &str, cancel: &CancelToken) -> Result<Self> {
        let begun = Instant::now();
        let cpu_before_s = cost::own_cpu_s()?;
        let store = place::opened(place, true, cancel)?;
        let (sealing, opening) = keys.for_writing(&store)?;
        let owner = place::owner()?;
        let running = Running::backup(store.clone(), id, &owner, is_alive, place.retry_for, cancel)?;
        let named: Option<HashSet<_>> =
            if running.trusts() { None } else { Some(prune::named(&store, &opening)?) };
        let trusted = |name: &crate::archive::Name| named.as_ref().is_none_or(|named| named.contains(name));
        let upload = Upload::begin(store.clone(), sealing.clone(), trusted, Arc::new(Progress::default()))?;
        let wait = place.retry_for;
        let cancel = cancel.clone();
        Ok(Self { store, sealing, opening, running, upload, cancel, wait, begun, cpu_before_s })
    }

    fn finish(self, taken: &Taken, program: &Program, kept: Kept) -> Result<(Totals, Stage)> {
        let Self { store, sealing, mut running, upload, cancel, wait, begun, cpu_before_s, .. } = self;
        let Kept { files, longest_row_bytes, begun_unix_ms, cpu_of_others_s } = kept;
        running.outlast_prunes(wait, &cancel)?;
        let uploaded: Uploaded = upload.finish(files)?;
        let totals = Totals {
            bytes: taken.bytes,
            rows: taken.rows,
            pieces: uploaded.files.iter().map(|file| file.pieces.len() as u64).sum(),
            stored_bytes: uploaded.stored_bytes,
            new_pieces: uploaded.new_pieces,
            new_stored_bytes: uploaded.new_stored_bytes,
            longest_row_bytes,
        };
        let manifest = Manifest {
            format: crate::archive::FORMAT,
            id: taken.id.clone(),
            begun_unix_ms,
            ended_unix_ms: clock::wall_us() / 1000,
            source: described(&taken.source),
            program: named(program),
            schemas: taken.source.schemas.clone(),
            name_key: sealing.name_key(),
            totals,
            files: uploaded.files,
            definers: taken.source.definers.clone(),
            warnings: taken.warnings.clone(),
        };
        prune::put_index(&store, &sealing, &manifest.id, manifest.pieces().map(|piece| piece.name()))?;
        // After a signal there is to be no backup that the user thinks broken off.
        cancel.check()?;
        sealing.check_key(&store)?;
        running.still_believed()?;
        let listed = manifest.put(&store, &sealing)?;
        // The store may have been asked for it again and again: meanwhile a prune may have taken this backup for dead.
        if let Err(doubt) = running.was_believed() {
            store.delete(&listed.object)?;
            return Err(doubt.into());
        }
        let stage = Stage {
            time_s: since(begun),
            cpu_s: (cost::own_cpu_s()? - cpu_before_s - cpu_of_others_s).max(0.0),
            bytes_read: totals.bytes,
            bytes_stored: totals.new_stored_bytes + listed.manifest_bytes,
            memory_peak_bytes: cost::own_peak_bytes(),
        };
        Ok((totals, stage))
    }
}

fn described(source: &Source) -> crate::archive::Source {
    crate::archive::Source {
        flavour: source.flavour.name().to_owned(),
        version: source.version.to_string(),
        address: source.address.clone(),
    }
}

fn named(program: &Program) -> crate::archive::Program {
    crate::archive::Program {
        version: program.version.clone(),
        options: program.options(),
        options_for_bodies: program.options_for_bodies(),
    }
}
