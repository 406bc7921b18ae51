//! Which numbers does a window give, in which unit, and what are they in this window?
//!
//! A number that the window cannot support is absent, with the reason: never zero, never a guess.

use super::coverage;
use super::recorded::{Recorded, within};
use super::windows::Window;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use toll_record::Bin;

/// One outcome: what it is called in a run, and how to read it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Definition {
    /// Name in scenarios, bounds and JSON; the unit is part of it.
    pub name: &'static str,
    pub unit: &'static str,
    pub higher_is_better: bool,
    /// In words, for a table's head or a sentence.
    pub title: &'static str,
}

/// Every outcome of a window, in the order that reports show them.
pub const OUTCOMES: [Definition; 16] = [
    better_high("qps", "statements/s", "throughput"),
    better_high("tps", "events/s", "transactions"),
    better_low("latency_us_mean", "us", "mean response time"),
    better_low("latency_us_p50", "us", "median response time"),
    better_low("latency_us_p95", "us", "p95 response time"),
    better_low("latency_us_p99", "us", "p99 response time"),
    better_low("latency_us_p999", "us", "p99.9 response time"),
    better_low("latency_us_max", "us", "longest response time"),
    better_low("cpu_us_per_query", "us", "CPU per query, whole host"),
    better_low("server_cpu_us_per_query", "us", "CPU per query, server"),
    better_low("driver_cpu_us_per_query", "us", "CPU per query, load driver"),
    better_low("treatment_cpu_us_per_query", "us", "CPU per query, treatment"),
    better_low("toll_cpu_us_per_query", "us", "CPU per query, toll itself"),
    better_low("artefact_bytes_per_s", "bytes/s", "artefact written"),
    better_low("stall_s", "s", "stalled"),
    better_low(UNTIL_DONE, "s", "time until done"),
];

/// What arms without a load are judged by.
pub const UNTIL_DONE: &str = "elapsed_s";

/// Name of the outcome that an arm's verdict is drawn from: the primary one where the arm `has` it. An
/// arm without a load, such as a dump, has no response time but the time until it is done.
pub fn judged_by(primary: &str, has: impl Fn(&str) -> bool) -> &str {
    if has(primary) { primary } else { UNTIL_DONE }
}

const fn better_high(name: &'static str, unit: &'static str, title: &'static str) -> Definition {
    Definition { name, unit, higher_is_better: true, title }
}

const fn better_low(name: &'static str, unit: &'static str, title: &'static str) -> Definition {
    Definition { name, unit, higher_is_better: false, title }
}

/// The outcome of that name.
pub fn definition(name: &str) -> Option<&'static Definition> {
    OUTCOMES.iter().find(|o| o.name == name)
}

/// The quantile that an outcome stands for.
pub fn quantile_of(name: &str) -> Option<f64> {
    match name {
        "latency_us_p50" => Some(0.5),
        "latency_us_p95" => Some(0.95),
        "latency_us_p99" => Some(0.99),
        "latency_us_p999" => Some(0.999),
        _ => None,
    }
}

/// What one window gave.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    values: [Option<f64>; OUTCOMES.len()],
    pub statements: u64,
    pub events: u64,
    pub errors: u64,
    pub errors_by_code: BTreeMap<u16, u64>,
    /// Time that the window's bins cover; with a driver that keeps its own beat, not quite the window.
    pub covered_s: f64,
    /// CPUs that were busy on this host, on average.
    pub busy_cpus: Option<f64>,
    /// How far the window's beginning lies from the rest of it, ln of the ratio of throughputs.
    pub start_log_ratio: Option<f64>,
    /// Quantiles that too few events supported, with the number there were.
    pub thin: Vec<&'static str>,
    /// Percentiles are means of one-second percentiles: the driver gives no distribution.
    pub from_seconds: bool,
}

impl Measured {
    pub fn get(&self, name: &str) -> Option<f64> {
        OUTCOMES.iter().position(|o| o.name == name).and_then(|i| self.values[i])
    }

    /// Sets an outcome; what is not a finite number stays absent.
    pub fn set(&mut self, name: &'static str, value: Option<f64>) {
        if let Some(i) = OUTCOMES.iter().position(|o| o.name == name) {
            self.values[i] = value.filter(|v| v.is_finite());
        }
    }
}

/// Errors of several stretches, code by code.
pub fn summed<'a>(stretches: impl Iterator<Item = &'a BTreeMap<u16, u64>>) -> BTreeMap<u16, u64> {
    let mut sum = BTreeMap::new();
    for (code, n) in stretches.flatten() {
        *sum.entry(*code).or_default() += n;
    }
    sum
}

/// All outcomes of `window` but `stall_s`, which needs the whole run's baseline.
///
/// `histogram`: the window's latencies, where the driver gives them. `artefact_bytes`: written
/// inside the window.
pub fn measure(
    recorded: &Recorded,
    window: &Window,
    histogram: Option<&Histogram<u64>>,
    artefact_bytes: Option<u64>,
) -> Measured {
    let bins = within(&recorded.bins, window.begin_us, window.end_us);
    let mut measured = Measured {
        statements: bins.iter().map(|b| b.statements).sum(),
        events: bins.iter().map(|b| b.events).sum(),
        errors: bins.iter().map(|b| b.errors).sum(),
        errors_by_code: summed(bins.iter().map(|b| &b.errors_by_code)),
        start_log_ratio: start_log_ratio(bins),
        covered_s: bins.iter().map(|b| b.width_us).sum::<u64>() as f64 / 1e6,
        ..Measured::default()
    };
    if !bins.is_empty() {
        measured.set("qps", Some(measured.statements as f64 / measured.covered_s));
        measured.set("tps", Some(measured.events as f64 / measured.covered_s));
    }
    latency(recorded, window, histogram, &mut measured);
    cpu(window, &mut measured);
    if bins.is_empty() && histogram.is_none() {
        // No load ran: the window lasted until its treatment was done.
        measured.set(UNTIL_DONE, Some(window.seconds()));
    }
    measured.set("artefact_bytes_per_s", artefact_bytes.map(|bytes| bytes as f64 / window.seconds()));
    measured
}

fn latency(
    recorded: &Recorded,
    window: &Window,
    histogram: Option<&Histogram<u64>>,
    measured: &mut Measured,
) {
    let bins = within(&recorded.bins, window.begin_us, window.end_us);
    let seconds = within(&recorded.seconds, window.begin_us, window.end_us);
    let weight: u64 = seconds.iter().map(|s| s.events).sum();
    let sum_us: u64 = bins.iter().map(|b| b.latency_us_sum).sum();
    measured.set(
        "latency_us_mean",
        if sum_us > 0 && measured.events > 0 {
            Some(sum_us as f64 / measured.events as f64)
        } else if weight > 0 {
            let sum: f64 = seconds.iter().map(|s| s.latency_us_mean * s.events as f64).sum();
            Some(sum / weight as f64)
        } else {
            None
        },
    );
    // What is in flight when a bin ends has waited that long already, completed or not.
    let longest = bins
        .iter()
        .filter_map(|b| b.latency_us_max)
        .chain(seconds.iter().filter_map(|s| s.latency_us_max))
        .chain(bins.iter().map(|b| b.oldest_us).filter(|&us| us > 0))
        .chain(histogram.filter(|h| !h.is_empty()).map(Histogram::max))
        .max();
    measured.set("latency_us_max", longest.map(|us| us as f64));

    // Without a completion there is no response time; seconds that reach over the edges have some.
    if measured.events == 0 && measured.covered_s > 0.0 {
        measured.set("latency_us_mean", None);
        return;
    }
    let quantiles = OUTCOMES.iter().filter_map(|o| quantile_of(o.name).map(|q| (o.name, q)));
    match histogram {
        Some(histogram) => {
            for (name, quantile) in quantiles {
                if histogram.len() < toll_stats::events_for_quantile(quantile) {
                    measured.thin.push(name);
                } else {
                    measured.set(name, Some(histogram.value_at_quantile(quantile) as f64));
                }
            }
        }
        // Lost: percentiles of seconds are something else, and would mislead beside those of windows.
        None if coverage::gives_histograms(&recorded.plan, window.arm) => {}
        None => {
            for (name, _) in quantiles {
                let of_second = |s: &toll_record::Second| match name {
                    "latency_us_p50" => s.latency_us_p50,
                    "latency_us_p95" => s.latency_us_p95,
                    "latency_us_p99" => s.latency_us_p99,
                    _ => None,
                };
                let known: Vec<u64> = seconds.iter().filter(|s| s.events > 0).filter_map(of_second).collect();
                if !known.is_empty() {
                    measured.from_seconds = true;
                    measured.set(name, Some(known.iter().sum::<u64>() as f64 / known.len() as f64));
                }
            }
        }
    }
}

/// CPU is read at the window's edges and statements in bins: rates make the two comparable when a
/// driver's bins do not fall on the edges.
fn cpu(window: &Window, measured: &mut Measured) {
    let Some(cpu) = window.cpu else { return };
    // A real far end would spend this on another machine.
    let here_us = cpu.host_busy_us.saturating_sub(cpu.remote_us);
    measured.busy_cpus = Some(here_us as f64 / 1e6 / window.seconds());
    let Some(qps) = measured.get("qps").filter(|&qps| qps > 0.0) else { return };
    let per_query = |us: u64| Some(us as f64 / window.seconds() / qps);
    measured.set("cpu_us_per_query", per_query(here_us));
    measured.set("server_cpu_us_per_query", cpu.server_us.and_then(per_query));
    measured.set("driver_cpu_us_per_query", per_query(cpu.driver_us));
    measured.set("treatment_cpu_us_per_query", per_query(cpu.treatment_us));
    measured.set("toll_cpu_us_per_query", per_query(cpu.toll_us));
}

/// ln of the rate in the window's first quarter over the rate in the rest; absent for windows of few bins.
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
