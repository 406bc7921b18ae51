//! What stands ready before the first trial: servers, data, rig, journal, places for files?

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
use toll_sys::private;

/// Everything that trials play on.
#[derive(Debug)]
pub struct Stage {
    pub journal: Journal,
    /// What was asked for: which arm is measured on which server, too.
    pub setup: Setup,
    /// The servers that arms are measured on; none where no server is in sight.
    pub servers: Vec<Standing>,
    pub rig: Rig,
    /// Holds every treatment's own, where one could be made.
    pub cgroup: Option<PathBuf>,
    /// What keeps servers and treatments within less than all of the host.
    pub limited: Limited,
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
    /// Its place in the setup.
    pub number: usize,
    pub admin: Admin,
    pub endpoints: Endpoints,
    pub watched: Watched,
    /// Held for as long as the run lasts; a sandbox is nobody else's.
    pub lock: Option<ServerLock>,
    /// Where the server may write a log; absent where toll could not read it.
    pub logs: Option<LogPlace>,
    pub port: u16,
    pub socket: String,
    /// The stage's placeholders and this server's own.
    pub fill: Fill,
    /// Absent for a server that was there before.
    sandbox: Option<Sandbox>,
}

impl Stage {
    /// The server that an arm is measured on; `None`: none is in sight.
    pub fn standing(&mut self, arm: &str) -> Option<&mut Standing> {
        let number = self.setup.server_of(arm);
        self.servers.iter_mut().find(|standing| standing.number == number)
    }

    /// The same, to look at.
    pub fn server_of(&self, arm: &str) -> Option<&Standing> {
        let number = self.setup.server_of(arm);
        self.servers.iter().find(|standing| standing.number == number)
    }

    /// The server that an arm's load or statements go to.
    pub fn needed(&mut self, arm: &str) -> anyhow::Result<&mut Standing> {
        self.standing(arm).with_context(|| format!("arm {arm} needs a server, and this run has none"))
    }

    /// The placeholders of an arm that are known before its trial.
    pub fn fill_of(&self, arm: &str) -> Fill {
        self.server_of(arm).map_or(&self.fill, |standing| &standing.fill).clone()
    }

    /// A placeholder for every arm; servers that come later have it too.
    pub fn give(&mut self, name: &str, value: &str) {
        let fills = self.servers.iter_mut().map(|standing| &mut standing.fill);
        fills.chain([&mut self.fill]).for_each(|fill| fill.set(name, value.to_owned()));
    }

    /// What a treatment may lean on.
    pub fn bench(&mut self, arm: &str) -> Bench<'_> {
        let number = self.setup.server_of(arm);
        let (admin, logs) = match self.servers.iter_mut().find(|standing| standing.number == number) {
            Some(standing) => (Some(&mut standing.admin), standing.logs.as_ref()),
            None => (None, None),
        };
        Bench {
            admin,
            journal: &self.journal,
            far_end: self.rig.far_end.as_ref(),
            load: None,
            logs,
            cgroup: self.cgroup.as_deref(),
            limits: &self.limited.groups,
            dir: &self.artefact_dir,
        }
    }
}

/// An option file for client programs among the treatments, readable by its owner only; its path.
fn client_defaults(work_dir: &Path, number: usize, target: &Target) -> anyhow::Result<String> {
    // Inside double quotes the clients undo a backslash before these two.
    let password = target.password.expose().replace('\\', "\\\\").replace('"', "\\\"");
    let text = format!("[client]\nuser=\"{}\"\npassword=\"{password}\"\n", target.user);
    let path = work_dir.join(if number == 0 { "client.cnf".into() } else { format!("client-{number}.cnf") });
    private::write(&path, &text)?;
    Ok(path.display().to_string())
}
