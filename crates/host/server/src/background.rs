//! Background sandbox server that outlives the command that started it.
//!
//! At most one exists. Its undo journal is handed over to the server process itself. So `toll clean` leaves
//! it alone while it runs, and cleans up after it has died.

use super::{Sandbox, SandboxSpec};
use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use toll_journal::{CleanState, Journal};
use toll_sys::process::{self, ProcessId, Termination};
use toll_sys::{paths, private_file};

/// State of the running server for later commands. Contains no password: `defaults_file` does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct BackgroundServer {
    pub run_id: String,
    pub process: ProcessId,
    pub flavour: String,
    pub version: String,
    pub port: u16,
    pub socket: PathBuf,
    pub datadir: PathBuf,
    /// For client programs: `--defaults-extra-file`.
    pub defaults_file: PathBuf,
    pub user: String,
    pub config: Vec<String>,
}

impl BackgroundServer {
    /// The running server, if any. First removes what a dead one left.
    pub fn find_running() -> Result<Option<Self>> {
        let path = state_file()?;
        let text = match std::fs::read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            other => other.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let found: Self = serde_json::from_slice(&text)
            .with_context(|| format!("{} is damaged: remove it, then run toll clean", path.display()))?;
        if found.process.is_alive() {
            return Ok(Some(found));
        }
        found.clean_up()?;
        Ok(None)
    }

    /// Starts one. `start` creates the sandbox (with or without prepared data).
    pub fn start(
        spec: &SandboxSpec,
        start: impl FnOnce(&SandboxSpec, &Journal) -> Result<Sandbox>,
    ) -> Result<(Self, Vec<String>)> {
        if let Some(running) = Self::find_running()? {
            bail!(
                "a sandbox server is running already (pid {}, port {}): toll server stop ends it",
                running.process.pid,
                running.port
            );
        }
        let own = ProcessId::current()?;
        let journal = Journal::begin(&format!("server-{}-{}", own.pid, own.start_ticks))?;
        let started = start(spec, &journal).and_then(|sandbox| {
            let background = Self::from_sandbox(&sandbox, &journal);
            background.write_state().map(|()| (sandbox, background))
        });
        match started {
            Ok((sandbox, background)) => {
                let warnings = sandbox.warnings().to_vec();
                journal.transfer_to(background.process)?;
                sandbox.detach();
                Ok((background, warnings))
            }
            Err(error) => {
                let undone = journal.undo_all();
                match undone.failures.as_slice() {
                    [] => Err(error),
                    failures => {
                        Err(error.context(format!("these were not removed: {}", failures.join("; "))))
                    }
                }
            }
        }
    }

    /// Stops the server and removes all its files.
    pub fn stop(self) -> Result<Termination> {
        let ending =
            process::terminate_group(self.process, &self.run_id, Signal::SIGTERM, Duration::from_secs(30));
        if ending == Termination::Stuck {
            bail!("the sandbox server (pid {}) {ending}", self.process.pid);
        }
        self.clean_up()?;
        Ok(ending)
    }

    fn from_sandbox(sandbox: &Sandbox, journal: &Journal) -> Self {
        Self {
            run_id: journal.run_id().to_owned(),
            process: sandbox.process(),
            flavour: sandbox.flavour().name().to_owned(),
            version: sandbox.version().to_string(),
            port: sandbox.port(),
            socket: sandbox.socket().to_owned(),
            datadir: sandbox.datadir(),
            defaults_file: sandbox.client_defaults(),
            user: super::config::SANDBOX_USER.to_owned(),
            config: sandbox.config().to_vec(),
        }
    }

    fn write_state(&self) -> Result<()> {
        private_file::write(&state_file()?, &serde_json::to_string_pretty(self)?)
    }

    fn clean_up(&self) -> Result<()> {
        if let Some(cleaned) = toll_journal::clean_run(&paths::journal_dir()?, &self.run_id)
            && let CleanState::Undone(undone) = cleaned.state
            && !undone.failures.is_empty()
        {
            bail!("the sandbox server has ended but left: {}", undone.failures.join("; "));
        }
        let path = state_file()?;
        std::fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))
    }
}

fn state_file() -> Result<PathBuf> {
    Ok(paths::state_dir()?.join("server.json"))
}
