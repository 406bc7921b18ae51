//! How does one arm have its turn: start, settle, window, stop, count?
//!
//! A command whose end closes the window is started with the window, at an edge between two bins.

use super::calm::Waited;
use super::second_opinion::{CUT_BYTES, Cut, Stretch};
use super::{BINS_WITHIN, Conductor, readings};
use crate::clock;
use crate::digest::count::{self, CountWindow};
use crate::recorder::step;
use crate::scenario::Arm;
use crate::treatment::{Bench, Fill, Reading, Treatment};
use crate::workload::{Driver, WindowLoad};
use anyhow::Context;
use toll_load::Tls;
use toll_record::{Artefact, ArtefactKind, Ends, QueryCount, Step};

/// The window of a trial, as it came to be.
struct Window {
    begin_mono_us: u64,
    begin_wall_us: u64,
    end_wall_us: u64,
    at_begin: Reading,
    at_end: Reading,
    load: WindowLoad,
}

/// One trial's place in the run.
#[derive(Clone, Copy)]
struct Turn<'t> {
    arm: &'t Arm,
    trial: u32,
    round: u32,
    jitter_s: f64,
    fill: &'t Fill,
}

/// How often a command has ended by itself, and what these runs of it took together.
#[derive(Debug, Default)]
struct Runs {
    done: u32,
    took_us: u64,
    /// When the one that is going on began.
    begun_us: u64,
}

impl Runs {
    fn count(&mut self, now_us: u64) {
        self.done += 1;
        self.took_us += now_us.saturating_sub(self.begun_us);
        self.begun_us = now_us;
    }
}

/// Time past the window for which a treatment is told to last, so that it never ends by itself.
///
/// A busy host may take its time to start a tool; nothing hangs on the length itself.
const SLACK_S: f64 = 60.0;
/// How often a treatment is looked after while its window is open.
const WATCH_US: u64 = 200_000;
/// The same where its end closes the window or has it run again. Each look costs about 10 us.
const WATCH_CLOSELY_US: u64 = 2_000;

impl Conductor<'_> {
    /// False when interrupted; the treatment is off in every case.
    pub(super) fn trial(
        &mut self,
        trial: u32,
        round: u32,
        name: &str,
        jitter_s: f64,
    ) -> anyhow::Result<bool> {
        let (arm, workload) = self.arm(name)?;
        if arm.until_done {
            return self.trial_until_done(arm, trial, round);
        }
        self.ensure_driver(&arm.name, &workload, false)?;
        let waited = self.calm.as_ref().map(|calm| calm.wait(self.interrupt));
        if waited == Some(Waited::Interrupted) {
            return Ok(false);
        }
        let lasts = self.plan.settle_s + jitter_s + self.plan.window_s + SLACK_S;
        let mut fill = self.stage.fill_of(name);
        fill.set("duration_s", format!("{}", lasts.ceil()));
        let mut line = step(trial, round, name, Step::Start);
        line.note = waited.and_then(|waited| waited.note());
        self.recorder.trial(line);
        let mut treatment = Treatment::none();
        let mut runs = Runs::default();
        if self.ends(name) != Ends::ClosesWindow {
            treatment = Treatment::start(arm, &fill, trial, &mut self.stage.bench(&arm.name))?;
            runs.begun_us = clock::mono_us();
            self.recorder.trial(step(trial, round, name, Step::Ready));
        }
        let turn = Turn { arm, trial, round, jitter_s, fill: &fill };
        let window = self.window(&turn, &mut treatment, &mut runs);
        let stopped = self.stop_treatment(arm, trial, round, &mut treatment);
        let window = stopped.and(window);
        if window.is_err() {
            self.discard(&treatment);
        }
        let Some(window) = window? else {
            self.discard(&treatment);
            return Ok(false);
        };
        self.account(arm, trial, round, &treatment, &window)?;
        Ok(true)
    }

    /// A window that is as long as its command takes, with no load beside it.
    fn trial_until_done(&mut self, arm: &Arm, trial: u32, round: u32) -> anyhow::Result<bool> {
        self.stop_load()?;
        let name = &arm.name;
        self.recorder.trial(step(trial, round, name, Step::Start));
        if !self.interrupt.sleep(self.plan.settle_s) {
            return Ok(false);
        }
        let fill = self.stage.fill_of(name);
        let mut begin = step(trial, round, name, Step::WindowBegin);
        begin.cpu = Some(readings::cpu(self.stage.server_of(name), None, &Treatment::none()));
        begin.mono_us = clock::mono_us();
        self.recorder.trial(begin);
        let mut treatment = Treatment::start(arm, &fill, trial, &mut self.stage.bench(&arm.name))?;
        let done = treatment.wait_done(&|| self.interrupt.raised());
        let mut end = step(trial, round, name, Step::WindowEnd);
        end.cpu = Some(readings::cpu(self.stage.server_of(name), None, &Treatment::none()));
        if matches!(done, Ok(true)) {
            self.recorder.trial(end);
        }
        self.stop_treatment(arm, trial, round, &mut treatment)?;
        self.discard(&treatment);
        done
    }

    /// Switches the arm off and writes down what that took.
    fn stop_treatment(
        &mut self,
        arm: &Arm,
        trial: u32,
        round: u32,
        treatment: &mut Treatment,
    ) -> anyhow::Result<()> {
        let load = self.driver.as_ref().and_then(Driver::pausable);
        let stopped = treatment.stop(&mut Bench { load, ..self.stage.bench(&arm.name) });
        let mut line = step(trial, round, &arm.name, Step::Stopped);
        line.note = (!stopped.notes.is_empty()).then(|| stopped.notes.join("; "));
        self.recorder.trial(line);
        stopped.not_put_back.map_or(Ok(()), |not| Err(not.into()))
    }

    /// Settles, opens the window, closes it. `None`: interrupted.
    fn window(
        &mut self,
        turn: &Turn<'_>,
        treatment: &mut Treatment,
        runs: &mut Runs,
    ) -> anyhow::Result<Option<Window>> {
        let Turn { arm, trial, round, .. } = *turn;
        let (_, workload) = self.arm(&arm.name)?;
        if arm.fresh_sessions {
            self.ensure_driver(&arm.name, &workload, true)?;
        }
        let name = &arm.name;
        let ends = self.ends(name);
        let settled = clock::mono_us() + ((self.plan.settle_s + turn.jitter_s) * 1e6) as u64;
        if self.watch(name, treatment, runs, ends, settled)?.is_none() {
            return Ok(None);
        }
        let driver = self.driver.as_mut().context("no driver")?;
        driver.check()?;
        let width = driver.feed.bin_width_us();
        let begin = driver.feed.edge_at_or_after(clock::mono_us() + width / 2);
        let bins = ((self.plan.window_s * 1e6) as u64).div_ceil(width).max(1);
        let mut end = begin + bins * width;
        driver.feed.open_window(begin, end);
        clock::sleep_until(begin);
        let begin_wall_us = clock::wall_us();
        let mut line = step(trial, round, name, Step::WindowBegin);
        line.cpu = Some(readings::cpu(self.stage.server_of(name), self.driver.as_ref(), treatment));
        let at_begin = treatment.read(self.stage.standing(name).map(|standing| &mut standing.admin));
        line.mono_us = begin;
        line.wall_us = begin_wall_us;
        line.artefact_bytes = at_begin.artefact_bytes;
        self.recorder.trial(line);
        (runs.done, runs.took_us) = (0, 0);
        if ends == Ends::ClosesWindow {
            runs.begun_us = clock::mono_us();
            *treatment = Treatment::start(arm, turn.fill, trial, &mut self.stage.bench(&arm.name))?;
        }
        treatment.mark_begin(&at_begin);
        let mut next = begin;
        while next < end {
            next = (next + WATCH_US).min(end);
            let Some(over) = self.watch(name, treatment, runs, ends, next)? else { return Ok(None) };
            let driver = self.driver.as_mut().context("no driver")?;
            driver.check()?;
            self.progress.feed(driver.feed.live());
            if over {
                let edge = driver.feed.edge_at_or_after(clock::mono_us()).max(begin + width);
                end = driver.feed.close_at(edge);
                if !self.interrupt.sleep_until(end) {
                    return Ok(None);
                }
            }
        }
        let end_wall_us = clock::wall_us();
        let mut line = step(trial, round, name, Step::WindowEnd);
        line.cpu = Some(readings::cpu(self.stage.server_of(name), self.driver.as_ref(), treatment));
        let at_end = treatment.read(self.stage.standing(name).map(|standing| &mut standing.admin));
        line.mono_us = end;
        line.wall_us = end_wall_us;
        line.artefact_bytes = at_end.artefact_bytes;
        if !ends.is_never() {
            (line.runs, line.runs_us) = (Some(runs.done), Some(runs.took_us));
        }
        let driver = self.driver.as_mut().context("no driver")?;
        let load =
            driver.feed.close_window(BINS_WITHIN).context("the load driver fell silent inside a window")?;
        self.recorder.trial(line);
        if let Some(histogram) = load.histogram.clone() {
            self.recorder.latency(name, trial, begin, end - begin, histogram);
        }
        Ok(Some(Window { begin_mono_us: begin, begin_wall_us, end_wall_us, at_begin, at_end, load }))
    }

    /// Looks after the treatment until a moment of the monotonic clock, or until the command that closes the
    /// window has ended: then true. `None`: interrupted.
    fn watch(
        &mut self,
        name: &str,
        treatment: &mut Treatment,
        runs: &mut Runs,
        ends: Ends,
        until_us: u64,
    ) -> anyhow::Result<Option<bool>> {
        if ends.is_never() {
            let passed = self.interrupt.sleep_until(until_us);
            if passed {
                treatment.check_alive()?;
            }
            return Ok(passed.then_some(false));
        }
        loop {
            if treatment.has_ended()? {
                runs.count(clock::mono_us());
                if ends == Ends::ClosesWindow {
                    return Ok(Some(true));
                }
                treatment.run_again(&self.stage.bench(name))?;
            }
            let now = clock::mono_us();
            if now >= until_us {
                return Ok(Some(false));
            }
            if !self.interrupt.sleep_until((now + WATCH_CLOSELY_US).min(until_us)) {
                return Ok(None);
            }
        }
    }

    /// Counts what the artefact holds, now that nothing is being measured, and lets it go.
    fn account(
        &mut self,
        arm: &Arm,
        trial: u32,
        round: u32,
        treatment: &Treatment,
        window: &Window,
    ) -> anyhow::Result<()> {
        let Some(kind) = arm.artefact else {
            self.discard(treatment);
            return Ok(());
        };
        let bytes = |r: &Reading| r.artefact_bytes.unwrap_or(0);
        let mut line = Artefact {
            trial,
            round,
            arm: arm.name.clone(),
            kind,
            file: None,
            bytes: treatment.artefact_bytes().unwrap_or(0),
            window_bytes: bytes(&window.at_end).saturating_sub(bytes(&window.at_begin)),
            packets: treatment.final_packets(),
            window_packets: treatment.window_packets(&window.at_end),
            queries: None,
            pt_query_digest: None,
            executed: window.load.statements,
            encrypted: matches!(kind, ArtefactKind::Pcap | ArtefactKind::TcpdumpText) && self.is_tls(arm),
            note: None,
        };
        let port = self.stage.server_of(&arm.name).map(|standing| standing.port);
        match count_queries(kind, treatment, window, port) {
            Ok(count) => line.queries = count,
            Err(error) => line.note = Some(format!("not counted: {error:#}")),
        }
        if round == 0
            && let (Some(path), Some(port)) = (treatment.artefact_path(), port)
        {
            let (stretch, executed) = first_stretch(kind, window, line.window_bytes);
            match Cut::take(path, stretch, executed, &line, port, &self.stage.work_dir) {
                Ok(cut) => self.cuts.extend(cut),
                Err(error) => line.note = Some(format!("no stretch for pt-query-digest: {error:#}")),
            }
        }
        if self.keep_artefacts {
            match treatment.keep(&self.stage.bench(&arm.name)) {
                Ok(file) => line.file = file,
                Err(error) => line.note = Some(format!("not kept: {error:#}")),
            }
        } else {
            self.discard(treatment);
        }
        self.recorder.artefact(line);
        Ok(())
    }

    /// Whether the driver's sessions are encrypted, by the arm's way to the server or by the server's address.
    fn is_tls(&self, arm: &Arm) -> bool {
        let Some(standing) = self.stage.server_of(&arm.name) else { return false };
        let way = self.arm(&arm.name).and_then(|(_, load)| standing.endpoints.target(&load.transport));
        way.is_ok_and(|target| target.tls != Tls::Off)
    }

    fn discard(&self, treatment: &Treatment) {
        if !self.keep_artefacts {
            treatment.discard(&self.stage.journal);
        }
    }
}

fn count_queries(
    kind: ArtefactKind,
    treatment: &Treatment,
    window: &Window,
    port: Option<u16>,
) -> anyhow::Result<Option<QueryCount>> {
    if kind == ArtefactKind::Bytes {
        return Ok(None);
    }
    if kind == ArtefactKind::Server {
        let counted = window.at_begin.server_count.zip(window.at_end.server_count);
        return Ok(counted.map(|(a, b)| QueryCount {
            queries: b.saturating_sub(a),
            by: "server".into(),
            bytes_read: 0,
            executed: None,
        }));
    }
    // What no server said holds no queries.
    let (Some(path), Some(port)) = (treatment.artefact_path(), port) else { return Ok(None) };
    let over = match kind {
        ArtefactKind::Pcap | ArtefactKind::TcpdumpText => {
            CountWindow::Time { since_ns: window.begin_wall_us * 1000, until_ns: window.end_wall_us * 1000 }
        }
        _ => CountWindow::Bytes {
            from: window.at_begin.artefact_bytes.unwrap_or(0),
            to: window.at_end.artefact_bytes.unwrap_or(0),
        },
    };
    let counted = count::count(path, kind, over, &[port])?;
    Ok(Some(QueryCount {
        queries: counted.queries,
        by: "toll".into(),
        bytes_read: counted.bytes_read,
        executed: None,
    }))
}

/// As many whole bins from the window's begin as make a stretch of about [`CUT_BYTES`].
fn first_stretch(kind: ArtefactKind, window: &Window, window_bytes: u64) -> (Stretch, u64) {
    if !matches!(kind, ArtefactKind::Pcap | ArtefactKind::TcpdumpText) {
        let bytes = |r: &Reading| r.artefact_bytes.unwrap_or(0);
        let stretch = Stretch::Bytes { begin: bytes(&window.at_begin), end: bytes(&window.at_end) };
        return (stretch, window.load.statements);
    }
    let length_us = window.end_wall_us.saturating_sub(window.begin_wall_us).max(1);
    let share = (CUT_BYTES as f64 / window_bytes.max(1) as f64).min(1.0);
    let wanted_us = (length_us as f64 * share) as u64;
    let bins = &window.load.first_bins;
    let fits = |(end, _): &&(u64, u64)| end.saturating_sub(window.begin_mono_us) <= wanted_us;
    let last = bins.iter().rev().find(fits).or(bins.first()).copied();
    let (end_mono_us, executed) = last.unwrap_or((window.begin_mono_us, 0));
    let end_us = window.begin_wall_us + end_mono_us.saturating_sub(window.begin_mono_us);
    (Stretch::Wall { begin_us: window.begin_wall_us, end_us }, executed)
}
