//! Preparation of a live run: the server is looked at with nothing switched, and the page says what would be done.

use super::audit::Action;
use super::design::LiveDesign;
use super::page::{LivePage, ServerPlan, TreatmentPlan};
use super::rights::{self, Right};
use super::switches::{self, Switch};
use anyhow::{Context, bail, ensure};
use std::path::{Path, PathBuf};
use toll_execution::class_meter::ClassSource;
use toll_execution::live::{
    GuardedServer, LiveRequest, PilotRequest, UsersView, minimum_detectable_pct, read_account, run_pilot,
    space_to_watch, unavailable_reason_at,
};
use toll_execution::run::{self, RunRequest, RunSource};
use toll_guard::control::Vetoes;
use toll_guard::limits::{Baseline, Limits, PlannedExposure, Tolerated};
use toll_guard::watch::{Replica, WatchedFiles};
use toll_model::plan::is_written_by_server;
use toll_mysql::Target;
use toll_record::{Arm, Role};
use toll_server::{ExternalServer, Flavour};
use toll_sys::cancel::CancelToken;

/// What the user asks for beyond scenario and design.
#[derive(Debug, Clone)]
pub struct LiveOptions {
    pub probe_query: Option<String>,
    pub flag_file: Option<PathBuf>,
    pub vetoes: Vetoes,
    pub metrics: Option<String>,
    /// Bytes a second that a method may write.
    pub write_rate: f64,
    pub tolerated: Tolerated,
    pub baseline_s: f64,
    pub without_tap: bool,
    pub replicas: Vec<Replica>,
    /// Starts the guard's process.
    pub guard_command: Vec<String>,
}

/// A live run that somebody has to agree to.
#[derive(Debug)]
pub struct PreparedRun {
    /// To be read before.
    pub page: String,
    pub live: LiveRequest,
    pub dir: PathBuf,
    server: String,
    server_uuid: Option<String>,
    login: String,
    missing: Vec<Right>,
    switches: Vec<Switch>,
}

/// A server of the run, as it is asked for.
#[derive(Debug, Clone, Copy)]
pub struct LiveServer<'a> {
    pub server: &'a ExternalServer,
    pub target: &'a Target,
}

impl LiveServer<'_> {
    fn sees_host(&self) -> bool {
        self.server.local().is_some()
    }

    /// What is looked at on its host.
    fn files(&self, dir: &Path, flag_file: Option<PathBuf>) -> WatchedFiles {
        let server_dirs = self.server.local().map(|local| local.to_host_path(&self.server.datadir()));
        WatchedFiles { space: space_to_watch(dir, server_dirs), flag_file, sees_host: self.sees_host() }
    }

    /// Each treatment's changes here.
    fn treatments(&self, treated: &[&Arm]) -> Vec<TreatmentPlan> {
        let of_arm = |arm: &&Arm| TreatmentPlan {
            name: arm.name.clone(),
            switches: switches::switches_of(arm, self.server.variables()),
            is_written_by_server: is_written_by_server(arm),
            stays_with_sessions: arm.treatment.fresh_sessions,
        };
        treated.iter().map(of_arm).collect()
    }

    fn log_dir(&self, treated: &[&Arm]) -> Option<String> {
        let writes = treated.iter().any(|arm| is_written_by_server(arm));
        writes.then(|| self.server.datadir().display().to_string())
    }
}

/// Looks at the servers (one, or two between which treatments cross over), and describes the run. `None`: interrupted.
///
/// # Errors
/// A server cannot be watched, or says too little.
pub fn prepare(
    request: &mut RunRequest,
    servers: &[LiveServer<'_>],
    design: &LiveDesign,
    options: LiveOptions,
    cancel: &CancelToken,
) -> anyhow::Result<Option<PreparedRun>> {
    let first = *servers.first().context("a live run needs a server")?;
    let crosses_over = servers.len() > 1;
    let preview = run::preview(request, Some(first.server.flavour()))?;
    request.out = Some(preview.dir.clone());
    let treated: Vec<&Arm> = preview.arms.iter().filter(|arm| arm.role == Role::Treatment).collect();
    check_place(&treated, first.sees_host(), crosses_over)?;
    check_available(&treated, servers)?;
    let probe_query = options.probe_query.as_deref();
    let files: Vec<WatchedFiles> =
        servers.iter().map(|server| server.files(&preview.dir, options.flag_file.clone())).collect();
    // Two servers are compared by the same source.
    let without_tap = options.without_tap || !servers.iter().all(LiveServer::sees_host);
    let pilots: Vec<PilotRequest<'_>> = servers
        .iter()
        .zip(&files)
        .map(|(at, files)| PilotRequest {
            target: at.target,
            probe_query,
            files,
            seconds: options.baseline_s,
            server_pid: at.server.pid().filter(|_| at.sees_host()),
            without_tap,
        })
        .collect();
    let Some(seen) = run_pilots(&pilots, cancel)? else { return Ok(None) };
    let (baselines, views): (Vec<Baseline>, Vec<UsersView>) = seen.into_iter().unzip();
    let sources: Vec<Option<ClassSource>> = views.iter().map(|users| users.source.clone()).collect();
    let users = views.into_iter().reduce(|first, second| first.crossed_with(&second)).unwrap_or_default();
    let judged = users.judged(first.sees_host() && !crosses_over);
    let RunSource::Scenario(scenario, _) = &mut request.source else {
        anyhow::bail!("a live run begins with a scenario");
    };
    scenario.judge_live_by(judged, first.sees_host(), crosses_over);
    let definitions = scenario.definitions();
    let title =
        definitions.iter().find(|outcome| outcome.name == scenario.primary).map(|outcome| &outcome.title);
    let alpha = scenario.alpha / f64::from(design.treatments);
    let mde_pct = users.noise_of(judged).and_then(|noise| {
        let (apart_s, blocks) = (design.apart_s(), design.judged_blocks());
        minimum_detectable_pct(noise, design.window_s, apart_s, blocks as usize, alpha)
    });
    // On at one server or the other for twice as long; what is written is heard of by the guards of both.
    let on_s = design.on_s() * f64::from(design.treatments) * servers.len() as f64;
    let planned = PlannedExposure {
        bytes: (options.write_rate * on_s) as u64,
        bytes_in_a_window: (options.write_rate * design.longest_on_s()) as u64,
        longest_on_s: design.longest_on_s(),
    };
    let limits: Vec<Limits> =
        baselines.iter().map(|baseline| Limits::of(baseline, planned, options.tolerated)).collect();
    let needed = servers
        .iter()
        .map(|at| {
            let account = read_account(at.target, probe_query)?;
            Ok(rights::rights_needed(&preview.arms, &account, at.server.flavour() == Flavour::Mariadb))
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    let names: Vec<String> = options.replicas.iter().map(|replica| replica.name.clone()).collect();
    let described = servers.iter().enumerate().map(|(i, at)| ServerPlan {
        address: at.target.address.to_string(),
        version: at.server.describe().version,
        treatments: at.treatments(&treated),
        log_dir: at.log_dir(&treated),
        rights: &needed[i],
        baseline: &baselines[i],
        limits: &limits[i],
        space: &files[i].space,
        sees_host: at.sees_host(),
    });
    let page = LivePage {
        servers: described.collect(),
        confirmation: &first.server.short_id(),
        design,
        run_dir: &preview.dir.display().to_string(),
        replicas: &names,
        flag_file: options.flag_file.as_ref().and_then(|path| path.to_str()),
        vetoes: &options.vetoes,
        users: &users,
        judged: title.map_or("", String::as_str),
        mde_pct,
    };
    let treatments = page.servers.iter().flat_map(|server| &server.treatments);
    let switches = treatments.flat_map(|treatment| treatment.switches.clone()).collect();
    let addresses: Vec<&str> = page.servers.iter().map(|server| server.address.as_str()).collect();
    let guarded = servers.iter().enumerate().map(|(i, at)| GuardedServer {
        target: at.target.clone(),
        baseline: baselines[i].clone(),
        limits: limits[i].clone(),
        files: files[i].clone(),
        source: sources[i].clone().filter(|_| users.source.is_some()),
    });
    Ok(Some(PreparedRun {
        page: page.render(),
        server: addresses.join(" and "),
        server_uuid: first.server.variables().get("server_uuid").cloned(),
        login: first.target.user.clone(),
        switches,
        dir: preview.dir.clone(),
        live: LiveRequest {
            servers: guarded.collect(),
            guard_command: options.guard_command,
            vetoes: options.vetoes.clone(),
            metrics: options.metrics,
            replicas: options.replicas,
            probe_query: options.probe_query.clone(),
            users: users.clone(),
            judged,
            planned_mde_pct: mde_pct,
            time_s: design.time_s,
        },
        missing: needed.into_iter().flatten().filter(|right| !right.is_there).collect(),
    }))
}

/// # Errors
/// A treatment cannot be switched where it is to be priced.
fn check_place(treated: &[&Arm], sees_host: bool, crosses_over: bool) -> anyhow::Result<()> {
    let is_on_server = |arm: &&Arm| arm.treatment.processes.is_empty() && arm.treatment.sysctl.is_empty();
    let beside = treated.iter().find(|arm| !is_on_server(arm));
    if let Some(arm) = beside.filter(|_| crosses_over) {
        bail!(
            "{} runs beside a server: between two servers only what is switched on a server itself crosses over (logs, \
             settings, performance_schema)",
            arm.name
        );
    }
    ensure!(
        sees_host || beside.is_none(),
        "the server is on another host: what runs beside it (a capture, an agent) is priced there"
    );
    Ok(())
}

/// The run would do without it, and give its blocks to the others: not what the page says.
///
/// # Errors
/// A treatment cannot be switched on at one of the servers.
fn check_available(treated: &[&Arm], servers: &[LiveServer<'_>]) -> anyhow::Result<()> {
    for arm in treated {
        let at_server = || servers.iter().find_map(|at| unavailable_reason_at(arm, at.server));
        if let Some(why) = arm.unavailable.clone().or_else(at_server) {
            bail!(
                "{} cannot be priced here: {why}. Leave it out of --variants, or mend that first",
                arm.name
            );
        }
    }
    Ok(())
}

/// All at the same time. `None`: interrupted.
fn run_pilots(
    requests: &[PilotRequest<'_>],
    cancel: &CancelToken,
) -> anyhow::Result<Option<Vec<(Baseline, UsersView)>>> {
    let found: Vec<_> = std::thread::scope(|scope| {
        let pilots: Vec<_> =
            requests.iter().map(|request| scope.spawn(move || run_pilot(request, cancel))).collect();
        pilots
            .into_iter()
            .map(|pilot| pilot.join().unwrap_or_else(|_| bail!("the look at a server failed")))
            .collect()
    });
    let found = found.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    if cancel.is_cancelled() {
        return Ok(None);
    }
    let all: Option<Vec<_>> = found.into_iter().collect();
    all.context("too few probe queries were answered to say what is usual: give more --baseline").map(Some)
}

impl PreparedRun {
    /// # Errors
    /// A right is missing: nothing may be switched.
    pub fn check_rights(&self) -> anyhow::Result<()> {
        let missing: Vec<&str> = self.missing.iter().map(|right| right.grant.as_str()).collect();
        ensure!(missing.is_empty(), "nothing was switched: rights are missing. {}", missing.join("; "));
        Ok(())
    }

    /// What somebody has agreed to, for the audit.
    ///
    /// # Errors
    /// It cannot be written down: nothing may be switched.
    pub fn audit_consent(
        &self,
        audit: &mut super::audit::Audit,
        confirmed_by: &str,
        reason: &str,
        command: &[String],
    ) -> anyhow::Result<()> {
        let (on, off): (Vec<String>, Vec<String>) =
            self.switches.iter().map(|switch| (switch.on.clone(), switch.off.clone())).unzip();
        audit.write(Action::Consent {
            server: &self.server,
            server_uuid: self.server_uuid.as_deref(),
            confirmed_by,
            reason,
            login: &self.login,
            command,
            on: &on,
            off: &off,
        })
    }
}
