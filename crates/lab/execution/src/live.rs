//! What a run on a server that serves users needs besides: a guard of its own process, a drill of it, and an account of both.

use crate::class_meter::{ClassMeter, ClassSource, PilotSample, SeenStretch, SeenTraffic, command, noise_of};
use crate::footprint::FootprintMeter;
use crate::recorder::Recorder;
use crate::testbed::Testbed;
use crate::treatment::AdminSession;
use crate::trial_loop::{Guard, Tripped};
use anyhow::Context;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;
use toll_guard::breaker::Trip;
use toll_guard::control::Vetoes;
use toll_guard::limits::{Baseline, BaselineCollector, Limits};
use toll_guard::link::{GuardLink, GuardOutcome};
use toll_guard::messages::{GuardSetup, Look, OffReport, ServerLogin};
use toll_guard::watch::{LOOK_US, Replica, Watch, WatchedFiles};
use toll_journal::{Journal, Undo, UndoId};
use toll_model::plan::noise::difference_variance;
use toll_model::scenario::Judged;
use toll_mysql::{ClientFamily, Connection, Target, sql_string};
use toll_probe::ProbeQuery;
use toll_record::{ClassSample, ClassTimes, Noise, Pilot, Plan, QueryClass, Sample};
use toll_stats::random::Rng;
use toll_sys::cancel::CancelToken;
use toll_sys::{clock, paths, private_file};
use toll_wire::fingerprint::fingerprint;

/// What guards a run.
#[derive(Debug, Clone)]
pub struct LiveRequest {
    /// Starts the guard's process.
    pub guard_command: Vec<String>,
    /// The server, by the way of the pilot: another has other latencies.
    pub target: Target,
    pub baseline: Baseline,
    pub limits: Limits,
    pub files: WatchedFiles,
    pub vetoes: Vetoes,
    /// `ADDRESS:PORT`, or a port of 127.0.0.1.
    pub metrics: Option<String>,
    pub replicas: Vec<Replica>,
    pub probe_query: Option<String>,
    pub users: UsersView,
    pub judged: Judged,
    /// Smallest effect that is found with a probability of 80%, percent.
    pub planned_mde_pct: Option<f64>,
}

/// What is seen of a server's users, and what is not.
#[derive(Debug, Clone, Default)]
pub struct UsersView {
    /// `None`: their response times are not seen.
    pub source: Option<ClassSource>,
    /// Why better sources cannot be used.
    pub not_seen: Vec<String>,
    pub traffic: SeenTraffic,
    /// Of the probe queries' latency.
    pub probe_noise: Option<Noise>,
}

impl UsersView {
    /// Classes of queries that the run compares; empty: it cannot.
    #[must_use]
    pub fn classes(&self) -> &[QueryClass] {
        &self.traffic.classes
    }

    /// The outcome that verdicts are drawn from: the best that is seen.
    #[must_use]
    pub fn judged(&self, sees_host: bool) -> Judged {
        match (self.classes().is_empty(), sees_host) {
            (false, _) => Judged::UsersResponse,
            (true, true) => Judged::HostCpu,
            (true, false) => Judged::ProbeResponse,
        }
    }

    /// Noise of the outcome that is judged, as far as the pilot says.
    #[must_use]
    pub fn noise_of(&self, judged: Judged) -> Option<&Noise> {
        match judged {
            Judged::UsersResponse => self.traffic.noise.as_ref(),
            Judged::ProbeResponse => self.probe_noise.as_ref(),
            Judged::HostCpu => None,
        }
    }
}

impl LiveRequest {
    /// Completes a plan with what the pilot saw.
    pub fn complete_plan(&self, plan: &mut Plan) {
        plan.classes.clone_from(&self.users.traffic.classes);
        let pilot = plan.pilot.get_or_insert_with(Pilot::default);
        pilot.took_s = self.baseline.seconds as f64;
        pilot.noise = self.users.noise_of(self.judged).cloned();
        plan.planned_mde_pct = self.planned_mde_pct;
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

/// `breaker.json` of a run: what would have ended it, and what did.
#[derive(Debug, Clone, Serialize)]
pub struct BreakerRecord {
    pub baseline: Baseline,
    pub limits: Limits,
    pub drill: OffReport,
    pub trip: Option<Trip>,
    pub off: Option<OffReport>,
    /// Seconds until the server was calm again.
    pub recovered_s: Option<f64>,
}

/// How a server is looked at before anything is switched.
#[derive(Debug)]
pub struct PilotRequest<'a> {
    pub target: &'a Target,
    pub probe_query: Option<&'a str>,
    pub files: &'a WatchedFiles,
    pub seconds: f64,
    /// The server's process, where it is on this host.
    pub server_pid: Option<i32>,
    /// The user wants no tap.
    pub without_tap: bool,
}

/// Looks at a server, its users and its host for so long, with nothing switched. `None`: interrupted, or too few probe queries
/// were answered.
///
/// # Errors
/// The server cannot be watched.
pub fn run_pilot(
    request: &PilotRequest<'_>,
    cancel: &CancelToken,
) -> anyhow::Result<Option<(Baseline, UsersView)>> {
    let query = ProbeQuery::choose(request.target, request.probe_query)?;
    let own = fingerprints(&query);
    let mut watch = Watch::start(request.target, query, &[], request.files.clone(), 1)?;
    let (meter, mut users, stretches) = start_meter(request, &own);
    let mut collector = BaselineCollector::default();
    let mut probes = Vec::new();
    let begun = Instant::now();
    let mut next_us = clock::mono_us();
    let mut is_whole = true;
    while is_whole && begun.elapsed().as_secs_f64() < request.seconds {
        next_us += LOOK_US;
        is_whole = cancel.sleep_until(next_us);
        let reading = watch.look();
        probes.extend(reading.probes_us.iter().map(|us| (reading.at_us, us.max(1e-3).ln())));
        collector.add(&reading);
    }
    if let Some(meter) = meter {
        meter.stop(None)?;
    }
    let Some(baseline) = collector.finish().filter(|_| is_whole) else { return Ok(None) };
    let seen: Vec<SeenStretch> = stretches.try_iter().collect();
    users.traffic = SeenTraffic::of(&seen);
    if users.source.is_some() && users.classes().is_empty() {
        users.source = None;
        let per_s = users.traffic.queries_per_s;
        users.not_seen.push(format!("users sent {per_s:.1} queries a second: too few to compare by class"));
    }
    users.probe_noise = noise_of(&by_half_seconds(&probes), HALF_S_US);
    Ok(Some((baseline, users)))
}

const HALF_S_US: u64 = 500_000;

/// Means over half seconds.
fn by_half_seconds(probes: &[(u64, f64)]) -> Vec<PilotSample> {
    let spans = probes.chunk_by(|a, b| a.0 / HALF_S_US == b.0 / HALF_S_US);
    spans
        .map(|span| {
            let ln: Vec<f64> = span.iter().map(|(_, ln)| *ln).collect();
            PilotSample { at_us: span[0].0 / HALF_S_US * HALF_S_US, ln: toll_stats::mean(&ln) }
        })
        .collect()
}

/// The best source that works here; what it sees comes through the channel.
fn start_meter(
    request: &PilotRequest<'_>,
    own: &[String],
) -> (Option<ClassMeter>, UsersView, Receiver<SeenStretch>) {
    let mut users = UsersView::default();
    let (tell, stretches) = channel();
    let mut sources = Vec::new();
    match request.server_pid {
        Some(pid) if !request.without_tap => sources.push(ClassSource::Tap(command(pid))),
        Some(_) => users.not_seen.push("queries on the server's sockets: --no-tap".to_owned()),
        None => users.not_seen.push("the server's host: its CPU, disks, memory and sockets".to_owned()),
    }
    sources.push(ClassSource::Counters(Box::new(request.target.clone())));
    for source in sources {
        let tell = tell.clone();
        let taker = move |stretch| {
            // Nobody listens once the pilot is over.
            let _ = tell.send(stretch);
        };
        match ClassMeter::start(&source, None, own.to_vec(), taker) {
            Ok(meter) => {
                users.source = Some(source);
                return (Some(meter), users, stretches);
            }
            Err(error) => users.not_seen.push(format!("{}: {error:#}", source.describe())),
        }
    }
    (None, users, stretches)
}

/// Of toll's probe queries.
fn fingerprints(query: &ProbeQuery) -> Vec<String> {
    /// A query names one table of few: these name each.
    const DRAWS: u64 = 64;
    let mut draws = Rng::new(1, 0);
    let mut found: Vec<String> = (0..DRAWS)
        .map(|_| {
            let mut text = Vec::new();
            fingerprint(query.next_sql(&mut draws).as_bytes(), &mut text);
            String::from_utf8_lossy(&text).into_owned()
        })
        .collect();
    found.sort();
    found.dedup();
    found
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

/// A guard at work, and what its drill showed.
#[derive(Debug)]
pub struct LiveGuard {
    link: GuardLink,
    request: LiveRequest,
    drill: OffReport,
    meter: Option<ClassMeter>,
    /// The control socket's entry in the journal.
    socket: Option<UndoId>,
}

impl LiveGuard {
    /// Starts the guard, and has it trip once with nothing on.
    ///
    /// # Errors
    /// It does not begin, or fails in its drill: nothing may be switched on.
    pub fn start(
        request: &LiveRequest,
        testbed: &Testbed,
        statement_since_us: Arc<AtomicU64>,
        plan: &Plan,
        recorder: &Recorder,
    ) -> anyhow::Result<Self> {
        let login = |name: &str, target: &Target| -> anyhow::Result<ServerLogin> {
            let path = testbed.work_dir.join(name);
            private_file::write(&path, &target.to_option_file(ClientFamily::Any))?;
            Ok(ServerLogin { defaults_file: path, schema: target.db.clone() })
        };
        let replicas = request.replicas.iter().enumerate().map(|(i, replica)| {
            Ok((replica.name.clone(), login(&format!("replica-{i}.cnf"), &replica.target)?))
        });
        let setup = GuardSetup {
            run_id: testbed.journal.run_id().to_owned(),
            journal_dir: paths::journal_dir()?,
            server: login("guard.cnf", &request.target)?,
            replicas: replicas.collect::<anyhow::Result<_>>()?,
            probe_query: request.probe_query.clone(),
            files: request.files.clone(),
            vetoes: request.vetoes.clone(),
            metrics: request.metrics.clone(),
            limits: request.limits.clone(),
            seed: plan.seed,
        };
        // A guard that is killed leaves its socket.
        let socket = request.vetoes.control.clone().map(|path| testbed.journal.record(Undo::Path { path }));
        let socket = socket.transpose()?;
        let footprint = Arc::new(FootprintMeter::new(request.target.usage.clone()));
        let (own, looks) = (Arc::clone(&footprint), recorder.clone());
        let on_look = move |look: &Look| {
            record_probes(look, &looks);
            own.read(look).into_iter().for_each(|own| looks.record_sample(Sample::Footprint(own)));
        };
        let link = GuardLink::start(&request.guard_command, &setup, statement_since_us, on_look)?;
        let drill = link.drill().context("nothing was switched on")?;
        let meter = request.users.source.as_ref().map(|source| {
            let own = fingerprints(&ProbeQuery::choose(&request.target, request.probe_query.as_deref())?);
            let planned: BTreeSet<String> = plan.classes.iter().map(|class| class.name.clone()).collect();
            let recorder = recorder.clone();
            let taker = move |stretch: SeenStretch| {
                recorder.record_sample(Sample::Classes(stretch.to_sample(|name| planned.contains(name))));
            };
            ClassMeter::start(source, Some(&testbed.journal), own, taker)
        });
        let meter = meter.transpose().context("nothing was switched on")?;
        meter.as_ref().and_then(ClassMeter::pid).into_iter().for_each(|pid| footprint.set_tap(pid));
        footprint.set_guard(link.pid());
        Ok(Self { link, request: request.clone(), drill, meter, socket })
    }

    /// A method is on from now on, or off.
    pub fn set_on(&self, is_on: bool) {
        self.link.set_on(is_on);
    }

    /// Bytes that the method has written by now, in all windows.
    pub fn set_written(&self, bytes: u64) {
        self.link.set_written(bytes);
    }

    /// Milliseconds from the drill's trip to its last acknowledgement.
    pub fn drill_ms(&self) -> f64 {
        self.drill.took_us as f64 / 1e3
    }

    /// Ends the guard, and writes down what it did. Waits for its look at the server's recovery.
    ///
    /// # Errors
    /// It did not end by itself, or the record cannot be written.
    pub fn end(self, dir: &Path, journal: &Journal) -> anyhow::Result<Option<GuardOutcome>> {
        if let Some(meter) = self.meter {
            meter.stop(Some(journal))?;
        }
        let outcome = self.link.end()?;
        if let Some(entry) = self.socket {
            journal.undo(entry)?;
        }
        let record = BreakerRecord {
            baseline: self.request.baseline,
            limits: self.request.limits,
            drill: self.drill,
            trip: outcome.as_ref().map(|outcome| outcome.trip.clone()),
            off: outcome.as_ref().and_then(|outcome| outcome.off.clone()),
            recovered_s: outcome.as_ref().and_then(|outcome| outcome.recovered_s),
        };
        toll_record::write_json(dir, BREAKER_FILE, &record).context("cannot write breaker.json")?;
        Ok(outcome)
    }
}

/// In the run's directory.
pub const BREAKER_FILE: &str = "breaker.json";

impl Guard for LiveGuard {
    fn check(&mut self, now_us: u64) -> Result<(), Tripped> {
        // Without its main outcome a run is exposure for nothing.
        let blind = || {
            let has_ended = self.meter.as_ref().is_some_and(ClassMeter::has_ended);
            has_ended.then(|| "response times are not seen any more: the meter has ended".to_owned())
        };
        let reason = self.link.reason_to_end(now_us).or_else(blind);
        reason.map_or(Ok(()), |reason| Err(Tripped { reason }))
    }
}

fn record_probes(look: &Look, recorder: &Recorder) {
    let times = ClassTimes { count: look.probes, ln_us_sum: look.probe_ln_us_sum };
    let classes = [(ClassSample::PROBE.to_owned(), times)].into();
    recorder.record_sample(Sample::Classes(ClassSample { mono_us: look.at_us, width_us: LOOK_US, classes }));
}

/// Where a method may write to, as far as it is known before it runs: the run's directory, and the server's data and logs.
pub fn space_to_watch(dir: &Path, server_dirs: impl IntoIterator<Item = PathBuf>) -> Vec<PathBuf> {
    let existing = |path: &PathBuf| path.exists();
    let above = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new(".")).to_owned();
    [above].into_iter().chain(server_dirs.into_iter().filter(existing)).collect()
}
