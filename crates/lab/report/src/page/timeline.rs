//! Timeline of a run: series over time, and the stretch of each trial.
//!
//! Panels have their own titles and units, so that the page can draw series that it does not know. Never
//! interprets: no smoothing, no totals, no judgement.

use super::downsample::{MAX_POINTS, downsample};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use toll_record::{HostSample, PressureSample, Sample, Step, TrialLine};

/// Most server counters shown: the first by name.
const SERVER_SERIES: usize = 40;

const MIB: f64 = 1_048_576.0;

/// Id, title and unit of a panel.
type Head = (&'static str, &'static str, &'static str);
/// Panel, name, smallest difference that is kept, and value of a series. Those of one panel are consecutive.
type Row<S> = (Head, &'static str, f64, fn(&S) -> Option<f64>);

const CPU: Head = ("cpu", "CPU", "% of all CPUs");
const DISK_BYTES: Head = ("disk-bytes", "Disk throughput", "MiB/s");
const DISK_OPS: Head = ("disk-ops", "Disk operations", "per second");
const DISK_WAIT: Head = ("disk-wait", "Disk wait", "ms per operation");
const DISK_QUEUE: Head = ("disk-queue", "Disk queue", "operations waiting");
const NETWORK: Head = ("network", "Network", "MiB/s");
const MEMORY: Head = ("memory", "Memory", "MiB");
const LOAD: Head = ("load", "Load average", "runnable tasks");
const SWITCHES: Head = ("switches", "Context switches", "per second");
const PSI: Head = ("pressure", "Pressure", "% of time in which some task waited");
const DIRTY: Head = ("dirty", "Pages on their way to disk", "MiB");

const HOST: &[Row<HostSample>] = &[
    (CPU, "user", 0.1, |h| Some(h.cpu_user_pct)),
    (CPU, "system", 0.1, |h| Some(h.cpu_system_pct)),
    (CPU, "iowait", 0.1, |h| Some(h.cpu_iowait_pct)),
    (CPU, "steal", 0.1, |h| Some(h.cpu_steal_pct)),
    (DISK_BYTES, "read", 1e-2, |h| Some(h.disk_read_bytes_per_s / MIB)),
    (DISK_BYTES, "written", 1e-2, |h| Some(h.disk_write_bytes_per_s / MIB)),
    (DISK_OPS, "reads", 0.1, |h| Some(h.disk_reads_per_s)),
    (DISK_OPS, "writes", 0.1, |h| Some(h.disk_writes_per_s)),
    (DISK_WAIT, "read", 1e-2, |h| Some(h.disk_read_await_ms)),
    (DISK_WAIT, "write", 1e-2, |h| Some(h.disk_write_await_ms)),
    (DISK_QUEUE, "queue", 1e-2, |h| Some(h.disk_queue)),
    (NETWORK, "received", 1e-2, |h| Some(h.net_rx_bytes_per_s / MIB)),
    (NETWORK, "sent", 1e-2, |h| Some(h.net_tx_bytes_per_s / MIB)),
    (NETWORK, "loopback", 1e-2, |h| Some(h.lo_bytes_per_s / MIB)),
    (MEMORY, "used", 1.0, |h| Some(h.mem_used_bytes as f64 / MIB)),
    (MEMORY, "page cache", 1.0, |h| Some(h.mem_cached_bytes as f64 / MIB)),
    (LOAD, "1 min", 1e-2, |h| Some(h.load_1)),
    (LOAD, "5 min", 1e-2, |h| Some(h.load_5)),
    (LOAD, "15 min", 1e-2, |h| Some(h.load_15)),
    (SWITCHES, "switches", 1.0, |h| Some(h.context_switches_per_s)),
];

const PRESSURE: &[Row<PressureSample>] = &[
    (PSI, "CPU", 0.1, |p| p.psi_cpu_pct),
    (PSI, "I/O", 0.1, |p| p.psi_io_pct),
    (PSI, "memory", 0.1, |p| p.psi_memory_pct),
    (DIRTY, "Dirty", 0.1, |p| Some(p.dirty_bytes as f64 / MIB)),
    (DIRTY, "Writeback", 0.1, |p| Some(p.writeback_bytes as f64 / MIB)),
];

#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Timeline {
    /// CLOCK_MONOTONIC of time zero, in us; all other times are milliseconds after it.
    pub begin_mono_us: u64,
    /// Unix time of time zero, in us. Absent if no trial line has it.
    pub begin_wall_us: Option<u64>,
    pub end_ms: u64,
    pub spans: Vec<Span>,
    /// Time axes that series share: milliseconds since the previous point, the first since time zero.
    pub times: Vec<Vec<u64>>,
    pub panels: Vec<Panel>,
    /// True if some series are reduced to their lows and highs.
    pub thinned: bool,
}

/// One trial, from switching on to switched off. Times are absent if the run ended before them.
#[derive(Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Span {
    pub trial: u32,
    pub round: u32,
    pub arm: String,
    pub start_ms: u64,
    pub window_begin_ms: Option<u64>,
    pub window_end_ms: Option<u64>,
    pub stop_ms: Option<u64>,
    pub failed: bool,
    pub notes: Vec<String>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Panel {
    pub id: String,
    pub title: String,
    pub unit: String,
    pub log: bool,
    /// Series with different units: only one is shown at a time.
    pub one_at_a_time: bool,
    pub series: Vec<Series>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Series {
    pub name: String,
    /// Not drawn until selected.
    pub hidden: bool,
    /// Index into [`Timeline::times`].
    pub t: usize,
    /// A value is its integer times this.
    pub scale: f64,
    pub v: Vec<Option<i64>>,
}

impl Timeline {
    pub fn of(trials: &[TrialLine], samples: &[Sample]) -> Self {
        let times = trials.iter().map(|t| t.mono_us).chain(samples.iter().filter_map(mono_us));
        let Some((begin, end)) = times.fold(None, |range: Option<(u64, u64)>, t| match range {
            None => Some((t, t)),
            Some((low, high)) => Some((low.min(t), high.max(t))),
        }) else {
            return Self::default();
        };
        let mut timeline = Self {
            begin_mono_us: begin,
            begin_wall_us: trials.first().map(|t| t.wall_us.saturating_sub(t.mono_us - begin)),
            end_ms: (end - begin) / 1000,
            spans: spans(trials, begin),
            ..Self::default()
        };
        timeline.add_load(samples);
        timeline.add_host(samples);
        timeline.add_pressure(samples);
        timeline.add_server(samples);
        timeline.add_output(samples);
        timeline.add_own_cost(samples);
        timeline.add_ticks(samples);
        timeline
    }

    fn add_load(&mut self, samples: &[Sample]) {
        let bins: Vec<_> =
            samples.iter().filter_map(|s| if let Sample::Bin(b) = s { Some(b) } else { None }).collect();
        let seconds: Vec<_> =
            samples.iter().filter_map(|s| if let Sample::Second(x) = s { Some(x) } else { None }).collect();
        let bin_t: Vec<u64> = bins.iter().map(|b| b.mono_us).collect();
        let second_t: Vec<u64> = seconds.iter().map(|s| s.mono_us).collect();
        let per_s = |n: u64, width_us: u64| (width_us > 0).then(|| n as f64 * 1e6 / width_us as f64);
        self.panel(
            "throughput",
            "Throughput",
            "queries/s",
            &bin_t,
            &[
                col("queries", 1.0, bins.iter().map(|b| per_s(b.statements, b.width_us)).collect()),
                col("errors", 1.0, bins.iter().map(|b| per_s(b.errors, b.width_us)).collect()).only_if_any(),
            ],
        );
        // Bins in which nothing completed have no latency: the line breaks, and the age of the oldest
        // event in flight says how long clients had waited by then.
        let mean =
            |b: &&toll_record::Bin| (b.events > 0).then(|| b.latency_us_sum as f64 / b.events as f64 / 1e3);
        let ms = |us: Option<u64>| us.map(|us| us as f64 / 1e3);
        let mut response = self.columns(
            &bin_t,
            &[
                col("mean, 100 ms", 1e-3, bins.iter().map(mean).collect()),
                col(
                    "highest, 100 ms",
                    1e-3,
                    bins.iter().map(|b| ms(b.latency_us_max.filter(|_| b.events > 0))).collect(),
                )
                .hidden(),
                col(
                    "oldest in flight",
                    1e-3,
                    bins.iter().map(|b| ms((b.oldest_us > 0).then_some(b.oldest_us))).collect(),
                )
                .hidden(),
            ],
        );
        response.extend(self.columns(
            &second_t,
            &[
                col("p99, 1 s", 1e-3, seconds.iter().map(|s| ms(s.latency_us_p99)).collect()),
                col("p50, 1 s", 1e-3, seconds.iter().map(|s| ms(s.latency_us_p50)).collect()).hidden(),
            ],
        ));
        self.push("response", "Response time", "ms", true, response);
    }

    fn add_host(&mut self, samples: &[Sample]) {
        let rows: Vec<_> =
            samples.iter().filter_map(|s| if let Sample::Host(h) = s { Some(h) } else { None }).collect();
        self.add_rows(&rows, |h| h.mono_us, HOST);
    }

    fn add_pressure(&mut self, samples: &[Sample]) {
        let rows: Vec<_> =
            samples.iter().filter_map(|s| if let Sample::Pressure(p) = s { Some(p) } else { None }).collect();
        self.add_rows(&rows, |p| p.mono_us, PRESSURE);
    }

    fn add_rows<S>(&mut self, samples: &[&S], mono_us: fn(&S) -> u64, rows: &[Row<S>]) {
        let t: Vec<u64> = samples.iter().map(|sample| mono_us(sample)).collect();
        for rows in rows.chunk_by(|a, b| a.0 == b.0) {
            let (id, title, unit) = rows[0].0;
            let column = |&(_, name, scale, value): &Row<S>| {
                col(name, scale, samples.iter().map(|sample| value(sample)).collect())
            };
            self.panel(id, title, unit, &t, &rows.iter().map(column).collect::<Vec<_>>());
        }
    }

    fn add_server(&mut self, samples: &[Sample]) {
        let rows: Vec<_> =
            samples.iter().filter_map(|s| if let Sample::Server(v) = s { Some(v) } else { None }).collect();
        let names: BTreeSet<&str> = rows.iter().flat_map(|r| r.values.keys().map(String::as_str)).collect();
        let t: Vec<u64> = rows.iter().map(|r| r.mono_us).collect();
        let columns: Vec<_> = names
            .into_iter()
            .take(SERVER_SERIES)
            .map(|name| col(name, 1e-2, rows.iter().map(|r| r.values.get(name).copied()).collect()))
            .collect();
        let series = self.columns(&t, &columns);
        self.push("server", "Server status", "as the server names it", false, series);
        if let Some(panel) = self.panels.last_mut().filter(|p| p.id == "server") {
            panel.one_at_a_time = true;
        }
    }

    fn add_output(&mut self, samples: &[Sample]) {
        let mut by_process: BTreeMap<&str, (Vec<u64>, Vec<Option<f64>>)> = BTreeMap::new();
        for sample in samples {
            let Sample::Output(o) = sample else { continue };
            let (t, rates) = by_process.entry(&o.process).or_default();
            t.push(o.mono_us);
            rates.push((o.width_us > 0).then(|| o.output_bytes as f64 / o.width_us as f64));
        }
        let series = by_process
            .into_iter()
            .flat_map(|(process, (t, rates))| self.columns(&t, &[col(process, 1e-3, rates)]))
            .collect();
        self.push("output", "What treatments write", "MB/s", false, series);
    }

    fn add_own_cost(&mut self, samples: &[Sample]) {
        let rows: Vec<_> =
            samples.iter().filter_map(|s| if let Sample::Own(o) = s { Some(o) } else { None }).collect();
        let t: Vec<u64> = rows.iter().skip(1).map(|o| o.mono_us).collect();
        let share = rows.windows(2).map(|pair| {
            let elapsed_us = pair[1].mono_us.saturating_sub(pair[0].mono_us);
            (elapsed_us > 0)
                .then(|| 100.0 * pair[1].cpu_us.saturating_sub(pair[0].cpu_us) as f64 / elapsed_us as f64)
        });
        self.panel("own", "CPU of toll itself", "% of one CPU", &t, &[col("toll", 1e-2, share.collect())]);
    }

    fn add_ticks(&mut self, samples: &[Sample]) {
        let rows: Vec<_> =
            samples.iter().filter_map(|s| if let Sample::Tick(x) = s { Some(x) } else { None }).collect();
        let t: Vec<u64> = rows.iter().map(|x| x.mono_us).collect();
        self.panel(
            "harness",
            "Lateness of toll's own ticker",
            "ms",
            &t,
            &[col("late", 0.1, rows.iter().map(|x| Some(x.late_us as f64 / 1e3)).collect())],
        );
    }

    fn panel(&mut self, id: &str, title: &str, unit: &str, mono_us: &[u64], columns: &[Column]) {
        let series = self.columns(mono_us, columns);
        self.push(id, title, unit, false, series);
    }

    /// Adds a panel. One without series is left out: the host or the driver has no such figures.
    fn push(&mut self, id: &str, title: &str, unit: &str, log: bool, series: Vec<Series>) {
        if !series.is_empty() {
            let [id, title, unit] = [id, title, unit].map(str::to_owned);
            self.panels.push(Panel { id, title, unit, log, one_at_a_time: false, series });
        }
    }

    /// Series over one clock. An empty column is left out.
    fn columns(&mut self, mono_us: &[u64], columns: &[Column]) -> Vec<Series> {
        let ms: Vec<u64> = mono_us.iter().map(|t| (t - self.begin_mono_us) / 1000).collect();
        let mut shared: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
        let mut out = Vec::with_capacity(columns.len());
        for column in columns.iter().filter(|c| c.is_filled()) {
            let whole: Vec<Option<i64>> = column
                .values
                .iter()
                .map(|v| v.filter(|v| v.is_finite()).map(|v| (v / column.scale).round() as i64))
                .collect();
            let kept = downsample(&whole, MAX_POINTS);
            self.thinned |= kept.len() < whole.len();
            let v = kept.iter().map(|&i| whole[i]).collect();
            let t = *shared.entry(kept).or_insert_with_key(|kept| {
                self.times.push(deltas(kept.iter().map(|&i| ms[i])));
                self.times.len() - 1
            });
            out.push(Series {
                name: column.name.to_owned(),
                hidden: column.hidden,
                t,
                scale: column.scale,
                v,
            });
        }
        out
    }
}

struct Column<'a> {
    name: &'a str,
    scale: f64,
    values: Vec<Option<f64>>,
    hidden: bool,
    only_if_any: bool,
}

/// `scale` is the smallest difference that is kept.
fn col(name: &str, scale: f64, values: Vec<Option<f64>>) -> Column<'_> {
    Column { name, scale, values, hidden: false, only_if_any: false }
}

impl Column<'_> {
    fn hidden(self) -> Self {
        Self { hidden: true, ..self }
    }

    fn only_if_any(self) -> Self {
        Self { only_if_any: true, ..self }
    }

    fn is_filled(&self) -> bool {
        self.values.iter().flatten().any(|v| !self.only_if_any || *v != 0.0)
    }
}

fn deltas(ms: impl Iterator<Item = u64>) -> Vec<u64> {
    ms.scan(0, |last, t| {
        let step = t.saturating_sub(*last);
        *last = (*last).max(t);
        Some(step)
    })
    .collect()
}

fn mono_us(sample: &Sample) -> Option<u64> {
    Some(match sample {
        Sample::Bin(s) => s.mono_us,
        Sample::Second(s) => s.mono_us,
        Sample::Host(s) => s.mono_us,
        Sample::Pressure(s) => s.mono_us,
        Sample::Server(s) => s.mono_us,
        Sample::Tick(s) => s.mono_us,
        Sample::Own(s) => s.mono_us,
        Sample::Output(s) => s.mono_us,
        Sample::Classes(s) => s.mono_us,
        Sample::Footprint(s) => s.mono_us,
        Sample::Cut(_) | Sample::Unknown => return None,
    })
}

fn spans(trials: &[TrialLine], begin: u64) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for line in trials {
        let ms = (line.mono_us - begin) / 1000;
        let at = match spans.iter().rposition(|s| s.trial == line.trial) {
            Some(at) => at,
            None => {
                spans.push(Span {
                    trial: line.trial,
                    round: line.round,
                    arm: line.arm.clone(),
                    start_ms: ms,
                    ..Span::default()
                });
                spans.len() - 1
            }
        };
        let span = &mut spans[at];
        match line.step {
            Step::Start | Step::Ready => {}
            Step::WindowBegin => span.window_begin_ms = Some(ms),
            Step::WindowEnd => span.window_end_ms = Some(ms),
            Step::Stopped => span.stop_ms = Some(ms),
            Step::Failed => {
                span.failed = true;
                span.stop_ms = Some(ms);
            }
        }
        span.notes.extend(line.note.as_deref().map(toll_sys::redact::redact_text));
    }
    spans
}
