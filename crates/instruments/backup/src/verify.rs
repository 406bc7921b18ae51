//! Verification of a backup by a test restore.
//!
//! The backup is loaded into a sandbox server of toll's own, which is dumped with the same options. Then the
//! row counts of each table are compared, and the bytes of its rows and definition. So the original server
//! need not be idle, nor even exist any more.

use super::cost::seconds_since;
use super::dump::DumpProcess;
use super::program::{DUMP_HISTORY, OptionFile, Program};
use super::restore::{BackupOrigin, feed_client};
use super::scratch_accounts::restrict_accounts;
use super::source::query_column;
use crate::archive::restore::ContentCheck;
use crate::archive::sections::SectionKind;
use crate::archive::{ContentHash, ContentSplitter, FileSummary};
use anyhow::{Context, Result};
use nix::unistd::geteuid;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;
use toll_journal::{Journal, quoted_name};
use toll_mysql::{Connection, Target};
use toll_server::{Sandbox, SandboxSpec, UnprivilegedUser};
use toll_sys::cancel::CancelToken;

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct VerifySummary {
    pub backup: String,
    /// Of the scratch server.
    pub server: String,
    pub tables: u64,
    pub rows: u64,
    pub bytes: u64,
    /// Definitions are compared only where the scratch server is of the same version: another one writes the same
    /// table in other words.
    pub definitions_compared: bool,
    /// Loading alone: the time to restore.
    pub restore_s: f64,
    pub total_s: f64,
    /// In sentences; none: the backup is what was backed up.
    pub differences: Vec<String>,
}

/// Loads a backup into a scratch server and looks at what is there then. `seen` is told how many bytes have gone
/// in, of how many.
pub fn verify(
    origin: &BackupOrigin,
    server_bin: Option<PathBuf>,
    cancel: &CancelToken,
    seen: &dyn Fn(u64, u64),
) -> Result<VerifySummary> {
    let journal = Journal::begin(&format!("verify-{}", super::store_location::new_id()))
        .context("nothing was changed")?;
    let verified = verify_in_sandbox(origin, server_bin, &journal, cancel, seen);
    let undone = journal.undo_all();
    let verified = verified?;
    match undone.failures.as_slice() {
        [] => Ok(verified),
        failures => anyhow::bail!("verified, but these were not removed: {}", failures.join("; ")),
    }
}

/// Reads all that is stored of a backup, and checks it against its manifest; needs no server.
pub fn check_stored(origin: &BackupOrigin, cancel: &CancelToken, seen: &dyn Fn(u64, u64)) -> Result<()> {
    let (mut so_far, whole) = (0, origin.bytes());
    let mut check = ContentCheck::begin();
    origin.read_files(|file, bytes| {
        so_far += bytes.len() as u64;
        seen(so_far, whole);
        if cancel.is_cancelled() {
            return Err(toll_store::Error::Interrupted);
        }
        check.feed(file, bytes)
    })?;
    Ok(check.finish(origin.name(), &origin.files())?)
}

fn verify_in_sandbox(
    origin: &BackupOrigin,
    program: Option<PathBuf>,
    journal: &Journal,
    cancel: &CancelToken,
    seen: &dyn Fn(u64, u64),
) -> Result<VerifySummary> {
    let begun = Instant::now();
    // Whatever the backup's statements have the server do: it can do no more than a user without any files.
    let user = match geteuid().is_root() {
        true => Some(UnprivilegedUser::allocate().context(
            "a backup's statements do not run as root. Run toll backup verify as another user, or use --stored-only",
        )?),
        false => None,
    };
    let spec = SandboxSpec {
        program,
        data_bytes: origin.bytes().max(SandboxSpec::default().data_bytes),
        settings: vec![
            // The longest row that a dump may hold.
            "max_allowed_packet=1G".into(),
            // Nobody needs this server after a crash.
            "innodb_flush_log_at_trx_commit=0".into(),
            "event_scheduler=OFF".into(),
        ],
        user,
        cancel: cancel.clone(),
        ..SandboxSpec::default()
    };
    let sandbox = Sandbox::start(&spec, journal)?;
    let flavour = sandbox.flavour();
    let loader = restrict_accounts(&sandbox, origin.schemas(), origin.definers())?;
    let client = Program::for_restores(flavour)?;
    let options = OptionFile::write(&loader, &client, journal)?;

    let loading = Instant::now();
    let mut bodies = BodiesHasher::default();
    let mut tap = |file: &FileSummary, bytes: &[u8]| {
        if file.file.kind == SectionKind::Bodies {
            bodies.update(bytes);
        }
    };
    feed_client(origin, &client, &options, journal, cancel, seen, &mut tap)
        .context("cannot load the backup into the scratch server")?;
    let restore_s = seconds_since(loading);

    let definitions_compared = origin.server() == (flavour, sandbox.version().to_string().as_str());
    let mut differences = compare_row_counts(origin, &loader, cancel)?;
    let mut program = Program::for_dumps(flavour, None)?;
    if origin.options().iter().any(|option| option == DUMP_HISTORY) {
        program.enable_history(sandbox.version());
    }
    let (found, found_bodies) = dump_sandbox(origin, &program, &options, journal, cancel)?;
    differences.extend(compare_files(&origin.files(), &found, definitions_compared));
    if definitions_compared && bodies.digest() != found_bodies.digest() {
        differences.push("triggers, routines or events differ from the dump".into());
    }

    let server = format!("{} {}", flavour.name(), sandbox.version());
    sandbox.stop(journal)?;
    let tables = origin.files().iter().filter(|file| file.file.kind == SectionKind::Table).count() as u64;
    Ok(VerifySummary {
        backup: origin.name().to_owned(),
        server,
        tables,
        rows: origin.rows(),
        bytes: origin.bytes(),
        definitions_compared,
        restore_s,
        total_s: seconds_since(begun),
        differences,
    })
}

/// Rows of each table, as the scratch server counts them.
fn compare_row_counts(origin: &BackupOrigin, loader: &Target, cancel: &CancelToken) -> Result<Vec<String>> {
    let mut connection = Connection::connect(loader)?;
    let versioned = "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables \
                     WHERE table_type = 'SYSTEM VERSIONED'";
    let versioned = query_column(&mut connection, versioned)?;
    let mut differences = Vec::new();
    for file in origin.files().into_iter().filter(|file| file.file.kind == SectionKind::Table) {
        cancel.check()?;
        let table = format!("{}.{}", quoted_name(&file.file.schema), quoted_name(&file.file.name));
        let own = format!("{}.{}", file.file.schema, file.file.name);
        let all = if versioned.contains(&own) { " FOR SYSTEM_TIME ALL" } else { "" };
        let found = query_column(&mut connection, &format!("SELECT COUNT(*) FROM {table}{all}"))?;
        if found.first().and_then(|count| count.parse().ok()) != Some(file.rows) {
            let found = found.first().map_or("no answer", String::as_str);
            differences.push(format!("{table} has {found} rows, and {} were dumped", file.rows));
        }
    }
    Ok(differences)
}

fn dump_sandbox(
    origin: &BackupOrigin,
    program: &Program,
    options: &OptionFile,
    journal: &Journal,
    cancel: &CancelToken,
) -> Result<(Vec<FileSummary>, BodiesHasher)> {
    let mut content = ContentSplitter::new(Vec::new());
    let schemas = origin.schemas();
    let what = "the dump of the scratch server";
    let (dump, stream) =
        DumpProcess::start(program, &program.options(), options, schemas, what, journal, cancel)?;
    dump.finish(content.read(stream, |_| Ok(())))?;
    let (dump, stream) =
        DumpProcess::start(program, &program.options_for_bodies(), options, schemas, what, journal, cancel)?;
    let mut bodies = BodiesHasher::default();
    dump.finish(content.read_bodies(BodiesReader { inner: stream, bodies: &mut bodies }, |_| Ok(())))?;
    Ok((content.finish()?, bodies))
}

fn compare_files(expected: &[&FileSummary], found: &[FileSummary], definitions: bool) -> Vec<String> {
    let found: HashMap<&str, &FileSummary> =
        found.iter().map(|file| (file.file.path.as_str(), file)).collect();
    // The head names the host; what has bodies is compared by itself.
    let compared = expected.iter().filter(|file| {
        !matches!(file.file.kind, SectionKind::Head | SectionKind::Tail | SectionKind::Bodies)
    });
    let differs = |file: &&&FileSummary| -> Option<String> {
        let path = &file.file.path;
        let Some(found) = found.get(path.as_str()) else {
            return (definitions || file.file.kind == SectionKind::Table)
                .then(|| format!("{path} is missing"));
        };
        if found.rows_sha256 != file.rows_sha256 {
            return Some(format!("{path}: rows differ from the dump"));
        }
        let same = !definitions || found.definition_sha256 == file.definition_sha256;
        (!same).then(|| format!("{path}: definition differs from the dump"))
    };
    compared.filter_map(|file| differs(&file)).collect()
}

/// What has bodies, without the comments that it begins with: they name the host.
#[derive(Debug, Default)]
struct BodiesHasher {
    /// The line that has begun, while the beginning goes on.
    line: Vec<u8>,
    begun: bool,
    text: Sha256,
}

impl BodiesHasher {
    fn update(&mut self, bytes: &[u8]) {
        if self.begun {
            self.text.update(bytes);
            return;
        }
        for (at, &byte) in bytes.iter().enumerate() {
            self.line.push(byte);
            if byte != b'\n' {
                continue;
            }
            let is_comment = self.line.starts_with(b"--") || self.line.starts_with(b"/*M!");
            if !is_comment && self.line != b"\n" {
                self.begun = true;
                self.text.update(&self.line);
                self.text.update(&bytes[at + 1..]);
                return;
            }
            self.line.clear();
        }
    }

    fn digest(&self) -> ContentHash {
        ContentHash(self.text.clone().finalize().into())
    }
}

/// Shows what is read on its way.
struct BodiesReader<'a, R> {
    inner: R,
    bodies: &'a mut BodiesHasher,
}

impl<R: Read> Read for BodiesReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.bodies.update(&buffer[..read]);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_the_same_wherever_they_come_from_and_however_they_arrive() {
        let text = |host: &str, body: &str| {
            format!("/*M! x */\n-- Host: {host}\n\n/*!40101 SET x */;\n{body}\n-- Host: x\n")
        };
        let digest = |text: &str, step: usize| {
            let mut bodies = BodiesHasher::default();
            text.as_bytes().chunks(step).for_each(|chunk| bodies.update(chunk));
            bodies.digest()
        };
        let here = text("here", "BEGIN END");
        assert_eq!(digest(&here, 1000), digest(&text("there", "BEGIN END"), 3));
        assert_ne!(digest(&here, 1000), digest(&text("here", "BEGIN  END"), 1000));
    }
}
