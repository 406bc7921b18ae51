//! What stands ready before the first trial: server, far end, journal, places for files?

use super::Watched;
use crate::journal::Journal;
use crate::run::ServerLock;
use crate::treatment::{Admin, Bench, Fill, LogPlace, Remote};
use crate::workload::Endpoints;
use std::path::PathBuf;

/// Everything that trials play on.
#[derive(Debug)]
pub struct Stage {
    pub journal: Journal,
    pub admin: Admin,
    pub endpoints: Endpoints,
    pub server: Watched,
    /// Held for as long as the run lasts; a sandbox is nobody else's.
    pub lock: Option<ServerLock>,
    /// Where the server may write a log; absent where toll could not read it.
    pub logs: Option<LogPlace>,
    /// Holds every treatment's own, where one could be made.
    pub cgroup: Option<PathBuf>,
    pub remote: Option<Remote>,
    pub fill: Fill,
    /// The driver's settings and words, gone after the run.
    pub work_dir: PathBuf,
    /// Artefacts and what the tools say.
    pub artefact_dir: PathBuf,
    pub port: u16,
}

impl Stage {
    /// What a treatment may lean on.
    pub fn bench(&mut self) -> Bench<'_> {
        Bench {
            admin: &mut self.admin,
            journal: &self.journal,
            remote: self.remote.as_ref(),
            load: None,
            logs: self.logs.as_ref(),
            cgroup: self.cgroup.as_deref(),
            dir: &self.artefact_dir,
        }
    }
}
