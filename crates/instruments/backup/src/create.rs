//! Execution of a backup.
//!
//! One dump of one snapshot goes to git and to the store at once. The commit is made when the dump is
//! complete. The manifest, which makes the backup valid, is written when the store holds everything it names.

use super::cost::{self, BackupCost, ProcessUsage, StageCost, seconds_since};
use super::dump::DumpProcess;
use super::program::{OptionFile, Program};
use super::repository::{CommitSummary, GitImport, Repository};
use super::source::Source;
use super::store_location::{self, KeyOptions, StoreLocation, is_alive, warn_future_backups};
use crate::archive::git::{FastImport, Tree, TreeSource};
use crate::archive::prune::{self, PruneSummary, Retention, RetentionPolicy};
use crate::archive::{
    ActivityMarker, Backups, ContentSplitter, FileSink, FileSummary, Manifest, REREAD_ONE_OF, SignKey,
    Totals, UploadProgress, UploadSummary, Uploader,
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
use toll_throttle::{Throttle, ThrottledReader};

/// A backup as it was asked for.
#[derive(Debug, Clone)]
pub struct BackupOptions {
    pub server: Target,
    /// None: all but the system's.
    pub schemas: Vec<String>,
    pub dump_program: Option<PathBuf>,
    pub store: Option<StoreLocation>,
    pub keys: KeyOptions,
    /// Name of the source; none: its identity stands for it.
    pub source: Option<String>,
    /// A repository and its branch.
    pub git: Option<(PathBuf, String)>,
    /// Backups that are left in the store afterwards.
    pub retention: Retention,
    /// Throttle of the dump. `None`: the dump runs unthrottled.
    pub throttle: Option<toll_throttle::ThrottleOptions>,
}

/// A backup that was taken.
#[derive(Debug)]
pub struct BackupSummary {
    pub id: String,
    pub source: Source,
    pub program: String,
    pub bytes: u64,
    pub rows: u64,
    pub tables: u64,
    pub stored: Option<Totals>,
    pub committed: Option<CommitSummary>,
    pub pruned: Option<PruneSummary>,
    /// What is missing or damaged, and what to do. A backup with one is not what was asked for.
    pub warnings: Vec<String>,
    /// Limits of the data and of the options.
    pub notes: Vec<String>,
    /// Requests to the store that had to be made again.
    pub retries: u64,
    pub cost: BackupCost,
    /// Summary of the throttle, if there was one.
    pub throttle: Option<toll_throttle::ThrottleSummary>,
}

/// What a backup would dump, and the program that would. Changes nothing on the server, its host or the store.
pub fn preview_backup(asked: &BackupOptions) -> Result<(Source, PathBuf)> {
    let mut source = Source::preview(&asked.server, &asked.schemas, asked.source.as_deref())?;
    let mut program = Program::for_dumps(source.flavour, asked.dump_program.as_deref())?;
    source.check_program(&program)?;
    source.configure_program(&mut program);
    asked.keys.sign_key()?;
    Ok((source, program.path))
}

/// Creates a backup. Reports the bytes dumped, and the estimated total.
pub fn create_backup(
    asked: &BackupOptions,
    cancel: &CancelToken,
    seen: &dyn Fn(u64, u64),
) -> Result<BackupSummary> {
    let source = Source::inspect(&asked.server, &asked.schemas, asked.source.as_deref())?;
    let id = format!("{}-{}", store_location::new_id(), source.label);
    let journal = Journal::begin(&format!("backup-{id}")).context("nothing was changed")?;
    let taken = create_with_journal(asked, source, &id, &journal, cancel, seen);
    let undone = journal.undo_all();
    match (taken, undone.failures.as_slice()) {
        (taken, []) => taken,
        (Ok(_), failures) => Err(anyhow::anyhow!(
            "the backup {id} is complete, but these were not removed: {}",
            failures.join("; ")
        )),
        (Err(error), failures) => {
            Err(error.context(format!("these were not removed: {}", failures.join("; "))))
        }
    }
}

fn create_with_journal(
    request: &BackupOptions,
    mut source: Source,
    id: &str,
    journal: &Journal,
    cancel: &CancelToken,
    progress: &dyn Fn(u64, u64),
) -> Result<BackupSummary> {
    let begun = Instant::now();
    let begun_unix_ms = clock::wall_us() / 1000;
    let mut program = Program::for_dumps(source.flavour, request.dump_program.as_deref())?;
    source.check_program(&program)?;
    source.configure_program(&mut program);
    // Not after hours, when the dump is done.
    let sign_key = request.keys.sign_key()?;
    let options = OptionFile::write(&request.server, &program, journal)?;
    let mut store_upload = match &request.store {
        Some(place) => Some(StoreUpload::start(place, &request.keys, id, cancel)?),
        None => None,
    };
    let mut commit = match &request.git {
        Some((dir, branch)) => Some({
            let server = TreeSource::from_source(&source_server(&source));
            Repository::open_or_create(dir, branch)?.start_import(&server, journal, cancel)?
        }),
        None => None,
    };

    let throttle = request.throttle.as_ref();
    let read = DumpReader {
        program: &program,
        options: &options,
        source: &source,
        throttle,
        journal,
        cancel,
        progress,
    };
    let mut keeps: Vec<&mut dyn FileSink> = Vec::new();
    keeps.extend(store_upload.as_mut().map(|going| &mut going.uploader as &mut dyn FileSink));
    keeps.extend(commit.as_mut().map(|(_, stream)| stream as &mut dyn FileSink));
    let (files, read) = match read.read_all(ContentSplitter::new(keeps)) {
        Ok(all) => all,
        Err(error) => {
            let retried = store_upload.as_ref().is_some_and(|going| going.store.retries() > 0);
            let gave_up = retried && format!("{error:#}").contains("Lost connection");
            let error = if gave_up { error.context(STORE_STALLED_DUMP) } else { error };
            return Err(match commit {
                Some((import, _stream)) => import.abort(error),
                None => error,
            });
        }
    };

    let committed = match commit {
        Some((import, stream)) => {
            let tree = git_tree(&source, &program, &read);
            Some(finish_commit(import, stream, &files, tree, sign_key.as_ref(), read.ended, begun_unix_ms)?)
        }
        None => None,
    };
    let tables =
        files.iter().filter(|file| file.file.kind == crate::archive::sections::SectionKind::Table).count()
            as u64;
    let mut taken = BackupSummary {
        id: id.to_owned(),
        program: program.version.clone(),
        bytes: files.iter().map(|file| file.bytes).sum(),
        rows: files.iter().map(|file| file.rows).sum(),
        tables,
        stored: None,
        committed: None,
        pruned: None,
        warnings: source.warnings.iter().cloned().chain(row_warning(read.longest_row_bytes)).collect(),
        notes: source.notes.iter().cloned().chain(unencrypted_note(request)).collect(),
        retries: 0,
        cost: BackupCost { dump: read.dump, split: read.split, ..BackupCost::default() },
        throttle: read.throttle,
        source,
    };
    if let Some((committed, stage)) = committed {
        taken.committed = Some(committed);
        taken.cost.commit = Some(stage);
    }
    if let Some(going) = store_upload {
        let cpu_of_others_s = taken.cost.split.cpu_s;
        let (store, opening) = (going.store.clone(), going.decoder.clone());
        let kept =
            DumpContent { files, longest_row_bytes: read.longest_row_bytes, begun_unix_ms, cpu_of_others_s };
        let (stored, stage) = going.finish(&mut taken, &program, kept)?;
        taken.stored = Some(stored);
        taken.cost.upload = Some(stage);
        taken.retries = store.retries();
        // Whatever comes of this, the backup is whole.
        taken.warnings.extend(Backups::list(&store).ok().and_then(|backups| warn_future_backups(&backups)));
        if request.retention.is_set() {
            // Beside one that is dated ahead, this one may not be among the latest.
            let stay = RetentionPolicy { retention: request.retention, keep_id: Some(id) };
            match store_location::prune_store(&store, &opening, stay, false) {
                Ok(pruned) => taken.pruned = Some(pruned),
                // The backup is whole; the next one prunes.
                Err(error) => taken.warnings.push(format!("old backups were not removed: {error:#}")),
            }
        }
    }
    taken.cost.total_s = seconds_since(begun);
    Ok(taken)
}

/// Said of a dump that failed after its store had.
const STORE_STALLED_DUMP: &str = "the store failed, and the dump waited for longer than the server's \
                                  net_write_timeout (60 s by default). Run SET GLOBAL net_write_timeout = 600.";
/// No server has a larger max_allowed_packet.
const MAX_PACKET_BYTES: u64 = 1 << 30;

fn unencrypted_note(options: &BackupOptions) -> Option<String> {
    (options.git.is_some() && options.keys.encrypts())
        .then(|| "the git repository is not encrypted: keys apply to --to only".to_owned())
}

fn row_warning(longest_row_bytes: u64) -> Option<String> {
    (longest_row_bytes > MAX_PACKET_BYTES).then(|| {
        format!(
            "a row takes {} MB as a statement, above the maximum of any server (1 GiB): it cannot be \
             restored. Save it elsewhere too.",
            format_megabytes(longest_row_bytes as f64)
        )
    })
}

/// The dump's way into [`ContentSplitter`].
struct DumpReader<'a> {
    program: &'a Program,
    options: &'a OptionFile,
    source: &'a Source,
    throttle: Option<&'a toll_throttle::ThrottleOptions>,
    journal: &'a Journal,
    cancel: &'a CancelToken,
    progress: &'a dyn Fn(u64, u64),
}

/// What reading took.
struct DumpResult {
    dump: StageCost,
    split: StageCost,
    throttle: Option<toll_throttle::ThrottleSummary>,
    longest_row_bytes: u64,
    ended: Instant,
}

impl DumpReader<'_> {
    fn read_all(&self, mut content: ContentSplitter<'_>) -> Result<(Vec<FileSummary>, DumpResult)> {
        let begun = Instant::now();
        let cpu_before_us = clock::thread_cpu_us();
        let bytes = AtomicU64::new(0);
        let seen = |read: usize| {
            let so_far = bytes.fetch_add(read as u64, Ordering::Relaxed) + read as u64;
            (self.progress)(so_far, self.source.estimated_bytes);
            Ok(())
        };
        let start = |options: &[String], what| {
            DumpProcess::start(
                self.program,
                options,
                self.options,
                &self.source.schemas,
                what,
                self.journal,
                self.cancel,
            )
        };
        let asked = self.throttle.cloned();
        let throttle = asked.map(|asked| Throttle::start(asked, self.journal)).transpose()?;
        let (dump, stream) = start(&self.program.options(), "the dump")?;
        let rows = match &throttle {
            None => dump.finish(content.read(stream, seen)),
            Some(throttle) => {
                let limiter = throttle.limiter();
                let rows = dump.finish(content.read(ThrottledReader::new(stream, Arc::clone(limiter)), seen));
                // Its reason says more than that the dump broke off.
                match limiter.close_reason() {
                    Some(why) => Err(anyhow!("{why}; the dump is incomplete")),
                    None => rows,
                }
            }
        }?;
        let throttle_summary = throttle.map(Throttle::finish).transpose()?;
        let (dump, stream) =
            start(&self.program.options_for_bodies(), "the dump of triggers, routines and events")?;
        let bodies = dump.finish(content.read_bodies(stream, seen))?;
        let ProcessUsage { cpu_s, memory_peak_bytes } = rows.combine(bodies);
        let longest_row_bytes = content.longest_row_bytes();
        let files = content.finish()?;
        let time_s = seconds_since(begun);
        let bytes_read = bytes.load(Ordering::Relaxed);
        let dump = StageCost { time_s, cpu_s, bytes_read, bytes_stored: 0, memory_peak_bytes };
        let cpu_s = (clock::thread_cpu_us() - cpu_before_us) as f64 / 1e6;
        let memory_peak_bytes = cost::own_peak_bytes();
        let split = StageCost { time_s, cpu_s, bytes_read, bytes_stored: 0, memory_peak_bytes };
        Ok((
            files,
            DumpResult { dump, split, throttle: throttle_summary, longest_row_bytes, ended: Instant::now() },
        ))
    }
}

fn git_tree(source: &Source, program: &Program, read: &DumpResult) -> Tree {
    Tree {
        format: crate::archive::git::FORMAT,
        source: TreeSource::from_source(&source_server(source)),
        program: dump_program(program),
        schemas: source.schemas.clone(),
        files: Vec::new(),
        definers: source.definers.clone(),
        warnings: source.remarks(),
        longest_row_bytes: read.longest_row_bytes,
    }
}

fn finish_commit(
    import: GitImport<'_>,
    stream: FastImport<BufWriter<ChildStdin>>,
    files: &[FileSummary],
    tree: Tree,
    sign_key: Option<&SignKey>,
    dump_ended: Instant,
    unix_ms: u64,
) -> Result<(CommitSummary, StageCost)> {
    let bytes_read = stream.written();
    let message = format!("{} of {} {}", tree.schemas.join(", "), tree.source.flavour, tree.source.version);
    let (committed, used) =
        import.finish(stream, files.to_vec(), tree, sign_key, &message, unix_ms / 1000)?;
    let stage = StageCost {
        // What it adds to the dump, beside which the blobs were written.
        time_s: seconds_since(dump_ended),
        cpu_s: used.cpu_s,
        bytes_read,
        bytes_stored: committed.repository_bytes.saturating_sub(committed.repository_bytes_before),
        memory_peak_bytes: used.memory_peak_bytes,
    };
    Ok((committed, stage))
}

/// A backup on its way into a store.
struct StoreUpload {
    store: Arc<Store>,
    encoder: crate::archive::PieceEncoder,
    decoder: crate::archive::PieceDecoder,
    marker: ActivityMarker,
    uploader: Uploader,
    cancel: CancelToken,
    /// For how long a prune that stands in the way is waited for.
    prune_timeout: Duration,
    begun: Instant,
    cpu_before_s: f64,
}

/// What there is to be kept.
struct DumpContent {
    files: Vec<FileSummary>,
    longest_row_bytes: u64,
    begun_unix_ms: u64,
    cpu_of_others_s: f64,
}

impl StoreUpload {
    fn start(place: &StoreLocation, keys: &KeyOptions, id: &str, cancel: &CancelToken) -> Result<Self> {
        let begun = Instant::now();
        let cpu_before_s = cost::own_cpu_s()?;
        let store = store_location::open_store(place, true, cancel)?;
        let (sealing, opening) = keys.for_writing(&store)?;
        let owner = store_location::current_owner()?;
        let running =
            ActivityMarker::start_backup(store.clone(), id, &owner, is_alive, place.retry_for, cancel)?;
        let named: Option<HashSet<_>> = if running.trusts_unreferenced() {
            None
        } else {
            Some(prune::referenced_pieces(&store, &opening)?)
        };
        let trusted =
            |name: &crate::archive::ContentHash| named.as_ref().is_none_or(|named| named.contains(name));
        let upload = Uploader::start(
            store.clone(),
            sealing.clone(),
            opening.clone(),
            REREAD_ONE_OF,
            trusted,
            Arc::new(UploadProgress::default()),
        )?;
        let wait = place.retry_for;
        let cancel = cancel.clone();
        Ok(Self {
            store,
            encoder: sealing,
            decoder: opening,
            marker: running,
            uploader: upload,
            cancel,
            prune_timeout: wait,
            begun,
            cpu_before_s,
        })
    }

    fn finish(
        self,
        taken: &mut BackupSummary,
        program: &Program,
        kept: DumpContent,
    ) -> Result<(Totals, StageCost)> {
        let Self {
            store,
            encoder: sealing,
            marker: mut running,
            uploader: upload,
            cancel,
            prune_timeout: wait,
            begun,
            cpu_before_s,
            ..
        } = self;
        let DumpContent { files, longest_row_bytes, begun_unix_ms, cpu_of_others_s } = kept;
        running.wait_for_prunes(wait, &cancel)?;
        let uploaded: UploadSummary = upload.finish(files)?;
        taken.warnings.extend(uploaded.damage);
        taken.notes.extend(uploaded.unread);
        let totals = Totals {
            bytes: taken.bytes,
            rows: taken.rows,
            pieces: uploaded.files.iter().map(|file| file.pieces.len() as u64).sum(),
            stored_bytes: uploaded.stored_bytes,
            new_pieces: uploaded.new_pieces,
            new_stored_bytes: uploaded.new_stored_bytes,
            reread_pieces: uploaded.reread_pieces,
            longest_row_bytes,
        };
        let manifest = Manifest {
            format: crate::archive::FORMAT,
            id: taken.id.clone(),
            begun_unix_ms,
            ended_unix_ms: clock::wall_us() / 1000,
            source: source_server(&taken.source),
            program: dump_program(program),
            schemas: taken.source.schemas.clone(),
            name_key: sealing.name_key(),
            totals,
            files: uploaded.files,
            definers: taken.source.definers.clone(),
            warnings: [taken.warnings.as_slice(), &taken.notes].concat(),
        };
        prune::write_index(&store, &sealing, &manifest.id, manifest.pieces().map(|piece| piece.name()))?;
        // After a signal there is to be no backup that the user thinks broken off.
        cancel.check()?;
        sealing.check_key(&store)?;
        running.ensure_valid()?;
        let listed = manifest.write(&store, &sealing)?;
        // The store may have been asked for it again and again: meanwhile a prune may have taken this backup for dead.
        if let Err(doubt) = running.ensure_was_valid() {
            store.delete(&listed.object)?;
            return Err(doubt.into());
        }
        let stage = StageCost {
            time_s: seconds_since(begun),
            cpu_s: (cost::own_cpu_s()? - cpu_before_s - cpu_of_others_s).max(0.0),
            bytes_read: totals.bytes,
            bytes_stored: totals.new_stored_bytes + listed.manifest_bytes,
            memory_peak_bytes: cost::own_peak_bytes(),
        };
        Ok((totals, stage))
    }
}

fn source_server(source: &Source) -> crate::archive::SourceServer {
    crate::archive::SourceServer {
        flavour: source.flavour.name().to_owned(),
        version: source.version.to_string(),
        address: source.address.clone(),
        host: source.identity.host.clone(),
        server_id: source.identity.id.clone(),
        name: source.name.clone(),
    }
}

fn dump_program(program: &Program) -> crate::archive::DumpProgram {
    crate::archive::DumpProgram {
        version: program.version.clone(),
        options: program.options(),
        options_for_bodies: program.options_for_bodies(),
    }
}
