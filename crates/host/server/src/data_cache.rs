//! Cache of prepared data directories, loaded once and used by many runs.
//!
//! A server that shut down cleanly leaves its data directory in the cache. A sandbox starts from a clone of
//! it. An entry gets its name only after it is complete. Never alters an entry.

use super::program::ServerProgram;
use super::{Sandbox, SandboxSpec, datadir};
use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use toll_journal::{Journal, Undo, quoted_name};
use toll_mysql::{Connection, Target};
use toll_sys::cancel::CancelToken;
use toll_sys::child_process;

/// Data to load into a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatasetSpec {
    /// Everything that determines the data; with the server's version it names a cache entry.
    pub key: String,
    /// In memory; on disk it takes no more.
    pub bytes: u64,
    /// What it is, for the user who waits: `8 tables of 10000 rows`.
    pub what: String,
}

/// Raised when data or layout of entries change, so that old ones are no longer found.
const LAYOUT_VERSION: u32 = 2;

/// Settings of a running server: servers that differ in these alone hold clones of the same data, so that
/// what is compared are the settings and not how pages happened to be filled.
const RUNTIME_SETTINGS: [&str; 25] = [
    "binlog_*",
    "innodb_adaptive_*",
    "innodb_buffer_pool_*",
    "innodb_doublewrite",
    "innodb_flush_*",
    "innodb_flushing_*",
    "innodb_io_capacity*",
    "innodb_log_buffer_size",
    "innodb_lru_*",
    "innodb_max_dirty_*",
    "innodb_page_cleaners",
    "innodb_purge_*",
    "innodb_read_io_threads",
    "innodb_use_native_aio",
    "innodb_write_io_threads",
    "log_bin",
    "log_slave_updates",
    "max_connections",
    "performance_schema*",
    "secure_file_priv",
    "server_id",
    "sync_binlog",
    "table_open_cache*",
    "thread_*",
    "transaction_isolation",
];

/// Starts a sandbox that holds `data`. `load` fills a running server and is only called when no
/// clone can be had; `tell` hears what is going on.
pub(super) fn start_from_cache(
    spec: &SandboxSpec,
    data: &DatasetSpec,
    journal: &Journal,
    tell: &dyn Fn(&str),
    load: impl FnOnce(&Target) -> Result<()>,
) -> Result<Sandbox> {
    let program = ServerProgram::find(spec.program.as_deref())?;
    let spec = SandboxSpec { data_bytes: data.bytes, ..spec.clone() };
    let (entry, lock) = ensure_entry(&spec, data, &program, journal, tell, load)?;
    let sandbox = Sandbox::start_with(&spec, program, journal, |_, home| {
        clone_datadir(&entry, &home.join("data"), &home.join("clone.log"), journal, &spec.cancel)
    });
    drop(lock);
    sandbox
}

/// Makes the cache's entry of `data` if it is missing, and starts no server on it.
pub fn prepare_data(
    spec: &SandboxSpec,
    data: &DatasetSpec,
    journal: &Journal,
    tell: &dyn Fn(&str),
    load: impl FnOnce(&Target) -> Result<()>,
) -> Result<()> {
    let program = ServerProgram::find(spec.program.as_deref())?;
    let spec = SandboxSpec { data_bytes: data.bytes, ..spec.clone() };
    ensure_entry(&spec, data, &program, journal, tell, load).map(drop)
}

/// The entry of `data`, made if it is missing, and the lock that keeps it while it is cloned.
fn ensure_entry(
    spec: &SandboxSpec,
    data: &DatasetSpec,
    program: &ServerProgram,
    journal: &Journal,
    tell: &dyn Fn(&str),
    load: impl FnOnce(&Target) -> Result<()>,
) -> Result<(PathBuf, Flock<File>)> {
    let cache = spec.cache_dir()?.join("prepared");
    std::fs::create_dir_all(&cache).with_context(|| format!("cannot make {}", cache.display()))?;
    let entry = cache.join(cache_key(program, spec, data));
    // Shared while cloning, exclusive while making: whoever comes second waits, then clones.
    let mut lock = lock_entry(&entry, FlockArg::LockShared, tell)?;
    if !entry.is_dir() {
        drop(lock);
        lock = lock_entry(&entry, FlockArg::LockExclusive, tell)?;
        if !entry.is_dir() {
            build_entry(&entry, spec, data, program, journal, tell, load)?;
        }
    }
    Ok((entry, lock))
}

/// Everything on which the bytes of a data directory depend.
fn cache_key(program: &ServerProgram, spec: &SandboxSpec, data: &DatasetSpec) -> String {
    let mut key = format!("{}-{}-{}-v{LAYOUT_VERSION}", program.flavour.name(), program.version, data.key);
    let mut settings = data_settings(&spec.settings);
    if !settings.is_empty() {
        settings.sort();
        key.push_str(&format!("-{:016x}", fnv1a(settings.join("\n").as_bytes())));
    }
    key
}

/// Settings that bear on how data lies on disk. Page size and the like are fixed when it is made; which
/// ones do so is the server's business, so any but those known to leave it alone makes another entry.
fn data_settings(settings: &[String]) -> Vec<String> {
    let shapes = |setting: &&String| {
        let name = setting.split('=').next().unwrap_or_default().replace('-', "_");
        let name = name.strip_prefix("loose_").unwrap_or(&name);
        let leaves = |known: &&str| match known.strip_suffix('*') {
            Some(beginning) => name.starts_with(beginning),
            None => name == *known,
        };
        !RUNTIME_SETTINGS.iter().any(leaves)
    };
    settings.iter().filter(shapes).cloned().collect()
}

/// FNV-1a, 64 bits: the same in every build and on every host, unlike the standard hasher.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn lock_entry(entry: &Path, kind: FlockArg, tell: &dyn Fn(&str)) -> Result<Flock<File>> {
    // Not with_extension: a version's dots would be taken for one.
    let mut path = entry.as_os_str().to_owned();
    path.push(".lock");
    let path = Path::new(&path);
    let failed = || format!("cannot lock {}", path.display());
    let file = File::options().create(true).append(true).open(path).with_context(failed)?;
    let at_once = match kind {
        FlockArg::LockShared => FlockArg::LockSharedNonblock,
        _ => FlockArg::LockExclusiveNonblock,
    };
    match Flock::lock(file, at_once) {
        Ok(lock) => Ok(lock),
        Err((file, nix::errno::Errno::EWOULDBLOCK)) => {
            tell("another toll is preparing the same data: waiting for it");
            Flock::lock(file, kind).map_err(|(_, errno)| errno).with_context(failed)
        }
        Err((_, errno)) => Err(errno).with_context(failed),
    }
}

fn build_entry(
    entry: &Path,
    spec: &SandboxSpec,
    data: &DatasetSpec,
    program: &ServerProgram,
    journal: &Journal,
    tell: &dyn Fn(&str),
    load: impl FnOnce(&Target) -> Result<()>,
) -> Result<()> {
    let cache = entry.parent().unwrap_or(entry);
    // The entry itself, and a clone of it where the file system cannot share blocks.
    let needed = 2 * data.bytes + (512 << 20);
    let free = toll_sys::disk::free_bytes(cache)?;
    if free < needed {
        bail!(
            "{} has {} MB free and the data needs {} MB: use fewer --rows, or set XDG_CACHE_HOME \
             to a directory with more room",
            cache.display(),
            free / 1_000_000,
            needed / 1_000_000
        );
    }
    tell(&format!(
        "preparing {} for {} {} (once; kept in {})",
        data.what,
        program.flavour.name(),
        program.version,
        cache.display()
    ));
    let mut loading = SandboxSpec { port: None, settings: data_settings(&spec.settings), ..spec.clone() };
    // What a crash would lose is thrown away anyway: no half-made entry is ever used.
    loading.settings.push("innodb_flush_log_at_trx_commit=0".into());
    loading.settings.push("innodb_doublewrite=OFF".into());
    // Nothing is left to purge or merge in the windows of a run.
    loading.settings.push("innodb_fast_shutdown=0".into());
    let sandbox = Sandbox::start_with(&loading, program.clone(), journal, |program, home| {
        datadir::initialise(program, home, None, journal, &loading.cancel)
    })?;
    let loaded = load(&sandbox.unix_target()).and_then(|()| analyse_tables(&sandbox.unix_target()));
    if let Err(error) = loaded {
        let words = sandbox.error_log_tail();
        sandbox.stop(journal)?;
        return Err(
            error.context(format!("cannot load the data; the end of the server's error log:\n{words}"))
        );
    }
    let half_made = cache.join(format!("half-made-{}", journal.run_id()));
    let id = journal.record(Undo::Path { path: half_made.clone() })?;
    let moved = sandbox.stop_keeping_data(journal, &half_made).and_then(|()| {
        sync_dir(&half_made)?;
        std::fs::rename(&half_made, entry).with_context(|| format!("cannot make {}", entry.display()))?;
        sync_dir(cache)
    });
    match moved {
        Ok(()) => journal.mark_done(id),
        Err(error) => {
            journal.undo(id)?;
            Err(error)
        }
    }
}

/// Statistics are made now and stay: recalculated in the background, they would change plans in the
/// middle of a run.
fn analyse_tables(target: &Target) -> Result<()> {
    let mut connection = Connection::connect(target)?;
    let tables = connection.query(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' \
         AND table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')",
    )?;
    for (schema, table) in tables.pairs() {
        let analyse = format!("ANALYZE TABLE {}.{}", quoted_name(schema), quoted_name(table));
        connection.exec_drop(&analyse).with_context(|| format!("the server refused `{analyse}`"))?;
    }
    Ok(())
}

/// Copies the entry, sharing blocks where the file system can, and waits until the copy has reached
/// the disk: written back later, it would be a stall in somebody's window.
fn clone_datadir(
    entry: &Path,
    datadir: &Path,
    log: &Path,
    journal: &Journal,
    cancel: &CancelToken,
) -> Result<()> {
    let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = child_process::clean_env_command("cp");
    command.args(["--recursive", "--reflink=auto", "--sparse=auto", "--preserve=mode", "--"]);
    command.arg(entry).arg(datadir).stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let (mut child, id) = journal.spawn(&mut command, "clone of the data", None, Duration::from_secs(1))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Err(interrupted) = cancel.check() {
            child.kill()?;
            child.wait()?;
            journal.mark_done(id)?;
            return Err(interrupted);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    journal.mark_done(id)?;
    if !status.success() {
        bail!("cannot clone {} to {}:\n{}", entry.display(), datadir.display(), datadir::log_tail(log));
    }
    sync_dir(datadir)
}

/// Everything of this directory's file system reaches the disk.
fn sync_dir(dir: &Path) -> Result<()> {
    let dir_file = File::open(dir).with_context(|| format!("cannot open {}", dir.display()))?;
    nix::unistd::syncfs(dir_file.as_fd()).with_context(|| format!("cannot write {} to disk", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::data_settings;

    #[test]
    fn servers_that_differ_only_in_how_they_run_share_their_data() {
        let settings = |all: &[&str]| all.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        let running =
            ["innodb_doublewrite=OFF", "performance-schema-instrument=%=OFF", "log_bin", "sync_binlog=1"];
        assert_eq!(data_settings(&settings(&running)), [""; 0]);
        let made = settings(&["innodb_page_size=8k", "innodb_doublewrites=1", "plugin-load-add=x"]);
        assert_eq!(data_settings(&made), made);
    }
}
