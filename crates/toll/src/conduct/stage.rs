//! What stands ready before the first trial: server, far end, journal, places for files?

use crate::journal::Journal;
use crate::treatment::{Admin, Bench, Fill, Remote};
use crate::workload::Endpoints;
use std::path::PathBuf;

/// Everything that trials play on.
#[derive(Debug)]
pub struct Stage {
    pub journal: Journal,
    pub admin: Admin,
    pub endpoints: Endpoints,
    /// Absent for a server on another host or in another namespace.
    pub server_pid: Option<u32>,
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
            dir: &self.artefact_dir,
        }
    }

    /// An error once the server no longer answers.
    pub fn check_server(&mut self) -> anyhow::Result<()> {
        self.admin.run("DO 1")
    }
}
