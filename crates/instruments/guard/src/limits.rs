//! Limits of the breaker, from what a server and its host do by themselves.

use super::breaker::{Reading, quantile, stalled_pct};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Thresholds. Each is printed beside this server's own baseline before anything is switched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// A probe query that takes longer is slow; microseconds.
    pub probe_us: f64,
    /// Without an answer for so long, microseconds, it is given up.
    pub probe_timeout_us: f64,
    pub probe_p90_us: f64,
    pub threads_running: u64,
    /// Seconds of a statement of toll's own.
    pub own_statement_s: f64,
    pub lag_s: f64,
    /// By counter.
    pub errors_per_s: BTreeMap<String, u64>,
    pub free_bytes: u64,
    pub free_pct: f64,
    pub written_bytes: u64,
    /// Seconds for which a method may be on at a stretch.
    pub on_s: f64,
    /// Of two seconds. Absent: this host's tasks wait for so much of the time that there is no room for a limit above it.
    pub cpu_stalled_pct: Option<f64>,
    pub io_stalled_pct: Option<f64>,
    /// Pages.
    pub swap_in_per_s: u64,
    /// Seconds without a sign of life of the other process.
    pub silence_s: f64,
}

/// What a server and its host did while nothing was switched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    pub probe_p90_us: f64,
    pub probe_p99_us: f64,
    /// The highest p90 of any two seconds, and six standard deviations (of logarithms) above their mean.
    pub probe_p90_us_most: f64,
    pub probe_p90_us_far: f64,
    pub threads_running_p99: u64,
    /// Mean and standard deviation of each counter's growth in a second.
    pub errors_per_s: BTreeMap<String, (f64, f64)>,
    pub cpu_stalled: Stalled,
    pub io_stalled: Stalled,
    /// The highest.
    pub swap_in_per_s: u64,
    /// The least; absent: no file system is watched.
    pub free_pct: Option<f64>,
    pub seconds: u64,
}

/// What is no reason to end a run, in the judgement of whoever runs it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tolerated {
    /// Latency of a probe query, microseconds.
    pub probe_us: f64,
}

/// Share of the time in which tasks waited for a resource, percent, over spans of two seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Stalled {
    pub mean: f64,
    pub sd: f64,
    pub most: f64,
}

/// Between the most that was seen and a limit, at least.
const POINTS: f64 = 10.0;

impl Stalled {
    fn of(spans: &[f64]) -> Self {
        Self {
            mean: if spans.is_empty() { 0.0 } else { toll_stats::mean(spans) },
            sd: if spans.len() > 1 { toll_stats::sd(spans) } else { 0.0 },
            most: spans.iter().copied().fold(0.0, f64::max),
        }
    }

    /// So many points above all that was seen, and above its noise: one full host waits for 60% of two seconds, and for 95% of the
    /// next. `None`: no share of the time could be told from what is usual.
    fn limit(self, points: f64) -> Option<f64> {
        const ROOM_PCT: f64 = 99.0;
        let limit = (self.most + points).max(self.mean + SPREADS * self.sd);
        (limit < ROOM_PCT).then_some(limit)
    }

    /// Halfway from the most that was seen to all the time. That some task waits for a CPU is usual on a host at half of its load:
    /// from 34% in the mean, two seconds of an hour have 57% with nothing on, and a method that costs a tenth adds as much.
    fn cpu_limit(self) -> Option<f64> {
        self.limit(((100.0 - self.most) / 2.0).max(POINTS))
    }

    /// That all tasks wait for a disk is usual nowhere.
    fn io_limit(self) -> Option<f64> {
        self.limit(POINTS)
    }
}

/// Standard deviations between what is usual and a limit.
const SPREADS: f64 = 6.0;

/// What a method is given: bytes that it may write, and seconds that it is on at a stretch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PlannedExposure {
    pub bytes: u64,
    pub bytes_in_a_window: u64,
    pub longest_on_s: f64,
}

/// Seconds beyond the longest stretch of the plan: a tool that starts or ends slowly is not what this is for.
const ON_SLACK_S: f64 = 15.0;

impl Limits {
    /// Factors: those of gh-ost and pt-online-schema-change where they have one, and far from what the server does by itself
    /// elsewhere.
    #[must_use]
    pub fn of(baseline: &Baseline, planned: PlannedExposure, tolerated: Tolerated) -> Self {
        const MEGABYTES: u64 = 1_000_000;
        let p99 = baseline.probe_p99_us;
        let errors = baseline.errors_per_s.iter().map(|(name, (mean, sd))| {
            // Never so few that a restart of one client is enough.
            (name.clone(), (mean + SPREADS * sd).ceil().max(10.0) as u64)
        });
        Self {
            probe_us: (5.0 * p99).max(p99 + 50_000.0).max(tolerated.probe_us),
            probe_timeout_us: 1_000_000.0,
            probe_p90_us: (1.5 * baseline.probe_p90_us)
                .max(1.5 * baseline.probe_p90_us_most)
                .max(baseline.probe_p90_us_far)
                .max(baseline.probe_p90_us + 2_000.0)
                .max(tolerated.probe_us),
            threads_running: (3 * baseline.threads_running_p99).max(25),
            own_statement_s: 1.0,
            lag_s: 1.5,
            errors_per_s: errors.collect(),
            free_bytes: (10 * planned.bytes_in_a_window).max(500 * MEGABYTES),
            // A disk that is nearly full already must not become so because of the method.
            free_pct: baseline.free_pct.map_or(10.0, |now| (now / 2.0).min(10.0)),
            written_bytes: (2 * planned.bytes).max(100 * MEGABYTES),
            on_s: planned.longest_on_s + ON_SLACK_S,
            cpu_stalled_pct: baseline.cpu_stalled.cpu_limit(),
            io_stalled_pct: baseline.io_stalled.io_limit(),
            swap_in_per_s: (2 * baseline.swap_in_per_s).max(100),
            silence_s: 1.0,
        }
    }
}

/// Collects a baseline from the readings of a pilot.
#[derive(Debug, Default)]
pub struct BaselineCollector {
    probes: Vec<(u64, f64)>,
    running: Vec<f64>,
    errors: Vec<(u64, BTreeMap<String, u64>)>,
    swapped_in: Vec<(u64, u64)>,
    cpu_stalled: Vec<(u64, u64)>,
    io_stalled: Vec<(u64, u64)>,
    free_pct: Option<f64>,
    begun_us: Option<u64>,
    ended_us: u64,
}

impl BaselineCollector {
    pub fn add(&mut self, reading: &Reading) {
        self.begun_us.get_or_insert(reading.at_us);
        self.ended_us = reading.at_us;
        self.probes.extend(reading.probes_us.iter().map(|us| (reading.at_us, *us)));
        self.running.extend(reading.threads_running.map(|running| running as f64));
        if !reading.errors.is_empty() {
            self.errors.push((reading.at_us, reading.errors.clone()));
        }
        self.swapped_in.extend(reading.swapped_in.map(|pages| (reading.at_us, pages)));
        self.free_pct = [self.free_pct, reading.free_pct].into_iter().flatten().reduce(f64::min);
        self.cpu_stalled.extend(reading.cpu_stalled_us.map(|us| (reading.at_us, us)));
        self.io_stalled.extend(reading.io_stalled_us.map(|us| (reading.at_us, us)));
    }

    /// `None`: too few probe queries to say what is usual.
    #[must_use]
    pub fn finish(self) -> Option<Baseline> {
        const LEAST_PROBES: usize = 200;
        if self.probes.len() < LEAST_PROBES {
            return None;
        }
        let mut latencies: Vec<f64> = self.probes.iter().map(|(_, us)| *us).collect();
        let span_of = |at_us: u64| at_us / 2_000_000;
        let spans = self.probes.chunk_by(|a, b| span_of(a.0) == span_of(b.0));
        let of_spans: Vec<f64> = spans
            .map(|span| {
                let mut latencies: Vec<f64> = span.iter().map(|(_, us)| *us).collect();
                quantile(&mut latencies, 0.9)
            })
            .collect();
        let logs: Vec<f64> = of_spans.iter().map(|us| us.max(1.0).ln()).collect();
        let spread = if logs.len() > 1 { toll_stats::sd(&logs) } else { 0.0 };
        let mut running = self.running;
        let growth =
            |name: &str| -> Vec<f64> { per_second(&self.errors, |counts| counts.get(name).copied()) };
        let names = self.errors.last().map(|(_, counts)| counts.keys().cloned().collect::<Vec<_>>());
        let errors = names.unwrap_or_default().into_iter().map(|name| {
            let grown = growth(&name);
            let spread = if grown.len() > 1 { toll_stats::sd(&grown) } else { 0.0 };
            let usual = if grown.is_empty() { 0.0 } else { toll_stats::mean(&grown) };
            (name, (usual, spread))
        });
        let swapped = per_second(&self.swapped_in, |pages| Some(*pages));
        Some(Baseline {
            probe_p90_us_most: of_spans.iter().copied().fold(0.0, f64::max),
            probe_p90_us_far: (toll_stats::mean(&logs) + SPREADS * spread).exp(),
            probe_p90_us: quantile(&mut latencies, 0.9),
            probe_p99_us: quantile(&mut latencies, 0.99),
            threads_running_p99: quantile(&mut running, 0.99) as u64,
            errors_per_s: errors.collect(),
            cpu_stalled: Stalled::of(&stalled_spans(&self.cpu_stalled)),
            io_stalled: Stalled::of(&stalled_spans(&self.io_stalled)),
            swap_in_per_s: swapped.into_iter().fold(0.0, f64::max) as u64,
            free_pct: self.free_pct,
            seconds: (self.ended_us - self.begun_us.unwrap_or(self.ended_us)) / 1_000_000,
        })
    }
}

/// Shares of stalled time over spans that overlap, as the breaker looks at them.
fn stalled_spans(seen: &[(u64, u64)]) -> Vec<f64> {
    let mut window = VecDeque::new();
    seen.iter().filter_map(|(at_us, us)| stalled_pct(&mut window, *at_us, *us)).collect()
}

/// Growth of a counter by whole seconds.
fn per_second<T>(seen: &[(u64, T)], value: impl Fn(&T) -> Option<u64>) -> Vec<f64> {
    let Some((begun_us, _)) = seen.first() else { return Vec::new() };
    let of_second = |at_us: u64| (at_us - begun_us) / 1_000_000;
    let edges =
        seen.chunk_by(|a, b| of_second(a.0) == of_second(b.0)).filter_map(|second| value(&second[0].1));
    let edges: Vec<u64> = edges.collect();
    edges.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64).collect()
}
