//! How does one arm have its turn: start, settle, window, stop, count?

use super::calm::Waited;
use super::second_opinion::{CUT_BYTES, Cut, Stretch};
use super::{BINS_WITHIN, Conductor, readings};
use crate::clock;
use crate::digest::count::{self, CountWindow};
use crate::recorder::step;
use crate::scenario::Arm;
use crate::treatment::{Reading, Treatment};
use crate::workload::WindowLoad;
use anyhow::Context;
use toll_load::Tls;
use toll_record::{Artefact, ArtefactKind, QueryCount, Step};

/// The window of a trial, as it came to be.
struct Window {
    begin_mono_us: u64,
    begin_wall_us: u64,
    end_wall_us: u64,
    at_begin: Reading,
    at_end: Reading,
    load: WindowLoad,
}

/// Time past the window for which a treatment is told to last, so that it never ends by itself.
///
/// A busy host may take its time to start a tool; nothing hangs on the length itself.
const SLACK_S: f64 = 60.0;
/// How often a treatment is looked after while its window is open.
const WATCH_US: u64 = 200_000;

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
        self.ensure_driver(&workload, false)?;
        let waited = self.calm.as_ref().map(|calm| calm.wait(self.interrupt));
        if waited == Some(Waited::Interrupted) {
            return Ok(false);
        }
        let lasts = self.plan.settle_s + jitter_s + self.plan.window_s + SLACK_S;
        let mut fill = self.stage.fill.clone();
        fill.set("duration_s", format!("{}", lasts.ceil()));
        let mut line = step(trial, round, name, Step::Start);
        line.note = waited.and_then(|waited| waited.note());
        self.recorder.trial(line);
        let mut bench = self.stage.bench();
        let mut treatment = Treatment::start(arm, &fill, trial, &mut bench)?;
        self.recorder.trial(step(trial, round, name, Step::Ready));
        let window = self.window(arm, trial, round, jitter_s, &mut treatment);
        let mut bench = self.stage.bench();
        let notes = treatment.stop(&mut bench);
        let mut line = step(trial, round, name, Step::Stopped);
        line.note = (!notes.is_empty()).then(|| notes.join("; "));
        self.recorder.trial(line);
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
        let fill = self.stage.fill.clone();
        let mut begin = step(trial, round, name, Step::WindowBegin);
        begin.cpu = Some(readings::cpu(self.stage, None, &Treatment::none()));
        begin.mono_us = clock::mono_us();
        self.recorder.trial(begin);
        let mut treatment = Treatment::start(arm, &fill, trial, &mut self.stage.bench())?;
        let done = treatment.wait_done(&|| self.interrupt.raised());
        let mut end = step(trial, round, name, Step::WindowEnd);
        end.cpu = Some(readings::cpu(self.stage, None, &Treatment::none()));
        let notes = treatment.stop(&mut self.stage.bench());
        if !done? {
            return Ok(false);
        }
        self.recorder.trial(end);
        let mut line = step(trial, round, name, Step::Stopped);
        line.note = (!notes.is_empty()).then(|| notes.join("; "));
        self.recorder.trial(line);
        self.discard(&treatment);
        Ok(true)
    }

    /// Settles, opens the window, closes it. `None`: interrupted.
    fn window(
        &mut self,
        arm: &Arm,
        trial: u32,
        round: u32,
        jitter_s: f64,
        treatment: &mut Treatment,
    ) -> anyhow::Result<Option<Window>> {
        let (_, workload) = self.arm(&arm.name)?;
        if arm.fresh_sessions {
            self.ensure_driver(&workload, true)?;
        }
        let name = &arm.name;
        if !self.interrupt.sleep(self.plan.settle_s + jitter_s) {
            return Ok(None);
        }
        treatment.check_alive()?;
        let driver = self.driver.as_mut().context("no driver")?;
        driver.check()?;
        let width = driver.feed.bin_width_us();
        let begin = driver.feed.edge_at_or_after(clock::mono_us() + width / 2);
        let bins = ((self.plan.window_s * 1e6) as u64).div_ceil(width).max(1);
        let end = begin + bins * width;
        driver.feed.open_window(begin, end);
        clock::sleep_until(begin);
        let begin_wall_us = clock::wall_us();
        let mut line = step(trial, round, name, Step::WindowBegin);
        line.cpu = Some(readings::cpu(self.stage, self.driver.as_ref(), treatment));
        let at_begin = treatment.read(&mut self.stage.admin);
        line.mono_us = begin;
        line.wall_us = begin_wall_us;
        line.artefact_bytes = at_begin.artefact_bytes;
        self.recorder.trial(line);
        treatment.mark_begin(&at_begin);
        let mut next = begin;
        while next < end {
            next = (next + WATCH_US).min(end);
            if !self.interrupt.sleep_until(next) {
                return Ok(None);
            }
            treatment.check_alive()?;
            let driver = self.driver.as_mut().context("no driver")?;
            driver.check()?;
            self.progress.feed(driver.feed.live());
        }
        let end_wall_us = clock::wall_us();
        let mut line = step(trial, round, name, Step::WindowEnd);
        line.cpu = Some(readings::cpu(self.stage, self.driver.as_ref(), treatment));
        let at_end = treatment.read(&mut self.stage.admin);
        line.mono_us = end;
        line.wall_us = end_wall_us;
        line.artefact_bytes = at_end.artefact_bytes;
        let driver = self.driver.as_mut().context("no driver")?;
        let load =
            driver.feed.close_window(BINS_WITHIN).context("the load driver fell silent inside a window")?;
        self.recorder.trial(line);
        if let Some(histogram) = load.histogram.clone() {
            self.recorder.latency(name, trial, begin, end - begin, histogram);
        }
        Ok(Some(Window { begin_mono_us: begin, begin_wall_us, end_wall_us, at_begin, at_end, load }))
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
        match count_queries(kind, treatment, window, self.stage.port) {
            Ok(count) => line.queries = count,
            Err(error) => line.note = Some(format!("not counted: {error:#}")),
        }
        if round == 0
            && let Some(path) = &treatment.artefact
        {
            let (stretch, executed) = first_stretch(kind, window, line.window_bytes);
            match Cut::take(path, stretch, executed, &line, &self.stage.work_dir) {
                Ok(cut) => self.cuts.extend(cut),
                Err(error) => line.note = Some(format!("no stretch for pt-query-digest: {error:#}")),
            }
        }
        if self.keep_artefacts {
            line.file = treatment
                .artefact
                .as_ref()
                .and_then(|p| Some(format!("artefacts/{}", p.file_name()?.to_str()?)));
        } else {
            self.discard(treatment);
        }
        self.recorder.artefact(line);
        Ok(())
    }

    /// Whether the driver's sessions are encrypted, by the arm's way to the server or by the server's address.
    fn is_tls(&self, arm: &Arm) -> bool {
        let way = self.arm(&arm.name).and_then(|(_, load)| self.stage.endpoints.target(&load.transport));
        way.is_ok_and(|target| target.tls != Tls::Off)
    }

    fn discard(&self, treatment: &Treatment) {
        if !self.keep_artefacts
            && let Some(path) = &treatment.artefact
        {
            // A tool that wrote nothing made no file.
            let _ = std::fs::remove_file(path);
        }
    }
}

fn count_queries(
    kind: ArtefactKind,
    treatment: &Treatment,
    window: &Window,
    port: u16,
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
    let Some(path) = &treatment.artefact else { return Ok(None) };
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
