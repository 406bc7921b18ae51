//! Test setup of a run: servers, data, rig, journal and directories, ready before the first trial.

pub mod data;
mod limits;
mod open;
pub mod rig;
mod sandbox;
mod setup;
mod there;
mod watched;

pub use open::{Opened, ServerChoice, close, open};
pub use setup::setup;
pub use watched::Watched;

use crate::treatment::{Admin, Bench, LogPlace};
use crate::workload::Endpoints;
use anyhow::Context;
use limits::Limited;
use rig::Rig;
use std::path::{Path, PathBuf};
use toll_journal::Journal;
use toll_model::fill::Fill;
use toll_mysql::Target;
use toll_record::Setup;
use toll_server::Sandbox;
use toll_server::lock::ServerLock;
use toll_sys::cancel::CancelToken;
use toll_sys::private_file;

/// The test setup.
#[derive(Debug)]
pub struct Stage {
    pub journal: Journal,
    /// Ends whatever is waited for here.
    pub cancel: CancelToken,
    /// The requested setup, which also assigns arms to servers.
    pub setup: Setup,
    /// The servers that arms are measured on. Empty if there is no server.
    pub servers: Vec<Standing>,
    pub rig: Rig,
    /// Group that holds every treatment's own group, if one could be made.
    pub cgroup: Option<PathBuf>,
    /// Groups that limit servers and treatments.
    pub limited: Limited,
    /// Placeholders of arms without a server. The others use their server's.
    pub fill: Fill,
    /// Directory of the driver's settings and output, removed after the run.
    pub work_dir: PathBuf,
    /// Directory of artefacts and of the tools' output.
    pub artefact_dir: PathBuf,
}

/// A server that arms are measured on.
#[derive(Debug)]
pub struct Standing {
    /// Number of the server in the setup.
    pub number: usize,
    pub admin: Admin,
    pub endpoints: Endpoints,
    pub watched: Watched,
    /// Held as long as the run lasts. Absent for a sandbox, which nobody else uses.
    pub lock: Option<ServerLock>,
    /// Directory in which the server may write a log. Absent if toll could not read it.
    pub logs: Option<LogPlace>,
    pub port: u16,
    pub socket: String,
    /// The setup's placeholders and this server's own.
    pub fill: Fill,
    /// Absent for an existing server.
    sandbox: Option<Sandbox>,
}

impl Stage {
    /// The server that an arm is measured on. `None` if there is no server.
    pub fn standing(&mut self, arm: &str) -> Option<&mut Standing> {
        let number = self.setup.server_index(arm);
        self.servers.iter_mut().find(|standing| standing.number == number)
    }

    /// As [`Stage::standing`], read-only.
    pub fn server_of(&self, arm: &str) -> Option<&Standing> {
        let number = self.setup.server_index(arm);
        self.servers.iter().find(|standing| standing.number == number)
    }

    /// The server for an arm's load or statements.
    ///
    /// # Errors
    /// There is no server.
    pub fn needed(&mut self, arm: &str) -> anyhow::Result<&mut Standing> {
        self.standing(arm).with_context(|| format!("arm {arm} needs a server, and this run has none"))
    }

    /// Placeholders of an arm that are known before its trial.
    pub fn fill_of(&self, arm: &str) -> Fill {
        self.server_of(arm).map_or(&self.fill, |standing| &standing.fill).clone()
    }

    /// Defines a placeholder for every arm and server, including later ones.
    pub fn give(&mut self, name: &str, value: &str) {
        let fills = self.servers.iter_mut().map(|standing| &mut standing.fill);
        fills.chain([&mut self.fill]).for_each(|fill| fill.set(name, value.to_owned()));
    }

    /// Context for an arm's treatment.
    pub fn bench(&mut self, arm: &str) -> Bench<'_> {
        let number = self.setup.server_index(arm);
        let (admin, logs) = match self.servers.iter_mut().find(|standing| standing.number == number) {
            Some(standing) => (Some(&mut standing.admin), standing.logs.as_ref()),
            None => (None, None),
        };
        Bench {
            admin,
            journal: &self.journal,
            cancel: &self.cancel,
            far_end: self.rig.far_end.as_ref(),
            load: None,
            logs,
            cgroup: self.cgroup.as_deref(),
            limits: &self.limited.groups,
            dir: &self.artefact_dir,
        }
    }
}

/// Writes an option file for client programs among the treatments, readable by its owner only. Returns its
/// path.
fn client_defaults(work_dir: &Path, number: usize, target: &Target) -> anyhow::Result<String> {
    // Inside double quotes the clients undo a backslash before these two.
    let password = target.password.expose().replace('\\', "\\\\").replace('"', "\\\"");
    let text = format!("[client]\nuser=\"{}\"\npassword=\"{password}\"\n", target.user);
    let path = work_dir.join(if number == 0 { "client.cnf".into() } else { format!("client-{number}.cnf") });
    private_file::write(&path, &text)?;
    Ok(path.display().to_string())
}
