//! Test setup of a run: servers, data, rig, journal and directories, ready before the first trial.

mod cgroup_limits;
pub mod data;
mod existing_server;
mod open;
mod restart_detector;
pub mod rig;
mod sandbox;
mod setup;

pub use existing_server::check_schema_is_given;
pub use open::{OpenTestbed, SecondServer, ServerChoice, close, open};
pub use restart_detector::RestartDetector;
pub use sandbox::prepare_data;
pub use setup::resolve_setup;

use crate::treatment::{AdminSession, LogDirectory, RemoteHost, TreatmentContext};
use crate::workload::Endpoints;
use anyhow::Context;
use cgroup_limits::LimitGroups;
use data::SCHEMA;
use rig::Rig;
use std::path::{Path, PathBuf};
use toll_journal::Journal;
use toll_model::placeholders::PlaceholderValues;
use toll_mysql::{ClientFamily, Target};
use toll_record::Setup;
use toll_server::Sandbox;
use toll_sys::cancel::CancelToken;
use toll_sys::private_file;

/// The test setup.
#[derive(Debug)]
pub struct Testbed {
    pub journal: Journal,
    /// Ends whatever is waited for here.
    pub cancel: CancelToken,
    /// The requested setup, which also assigns arms to servers.
    pub setup: Setup,
    /// The servers that arms are measured on. Empty if there is no server.
    pub servers: Vec<ServerHandle>,
    pub rig: Rig,
    /// Group that holds every treatment's own group, if one could be made.
    pub cgroup: Option<PathBuf>,
    /// Groups that limit servers and treatments.
    pub limit_groups: LimitGroups,
    /// Placeholders of arms without a server. The others use their server's.
    pub placeholders: PlaceholderValues,
    /// Directory of the driver's settings and output, removed after the run.
    pub work_dir: PathBuf,
    /// Directory of artefacts and of the tools' output.
    pub artefact_dir: PathBuf,
}

/// A server that arms are measured on.
#[derive(Debug)]
pub struct ServerHandle {
    /// Number of the server in the setup.
    pub number: usize,
    pub admin: AdminSession,
    pub endpoints: Endpoints,
    pub restart_detector: RestartDetector,
    /// Holds the lock against a second run as long as this one lasts. Absent for a sandbox, which nobody else uses.
    pub lock: Option<AdminSession>,
    /// Directory in which the server may write a log. Absent if toll could not read it.
    pub logs: Option<LogDirectory>,
    pub port: u16,
    pub socket: String,
    /// The setup's placeholders and this server's own.
    pub placeholders: PlaceholderValues,
    /// Absent for an existing server.
    sandbox: Option<Sandbox>,
}

impl Testbed {
    /// The server that an arm is measured on. `None` if there is no server.
    pub fn server_mut(&mut self, arm: &str) -> Option<&mut ServerHandle> {
        let number = self.setup.server_index(arm);
        self.servers.iter_mut().find(|standing| standing.number == number)
    }

    /// As [`Testbed::server_mut`], read-only.
    pub fn server_of(&self, arm: &str) -> Option<&ServerHandle> {
        let number = self.setup.server_index(arm);
        self.servers.iter().find(|standing| standing.number == number)
    }

    /// The server for an arm's load or statements.
    ///
    /// # Errors
    /// There is no server.
    pub fn require_server(&mut self, arm: &str) -> anyhow::Result<&mut ServerHandle> {
        self.server_mut(arm).with_context(|| format!("arm {arm} needs a server, and this run has none"))
    }

    /// Placeholders of an arm that are known before its trial.
    pub fn placeholders_of(&self, arm: &str) -> PlaceholderValues {
        self.server_of(arm).map_or(&self.placeholders, |standing| &standing.placeholders).clone()
    }

    /// Reads every index of the prepared tables into the servers' buffer pools: a page that is read from its file within a
    /// window is work that the windows after it do not have.
    pub fn read_all_tables(&mut self) -> anyhow::Result<()> {
        if self.setup.data.is_none() {
            return Ok(());
        }
        let indexes = format!(
            "SELECT CONCAT('`', table_name, '` FORCE INDEX (`', index_name, '`)'), '' FROM information_schema.statistics \
             WHERE table_schema = '{SCHEMA}'"
        );
        for server in &mut self.servers {
            for index in server.admin.query_pairs(&indexes)?.into_keys() {
                self.cancel.check()?;
                server.admin.query_number(&format!("SELECT COUNT(*) FROM `{SCHEMA}`.{index}"));
            }
        }
        Ok(())
    }

    /// Defines a placeholder for every arm and server, including later ones.
    pub fn define_placeholder(&mut self, name: &str, value: &str) {
        let fills = self.servers.iter_mut().map(|standing| &mut standing.placeholders);
        fills.chain([&mut self.placeholders]).for_each(|fill| fill.set(name, value.to_owned()));
    }

    /// Context for an arm's treatment.
    pub fn treatment_context(&mut self, arm: &str) -> TreatmentContext<'_> {
        let number = self.setup.server_index(arm);
        let (admin, logs) = match self.servers.iter_mut().find(|standing| standing.number == number) {
            Some(standing) => (Some(&mut standing.admin), standing.logs.as_ref()),
            None => (None, None),
        };
        TreatmentContext {
            admin,
            journal: &self.journal,
            cancel: &self.cancel,
            far_end: self.rig.far_end.as_ref().map(|far_end| far_end as &dyn RemoteHost),
            load: None,
            logs,
            cgroup: self.cgroup.as_deref(),
            limits: &self.limit_groups.groups,
            dir: &self.artefact_dir,
        }
    }
}

/// Writes an option file for client programs among the treatments, readable by its owner only. Returns its
/// path.
fn write_client_defaults(work_dir: &Path, number: usize, target: &Target) -> anyhow::Result<String> {
    let text = target.to_login_file(ClientFamily::Any);
    let path = work_dir.join(if number == 0 { "client.cnf".into() } else { format!("client-{number}.cnf") });
    private_file::write(&path, &text)?;
    Ok(path.display().to_string())
}
