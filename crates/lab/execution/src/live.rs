//! What a run on a server that serves users needs besides: a guard of its own process, a drill of it, and an account of both.

mod guard;
mod pilot;

pub use guard::LiveGuard;
pub use pilot::{PilotRequest, UsersView, run_pilot};

use crate::class_meter::ClassSource;
use crate::treatment::{AdminSession, LogDirectory};
use anyhow::Context;
use std::path::{Path, PathBuf};
use toll_guard::control::Vetoes;
use toll_guard::limits::{Baseline, Limits};
use toll_guard::watch::{Replica, WatchedFiles};
use toll_model::plan::noise::difference_variance;
use toll_model::plan::{self, ServerFacts};
use toll_model::scenario::Judged;
use toll_mysql::{Connection, Target, Tls, sql_string};
use toll_probe::ProbeQuery;
use toll_record::{Arm, Noise, Pilot, Plan};
use toll_server::ExternalServer;

/// What guards a run.
#[derive(Debug, Clone)]
pub struct LiveRequest {
    /// Starts the guard's process.
    pub guard_command: Vec<String>,
    /// The run's servers, in their order.
    pub servers: Vec<GuardedServer>,
    pub vetoes: Vetoes,
    /// `ADDRESS:PORT`, or a port of 127.0.0.1.
    pub metrics: Option<String>,
    pub replicas: Vec<Replica>,
    pub probe_query: Option<String>,
    /// What the run compares, on all servers.
    pub users: UsersView,
    pub judged: Judged,
    /// Smallest effect that is found with a probability of 80%, percent.
    pub planned_mde_pct: Option<f64>,
    /// All blocks end within it, however long switching takes.
    pub time_s: f64,
}

/// A server that serves users, with what is usual there and what ends the run.
#[derive(Debug, Clone)]
pub struct GuardedServer {
    /// By the way of the pilot: another has other latencies.
    pub target: Target,
    pub baseline: Baseline,
    pub limits: Limits,
    pub files: WatchedFiles,
    /// Of its users' response times.
    pub source: Option<ClassSource>,
}

impl LiveRequest {
    /// Completes a plan with what the pilot saw.
    pub fn complete_plan(&self, plan: &mut Plan) {
        plan.classes.clone_from(&self.users.traffic.classes);
        let pilot = plan.pilot.get_or_insert_with(Pilot::default);
        pilot.took_s = self.servers.iter().map(|server| server.baseline.seconds as f64).fold(0.0, f64::max);
        pilot.noise = self.users.noise_of(self.judged).cloned();
        plan.planned_mde_pct = self.planned_mde_pct;
        plan.time_s = Some(self.time_s);
    }
}

/// Smallest change, percent, that a sequence over so many blocks finds in four of five runs: windows of `window_s` that begin
/// `apart_s` after each other.
#[must_use]
pub fn minimum_detectable_pct(
    noise: &Noise,
    window_s: f64,
    apart_s: f64,
    blocks: usize,
    alpha: f64,
) -> Option<f64> {
    let sd = difference_variance(noise, window_s, apart_s).sqrt();
    toll_stats::sequence_mde(blocks, alpha).map(|units| toll_stats::log_ratio_to_pct(units * sd))
}

/// Rights of an account on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountFacts {
    /// As in a GRANT: `'toll'@'localhost'`.
    pub name: String,
    pub grants: Vec<String>,
    pub can_set_global: bool,
    /// The probe query has a table that it may read.
    pub can_probe_tables: bool,
}

/// Reads them, and changes nothing.
///
/// # Errors
/// The server does not answer.
pub fn read_account(target: &Target, probe_query: Option<&str>) -> anyhow::Result<AccountFacts> {
    let mut connection = Connection::connect(target)
        .with_context(|| format!("cannot use the server at {} as {}", target.address, target.user))?;
    let name = connection.query("SELECT CURRENT_USER()")?.scalar().unwrap_or_default().to_owned();
    let (user, host) = name.rsplit_once('@').unwrap_or((&name, "%"));
    // Without grant tables there are none, and everybody may do anything.
    let grants =
        connection.query("SHOW GRANTS").map(|rows| rows.rows.into_iter().flatten().flatten().collect());
    Ok(AccountFacts {
        name: format!("{}@{}", sql_string(user), sql_string(host)),
        grants: grants.unwrap_or_else(|_| vec!["GRANT ALL PRIVILEGES ON *.*".to_owned()]),
        can_set_global: AdminSession::new(target.clone(), None).can_set_global(),
        can_probe_tables: ProbeQuery::choose(target, probe_query)? != ProbeQuery::RoundTrip,
    })
}

/// Why a treatment cannot be switched on at this server; rights aside, which are named with their grants. `None`: it can.
pub fn unavailable_reason_at(arm: &Arm, server: &ExternalServer) -> Option<String> {
    let facts = ServerFacts {
        server: server.describe(),
        variables: server.variables().clone(),
        can_set_global: true,
        log_error: LogDirectory::for_server(server.local(), &server.datadir()).err(),
        uses_tls: server.target().tls != Tls::Off,
    };
    plan::unavailable_reason_on(arm, &facts)
}

/// Where a method may write to, as far as it is known before it runs: the run's directory, and the server's data and logs.
pub fn space_to_watch(dir: &Path, server_dirs: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let existing = |path: &PathBuf| path.exists();
    let above = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new(".")).to_owned();
    [above].into_iter().chain(server_dirs.into_iter().filter(existing)).collect()
}
