//! Preparation of a live run: the server is looked at with nothing switched, and the page says what would be done.

use super::audit::Action;
use super::design::LiveDesign;
use super::page::LivePage;
use super::rights::{self, Right};
use super::switches::{self, Switch};
use anyhow::{Context, ensure};
use std::path::PathBuf;
use toll_execution::live::{
    LiveRequest, PilotRequest, minimum_detectable_pct, read_account, run_pilot, space_to_watch,
};
use toll_execution::run::{self, RunRequest, RunSource};
use toll_guard::control::Vetoes;
use toll_guard::limits::{Limits, PlannedBytes, Tolerated};
use toll_guard::watch::{Replica, WatchedFiles};
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

/// Looks at the server, and describes the run. `None`: interrupted.
///
/// # Errors
/// The server cannot be watched, or says too little.
pub fn prepare(
    request: &mut RunRequest,
    server: &ExternalServer,
    target: &Target,
    design: &LiveDesign,
    options: LiveOptions,
    cancel: &CancelToken,
) -> anyhow::Result<Option<PreparedRun>> {
    let preview = run::preview(request)?;
    request.out = Some(preview.dir.clone());
    let local = server.local();
    let sees_host = local.is_some();
    let server_dirs = local.map(|local| local.to_host_path(&server.datadir()));
    let files = WatchedFiles {
        space: space_to_watch(&preview.dir, server_dirs),
        flag_file: options.flag_file,
        sees_host,
    };
    let probe_query = options.probe_query.as_deref();
    let pilot = PilotRequest {
        target,
        probe_query,
        files: &files,
        seconds: options.baseline_s,
        server_pid: server.pid().filter(|_| sees_host),
        without_tap: options.without_tap,
    };
    let found = run_pilot(&pilot, cancel)?;
    if cancel.is_cancelled() {
        return Ok(None);
    }
    let (baseline, users) =
        found.context("too few probe queries were answered to say what is usual: give more --baseline")?;
    let treated: Vec<&Arm> = preview.arms.iter().filter(|arm| arm.role == Role::Treatment).collect();
    let here =
        |arm: &&&Arm| sees_host || arm.treatment.processes.is_empty() && arm.treatment.sysctl.is_empty();
    ensure!(
        treated.iter().filter(here).count() == treated.len(),
        "the server is on another host: what runs beside it (a capture, an agent) is priced there"
    );
    let judged = users.judged(sees_host);
    let RunSource::Scenario(scenario, _) = &mut request.source else {
        anyhow::bail!("a live run begins with a scenario");
    };
    scenario.judge_live_by(judged, sees_host);
    let definitions = scenario.definitions();
    let title =
        definitions.iter().find(|outcome| outcome.name == scenario.primary).map(|outcome| &outcome.title);
    let alpha = scenario.alpha / f64::from(design.treatments);
    let mde_pct = users.noise_of(judged).and_then(|noise| {
        let (apart_s, blocks) = (design.apart_s(), design.judged_blocks());
        minimum_detectable_pct(noise, design.window_s, apart_s, blocks as usize, alpha)
    });
    let planned = PlannedBytes {
        in_all: (options.write_rate * design.on_s() * f64::from(design.treatments)) as u64,
        in_a_window: (options.write_rate * design.longest_on_s()) as u64,
    };
    let limits = Limits::of(&baseline, planned, options.tolerated);
    let switched = |arm: &&Arm| {
        let switches = match &arm.unavailable {
            Some(why) => Err(why.clone()),
            None => Ok(switches::switches_of(arm, server.variables())),
        };
        (arm.name.clone(), switches)
    };
    let account = read_account(target, probe_query)?;
    let needed = rights::rights_needed(&preview.arms, &account, server.flavour() == Flavour::Mariadb);
    let names: Vec<String> = options.replicas.iter().map(|replica| replica.name.clone()).collect();
    let page = LivePage {
        server: &target.address.to_string(),
        version: &server.describe().version,
        confirmation: &server.short_id(),
        treatments: treated.iter().map(switched).collect(),
        design,
        rights: &needed,
        baseline: &baseline,
        limits: &limits,
        space: &files.space,
        run_dir: &preview.dir.display().to_string(),
        replicas: &names,
        flag_file: files.flag_file.as_ref().and_then(|path| path.to_str()),
        vetoes: &options.vetoes,
        users: &users,
        judged: title.map_or("", String::as_str),
        mde_pct,
        sees_host,
    };
    let (text, switches) =
        (page.render(), page.treatments.iter().filter_map(|(_, s)| s.clone().ok()).flatten());
    Ok(Some(PreparedRun {
        page: text,
        server: page.server.to_owned(),
        server_uuid: server.variables().get("server_uuid").cloned(),
        login: target.user.clone(),
        switches: switches.collect(),
        dir: preview.dir.clone(),
        live: LiveRequest {
            target: target.clone(),
            guard_command: options.guard_command,
            baseline: baseline.clone(),
            limits: limits.clone(),
            files: files.clone(),
            vetoes: options.vetoes.clone(),
            metrics: options.metrics,
            replicas: options.replicas,
            probe_query: options.probe_query.clone(),
            users: users.clone(),
            judged,
            planned_mde_pct: mde_pct,
        },
        missing: needed.into_iter().filter(|right| !right.is_there).collect(),
    }))
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
