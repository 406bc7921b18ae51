//! Count of the queries in the artefact of a trial.
//!
//! Made once the window is closed and the treatment off, when nothing is being measured.

use super::bounded_command::count_by_command;
use super::cross_check::{ArtefactRange, CrossCheckSample, SAMPLE_BYTES};
use super::host_env::HostEnv;
use super::trial::{ClosedWindow, TrialParams};
use crate::capture_survey::Survey;
use crate::treatment::{Reading, Treatment};
use anyhow::bail;
use std::path::{Path, PathBuf};
use toll_digest::count::{self, CountWindow};
use toll_model::artefacts::{self, QueryCounter, WindowLookup};
use toll_mysql::Tls;
use toll_record::{Arm, Artefact, ArtefactKind, PacketCounts, QueryCount};

impl HostEnv<'_> {
    /// Counts what the artefact holds and lets it go, or keeps it; of a rehearsal nothing is kept or written down.
    pub(super) fn count_artefact_of(
        &mut self,
        arm: &Arm,
        place: TrialParams,
        treatment: &Treatment,
        window: &ClosedWindow,
    ) {
        let Some(kind) = arm.artefact else {
            self.discard_artefact(treatment);
            return;
        };
        let row = artefacts::spec_of(kind);
        let own_end = matches!(arm.window, toll_record::Window::Done { .. });
        let bytes = |r: &Reading| r.artefact_bytes.unwrap_or(0);
        let survey = self.survey.take();
        let mut line = Artefact {
            trial: place.trial,
            round: place.round,
            arm: arm.name.clone(),
            kind,
            file: None,
            bytes: treatment.artefact_bytes().unwrap_or(0),
            window_bytes: bytes(&window.at_end).saturating_sub(bytes(&window.at_begin)),
            packets: treatment.final_packets(),
            // A window that lasts as long as the tool holds all that it saw.
            window_packets: window_packets(window).or_else(|| own_end.then(|| treatment.final_packets())?),
            held: survey.as_ref().map(|survey| survey.held),
            losses: survey.and_then(|survey| survey.losses),
            queries: None,
            pt_query_digest: None,
            executed: window.load.as_ref().map_or(0, |load| load.statements),
            encrypted: row.is_from_packets && self.is_tls(arm),
            note: None,
        };
        let port = self.testbed.server_of(&arm.name).map(|standing| standing.port);
        if place.counted {
            let counted = match arm.count_with.as_slice() {
                [] => count_queries(row, treatment, window, port),
                words => self.count_by_command(&arm.name, words, treatment, window).map(Some),
            };
            match counted {
                Ok(count) => line.queries = count,
                Err(error) => line.note = Some(format!("not counted: {error:#}")),
            }
        }
        if self.dry_run_dir.is_some() {
            // Counted for the time that it takes.
            treatment.discard_artefact(&self.testbed.journal);
            return;
        }
        if self.keep_artefacts {
            match treatment.keep_artefact(&self.testbed.treatment_context(&arm.name)) {
                Ok(file) => line.file = file,
                Err(error) => line.note = Some(format!("not kept: {error:#}")),
            }
        } else {
            self.discard_artefact(treatment);
        }
        self.artefact_by_arm.entry(arm.name.clone()).or_insert_with(|| line.clone());
        self.recorder.record_artefact(line);
    }

    /// Counts what was written inside the window, by the arm's own command.
    fn count_by_command(
        &self,
        arm: &str,
        words: &[String],
        treatment: &Treatment,
        window: &ClosedWindow,
    ) -> anyhow::Result<QueryCount> {
        let placeholders = self.testbed.placeholders_of(arm);
        let words =
            words.iter().map(|word| placeholders.fill_in(word)).collect::<anyhow::Result<Vec<_>>>()?;
        let (mut queries, mut bytes_read) = (0, 0);
        for (path, (from, to)) in list_window_parts(treatment, window) {
            queries += count_by_command(&words, &path, (from, to), &self.testbed.journal, self.interrupt)?;
            bytes_read += to.saturating_sub(from);
        }
        let by = words.first().cloned().unwrap_or_default();
        Ok(QueryCount { queries, by, bytes_read, executed: None, by_toll: None })
    }

    /// Reads the trial's capture, unless there is a server whose queries are counted in it; `None` too where it
    /// cannot be read to its end.
    pub(super) fn survey_trial_capture(&self, arm: &Arm) -> Option<Survey> {
        let is_alone =
            arm.artefact == Some(ArtefactKind::Pcap) && self.testbed.server_of(&arm.name).is_none();
        if !is_alone {
            return None;
        }
        match crate::capture_survey::survey_capture(&self.treatment.artefact_files()) {
            Ok(survey) => Some(survey),
            Err(error) => {
                self.progress
                    .print_line(&format!("the capture of arm {} cannot be read: {error:#}", arm.name));
                None
            }
        }
    }

    /// Sets a stretch of the artefact aside for pt-query-digest, and lets the rest go.
    pub(super) fn cut_for_cross_check(&mut self, arm: &Arm, treatment: &Treatment, window: &ClosedWindow) {
        let port = self.testbed.server_of(&arm.name).map(|standing| standing.port);
        if let (Some(line), Some(path), Some(port)) =
            (self.artefact_by_arm.get_mut(&arm.name), treatment.artefact_path(), port)
        {
            let (stretch, executed) =
                choose_stretch(artefacts::spec_of(line.kind), window, self.load_began_wall_us);
            match CrossCheckSample::extract(path, stretch, executed, line, port, &self.testbed.work_dir) {
                Ok(Some(cut)) => self.cross_check_samples.push(cut),
                Ok(None) => self.progress.print_line(&format!(
                    "no cross-check of {}: its artefact is empty, too large, or in another format",
                    arm.name
                )),
                Err(error) => self.progress.print_line(&format!("no cross-check of {}: {error:#}", arm.name)),
            }
        }
        treatment.discard_artefact(&self.testbed.journal);
    }

    /// Whether the driver's sessions are encrypted, by the arm's way to the server or by the server's address.
    pub(super) fn is_tls(&self, arm: &Arm) -> bool {
        let Some(standing) = self.testbed.server_of(&arm.name) else { return false };
        standing.endpoints.target(&arm.workload.transport).is_ok_and(|target| target.tls != Tls::Off)
    }

    pub(super) fn discard_artefact(&self, treatment: &Treatment) {
        if !self.keep_artefacts {
            treatment.discard_artefact(&self.testbed.journal);
        }
    }
}

fn window_packets(window: &ClosedWindow) -> Option<PacketCounts> {
    let (a, b) = (window.at_begin.packets?, window.at_end.packets?);
    Some(PacketCounts {
        captured: b.captured.saturating_sub(a.captured),
        received: b.received.saturating_sub(a.received),
        dropped: b.dropped.saturating_sub(a.dropped),
    })
}

fn count_queries(
    row: &artefacts::ArtefactSpec,
    treatment: &Treatment,
    window: &ClosedWindow,
    port: Option<u16>,
) -> anyhow::Result<Option<QueryCount>> {
    match row.query_counter {
        QueryCounter::Uncounted => return Ok(None),
        QueryCounter::Server => {
            let counted = window.at_begin.server_count.zip(window.at_end.server_count);
            return Ok(counted.map(|(a, b)| QueryCount {
                queries: b.saturating_sub(a),
                by: "server".into(),
                bytes_read: 0,
                executed: None,
                by_toll: None,
            }));
        }
        // Without a server nobody can say which of the packets are queries.
        QueryCounter::Digest(_) if port.is_none() => return Ok(None),
        QueryCounter::Digest(_) | QueryCounter::Lines => {}
    }
    let mut sum = QueryCount { queries: 0, by: "toll".into(), bytes_read: 0, executed: None, by_toll: None };
    for (path, (from, to)) in list_window_parts(treatment, window) {
        let over = match row.window_lookup {
            WindowLookup::ByTime => CountWindow::Time {
                since_ns: window.begin_wall_us * 1000,
                until_ns: window.end_wall_us * 1000,
            },
            WindowLookup::ByBytes => CountWindow::Bytes { from, to },
        };
        let counted = count_file(&path, row, over, port.as_slice())?;
        sum.queries += counted.queries;
        sum.bytes_read += counted.bytes_read;
    }
    Ok(Some(sum))
}

/// Files of the artefact, oldest first, with the bytes of each that were written inside the window.
fn list_window_parts(treatment: &Treatment, window: &ClosedWindow) -> Vec<(PathBuf, (u64, u64))> {
    // Where one file of a series ends and the next begins, by its place in all of it.
    let mut before = 0;
    let parts = treatment.artefact_files().into_iter().map(|path| {
        let length = std::fs::metadata(&path).map_or(0, |meta| meta.len());
        let at = |reading: &Reading| reading.artefact_bytes.unwrap_or(0).saturating_sub(before).min(length);
        let part = (at(&window.at_begin), at(&window.at_end));
        before += length;
        (path, part)
    });
    parts.collect()
}

/// Counts the queries that an artefact of this kind holds.
pub(super) fn count_file(
    path: &Path,
    row: &artefacts::ArtefactSpec,
    over: CountWindow,
    ports: &[u16],
) -> anyhow::Result<count::ArtifactQueryCount> {
    let kind = match row.query_counter {
        QueryCounter::Digest(kind) => Some(kind),
        QueryCounter::Lines => None,
        QueryCounter::Server | QueryCounter::Uncounted => bail!("artefacts of this kind hold no queries"),
    };
    count::count_queries(path, kind, over, ports)
}

/// What a capture tool has not yet read from its ring when it is ended is lost: tcpdump is given packets a tenth of a second
/// late where few come, dumpcap a quarter.
const RING_DELAY_US: u64 = 300_000;

/// As many whole bins from the window's begin as make a stretch of about [`SAMPLE_BYTES`] with what led up to it since
/// the load connected, but one at least.
fn choose_stretch(
    row: &artefacts::ArtefactSpec,
    window: &ClosedWindow,
    connected_wall_us: u64,
) -> (ArtefactRange, u64) {
    let load = window.load.as_ref();
    let bytes = |r: &Reading| r.artefact_bytes.unwrap_or(0);
    let (begin, end) = (bytes(&window.at_begin), bytes(&window.at_end));
    if row.window_lookup == WindowLookup::ByBytes {
        return (ArtefactRange::Bytes { begin, end }, load.map_or(0, |load| load.statements));
    }
    let length_us = window.end_wall_us.saturating_sub(window.begin_wall_us).max(1);
    let led_up_us = window.begin_wall_us.saturating_sub(connected_wall_us);
    let share = SAMPLE_BYTES as f64 / end.saturating_sub(begin).max(1) as f64;
    let wanted_us = ((length_us as f64 * share) as u64).saturating_sub(led_up_us);
    let bins = load.map_or(&[][..], |load| &load.first_bins);
    let is_whole = |end: u64| end + RING_DELAY_US <= window.end_mono_us;
    let fits =
        |(end, _): &&(u64, u64)| end.saturating_sub(window.begin_mono_us) <= wanted_us && is_whole(*end);
    let last = bins.iter().rev().find(fits).or(bins.first()).copied();
    let (end_mono_us, executed) = last.unwrap_or((window.begin_mono_us, 0));
    let since_us = window.begin_wall_us;
    let end_us = since_us + end_mono_us.saturating_sub(window.begin_mono_us);
    (ArtefactRange::Time { begin_us: connected_wall_us, since_us, end_us }, executed)
}
