//! Stalls of a run, by arm, with host and server readings at the time.
//!
//! The rules are those of `toll_stats`; this file supplies a run's bins.

use super::run_data::{RunData, samples_within};
use super::windows::Window;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use toll_record::{Bin, StallSpan, StallTotals};
use toll_stats::{LoadBin, Stall, StallRuleError, ThroughputRule};

/// Stalls of the whole run.
#[derive(Debug, Clone, Default)]
pub struct Stalls {
    /// For each window, in the order given: throughput or latency stalls, overlaps joined.
    pub by_window: Vec<Vec<Stall>>,
    /// All findings, harness stalls too, in order of time.
    pub spans: Vec<StallSpan>,
    /// Stretches inside a window in which toll's own ticker did not run.
    pub harness: Vec<Stall>,
    /// The reason why throughput stalls could not be judged.
    pub unruled: Option<StallRuleError>,
}

/// Normal values for an arm, from the windows of its reference arm.
struct StallThresholds {
    throughput: Result<ThroughputRule, StallRuleError>,
    latency_us: Option<u64>,
}

/// Finds the stalls inside `windows`.
///
/// The arm at `held_against` defines what is normal for an arm: a load at a tenth of another's rate is not
/// stalled. `latency`: of all windows of an arm. The reason why throughput could not be judged is that of the
/// arm at `baseline`. None on a counted clock.
pub fn find_stalls(
    recorded: &RunData,
    windows: &[Window],
    baseline: usize,
    held_against: &[usize],
    latency: impl Fn(usize) -> Histogram<u64>,
) -> Stalls {
    if !recorded.plan.clock.is_real() {
        // Made of waiting, which that clock does not count.
        return Stalls { by_window: vec![Vec::new(); windows.len()], ..Stalls::default() };
    }
    let bins: Vec<Vec<LoadBin>> = windows
        .iter()
        .map(|w| samples_within(&recorded.bins, w.begin_us, w.end_us).iter().map(to_load_bin).collect())
        .collect();
    let normal_of = |arm: usize| {
        let own = windows.iter().zip(&bins).filter(|(w, _)| w.arm == arm);
        let own: Vec<&[LoadBin]> = own.map(|(_, bins)| bins.as_slice()).collect();
        StallThresholds {
            throughput: ThroughputRule::from_baseline(&own),
            latency_us: p99_us(recorded, windows, arm, &latency(arm))
                .map(toll_stats::latency_stall_threshold_us),
        }
    };
    let mut normal: BTreeMap<usize, StallThresholds> = BTreeMap::new();
    for &arm in held_against.iter().chain([&baseline]) {
        normal.entry(arm).or_insert_with(|| normal_of(arm));
    }

    let ticks: Vec<(u64, u64)> = recorded.ticks.iter().map(|t| (t.mono_us, t.late_us)).collect();
    let late = toll_stats::harness_stalls(&ticks);
    let mut stalls = Stalls { unruled: normal[&baseline].throughput.err(), ..Stalls::default() };
    for (window, bins) in windows.iter().zip(&bins) {
        let normal = &normal[&held_against[window.arm]];
        let throughput = normal.throughput.map(|rule| rule.stalls(bins)).unwrap_or_default();
        let latency = normal.latency_us.map(|us| toll_stats::latency_stalls(bins, us)).unwrap_or_default();
        let whole = Stall { begin_us: window.begin_us, end_us: window.end_us };
        let harness: Vec<Stall> = late.iter().copied().filter(|s| s.overlaps(whole)).collect();
        for (kind, found) in [("throughput", &throughput), ("latency", &latency), ("harness", &harness)] {
            stalls.spans.extend(found.iter().map(|stall| to_span(recorded, window, kind, *stall)));
        }
        stalls.by_window.push(merge_overlapping(throughput.into_iter().chain(latency).collect()));
        stalls.harness.extend(harness);
    }
    stalls.spans.sort_by_key(|s| (s.begin_mono_us, s.end_mono_us));
    stalls
}

/// Totals over several windows.
pub fn sum_stalls<'a>(windows: impl Iterator<Item = &'a Vec<Stall>>) -> StallTotals {
    let all: Vec<Stall> = windows.flatten().copied().collect();
    let totals = toll_stats::stall_totals(&all);
    StallTotals {
        count: totals.count as u32,
        total_s: totals.total_us as f64 / 1e6,
        longest_s: totals.longest_us as f64 / 1e6,
    }
}

fn to_load_bin(bin: &Bin) -> LoadBin {
    LoadBin {
        end_us: bin.mono_us,
        width_us: bin.width_us,
        completions: bin.statements,
        latency_us_max: bin.latency_us_max.unwrap_or(0),
        oldest_us: bin.oldest_us,
    }
}

/// p99 from the histogram if the driver has one, else the mean of the seconds' p99, microseconds.
fn p99_us(recorded: &RunData, windows: &[Window], arm: usize, latency: &Histogram<u64>) -> Option<u64> {
    if !latency.is_empty() {
        return Some(latency.value_at_quantile(0.99));
    }
    let known: Vec<u64> = windows
        .iter()
        .filter(|w| w.arm == arm)
        .flat_map(|w| samples_within(&recorded.seconds, w.begin_us, w.end_us))
        .filter_map(|s| s.latency_us_p99)
        .collect();
    (!known.is_empty()).then(|| known.iter().sum::<u64>() / known.len() as u64)
}

fn merge_overlapping(mut stalls: Vec<Stall>) -> Vec<Stall> {
    stalls.sort_by_key(|s| (s.begin_us, s.end_us));
    let mut out: Vec<Stall> = Vec::with_capacity(stalls.len());
    for stall in stalls {
        match out.last_mut() {
            Some(last) if stall.begin_us <= last.end_us => last.end_us = last.end_us.max(stall.end_us),
            _ => out.push(stall),
        }
    }
    out
}

/// The worst readings during the stall.
///
/// A pressure sample covers the 100 ms before it, a host sample the second before. The first sample that ends
/// after the stall still covers its end.
fn to_span(recorded: &RunData, window: &Window, kind: &str, stall: Stall) -> StallSpan {
    let pressures = samples_within(&recorded.pressures, stall.begin_us, stall.end_us.saturating_add(100_000));
    let hosts = samples_within(&recorded.hosts, stall.begin_us, stall.end_us.saturating_add(1_000_000));
    let worst = |values: &mut dyn Iterator<Item = f64>| values.reduce(f64::max);
    StallSpan {
        arm: recorded.plan.arms[window.arm].name.clone(),
        trial: window.trial,
        kind: kind.to_owned(),
        begin_mono_us: stall.begin_us,
        end_mono_us: stall.end_us,
        dirty_bytes: pressures.iter().map(|p| p.dirty_bytes).max(),
        writeback_bytes: pressures.iter().map(|p| p.writeback_bytes).max(),
        psi_cpu_pct: worst(&mut pressures.iter().filter_map(|p| p.psi_cpu_pct)),
        psi_io_pct: worst(&mut pressures.iter().filter_map(|p| p.psi_io_pct)),
        psi_memory_pct: worst(&mut pressures.iter().filter_map(|p| p.psi_memory_pct)),
        disk_write_await_ms: worst(&mut hosts.iter().map(|h| h.disk_write_await_ms)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_seen_by_both_rules_counts_once() {
        let stall = |begin_us, end_us| Stall { begin_us, end_us };
        let found = merge_overlapping(vec![stall(50, 60), stall(10, 30), stall(20, 45), stall(60, 70)]);
        assert_eq!(found, [stall(10, 45), stall(50, 70)]);
        let totals = sum_stalls([found].iter());
        assert_eq!((totals.count, totals.longest_s), (2, 35e-6));
    }
}
