//! JSON output of a load run: one second, or the whole run.

use crate::bins::BinLine;
use crate::engine::{Bin, Counts, LatencyCounts, Totals};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toll_record::by_code;

/// A JSON line of `toll load --json`: one each second, and one for the run (`final`).
///
/// Figures of a stretch without a single completed event are absent (null), never zero, and so are
/// rates of a stretch that is too short for one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    #[serde(rename = "type")]
    pub kind: Kind,
    /// The stretch that the line is about, in seconds since the load began, and its length.
    pub begin_s: f64,
    pub end_s: f64,
    pub time_s: f64,
    /// Its end on CLOCK_MONOTONIC.
    pub mono_us: u64,
    /// Statements and events (transactions) completed a second.
    pub qps: Option<f64>,
    pub tps: Option<f64>,
    pub statements: u64,
    pub events: u64,
    /// Events that failed.
    pub errors: u64,
    /// From the intended start to the last answer.
    pub latency_us_mean: Option<f64>,
    pub latency_us_p50: Option<f64>,
    pub latency_us_p95: Option<f64>,
    pub latency_us_p99: Option<f64>,
    pub latency_us_p999: Option<f64>,
    pub latency_us_max: Option<f64>,
    /// From the real start; as latency in a closed loop.
    pub service_us_mean: Option<f64>,
    pub service_us_p50: Option<f64>,
    pub service_us_p95: Option<f64>,
    pub service_us_p99: Option<f64>,
    pub service_us_p999: Option<f64>,
    pub service_us_max: Option<f64>,
    /// How much later than intended events began; absent in a closed loop.
    pub lag_us_mean: Option<f64>,
    pub lag_us_p99: Option<f64>,
    pub lag_us_max: Option<f64>,
    /// Connections that broke and came back.
    pub reconnects: u64,
    /// Connections made anew because `--reconnect` says so.
    #[serde(default)]
    pub reconnects_asked: u64,
    #[serde(deserialize_with = "by_code")]
    pub errors_by_code: BTreeMap<u16, u64>,
    /// At the end of the stretch: events begun or due and not done, those of them that have not begun
    /// at all, and the age of the oldest.
    pub in_flight: u64,
    pub backlog: u64,
    pub oldest_us: u64,
    /// The backlog grew without bound: the rate is beyond what the server can do.
    pub overloaded: bool,
    /// Events that were due, for each second in which any could be; absent in a closed loop and for
    /// single seconds.
    pub due_per_s: Option<f64>,
    /// CPU time of the generator itself.
    pub cpu_s: f64,
    pub cpu_us_per_query: Option<f64>,
    /// The server's first error message for each code; only in the final line.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "by_code")]
    pub messages: BTreeMap<u16, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Of the warm-up: in no total.
    Warmup,
    Second,
    /// What came after the last whole second, answers after the end among it: no rate rests on it.
    Rest,
    /// All after the warm-up: `second` and `rest` lines sum to it.
    Final,
}

/// A run that was shorter has no rate.
const MIN_RATE_INTERVAL_S: f64 = 0.1;

struct Percentiles {
    mean: Option<f64>,
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    max: Option<f64>,
}

fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    let some = !histogram.is_empty();
    let at = |q: f64| some.then(|| histogram.value_at_quantile(q) as f64 / 1000.0);
    Percentiles {
        mean: some.then(|| histogram.mean() / 1000.0),
        p50: at(0.5),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        max: at(1.0),
    }
}

impl Summary {
    pub fn from_bin(bin: &Bin) -> Self {
        let open = bin.tally.open.as_deref();
        let of = |counts: &LatencyCounts| percentiles(&counts.to_histogram());
        let latency = of(&bin.tally.latency);
        let service = of(open.map_or(&bin.tally.latency, |o| &o.service));
        let lag = open.map(|o| of(&o.lag));
        let kind = match (bin.warmup, bin.is_complete) {
            (true, _) => Kind::Warmup,
            (false, true) => Kind::Second,
            (false, false) => Kind::Rest,
        };
        let stretch = (bin.load_began_ns, bin.begin_ns, bin.end_ns);
        let mut summary = Self::build(kind, stretch, &bin.tally.counts, latency, service, lag, bin.cpu_ns);
        if !bin.is_complete {
            (summary.qps, summary.tps) = (None, None);
        }
        (summary.backlog, summary.overloaded) = (bin.backlog, bin.overloaded);
        summary
    }

    pub fn from_totals(totals: &Totals) -> Self {
        let latency = percentiles(&totals.latency);
        let service = percentiles(totals.service.as_ref().unwrap_or(&totals.latency));
        let lag = totals.lag.as_ref().map(percentiles);
        let stretch = (totals.load_began_ns, totals.begin_ns, totals.end_ns);
        let mut summary =
            Self::build(Kind::Final, stretch, &totals.counts, latency, service, lag, totals.cpu_ns);
        (summary.backlog, summary.overloaded) = (totals.backlog, totals.overloaded);
        let due_per_s = |due: u64| due as f64 / totals.due_for_s;
        summary.due_per_s = totals.due.filter(|_| totals.due_for_s >= MIN_RATE_INTERVAL_S).map(due_per_s);
        summary.messages = totals.messages.clone();
        summary
    }

    fn build(
        kind: Kind,
        (load_began_ns, begin_ns, end_ns): (u64, u64, u64),
        counts: &Counts,
        latency: Percentiles,
        service: Percentiles,
        lag: Option<Percentiles>,
        cpu_ns: u64,
    ) -> Self {
        let seconds = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) as f64 / 1e9;
        let time_s = seconds(begin_ns, end_ns);
        let per_s = |n: u64| (time_s >= MIN_RATE_INTERVAL_S).then(|| n as f64 / time_s);
        Self {
            kind,
            begin_s: seconds(load_began_ns, begin_ns),
            end_s: seconds(load_began_ns, end_ns),
            time_s,
            mono_us: end_ns / 1000,
            qps: per_s(counts.statements),
            tps: per_s(counts.events),
            statements: counts.statements,
            events: counts.events,
            errors: counts.errors,
            // Sum and maximum are kept beside the histogram, to the nanosecond.
            latency_us_mean: (counts.events > 0)
                .then(|| counts.latency_ns_sum as f64 / counts.events as f64 / 1000.0),
            latency_us_p50: latency.p50,
            latency_us_p95: latency.p95,
            latency_us_p99: latency.p99,
            latency_us_p999: latency.p999,
            latency_us_max: latency.max.map(|_| counts.latency_ns_max as f64 / 1000.0),
            service_us_mean: service.mean,
            service_us_p50: service.p50,
            service_us_p95: service.p95,
            service_us_p99: service.p99,
            service_us_p999: service.p999,
            service_us_max: service.max,
            lag_us_mean: lag.as_ref().and_then(|l| l.mean),
            lag_us_p99: lag.as_ref().and_then(|l| l.p99),
            lag_us_max: lag.as_ref().and_then(|l| l.max),
            reconnects: counts.reconnects,
            reconnects_asked: counts.reconnects_asked,
            errors_by_code: counts.errors_by_code.clone(),
            in_flight: counts.in_flight,
            backlog: 0,
            oldest_us: counts.oldest_ns / 1000,
            overloaded: false,
            due_per_s: None,
            cpu_s: cpu_ns as f64 / 1e9,
            cpu_us_per_query: (counts.statements > 0)
                .then(|| cpu_ns as f64 / 1000.0 / counts.statements as f64),
            messages: BTreeMap::new(),
        }
    }
}

impl BinLine {
    pub fn from_bin(bin: &Bin) -> Self {
        let tally = &bin.tally;
        Self {
            bin: toll_record::Bin {
                mono_us: bin.end_ns / 1000,
                width_us: (bin.end_ns - bin.begin_ns) / 1000,
                statements: tally.counts.statements,
                events: tally.counts.events,
                errors: tally.counts.errors,
                errors_by_code: tally.counts.errors_by_code.clone(),
                latency_us_sum: (tally.counts.latency_ns_sum + 500) / 1000,
                latency_us_max: Some((tally.counts.latency_ns_max + 500) / 1000),
                in_flight: tally.counts.in_flight,
                oldest_us: tally.counts.oldest_ns / 1000,
            },
            hist: Self::histogram_buckets(&tally.latency),
        }
    }
}
