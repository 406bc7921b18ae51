//! What toll itself took of the host, and of a server that serves users.

use super::run_data::{RunData, samples_within};
use super::warnings::{RunWarning, SELF_COST_PCT};
use super::windows::{CpuUsage, Window};
use toll_record::{Footprint, OwnSample, Role, SelfCost, WhileOff};

pub fn measure_self_cost(recorded: &RunData, windows: &[Window], warnings: &mut Vec<RunWarning>) -> SelfCost {
    let priced: Vec<(&Window, CpuUsage)> = windows.iter().filter_map(|w| Some((w, w.cpu?))).collect();
    let inside_us: u64 = priced.iter().map(|(_, cpu)| cpu.toll_us).sum();
    let seconds: f64 = priced.iter().map(|(w, _)| w.seconds()).sum();
    let grown = |of: fn(&OwnSample) -> u64| match (recorded.own.first(), recorded.own.last()) {
        (Some(first), Some(last)) => of(last).saturating_sub(of(first)),
        _ => 0,
    };
    let cost = SelfCost {
        cpu_s: if recorded.own.is_empty() { inside_us } else { grown(|o| o.cpu_us) } as f64 / 1e6,
        cpu_pct_of_one_core: if seconds > 0.0 { inside_us as f64 / 1e4 / seconds } else { 0.0 },
        memory_peak_bytes: recorded.own.iter().map(|o| o.memory_bytes).max().unwrap_or(0),
        written_bytes: grown(|o| o.written_bytes),
        while_off: measure_while_off(recorded, windows),
    };
    if cost.cpu_pct_of_one_core > SELF_COST_PCT {
        warnings.push(RunWarning::SelfCostHigh { pct: cost.cpu_pct_of_one_core });
    }
    // The counted clock has no collector of it, and counts what toll does with all else.
    if recorded.plan.clock.is_real() && !windows.is_empty() && (priced.is_empty() || recorded.own.is_empty())
    {
        warnings.push(RunWarning::NoSelfCost);
    }
    cost
}

/// `None`: nobody else used the server, or no window without a method has two readings.
fn measure_while_off(recorded: &RunData, windows: &[Window]) -> Option<WhileOff> {
    let cpus = f64::from(recorded.host.as_ref()?.cpus);
    let is_off = |window: &&Window| recorded.plan.arms[window.arm].role != Role::Treatment;
    let off: Vec<&Window> = windows.iter().filter(is_off).collect();
    let stretches: Vec<[&Footprint; 2]> = off
        .iter()
        .filter_map(|window| {
            let inside = samples_within(&recorded.footprints, window.begin_us, window.end_us);
            Some([inside.first()?, inside.last()?])
        })
        .collect();
    let grown = |of: fn(&Footprint) -> u64| -> f64 {
        stretches.iter().map(|[first, last]| of(last).saturating_sub(of(first)) as f64).sum()
    };
    let us = grown(|own| own.mono_us);
    if us == 0.0 {
        return None;
    }
    let of_host_pct = |of: fn(&Footprint) -> u64| 100.0 * grown(of) / us / cpus;
    let asked_per_s: Vec<f64> = off
        .iter()
        .flat_map(|window| samples_within(&recorded.servers, window.begin_us, window.end_us))
        .filter(|sample| sample.server == 0)
        .filter_map(|sample| sample.values.get("Questions_per_s").copied())
        .collect();
    let queries_per_s = grown(|own| own.queries) / us * 1e6;
    Some(WhileOff {
        toll_cpu_pct: of_host_pct(|own| own.toll_cpu_us),
        guard_cpu_pct: of_host_pct(|own| own.guard_cpu_us),
        tap_cpu_pct: of_host_pct(|own| own.tap_cpu_us),
        queries_per_s,
        queries_pct: (!asked_per_s.is_empty())
            .then(|| 100.0 * queries_per_s / toll_stats::mean(&asked_per_s).max(queries_per_s)),
        connections: stretches.iter().map(|[_, last]| last.connections).max().unwrap_or(0),
    })
}
