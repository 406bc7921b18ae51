//! Outcomes of a single window.
//!
//! The definition gives the meaning of a name. A value that needs length is absent if the run has longer
//! windows.
//!
//! # Invariants
//! A value that the window cannot support is absent, with the reason; never zero, never a guess.

use super::pauses::OutputTimeline;
use super::run_data::{RunData, Timestamped, samples_centred_within, samples_within};
use super::windows::{CpuUsage, Window};
use super::{by_class, coverage, packet_accounting, recovery};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use toll_record::{
    Aggregate, Artefact, ArtefactColumn, Bin, Definition, LoadColumn, Party, ProcessColumn, ProcessEnd,
    Second, Source, StagesColumn, TrialColumn,
};

/// Results of one window.
#[derive(Debug, Clone, Default)]
pub struct WindowOutcomes<'a> {
    /// Values by outcome.
    values: BTreeMap<&'a str, f64>,
    pub statements: u64,
    pub events: u64,
    pub errors: u64,
    pub errors_by_code: BTreeMap<u16, u64>,
    /// Seconds that the window's bins cover. A driver with its own interval does not cover the window
    /// exactly.
    pub covered_s: f64,
    /// CPU time on this host, by party. Absent if it was not read.
    pub cpu: Option<CpuUsage>,
    /// Length of the window.
    pub seconds: f64,
    /// ln of the ratio of throughputs, the window's beginning over the rest.
    pub start_log_ratio: Option<f64>,
    /// Quantiles that had too few events.
    pub too_few_events: Vec<&'a str>,
    /// Percentiles are means of one-second percentiles: the driver has no histogram.
    pub from_seconds: bool,
}

impl WindowOutcomes<'_> {
    /// CPU time of a party for each statement, microseconds.
    pub fn cpu_us_per_query(&self, party: Party) -> Option<f64> {
        let per_s = party_cpu_us(self.cpu.as_ref()?, party)? as f64 / self.seconds;
        let qps = self.statements as f64 / self.covered_s;
        (qps > 0.0).then(|| per_s / qps)
    }

    /// CPUs that a party used, on average.
    pub fn busy_cpus(&self, party: Party) -> Option<f64> {
        Some(party_cpu_us(self.cpu.as_ref()?, party)? as f64 / 1e6 / self.seconds)
    }

    pub fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }
}

/// The latency quantile of an outcome. `None` for other outcomes.
pub fn quantile_of(outcome: &Definition) -> Option<f64> {
    match (&outcome.source, outcome.aggregate) {
        (Source::Latency, Aggregate::Quantile(q)) => Some(q),
        _ => None,
    }
}

/// Errors of several stretches, by code.
pub fn sum_error_codes<'a>(stretches: impl Iterator<Item = &'a BTreeMap<u16, u64>>) -> BTreeMap<u16, u64> {
    let mut sum = BTreeMap::new();
    for (code, n) in stretches.flatten() {
        *sum.entry(*code).or_default() += n;
    }
    sum
}

/// Data about a window from outside it.
#[derive(Debug, Clone, Copy)]
pub struct WindowContext<'a> {
    /// The window's latencies, if the driver has histograms.
    pub histogram: Option<&'a Histogram<u64>>,
    pub artefact: Option<&'a Artefact>,
    /// True if toll itself counted no window of this arm: another tool's count is used.
    pub counted_by_other: bool,
    /// Seconds without service, of a window as long as the others.
    pub stalled_s: f64,
    /// Seconds after the window until response times are back to usual.
    pub recovered_s: Option<f64>,
    /// All windows of the arm that this one is compared with.
    pub reference: &'a [&'a Window],
    /// All windows of its round.
    pub block: &'a [&'a Window],
}

/// All outcomes of `window`.
pub fn measure_window<'a>(
    recorded: &'a RunData,
    window: &Window,
    known: WindowContext,
) -> WindowOutcomes<'a> {
    let bins = samples_within(&recorded.bins, window.begin_us, window.end_us);
    let mut measured = WindowOutcomes {
        statements: bins.iter().map(|b| b.statements).sum(),
        events: bins.iter().map(|b| b.events).sum(),
        errors: bins.iter().map(|b| b.errors).sum(),
        errors_by_code: sum_error_codes(bins.iter().map(|b| &b.errors_by_code)),
        start_log_ratio: start_log_ratio(bins),
        covered_s: bins.iter().map(|b| b.width_us).sum::<u64>() as f64 / 1e6,
        cpu: window.cpu,
        seconds: window.seconds(),
        ..WindowOutcomes::default()
    };
    let readings = WindowData {
        recorded,
        window,
        bins,
        seconds: samples_within(&recorded.seconds, window.begin_us, window.end_us),
        events: measured.events,
        covered_s: measured.covered_s,
        qps: measured.statements as f64 / measured.covered_s,
        context: known,
    };
    let told =
        recorded.plan.outcomes.iter().filter(|outcome| recorded.plan.measures_outcome(outcome, window.round));
    for outcome in told {
        let value = match readings.value(outcome) {
            Value::Exact(value) => value,
            Value::MeanOfSeconds(value) => {
                measured.from_seconds = true;
                value
            }
            Value::TooFewEvents => {
                measured.too_few_events.push(&outcome.name);
                continue;
            }
            Value::Absent => continue,
        };
        if value.is_finite() {
            measured.values.insert(&outcome.name, value);
        }
    }
    measured
}

enum Value {
    Exact(f64),
    /// Mean of percentiles of one-second stretches.
    MeanOfSeconds(f64),
    /// Too few events for such a quantile.
    TooFewEvents,
    Absent,
}

impl From<Option<f64>> for Value {
    fn from(value: Option<f64>) -> Self {
        value.map_or(Value::Absent, Value::Exact)
    }
}

/// All data about one window.
struct WindowData<'a> {
    recorded: &'a RunData,
    window: &'a Window,
    bins: &'a [Bin],
    seconds: &'a [Second],
    events: u64,
    covered_s: f64,
    /// Statements a second. NaN without a load.
    qps: f64,
    context: WindowContext<'a>,
}

impl WindowData<'_> {
    fn value(&self, outcome: &Definition) -> Value {
        let aggregate = outcome.aggregate;
        match &outcome.source {
            Source::Load { column } => self.load_column(*column, aggregate).into(),
            Source::Latency => self.latency_value(aggregate),
            Source::Cpu { of } => {
                let spent = self.window.cpu.and_then(|cpu| party_cpu_us(&cpu, *of));
                spent.and_then(|us| self.aggregate_total(us as f64, aggregate)).into()
            }
            Source::Host { column } => self.column(&self.recorded.hosts, aggregate, |s| s.column(column)),
            Source::Pressure { column } => {
                self.column(&self.recorded.pressures, aggregate, |s| s.column(column))
            }
            Source::Server { column } => {
                self.column(&self.recorded.servers, aggregate, |s| s.values.get(column).copied())
            }
            Source::Processes { column, name } => {
                let planned = &self.recorded.plan.arms[self.window.arm].treatment.processes;
                // What only keeps the others company is no part of what is asked, unless it is asked for by name.
                let is_meant = |end: &&ProcessEnd| match name {
                    Some(name) => end.name == *name,
                    None => !planned.iter().any(|p| p.background && p.name == end.name),
                };
                let each = self.window.processes.iter().filter(is_meant);
                let each = each.filter_map(|end| {
                    process_column(end, *column).or_else(|| self.output_column(end, *column))
                });
                self.aggregate_readings(each.collect(), aggregate).into()
            }
            Source::Artefact { column } => {
                self.artefact_column(*column).and_then(|value| self.aggregate_total(value, aggregate)).into()
            }
            Source::Stages { column: StagesColumn::LostShare } => {
                packet_accounting::lost_share_pct(&self.window.stages)
                    .and_then(|pct| self.aggregate_total(pct, aggregate))
                    .into()
            }
            Source::ByClass { of } => {
                by_class::mean_us(self.recorded, self.window, self.context.block, *of).into()
            }
            Source::Trial { column } => {
                self.trial_column(*column).and_then(|value| self.aggregate_total(value, aggregate)).into()
            }
        }
    }

    /// Times of a process's output, as far as it was observed.
    fn output_column(&self, end: &ProcessEnd, column: ProcessColumn) -> Option<f64> {
        let stream = OutputTimeline::of(self.recorded, self.window.trial, end)?;
        match column {
            ProcessColumn::FirstOutputS => Some(stream.first_output_s),
            ProcessColumn::LongestPauseS => Some(stream.longest_s()),
            ProcessColumn::PausedS => Some(stream.paused_s()),
            _ => None,
        }
    }

    /// Seconds that the bins cover; on a clock that counts instructions, those that were executed: a load that rests at
    /// the edges of its bins executes none meanwhile.
    fn worked_s(&self) -> f64 {
        let executed = || party_cpu_us(&self.window.cpu?, Party::Host);
        match (self.recorded.plan.clock.is_real(), executed()) {
            (false, Some(us)) => us as f64 / 1e6,
            _ => self.covered_s,
        }
    }

    fn load_column(&self, column: LoadColumn, aggregate: Aggregate) -> Option<f64> {
        let of = |bin: &Bin| match column {
            LoadColumn::Statements => bin.statements,
            LoadColumn::Events => bin.events,
            LoadColumn::Errors => bin.errors,
        };
        // A counter knows of no events: none counted is not none done.
        let meter = &self.recorded.plan.arms[self.window.arm].meter;
        if self.bins.is_empty() || (meter.is_counter() && column != LoadColumn::Statements) {
            return None;
        }
        let total = self.bins.iter().map(of).sum::<u64>() as f64;
        match aggregate {
            Aggregate::Rate => Some(total / self.worked_s()),
            Aggregate::Sum => Some(total),
            Aggregate::PerQuery => self.per_query(total / self.covered_s),
            Aggregate::Recovery => None,
            Aggregate::Mean | Aggregate::Peak | Aggregate::Quantile(_) | Aggregate::Above(_) => {
                let per_s = |bin: &Bin| of(bin) as f64 * 1e6 / bin.width_us.max(1) as f64;
                self.aggregate_readings(self.bins.iter().map(per_s).collect(), aggregate)
            }
        }
    }

    fn latency_value(&self, aggregate: Aggregate) -> Value {
        // Without a completion there is no response time; seconds that reach over the edges have some.
        let nothing_completed = self.events == 0 && self.covered_s > 0.0;
        match aggregate {
            Aggregate::Peak => self.longest_wait().into(),
            _ if nothing_completed => Value::Absent,
            Aggregate::Mean => self.mean_latency().into(),
            Aggregate::Quantile(quantile) => match self.context.histogram {
                Some(histogram) if histogram.len() < toll_stats::events_for_quantile(quantile) => {
                    Value::TooFewEvents
                }
                Some(histogram) => Value::Exact(histogram.value_at_quantile(quantile) as f64),
                // Lost: percentiles of seconds are something else, and would mislead beside those of windows.
                None if coverage::has_histograms(&self.recorded.plan, self.window.arm) => Value::Absent,
                None => self.quantile_of_seconds(quantile).map_or(Value::Absent, Value::MeanOfSeconds),
            },
            Aggregate::Above(limit_us) => self.share_above(limit_us).into(),
            Aggregate::Sum | Aggregate::Rate | Aggregate::PerQuery | Aggregate::Recovery => Value::Absent,
        }
    }

    /// Percent of the events. Incomplete ones are in no histogram.
    fn share_above(&self, limit_us: f64) -> Option<f64> {
        let histogram = self.context.histogram.filter(|histogram| !histogram.is_empty())?;
        let within = histogram.count_between(0, limit_us as u64);
        Some(100.0 * (histogram.len() - within) as f64 / histogram.len() as f64)
    }

    fn mean_latency(&self) -> Option<f64> {
        let sum_us: u64 = self.bins.iter().map(|b| b.latency_us_sum).sum();
        if sum_us > 0 && self.events > 0 {
            return Some(sum_us as f64 / self.events as f64);
        }
        let weight: u64 = self.seconds.iter().map(|s| s.events).sum();
        let sum: f64 = self.seconds.iter().map(|s| s.latency_us_mean * s.events as f64).sum();
        (weight > 0).then(|| sum / weight as f64)
    }

    /// Longest wait. Events in flight at the end of a bin have waited that long, completed or not.
    fn longest_wait(&self) -> Option<f64> {
        let of_bins = self.bins.iter().filter_map(|b| b.latency_us_max);
        of_bins
            .chain(self.seconds.iter().filter_map(|s| s.latency_us_max))
            .chain(self.bins.iter().map(|b| b.oldest_us).filter(|&us| us > 0))
            .chain(self.context.histogram.filter(|h| !h.is_empty()).map(Histogram::max))
            .max()
            .map(|us| us as f64)
    }

    fn quantile_of_seconds(&self, quantile: f64) -> Option<f64> {
        let of_second = |s: &Second| match quantile {
            0.5 => s.latency_us_p50,
            0.95 => s.latency_us_p95,
            0.99 => s.latency_us_p99,
            _ => None,
        };
        let known: Vec<u64> = self.seconds.iter().filter(|s| s.events > 0).filter_map(of_second).collect();
        (!known.is_empty()).then(|| known.iter().sum::<u64>() as f64 / known.len() as f64)
    }

    fn column<T: Timestamped>(
        &self,
        samples: &[T],
        aggregate: Aggregate,
        column: impl Fn(&T) -> Option<f64>,
    ) -> Value {
        let inside = |w: &Window| {
            samples_centred_within(samples, w.begin_us, w.end_us).iter().filter_map(&column).collect()
        };
        if aggregate == Aggregate::Recovery {
            let usual: Vec<f64> =
                self.context.reference.iter().flat_map(|w| -> Vec<f64> { inside(w) }).collect();
            return recovery::column_recovery_s(self.recorded, self.window, samples, usual, &column).into();
        }
        self.aggregate_readings(inside(self.window), aggregate).into()
    }

    fn artefact_column(&self, column: ArtefactColumn) -> Option<f64> {
        let packets = || self.context.artefact?.window_packets;
        match column {
            ArtefactColumn::Bytes => {
                let seen = self.window.artefact_bytes;
                self.context.artefact.map(|a| a.window_bytes).or(seen).map(|bytes| bytes as f64)
            }
            ArtefactColumn::Packets => packets().map(|p| p.captured as f64),
            // When a packet's time is taken, only those before it are through.
            ArtefactColumn::Mbps => {
                let held = self.context.artefact?.held.filter(|held| held.span_us > 0)?;
                Some((held.bytes - held.last_bytes) as f64 * 8.0 / held.span_us as f64)
            }
            ArtefactColumn::DroppedShare => {
                packets().filter(|p| p.received > 0).map(|p| 100.0 * p.dropped as f64 / p.received as f64)
            }
            ArtefactColumn::QueriesShare => {
                let artefact = self.context.artefact.filter(|a| !a.encrypted)?;
                let (count, executed) = match (&artefact.queries, &artefact.pt_query_digest) {
                    (Some(count), _) => (count, count.executed.unwrap_or(artefact.executed)),
                    (None, Some(count)) if self.context.counted_by_other => (count, count.executed?),
                    _ => return None,
                };
                (executed > 0).then(|| 100.0 * count.queries as f64 / executed as f64)
            }
        }
    }

    fn trial_column(&self, column: TrialColumn) -> Option<f64> {
        let plan = &self.recorded.plan;
        match column {
            TrialColumn::Seconds => match plan.arms[self.window.arm].window {
                toll_record::Window::Time { .. } => None,
                // From the first start to the last end, to the microsecond; bins are 0.1 s long.
                toll_record::Window::Done { .. } => match self.window.runs {
                    Some((1.., took_us)) if took_us > 0 => Some(took_us as f64 / 1e6),
                    _ => Some(self.window.seconds()),
                },
                toll_record::Window::Count { .. } => Some(self.window.seconds()),
            },
            TrialColumn::RecoveryS => self.context.recovered_s,
            TrialColumn::StalledS => {
                coverage::is_loaded(plan, self.window.arm).then_some(self.context.stalled_s)
            }
        }
    }

    /// Aggregate of one number for the whole window.
    fn aggregate_total(&self, total: f64, aggregate: Aggregate) -> Option<f64> {
        match aggregate {
            Aggregate::Mean | Aggregate::Peak | Aggregate::Sum => Some(total),
            Aggregate::Rate => Some(total / self.window.seconds()),
            Aggregate::PerQuery => self.per_query(total / self.window.seconds()),
            Aggregate::Quantile(_) | Aggregate::Above(_) | Aggregate::Recovery => None,
        }
    }

    /// Aggregate of several readings, none of them missing.
    fn aggregate_readings(&self, mut readings: Vec<f64>, aggregate: Aggregate) -> Option<f64> {
        if readings.is_empty() {
            return None;
        }
        match aggregate {
            Aggregate::Mean => Some(toll_stats::mean(&readings)),
            Aggregate::Peak => readings.into_iter().reduce(f64::max),
            Aggregate::Quantile(q) => {
                readings.sort_by(f64::total_cmp);
                let rank = (q * readings.len() as f64).ceil() as usize;
                Some(readings[rank.clamp(1, readings.len()) - 1])
            }
            Aggregate::Above(limit) => {
                let above = readings.iter().filter(|reading| **reading > limit).count();
                Some(100.0 * above as f64 / readings.len() as f64)
            }
            Aggregate::Sum | Aggregate::Rate | Aggregate::PerQuery | Aggregate::Recovery => {
                self.aggregate_total(readings.iter().sum(), aggregate)
            }
        }
    }

    /// CPU time per statement. CPU is read at the window's edges and statements in bins.
    ///
    /// Rates make the two comparable if a driver's bins do not end on the edges.
    fn per_query(&self, per_s: f64) -> Option<f64> {
        (self.qps > 0.0).then(|| per_s / self.qps)
    }
}

fn process_column(end: &ProcessEnd, column: ProcessColumn) -> Option<f64> {
    let count = |n: Option<u64>| n.map(|n| n as f64);
    match column {
        ProcessColumn::Seconds => Some(end.end_mono_us.saturating_sub(end.begin_mono_us) as f64 / 1e6),
        ProcessColumn::CpuUs => Some(end.cpu_us as f64),
        ProcessColumn::MemoryPeakBytes => count(end.memory_peak_bytes),
        ProcessColumn::ReadBytes => count(end.read_bytes),
        ProcessColumn::WrittenBytes => count(end.written_bytes),
        ProcessColumn::OutputBytes => count(end.output_bytes),
        ProcessColumn::SentMbps => end.sent.map(|sent| sent.mbps),
        ProcessColumn::FirstOutputS | ProcessColumn::LongestPauseS | ProcessColumn::PausedS => None,
    }
}

/// CPU time on this host. A real far end would use its part on another machine.
fn local_cpu_us(cpu: &CpuUsage) -> u64 {
    cpu.host_busy_us.saturating_sub(cpu.remote_us)
}

fn party_cpu_us(cpu: &CpuUsage, party: Party) -> Option<u64> {
    match party {
        Party::Host => Some(local_cpu_us(cpu)),
        Party::Server => cpu.server_us,
        Party::ServerWait => cpu.server_wait_us,
        Party::Driver => Some(cpu.driver_us),
        Party::Treatment => Some(cpu.treatment_us),
        Party::Remote => Some(cpu.remote_us),
        Party::Toll => Some(cpu.toll_us),
        Party::Irq => cpu.irq_us,
        Party::Rest => {
            let known = [cpu.server_us?, cpu.driver_us, cpu.treatment_us, cpu.remote_us, cpu.toll_us];
            Some(cpu.host_busy_us.saturating_sub(known.iter().sum::<u64>() + cpu.irq_us.unwrap_or(0)))
        }
    }
}

/// ln of the rate in the window's first quarter over the rate in the rest. `None` for windows of few bins.
fn start_log_ratio(bins: &[Bin]) -> Option<f64> {
    const FEWEST_BINS: usize = 8;
    if bins.len() < FEWEST_BINS {
        return None;
    }
    // Medians: a stall is not a slope.
    let rate = |bins: &[Bin]| {
        let rates: Vec<f64> = bins.iter().map(|b| b.statements as f64 / b.width_us.max(1) as f64).collect();
        toll_stats::median(&rates)
    };
    let (start, rest) = bins.split_at(bins.len() / 4);
    Some((rate(start) / rate(rest)).ln()).filter(|ratio| ratio.is_finite())
}
