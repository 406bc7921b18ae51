//! Pauses in a command's output, and the host and server columns that differed meanwhile.
//!
//! For commands that end by themselves. Stretches are known to a tenth of a second. Names the columns that
//! differed; the reader judges whether they were the cause.

use super::run_data::{RunData, samples_within};
use super::windows::Window;
use std::collections::BTreeMap;
use toll_record::{
    Axis, Beside, Chart, ChartKind, ChartSeries, HostSample, OutputSample, Pause, PressureSample, ProcessEnd,
};

/// Shortest pause, microseconds. Any program has many shorter ones.
const MIN_PAUSE_US: u64 = 1_000_000;
/// Columns that are named beside a pause.
const MAX_NAMED_COLUMNS: usize = 4;
/// Fewest samples for a mean of the rest of the window.
const FEWEST_OTHERS: usize = 3;
/// Standard deviations by which a column must differ from the rest. It must also differ by a share of itself.
const OUTLIER_SD: f64 = 2.0;
const OUTLIER_SHARE: f64 = 0.3;
/// Smallest difference of a share of time, percent.
const OUTLIER_PCT: f64 = 5.0;
/// Interval of host and server samples, microseconds. The sample that ends after a pause covers the pause's
/// end.
const SAMPLE_INTERVAL_US: u64 = 1_000_000;
/// Most pauses that are drawn.
const MAX_DRAWN: usize = 40;

/// Observed output of one process in a trial.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OutputTimeline {
    /// Seconds from its start.
    pub first_output_s: f64,
    /// Begin and end of each stretch without output, the one before its first byte among them.
    silent_spans: Vec<(u64, u64)>,
}

impl OutputTimeline {
    /// `None` if no output was observed.
    pub fn of(recorded: &RunData, trial: u32, end: &ProcessEnd) -> Option<Self> {
        let seen = samples_within(
            &recorded.outputs,
            end.begin_mono_us,
            end.end_mono_us.saturating_add(MIN_PAUSE_US),
        );
        let own: Vec<&OutputSample> =
            seen.iter().filter(|s| s.trial == trial && s.process == end.name).collect();
        let first = own.iter().find(|sample| sample.output_bytes > 0)?;
        let mut silences: Vec<(u64, u64)> = Vec::new();
        for sample in own.iter().filter(|sample| sample.output_bytes == 0) {
            let begin = sample.mono_us.saturating_sub(sample.width_us);
            match silences.last_mut() {
                Some(last) if begin <= last.1 => last.1 = sample.mono_us,
                _ => silences.push((begin, sample.mono_us)),
            }
        }
        let first_output_s = first.mono_us.saturating_sub(end.begin_mono_us) as f64 / 1e6;
        Some(Self { first_output_s, silent_spans: silences })
    }

    pub fn longest_s(&self) -> f64 {
        self.silent_spans.iter().map(|(begin, end)| end - begin).max().unwrap_or(0) as f64 / 1e6
    }

    pub fn paused_s(&self) -> f64 {
        self.pauses().map(|(begin, end)| end - begin).sum::<u64>() as f64 / 1e6
    }

    fn pauses(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.silent_spans.iter().copied().filter(|(begin, end)| end - begin >= MIN_PAUSE_US)
    }
}

/// All pauses of the run, in order of time. None on a counted clock, where a command that writes nothing works on.
pub fn find_pauses(recorded: &RunData, windows: &[Window]) -> Vec<Pause> {
    let mut pauses = Vec::new();
    if !recorded.plan.clock.is_real() {
        return pauses;
    }
    for window in windows.iter().filter(|w| recorded.plan.arms[w.arm].window.is_until_done()) {
        let arm = &recorded.plan.arms[window.arm];
        // What only keeps the others company, and what writes words alone.
        let beside = |name: &str| {
            arm.treatment.processes.iter().any(|p| (p.background || p.keep_stdout) && p.name == name)
        };
        let of_window: Vec<(&str, (u64, u64))> = (window.processes.iter())
            .filter(|end| !beside(&end.name))
            .filter_map(|end| Some((end.name.as_str(), OutputTimeline::of(recorded, window.trial, end)?)))
            .flat_map(|(name, stream)| stream.pauses().map(move |pause| (name, pause)).collect::<Vec<_>>())
            .collect();
        let all: Vec<(u64, u64)> = of_window.iter().map(|(_, pause)| *pause).collect();
        pauses.extend(of_window.into_iter().map(|(process, (begin, end))| Pause {
            arm: arm.name.clone(),
            trial: window.trial,
            round: window.round,
            process: process.to_owned(),
            begin_mono_us: begin,
            end_mono_us: end,
            begin_s: begin.saturating_sub(window.begin_us) as f64 / 1e6,
            beside: find_outlying_columns(recorded, window, (begin, end), &all),
        }));
    }
    pauses.sort_by_key(|pause| (pause.begin_mono_us, pause.end_mono_us));
    pauses
}

/// Chart of pauses over the run. `None` if there are none.
pub fn chart(pauses: &[Pause], told: impl Fn(&Pause) -> String) -> Option<Chart> {
    let mut longest: Vec<&Pause> = pauses.iter().collect();
    longest.sort_by_key(|pause| std::cmp::Reverse(pause.end_mono_us - pause.begin_mono_us));
    longest.truncate(MAX_DRAWN);
    let seconds = |pause: &Pause| (pause.end_mono_us - pause.begin_mono_us) as f64 / 1e6;
    let points = longest.iter().enumerate().map(|(i, pause)| (i as f64, seconds(pause), None, None));
    (!longest.is_empty()).then(|| Chart {
        id: "pauses".into(),
        title: "Pauses in what commands write".into(),
        kind: ChartKind::Table,
        x: Axis {
            label: "pause".into(),
            categories: longest.iter().map(|p| format!("{}, {}", p.arm, told(p))).collect(),
            ..Axis::default()
        },
        y: Axis { label: "length".into(), unit: "s".into(), ..Axis::default() },
        series: vec![ChartSeries { name: "length".into(), points: points.collect() }],
        note: "A second or more in which a command that ends by itself wrote nothing; the longest first."
            .into(),
    })
}

/// Samples of one column, in the pause and in the rest of the window.
#[derive(Debug, Default)]
struct ColumnSamples {
    during: Vec<f64>,
    outside: Vec<f64>,
}

fn find_outlying_columns(
    recorded: &RunData,
    window: &Window,
    pause: (u64, u64),
    all: &[(u64, u64)],
) -> Vec<Beside> {
    let mut columns: BTreeMap<String, ColumnSamples> = BTreeMap::new();
    let mut take = |name: &str, end_us: u64, beat_us: u64, value: Option<f64>| {
        let Some(value) = value else { return };
        let readings = columns.entry(name.to_owned()).or_default();
        let middle = end_us.saturating_sub(beat_us / 2);
        let touches = |&(begin, end): &(u64, u64)| end_us > begin && end_us.saturating_sub(beat_us) < end;
        if pause.0 <= middle && middle < pause.1 {
            readings.during.push(value);
        } else if !all.iter().any(touches) {
            readings.outside.push(value);
        }
    };
    let until = window.end_us.saturating_add(SAMPLE_INTERVAL_US);
    for sample in samples_within(&recorded.hosts, window.begin_us, until) {
        // What averages over minutes, or is a level, says nothing of these seconds.
        let names = HostSample::COLUMNS.iter().filter(|n| !n.starts_with("load_") && !n.starts_with("mem_"));
        names.for_each(|name| take(name, sample.mono_us, SAMPLE_INTERVAL_US, sample.column(name)));
    }
    for sample in samples_within(&recorded.pressures, window.begin_us, until) {
        PressureSample::COLUMNS
            .iter()
            .for_each(|name| take(name, sample.mono_us, SAMPLE_INTERVAL_US / 10, sample.column(name)));
    }
    let server = recorded.plan.setup.server_index(&recorded.plan.arms[window.arm].name);
    for sample in samples_within(&recorded.servers, window.begin_us, until)
        .iter()
        .filter(|s| s.server as usize == server)
    {
        let values = sample.values.iter().filter(|(name, _)| *name != "Uptime");
        values.for_each(|(name, value)| take(name, sample.mono_us, SAMPLE_INTERVAL_US, Some(*value)));
    }
    let mut found: Vec<(f64, Beside)> = columns
        .into_iter()
        .filter_map(|(name, readings)| {
            if readings.during.is_empty() || readings.outside.len() < FEWEST_OTHERS {
                return None;
            }
            let (during, otherwise) =
                (toll_stats::mean(&readings.during), toll_stats::mean(&readings.outside));
            let apart = (during - otherwise).abs();
            let share = apart / during.abs().max(otherwise.abs()).max(f64::MIN_POSITIVE);
            let least = if name.ends_with("_pct") { OUTLIER_PCT } else { 0.0 };
            let stands_out = apart > OUTLIER_SD * toll_stats::sd(&readings.outside)
                && share > OUTLIER_SHARE
                && apart > least;
            stands_out.then_some((share, Beside { name, during, otherwise }))
        })
        .collect();
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.name.cmp(&b.1.name)));
    found.into_iter().map(|(_, beside)| beside).take(MAX_NAMED_COLUMNS).collect()
}
