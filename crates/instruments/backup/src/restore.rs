//! Restore of a backup to a server, a file or a stream.
//!
//! The client program reads the dump's output, byte for byte, from the store or from git. Never overwrites
//! schemas that hold tables, except with the option for it.

use super::cost::seconds_since;
use super::program::{OptionFile, Program};
use super::repository::Repository;
use super::server_identity::ServerIdentity;
use super::source::{query_column, sql_literal};
use crate::archive::git::Tree;
use crate::archive::{FileSummary, Manifest, PieceDecoder};
use anyhow::{Context, Result, anyhow, bail};
use std::io::{ErrorKind, Read, Write};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};
use toll_journal::Journal;
use toll_mysql::{Connection, Target};
use toll_server::{ExternalServer, Flavour};
use toll_store::Store;
use toll_sys::atomic_file::AtomicFile;
use toll_sys::cancel::CancelToken;

/// A backup that was found.
pub enum BackupOrigin {
    Store { store: Arc<Store>, opening: PieceDecoder, manifest: Box<Manifest> },
    Git { repository: Repository, commit: String, tree: Box<Tree>, unix_s: i64 },
}

/// Where it goes.
pub enum RestoreTarget<'a> {
    /// `overwrite`: tables, views, routines and events that are there are dropped where the backup holds some of their
    /// names. `other_server`: the server need not be the one that was backed up.
    Server {
        target: &'a Target,
        overwrite: bool,
        other_server: bool,
    },
    /// A file that is not there yet. It has its name once it is whole and on the disk.
    File(&'a Path),
    Output(&'a mut dyn Write),
}

/// A backup that was restored.
#[derive(Debug, Clone, serde::Serialize)]
pub struct RestoreSummary {
    pub backup: String,
    pub schemas: Vec<String>,
    pub bytes: u64,
    pub rows: u64,
    pub time_s: f64,
}

impl BackupOrigin {
    /// As the user calls it.
    pub fn name(&self) -> &str {
        match self {
            Self::Store { manifest, .. } => &manifest.id,
            Self::Git { commit, .. } => commit,
        }
    }

    pub fn schemas(&self) -> &[String] {
        match self {
            Self::Store { manifest, .. } => &manifest.schemas,
            Self::Git { tree, .. } => &tree.schemas,
        }
    }

    /// Family and version of the server that was dumped.
    pub fn server(&self) -> (Flavour, &str) {
        match self {
            Self::Store { manifest, .. } => {
                (Flavour::detect(&manifest.source.flavour), &manifest.source.version)
            }
            Self::Git { tree, .. } => (Flavour::detect(&tree.source.flavour), &tree.source.version),
        }
    }

    /// The server's identity, and its host's name; empty where they are not known.
    fn identity(&self) -> (&str, &str) {
        match self {
            Self::Store { manifest, .. } => (&manifest.source.server_id, &manifest.source.host),
            Self::Git { tree, .. } => (&tree.source.server_id, &tree.source.host),
        }
    }

    /// Given by the administrator (`--source`).
    fn source_name(&self) -> Option<&str> {
        match self {
            Self::Store { manifest, .. } => manifest.source.name.as_deref(),
            Self::Git { tree, .. } => tree.source.name.as_deref(),
        }
    }

    /// Which server it is of, and of when, in a sentence's words.
    pub fn describe(&self) -> String {
        let (flavour, version) = self.server();
        let (_, host) = self.identity();
        let (source, address, unix_s) = match self {
            Self::Store { manifest, .. } => {
                let source = manifest.id.splitn(3, '-').nth(2).unwrap_or_default();
                (source, format!(" ({})", manifest.source.address), manifest.begun_unix_ms as i64 / 1000)
            }
            Self::Git { tree, unix_s, .. } => {
                (tree.source.name.as_ref().unwrap_or(&tree.source.server_id).as_str(), String::new(), *unix_s)
            }
        };
        let time = jiff::Timestamp::from_second(unix_s)
            .map_or_else(|_| "an unknown time".to_owned(), |time| time.strftime("%F %T UTC").to_string());
        format!("source {source}, host {host}{address}, {} {version}, taken {time}", flavour.name())
    }

    /// Accounts that views, triggers, routines and events run as, `user@host`.
    pub fn definers(&self) -> &[String] {
        match self {
            Self::Store { manifest, .. } => &manifest.definers,
            Self::Git { tree, .. } => &tree.definers,
        }
    }

    /// Of the program that dumped it.
    pub fn options(&self) -> &[String] {
        match self {
            Self::Store { manifest, .. } => &manifest.program.options,
            Self::Git { tree, .. } => &tree.program.options,
        }
    }

    /// 0: not known.
    pub fn longest_row_bytes(&self) -> u64 {
        match self {
            Self::Store { manifest, .. } => manifest.totals.longest_row_bytes,
            Self::Git { tree, .. } => tree.longest_row_bytes,
        }
    }

    pub fn files(&self) -> Vec<&FileSummary> {
        match self {
            Self::Store { manifest, .. } => manifest.files.iter().map(|file| &file.summary).collect(),
            Self::Git { tree, .. } => tree.files.iter().map(|file| &file.summary).collect(),
        }
    }

    pub fn bytes(&self) -> u64 {
        self.files().iter().fold(0, |sum, file| sum.saturating_add(file.bytes))
    }

    pub fn rows(&self) -> u64 {
        self.files().iter().fold(0, |sum, file| sum.saturating_add(file.rows))
    }

    /// Hands its bytes to `take`, in the order of the dump, each with the file that it is of.
    pub fn read_files(
        &self,
        mut take: impl FnMut(&FileSummary, &[u8]) -> toll_store::Result<()>,
    ) -> Result<()> {
        match self {
            Self::Store { store, opening, manifest } => {
                Ok(crate::archive::restore::read_pieces(store, opening, manifest, |file, bytes| {
                    take(&file.summary, bytes)
                })?)
            }
            Self::Git { repository, commit, tree, .. } => tree
                .files
                .iter()
                .try_for_each(|file| repository.read_file(commit, file, |bytes| take(&file.summary, bytes))),
        }
    }
}

/// Restores it. `seen` is told how many bytes have gone, of how many.
pub fn restore(
    origin: &BackupOrigin,
    onto: RestoreTarget<'_>,
    cancel: &CancelToken,
    seen: &dyn Fn(u64, u64),
) -> Result<RestoreSummary> {
    let begun = Instant::now();
    match onto {
        RestoreTarget::Output(output) => to_output(origin, output, cancel, seen)?,
        RestoreTarget::File(path) => to_file(path, |file| to_output(origin, file, cancel, seen))?,
        RestoreTarget::Server { target, overwrite, other_server } => {
            restore_to_server(origin, target, overwrite, other_server, cancel, seen)?
        }
    }
    Ok(RestoreSummary {
        backup: origin.name().to_owned(),
        schemas: origin.schemas().to_vec(),
        bytes: origin.bytes(),
        rows: origin.rows(),
        time_s: seconds_since(begun),
    })
}

fn to_output(
    origin: &BackupOrigin,
    output: &mut dyn Write,
    cancel: &CancelToken,
    seen: &dyn Fn(u64, u64),
) -> Result<()> {
    copy_to_client(origin, output, cancel, seen, &mut |_, _| {})?;
    output.flush().context("cannot write the dump")
}

fn to_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let taken = || format!("cannot create {}: the file exists. Choose another name.", path.display());
    // Before the backup is read: that may take hours.
    if path.symlink_metadata().is_ok() {
        bail!(taken());
    }
    let mut file = AtomicFile::begin(path).with_context(|| format!("cannot create {}", path.display()))?;
    write(&mut file)?;
    file.create().map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => anyhow!(taken()),
        _ => anyhow!(error).context(format!("cannot write {}", path.display())),
    })
}

fn restore_to_server(
    origin: &BackupOrigin,
    target: &Target,
    overwrite: bool,
    other_server: bool,
    cancel: &CancelToken,
    seen: &dyn Fn(u64, u64),
) -> Result<()> {
    let (server, there) = check_server(origin, target, other_server)?;
    if !there.is_empty() {
        let (address, named) = (&target.address, name_objects(&there));
        if !overwrite {
            bail!(
                "the server at {address} holds {named}: the restore would replace those that are in the backup. Restore to \
                 another server, or use --overwrite (objects that are not in the backup stay)."
            );
        }
        tracing::info!("replaced on the server at {address} if the backup holds it: {named}");
    }
    let journal = Journal::begin(&format!("restore-{}", super::store_location::new_id()))
        .context("nothing was changed")?;
    let program = Program::for_restores(server.flavour())?;
    let options = OptionFile::write(target, &program, &journal)?;
    let fed = feed_client(origin, &program, &options, &journal, cancel, seen, &mut |_, _| {});
    let undone = journal.undo_all();
    fed.with_context(|| format!("the server at {} is partially restored", target.address))?;
    match undone.failures.as_slice() {
        [] => Ok(()),
        failures => bail!("the backup is restored, but these were not removed: {}", failures.join("; ")),
    }
}

/// The server and what it holds in the backup's schemas, if the backup can be restored to it.
fn check_server(
    origin: &BackupOrigin,
    target: &Target,
    other_server: bool,
) -> Result<(ExternalServer, Vec<String>)> {
    let server = ExternalServer::connect(target, None)?;
    if !other_server {
        check_same_server(origin, &server)?;
    }
    check_max_packet(origin, &server)?;
    let there = existing_objects(origin, &server)?;
    Ok((server, there))
}

/// Existing objects, as `shop.orders (table)`, that a restore to this server replaces where the backup holds them.
/// Changes nothing.
///
/// # Errors
/// A server that the backup cannot be restored to. `other_server`: it need not be the one that was backed up.
pub fn preview_restore(origin: &BackupOrigin, target: &Target, other_server: bool) -> Result<Vec<String>> {
    check_server(origin, target, other_server).map(|(_, there)| there)
}

/// What the server has in the backup's schemas: `shop.orders (table)`. A dump drops what it makes.
fn existing_objects(origin: &BackupOrigin, server: &ExternalServer) -> Result<Vec<String>> {
    let schemas: Vec<String> = origin.schemas().iter().map(|name| sql_literal(name)).collect();
    let among = schemas.join(",");
    let of = |table: &str, schema: &str, name: &str, kind: &str| {
        format!(
            "SELECT CONCAT({schema}, '.', {name}, ' (', {kind}, ')') AS o FROM information_schema.{table} \
             WHERE {schema} IN ({among})"
        )
    };
    let all = [
        of("tables", "table_schema", "table_name", "IF(table_type = 'VIEW', 'view', 'table')"),
        of("routines", "routine_schema", "routine_name", "LOWER(routine_type)"),
        of("events", "event_schema", "event_name", "'event'"),
    ];
    let sql = format!("SELECT o FROM ({}) AS a ORDER BY o", all.join(" UNION ALL "));
    query_column(&mut Connection::connect(server.target())?, &sql)
}

/// Their names, as many as one reads.
fn name_objects(objects: &[String]) -> String {
    const MOST: usize = 20;
    let named = objects.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    match objects.len().saturating_sub(MOST) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

/// A backup of another server is restored on purpose only.
fn check_same_server(origin: &BackupOrigin, server: &ExternalServer) -> Result<()> {
    let found = ServerIdentity::find(server)?;
    if found.is_some_and(|found| is_same_server(origin.identity(), origin.source_name(), &found)) {
        return Ok(());
    }
    let host = server.variables().get("hostname").map(String::as_str).unwrap_or_default();
    bail!(
        "the server at {} (host {host}) is not known to be the one that was backed up: {}. Use --yes to restore to it. \
         Nothing was changed.",
        server.target().address,
        origin.describe()
    )
}

/// A name is given where ids do not tell servers apart, such as copies of one data directory: then the host counts, too.
fn is_same_server((id, host): (&str, &str), name: Option<&str>, found: &ServerIdentity) -> bool {
    !id.is_empty() && found.id == id && (name.is_none() || found.host == host)
}

/// A statement that the server does not take would end the restore in the middle.
fn check_max_packet(origin: &BackupOrigin, server: &ExternalServer) -> Result<()> {
    let longest = origin.longest_row_bytes();
    let most = server.variables().get("max_allowed_packet").and_then(|bytes| bytes.parse::<u64>().ok());
    match most.filter(|most| *most < longest) {
        None => Ok(()),
        Some(most) => bail!(
            "a row of the backup needs a statement of {longest} bytes; max_allowed_packet of the server at \
             {} is {most}. Run SET GLOBAL max_allowed_packet = {} there, and restore again. Nothing \
             was changed.",
            server.target().address,
            longest.next_multiple_of(1 << 20)
        ),
    }
}

const GRACE: Duration = Duration::from_secs(5);
/// How the client reads a backup.
///
/// What a row holds is no command of the client's, and what a body says in comments belongs to it. No statement of a
/// backup has the client send it a file of this host. A client whose connection is lost ends, as it does by itself
/// where nobody types: a new connection would know nothing of the settings that a dump begins with, nor of the rows
/// that were not committed. So none is to be lost for silence, while a store is waited for.
const CLIENT: [&str; 7] = [
    "--binary-mode",
    "--comments",
    "--default-character-set=utf8mb4",
    "--max-allowed-packet=1G",
    "--local-infile=0",
    "--skip-reconnect",
    "--init-command=SET SESSION wait_timeout = 86400",
];

/// Has the client program read the whole backup. `tap` is shown what goes by.
pub(super) fn feed_client(
    origin: &BackupOrigin,
    program: &Program,
    options: &OptionFile,
    journal: &Journal,
    cancel: &CancelToken,
    seen: &dyn Fn(u64, u64),
    tap: &mut dyn FnMut(&FileSummary, &[u8]),
) -> Result<()> {
    let arguments = CLIENT.map(str::to_owned);
    let mut command = program.command(&arguments, options);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let what = "the client that restores";
    let (mut child, id) = journal.spawn(&mut command, what, None, GRACE)?;
    let (Some(mut stdin), Some(mut stderr)) = (child.stdin.take(), child.stderr.take()) else {
        bail!("{what} has no input");
    };
    let complaints = std::thread::spawn(move || {
        let mut said = Vec::new();
        let _ = stderr.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    });
    // A client that waits for a lock reads nothing, and whoever writes to it waits with it.
    let end = || drop(journal.undo(id));
    let (fed, ended) = cancel.run_interruptible(end, || {
        let fed = copy_to_client(origin, &mut stdin, cancel, seen, tap);
        drop(stdin);
        (fed, child.wait())
    });
    let status = ended.context("cannot wait for the client that restores")?;
    journal.mark_done(id)?;
    let said = complaints.join().unwrap_or_default();
    if status.success() && fed.is_ok() {
        // A signal that came after the last byte has broken nothing off.
        return Ok(());
    }
    cancel.check()?;
    // A client that has ended early reads no more: why is in its own words.
    if !status.success() {
        let said: String = said.trim().chars().take(1000).collect();
        bail!("{what} ({}) failed ({status}): {said}", program.path.display());
    }
    fed
}

fn copy_to_client(
    origin: &BackupOrigin,
    to: &mut dyn Write,
    cancel: &CancelToken,
    seen: &dyn Fn(u64, u64),
    tap: &mut dyn FnMut(&FileSummary, &[u8]),
) -> Result<()> {
    let whole = origin.bytes();
    let mut so_far = 0;
    origin.read_files(|file, bytes| {
        if cancel.is_cancelled() {
            return Err(toll_store::Error::Interrupted);
        }
        to.write_all(bytes).map_err(|cause| toll_store::Error::Write { what: "the dump", cause })?;
        tap(file, bytes);
        so_far += bytes.len() as u64;
        seen(so_far, whole);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_named_server_is_another_server() {
        let found = ServerIdentity { id: "a-b-c".into(), host: "db2".into(), ..ServerIdentity::default() };
        assert!(is_same_server(("a-b-c", "db2"), Some("shop"), &found));
        assert!(!is_same_server(("a-b-c", "db1"), Some("shop"), &found));
        assert!(is_same_server(("a-b-c", "db1"), None, &found), "a host may get another name");
        assert!(!is_same_server(("", "db2"), None, &ServerIdentity { id: String::new(), ..found }));
    }

    #[test]
    fn a_dump_takes_no_files_place_and_what_breaks_off_leaves_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dump.sql");
        let write = |bytes: &'static [u8]| move |file: &mut dyn Write| Ok(file.write_all(bytes)?);
        let broken = to_file(&path, |file| {
            file.write_all(b"half")?;
            bail!("a piece is damaged")
        });
        assert_eq!(broken.unwrap_err().to_string(), "a piece is damaged");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);

        to_file(&path, write(b"whole")).unwrap();
        let refused = to_file(&path, |_| panic!("it is refused beforehand")).unwrap_err().to_string();
        assert!(refused.contains("the file exists"), "{refused}");
        let meanwhile = dir.path().join("meanwhile.sql");
        let refused = to_file(&meanwhile, |_| Ok(std::fs::write(&meanwhile, "somebody else's")?));
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("meanwhile.sql: the file exists"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"whole");
        assert_eq!(std::fs::read(&meanwhile).unwrap(), b"somebody else's");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
