//! Noise benchmark: variation of a fixed piece of work on an otherwise idle host.
//!
//! A noisy host needs more rounds for the same precision. The work runs on one CPU, and only its duration is
//! judged.

use serde::Serialize;
use std::hint::black_box;
use std::time::{Duration, Instant};
use toll_sys::cpu::CpuTicks;

/// Interval between two pieces of work, as in the pressure samples of a run.
const INTERVAL: Duration = Duration::from_millis(100);
/// Length of one piece of work: long against a timer interrupt, short against the interval.
const UNIT: Duration = Duration::from_millis(5);

/// Result of the benchmark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NoiseBenchmark {
    pub seconds: f64,
    pub units: usize,
    /// Median duration of the fixed piece of work, microseconds.
    pub unit_us_median: f64,
    pub unit_us_p95: f64,
    pub unit_us_max: f64,
    /// Standard deviation over mean, percent.
    pub unit_cv_pct: f64,
    /// Delay of the tick, 95th percentile, microseconds.
    pub late_us_p95: f64,
    pub late_us_max: f64,
    /// CPU time taken by the hypervisor for others, percent of all CPUs.
    pub steal_pct: f64,
    /// CPU time of other processes, percent of all CPUs.
    pub busy_pct: f64,
}

impl NoiseBenchmark {
    /// The consequence for a run, in words.
    ///
    /// The bounds are a judgement. With pairs in random order, the rounds of a `standard` run average out 5%
    /// spread of a unit, but not 20%.
    pub fn verdict(&self) -> &'static str {
        if self.busy_pct > 20.0 {
            "busy: something else is running here; end it, or expect wide intervals"
        } else if self.steal_pct > 2.0 {
            "shared: the hypervisor takes CPU away; use more rounds"
        } else if self.unit_cv_pct > 20.0 {
            "noisy: use more rounds, or another host"
        } else if self.unit_cv_pct > 5.0 {
            "restless: usual for a virtual machine; pairs in random order take care of it"
        } else {
            "quiet"
        }
    }
}

/// Runs the benchmark for `length`, at least one second.
pub fn run_noise_benchmark(length: Duration) -> NoiseBenchmark {
    let length = length.max(Duration::from_secs(1));
    let count = calibrate_unit();
    let before = CpuTicks::read();
    let begun = Instant::now();
    let (mut units, mut late) = (Vec::new(), Vec::new());
    let mut next = begun + INTERVAL;
    while begun.elapsed() < length {
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        late.push(Instant::now().saturating_duration_since(next).as_secs_f64() * 1e6);
        let started = Instant::now();
        black_box(spin(black_box(count)));
        units.push(started.elapsed().as_secs_f64() * 1e6);
        // A beat that was missed is skipped, not made up for.
        while next <= Instant::now() {
            next += INTERVAL;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    let (steal_pct, busy_pct) = steal_and_busy_pct(CpuTicks::read().minus(before));
    let own_pct = units.iter().sum::<f64>() / (seconds * 1e6) / toll_sys::cpu::available() * 100.0;
    units.sort_by(f64::total_cmp);
    late.sort_by(f64::total_cmp);
    NoiseBenchmark {
        seconds,
        units: units.len(),
        unit_us_median: quantile(&units, 0.5),
        unit_us_p95: quantile(&units, 0.95),
        unit_us_max: quantile(&units, 1.0),
        unit_cv_pct: variation_pct(&units),
        late_us_p95: quantile(&late, 0.95),
        late_us_max: quantile(&late, 1.0),
        steal_pct,
        busy_pct: (busy_pct - own_pct).max(0.0),
    }
}

/// Rounds of work that need about [`UNIT`] here. The best of five, so that a disturbance does not make the
/// unit too short.
fn calibrate_unit() -> u64 {
    const PROBE: u64 = 200_000;
    let best = (0..5).map(|_| {
        let started = Instant::now();
        black_box(spin(black_box(PROBE)));
        started.elapsed().as_secs_f64()
    });
    let best = best.fold(f64::INFINITY, f64::min).max(1e-9);
    (PROBE as f64 * UNIT.as_secs_f64() / best) as u64
}

/// Register-only integer work (xorshift64), without memory or kernel access.
fn spin(count: u64) -> u64 {
    let mut x = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..count {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// Nearest rank on sorted values.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn variation_pct(values: &[f64]) -> f64 {
    let n = values.len() as f64;
    if n < 2.0 {
        return 0.0;
    }
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    variance.sqrt() / mean * 100.0
}

/// Steal and busy, in percent of all CPU time.
fn steal_and_busy_pct(spent: CpuTicks) -> (f64, f64) {
    let share = |ticks: u64| ticks as f64 / spent.total().max(1) as f64 * 100.0;
    (share(spent.steal), share(spent.user + spent.system))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_and_busy_are_shares_of_all_cpu_time() {
        let before = CpuTicks::parse("cpu  100 0 100 800 0 0 0 0 0 0\n");
        let after = CpuTicks::parse("cpu  110 0 110 870 0 0 0 10 0 0\n");
        assert_eq!(steal_and_busy_pct(after.minus(before)), (10.0, 20.0));
    }

    #[test]
    fn equal_units_do_not_vary_and_quantiles_are_values_that_were_seen() {
        assert_eq!(variation_pct(&[5.0, 5.0, 5.0]), 0.0);
        let sorted = [1.0, 2.0, 3.0, 4.0];
        assert_eq!([0.5, 0.95, 1.0].map(|q| quantile(&sorted, q)), [2.0, 4.0, 4.0]);
    }

    #[test]
    fn what_disturbs_most_is_named_first() {
        let quiet = NoiseBenchmark {
            seconds: 10.0,
            units: 100,
            unit_us_median: 5000.0,
            unit_us_p95: 5050.0,
            unit_us_max: 5100.0,
            unit_cv_pct: 1.0,
            late_us_p95: 80.0,
            late_us_max: 200.0,
            steal_pct: 0.0,
            busy_pct: 1.0,
        };
        assert_eq!(quiet.verdict(), "quiet");
        let busy = NoiseBenchmark { busy_pct: 50.0, steal_pct: 9.0, unit_cv_pct: 90.0, ..quiet.clone() };
        assert!(busy.verdict().starts_with("busy"));
        assert!(NoiseBenchmark { unit_cv_pct: 25.0, ..quiet }.verdict().starts_with("noisy"));
    }
}
