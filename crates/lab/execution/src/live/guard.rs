//! A guard at work: its process, what it saw of the users meanwhile, and the record of both.

use super::pilot::fingerprints;
use super::{GuardedServer, LiveRequest};
use crate::class_meter::{ClassMeter, SeenStretch};
use crate::footprint::FootprintMeter;
use crate::guard::{Guard, Tripped};
use crate::recorder::Recorder;
use crate::testbed::Testbed;
use anyhow::{Context, bail};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use toll_guard::breaker::Trip;
use toll_guard::control::Vetoes;
use toll_guard::limits::{Baseline, Limits};
use toll_guard::link::{GuardLink, GuardOutcome};
use toll_guard::messages::{GuardSetup, Look, OffReport, ServerLogin};
use toll_guard::watch::BEAT_US;
use toll_journal::{Journal, ServerRef, Undo, UndoId};
use toll_mysql::{ClientFamily, Target};
use toll_probe::ProbeQuery;
use toll_record::{ClassSample, ClassTimes, Plan, Sample};
use toll_sys::{paths, private_file};

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

/// A guard at work, and what its drill showed.
#[derive(Debug)]
pub struct LiveGuard {
    link: GuardLink,
    /// Number of its server.
    number: usize,
    server: GuardedServer,
    drill: OffReport,
    meter: Option<ClassMeter>,
    /// The control socket's entry in the journal.
    socket: Option<UndoId>,
}

impl LiveGuard {
    /// Starts the guard of one of the run's servers, and has it trip once with nothing on. `footprint`: of toll in all its
    /// processes.
    ///
    /// # Errors
    /// It does not begin, or fails in its drill: nothing may be switched on.
    pub fn start(
        request: &LiveRequest,
        number: usize,
        testbed: &Testbed,
        plan: &Plan,
        recorder: &Recorder,
        footprint: &Arc<FootprintMeter>,
    ) -> anyhow::Result<Self> {
        let (Some(server), Some(handle)) = (request.servers.get(number), testbed.servers.get(number)) else {
            bail!("a guard needs a server");
        };
        let is_first = number == 0;
        let login = |name: &str, target: &Target| -> anyhow::Result<ServerLogin> {
            let path = testbed.work_dir.join(format!("guard-{number}-{name}.cnf"));
            private_file::write(&path, &target.to_option_file(ClientFamily::Any))?;
            let (schema, identity) = (target.db.clone(), target.identity.clone());
            Ok(ServerLogin { defaults_file: path, schema, identity })
        };
        let replicas =
            request.replicas.iter().filter(|_| is_first).enumerate().map(|(i, replica)| {
                Ok((replica.name.clone(), login(&format!("replica-{i}"), &replica.target)?))
            });
        let others = request.servers.iter().enumerate().filter(|(i, _)| *i != number).map(|(i, other)| {
            let server = ServerRef::from_target(&other.target, None);
            Ok((server, login(&format!("server-{i}"), &other.target)?))
        });
        let vetoes = if is_first { request.vetoes.clone() } else { Vetoes::default() };
        let setup = GuardSetup {
            run_id: testbed.journal.run_id().to_owned(),
            journal_dir: paths::journal_dir()?,
            server: login("server", &server.target)?,
            others: others.collect::<anyhow::Result<_>>()?,
            replicas: replicas.collect::<anyhow::Result<_>>()?,
            probe_query: request.probe_query.clone(),
            files: server.files.clone(),
            vetoes: vetoes.clone(),
            metrics: request.metrics.clone().filter(|_| is_first),
            limits: server.limits.clone(),
            seed: plan.seed,
        };
        let (own, looks) = (Arc::clone(footprint), recorder.clone());
        let on_look = move |look: &Look| {
            record_probes(look, number as u32, &looks);
            if is_first {
                own.read(look).into_iter().for_each(|own| looks.record_sample(Sample::Footprint(own)));
            }
        };
        let link = GuardLink::start(&request.guard_command, &setup, handle.admin.open_since_us(), on_look)?;
        // A guard that is killed leaves its socket. Before the guard has made it, the path may be somebody else's.
        let socket = vetoes.control.map(|path| testbed.journal.record(Undo::Path { path })).transpose()?;
        let drill = link.drill().context("nothing was switched on")?;
        footprint.add_guard(link.pid());
        Ok(Self { link, number, server: server.clone(), drill, meter: None, socket })
    }

    /// Sees the users' response times from now on. Once all guards had their drill, which ends what the run has started.
    ///
    /// # Errors
    /// It does not begin: nothing may be switched on.
    pub fn start_meter(
        &mut self,
        probe_query: Option<&str>,
        journal: &Journal,
        plan: &Plan,
        recorder: &Recorder,
        footprint: &FootprintMeter,
    ) -> anyhow::Result<()> {
        let Some(source) = &self.server.source else { return Ok(()) };
        let own = fingerprints(&ProbeQuery::choose(&self.server.target, probe_query)?);
        let planned: BTreeSet<String> = plan.classes.iter().map(|class| class.name.clone()).collect();
        let (number, recorder) = (self.number as u32, recorder.clone());
        let taker = move |stretch: SeenStretch| {
            let sample = stretch.to_sample(number, |name| planned.contains(name));
            recorder.record_sample(Sample::Classes(sample));
        };
        let meter =
            ClassMeter::start(source, Some(journal), own, taker).context("nothing was switched on")?;
        meter.pid().into_iter().for_each(|pid| footprint.add_tap(pid));
        self.meter = Some(meter);
        Ok(())
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
            baseline: self.server.baseline,
            limits: self.server.limits,
            drill: self.drill,
            trip: outcome.as_ref().map(|outcome| outcome.trip.clone()),
            off: outcome.as_ref().and_then(|outcome| outcome.off.clone()),
            recovered_s: outcome.as_ref().and_then(|outcome| outcome.recovered_s),
        };
        let file = BREAKER_FILES[self.number.min(1)];
        toll_record::write_json(dir, file, &record).with_context(|| format!("cannot write {file}"))?;
        Ok(outcome)
    }
}

/// In the run's directory: of the first server, and of the second.
const BREAKER_FILES: [&str; 2] = ["breaker.json", "breaker-second.json"];

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

fn record_probes(look: &Look, server: u32, recorder: &Recorder) {
    let times = ClassTimes { count: look.probes, ln_us_sum: look.probe_ln_us_sum };
    let classes = [(ClassSample::PROBE.to_owned(), times)].into();
    recorder.record_sample(Sample::Classes(ClassSample {
        mono_us: look.at_us,
        width_us: BEAT_US,
        server,
        classes,
    }));
}
