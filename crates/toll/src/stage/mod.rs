//! What stands ready before the first trial: servers, far end, journal, places for files?

mod open;
mod watched;

pub use open::{Opened, ServerChoice, close, open};
pub use watched::Watched;

use crate::journal::Journal;
use crate::run::ServerLock;
use crate::treatment::{Admin, Bench, Fill, LogPlace, Remote};
use crate::workload::Endpoints;
use anyhow::Context;
use std::path::PathBuf;

/// Everything that trials play on.
#[derive(Debug)]
pub struct Stage {
    pub journal: Journal,
    /// The servers that arms are measured on; none where no server is in sight.
    pub servers: Vec<Standing>,
    /// Holds every treatment's own, where one could be made.
    pub cgroup: Option<PathBuf>,
    pub remote: Option<Remote>,
    /// For arms without a server; the others use their server's.
    pub fill: Fill,
    /// The driver's settings and words, gone after the run.
    pub work_dir: PathBuf,
    /// Artefacts and what the tools say.
    pub artefact_dir: PathBuf,
}

/// A server that arms are measured on.
#[derive(Debug)]
pub struct Standing {
    pub admin: Admin,
    pub endpoints: Endpoints,
    pub server: Watched,
    /// Held for as long as the run lasts; a sandbox is nobody else's.
    pub lock: Option<ServerLock>,
    /// Where the server may write a log; absent where toll could not read it.
    pub logs: Option<LogPlace>,
    pub port: u16,
    /// The stage's placeholders and this server's own, with the definitions for its flavour.
    pub fill: Fill,
}

impl Stage {
    /// The server that an arm is measured on; `None`: none is in sight.
    pub fn standing(&mut self, _arm: &str) -> Option<&mut Standing> {
        self.servers.first_mut()
    }

    /// The same, to look at.
    pub fn server_of(&self, _arm: &str) -> Option<&Standing> {
        self.servers.first()
    }

    /// The server that an arm's load or statements go to.
    pub fn needed(&mut self, arm: &str) -> anyhow::Result<&mut Standing> {
        self.standing(arm).with_context(|| format!("arm {arm} needs a server, and this run has none"))
    }

    /// The placeholders of an arm that is known before its trial.
    pub fn fill_of(&self, arm: &str) -> Fill {
        self.server_of(arm).map_or(&self.fill, |standing| &standing.fill).clone()
    }

    /// What a treatment may lean on.
    pub fn bench(&mut self, _arm: &str) -> Bench<'_> {
        let (admin, logs) = match self.servers.first_mut() {
            Some(standing) => (Some(&mut standing.admin), standing.logs.as_ref()),
            None => (None, None),
        };
        Bench {
            admin,
            journal: &self.journal,
            remote: self.remote.as_ref(),
            load: None,
            logs,
            cgroup: self.cgroup.as_deref(),
            dir: &self.artefact_dir,
        }
    }
}
