//! Initialisation of an empty data directory.
//!
//! The commands differ completely between MySQL and MariaDB. Both produce a directory that a server starts
//! from. Never starts a server that listens.

use super::program::{Flavour, ServerProgram};
use super::unprivileged::UnprivilegedUser;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use toll_journal::Journal;
use toll_sys::cancel::CancelToken;
use toll_sys::child_process;

/// MySQL writes and syncs some 150 MB; a slow disk takes a minute.
const INIT_TIMEOUT: Duration = Duration::from_secs(300);

/// Makes `home/data` (which must not exist); what the program says goes to `home/init.log`.
pub(super) fn initialise(
    program: &ServerProgram,
    home: &Path,
    user: Option<UnprivilegedUser>,
    journal: &Journal,
    cancel: &CancelToken,
) -> Result<()> {
    let (datadir, log) = (&home.join("data"), &home.join("init.log"));
    std::fs::create_dir(datadir).with_context(|| format!("cannot make {}", datadir.display()))?;
    let mut command = match program.flavour {
        Flavour::Mariadb => {
            let installer = program.companion_program(&["mariadb-install-db", "mysql_install_db"]).context(
                "no mariadb-install-db beside the server or on PATH: it makes the data directory \
                 (apt-get install mariadb-server)",
            )?;
            let mut command = child_process::clean_env_command(installer);
            command.args(["--no-defaults", "--auth-root-authentication-method=socket"]);
            command.args(["--skip-test-db", "--skip-name-resolve"]);
            command
        }
        Flavour::Mysql | Flavour::Percona => {
            let mut command = child_process::clean_env_command(&program.path);
            command.args(["--no-defaults", "--initialize-insecure"]);
            command
        }
    };
    command.arg(format!("--basedir={}", program.basedir.display()));
    command.arg(format!("--datadir={}", datadir.display()));
    // A server that starts deletes temporary tables it finds in its tmpdir: in a shared one, those of
    // every other server of this host.
    command.arg(format!("--tmpdir={}", home.join("tmp").display()));
    match user {
        Some(user) => {
            user.own(datadir)?;
            user.run_as(&mut command, home);
        }
        None if nix::unistd::geteuid().is_root() => {
            command.arg("--user=root");
        }
        None => {}
    }
    let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let what = "making of the data directory";
    let (mut child, id) = journal.spawn(&mut command, what, None, Duration::from_secs(2))?;
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Err(interrupted) = cancel.check() {
            journal.undo(id)?;
            child.wait()?;
            return Err(interrupted);
        }
        if begun.elapsed() > INIT_TIMEOUT {
            journal.undo(id)?;
            child.wait()?;
            bail!(
                "{what} took longer than {} s: is the disk that slow?\n{}",
                INIT_TIMEOUT.as_secs(),
                log_tail(log)
            );
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    journal.mark_done(id)?;
    if !status.success() {
        bail!(
            "cannot make a data directory in {} ({status}); its last words:\n{}",
            datadir.display(),
            log_tail(log)
        );
    }
    Ok(())
}

/// The last lines of a log, indented, for an error message; if they are advice rather than errors,
/// the last errors before them.
pub(super) fn log_tail(log: &Path) -> String {
    const LINES: usize = 12;
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[text.len().saturating_sub(8192)..]).into_owned();
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let mut last = lines[lines.len().saturating_sub(LINES)..].to_vec();
    if !last.iter().any(|line| line.contains("ERROR")) {
        let errors: Vec<&str> = lines.iter().copied().filter(|line| line.contains("ERROR")).collect();
        if !errors.is_empty() {
            last = errors[errors.len().saturating_sub(LINES)..].to_vec();
        }
    }
    if last.is_empty() {
        return format!("  ({} is empty)", log.display());
    }
    last.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}
