//! What happened when: the whole run as series over time, and the stretch that each trial took?
//!
//! Panels carry their own titles and units, so that the page draws what a run holds without knowing what
//! it means. Never interprets: no smoothing, no totals, no judgement.

use super::thin::{KEEP, thin};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use toll_record::{Sample, Step, TrialLine};

/// Server counters shown; a run that records more shows the first of them by name.
const SERVER_SERIES: usize = 40;

#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Timeline {
    /// CLOCK_MONOTONIC of time zero, in us; all other times are milliseconds after it.
    pub begin_mono_us: u64,
    /// Unix time of time zero, in us; absent where no trial line gives it.
    pub begin_wall_us: Option<u64>,
    pub end_ms: u64,
    pub spans: Vec<Span>,
    /// Time axes that series share: milliseconds since the point before, the first since time zero.
    pub times: Vec<Vec<u64>>,
    pub panels: Vec<Panel>,
    /// Some series are shown by their lows and highs.
    pub thinned: bool,
}

/// One trial, from switching on to switched off. Times are absent where the run ended before them.
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
    /// Series whose units differ: only one is shown at a time.
    pub one_at_a_time: bool,
    pub series: Vec<Series>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Series {
    pub name: String,
    /// Not drawn until asked for.
    pub hidden: bool,
    /// Which of [`Timeline::times`].
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
        timeline.load(samples);
        timeline.host(samples);
        timeline.pressure(samples);
        timeline.server(samples);
        timeline.output(samples);
        timeline.own(samples);
        timeline.ticks(samples);
        timeline
    }

    fn load(&mut self, samples: &[Sample]) {
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

    fn host(&mut self, samples: &[Sample]) {
        let rows: Vec<_> =
            samples.iter().filter_map(|s| if let Sample::Host(h) = s { Some(h) } else { None }).collect();
        let t: Vec<u64> = rows.iter().map(|h| h.mono_us).collect();
        let of = |name: &'static str, scale: f64, f: fn(&toll_record::HostSample) -> f64| {
            col(name, scale, rows.iter().map(|h| Some(f(h))).collect())
        };
        const MIB: f64 = 1_048_576.0;
        self.panel(
            "cpu",
            "CPU",
            "% of all CPUs",
            &t,
            &[
                of("user", 0.1, |h| h.cpu_user_pct),
                of("system", 0.1, |h| h.cpu_system_pct),
                of("iowait", 0.1, |h| h.cpu_iowait_pct),
                of("steal", 0.1, |h| h.cpu_steal_pct),
            ],
        );
        self.panel(
            "disk-bytes",
            "Disk throughput",
            "MiB/s",
            &t,
            &[
                of("read", 1e-2, |h| h.disk_read_bytes_per_s / MIB),
                of("written", 1e-2, |h| h.disk_write_bytes_per_s / MIB),
            ],
        );
        self.panel(
            "disk-ops",
            "Disk operations",
            "per second",
            &t,
            &[of("reads", 0.1, |h| h.disk_reads_per_s), of("writes", 0.1, |h| h.disk_writes_per_s)],
        );
        self.panel(
            "disk-wait",
            "Disk wait",
            "ms per operation",
            &t,
            &[of("read", 1e-2, |h| h.disk_read_await_ms), of("write", 1e-2, |h| h.disk_write_await_ms)],
        );
        self.panel(
            "disk-queue",
            "Disk queue",
            "operations waiting",
            &t,
            &[of("queue", 1e-2, |h| h.disk_queue)],
        );
        self.panel(
            "network",
            "Network",
            "MiB/s",
            &t,
            &[
                of("received", 1e-2, |h| h.net_rx_bytes_per_s / MIB),
                of("sent", 1e-2, |h| h.net_tx_bytes_per_s / MIB),
                of("loopback", 1e-2, |h| h.lo_bytes_per_s / MIB),
            ],
        );
        self.panel(
            "memory",
            "Memory",
            "MiB",
            &t,
            &[
                of("used", 1.0, |h| h.mem_used_bytes as f64 / MIB),
                of("page cache", 1.0, |h| h.mem_cached_bytes as f64 / MIB),
            ],
        );
        self.panel(
            "load",
            "Load average",
            "runnable tasks",
            &t,
            &[
                of("1 min", 1e-2, |h| h.load_1),
                of("5 min", 1e-2, |h| h.load_5),
                of("15 min", 1e-2, |h| h.load_15),
            ],
        );
        self.panel(
            "switches",
            "Context switches",
            "per second",
            &t,
            &[of("switches", 1.0, |h| h.context_switches_per_s)],
        );
    }

    fn pressure(&mut self, samples: &[Sample]) {
        let rows: Vec<_> =
            samples.iter().filter_map(|s| if let Sample::Pressure(p) = s { Some(p) } else { None }).collect();
        let t: Vec<u64> = rows.iter().map(|p| p.mono_us).collect();
        let of = |name: &'static str, scale: f64, f: fn(&toll_record::PressureSample) -> Option<f64>| {
            col(name, scale, rows.iter().map(|p| f(p)).collect())
        };
        self.panel(
            "pressure",
            "Pressure",
            "% of time in which some task waited",
            &t,
            &[
                of("CPU", 0.1, |p| p.psi_cpu_pct),
                of("I/O", 0.1, |p| p.psi_io_pct),
                of("memory", 0.1, |p| p.psi_memory_pct),
            ],
        );
        self.panel(
            "dirty",
            "Pages on their way to disk",
            "MiB",
            &t,
            &[
                of("Dirty", 0.1, |p| Some(p.dirty_bytes as f64 / 1_048_576.0)),
                of("Writeback", 0.1, |p| Some(p.writeback_bytes as f64 / 1_048_576.0)),
            ],
        );
    }

    fn server(&mut self, samples: &[Sample]) {
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

    fn output(&mut self, samples: &[Sample]) {
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

    fn own(&mut self, samples: &[Sample]) {
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

    fn ticks(&mut self, samples: &[Sample]) {
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

    /// A panel without a series is not shown: the host or the driver does not give these figures.
    fn push(&mut self, id: &str, title: &str, unit: &str, log: bool, series: Vec<Series>) {
        if !series.is_empty() {
            let [id, title, unit] = [id, title, unit].map(str::to_owned);
            self.panels.push(Panel { id, title, unit, log, one_at_a_time: false, series });
        }
    }

    /// Series over one clock; a column that nobody filled is left out.
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
            let kept = thin(&whole, KEEP);
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
        Sample::Unknown => return None,
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
        span.notes.extend(line.note.as_deref().map(toll_sys::secrets::hide));
    }
    spans
}
