//! Recovery time after a window: until response times and server counters are back to usual.
//!
//! Measured in the pause before the next trial (`gap`), with the load on and the treatment off. Usual is a
//! high quantile of half-second stretches, or of samples, under the arm that this one is compared with.

use super::run_data::{RunData, Timestamped, samples_within};
use super::windows::Window;
use toll_record::Bin;

/// Share of stretches under the other arm that are no slower than usual.
const NORMAL_QUANTILE: f64 = 0.95;
const STRETCH_US: u64 = 500_000;
/// Shortest pause that can be evaluated, microseconds.
const MIN_PAUSE_US: u64 = 2 * STRETCH_US;

/// Usual mean response time in these windows, us. `None` if too little completed.
pub fn normal_latency_us<'a>(recorded: &RunData, windows: impl Iterator<Item = &'a Window>) -> Option<f64> {
    let mut means: Vec<f64> = Vec::new();
    for window in windows {
        let bins = samples_within(&recorded.bins, window.begin_us, window.end_us);
        means.extend(latency_stretches(bins).filter_map(|(_, mean_us)| mean_us));
    }
    normal_quantile(means)
}

/// The quantile of these readings that counts as usual.
fn normal_quantile(mut readings: Vec<f64>) -> Option<f64> {
    readings.sort_by(f64::total_cmp);
    let last = readings.len().checked_sub(1)?;
    readings.get((last as f64 * NORMAL_QUANTILE).ceil() as usize).copied()
}

/// Seconds from the window's end to the first sample within the usual range of `otherwise`.
///
/// The whole pause if there is none; `None` if the pause is too short.
pub fn column_recovery_s<T: Timestamped>(
    recorded: &RunData,
    window: &Window,
    samples: &[T],
    otherwise: Vec<f64>,
    column: impl Fn(&T) -> Option<f64>,
) -> Option<f64> {
    let usual = normal_quantile(otherwise)?;
    let pause_us = (recorded.plan.gap_s * 1e6) as u64;
    if pause_us < MIN_PAUSE_US {
        return None;
    }
    let after = samples_within(samples, window.end_us, window.end_us + pause_us);
    let read = |sample: &T| Some((sample.mono_us(), column(sample)?));
    let mut read = after.iter().filter_map(read).peekable();
    read.peek()?;
    let found = read.find(|(_, value)| *value <= usual).map(|(at_us, _)| at_us);
    Some((found.unwrap_or(window.end_us + pause_us) - window.end_us) as f64 / 1e6)
}

/// Seconds from the window's end to the first stretch with a usual response time.
///
/// The whole pause if there is none; `None` if the pause is too short.
pub fn recovered_s(recorded: &RunData, window: &Window, usual_us: f64) -> Option<f64> {
    // Nothing is on for so long at least: the pause begins once the treatment is off.
    let pause_us = (recorded.plan.gap_s * 1e6) as u64;
    if pause_us < MIN_PAUSE_US {
        return None;
    }
    let bins = samples_within(&recorded.bins, window.end_us, window.end_us + pause_us);
    let first = bins.first()?;
    let found = latency_stretches(bins).find(|(_, mean_us)| mean_us.is_some_and(|mean| mean <= usual_us));
    let last = bins.last().map_or(window.end_us, |bin| bin.mono_us);
    let begin_us = found.map_or(last, |(begin_us, _)| begin_us);
    Some(begin_us.saturating_sub(first.mono_us - first.width_us) as f64 / 1e6)
}

/// Begin of each stretch, one at every bin, and its mean response time. `None` if nothing completed.
fn latency_stretches(bins: &[Bin]) -> impl Iterator<Item = (u64, Option<f64>)> {
    (0..bins.len()).filter_map(|i| {
        let begin_us = bins[i].mono_us - bins[i].width_us;
        let length = bins[i..].iter().take_while(|bin| bin.mono_us <= begin_us + STRETCH_US).count();
        let bins = &bins[i..i + length];
        // At the end of what was recorded, a stretch that is cut off is none.
        let covered_us: u64 = bins.iter().map(|bin| bin.width_us).sum();
        if covered_us < STRETCH_US {
            return None;
        }
        let events: u64 = bins.iter().map(|bin| bin.events).sum();
        let sum_us: u64 = bins.iter().map(|bin| bin.latency_us_sum).sum();
        Some((begin_us, (events > 0).then(|| sum_us as f64 / events as f64)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn bins(means_us: &[u64]) -> Vec<Bin> {
        let bin = |(i, mean_us): (usize, &u64)| Bin {
            mono_us: (i as u64 + 1) * 100_000,
            width_us: 100_000,
            statements: 10,
            events: 10,
            errors: 0,
            errors_by_code: BTreeMap::new(),
            latency_us_sum: 10 * mean_us,
            latency_us_max: None,
            in_flight: 0,
            oldest_us: 0,
        };
        means_us.iter().enumerate().map(bin).collect()
    }

    #[test]
    fn the_first_stretch_that_is_as_usual_ends_the_recovery() {
        let after = bins(&[900, 900, 900, 100, 900, 100, 100, 100, 100, 100, 100]);
        let usual: Vec<_> =
            latency_stretches(&after).filter(|(_, mean)| mean.is_some_and(|mean| mean <= 120.0)).collect();
        // One quick bin among slow ones is no recovery.
        assert_eq!(usual[0].0, 500_000);
        assert_eq!(latency_stretches(&after).count(), 7);
        assert!(latency_stretches(&bins(&[100; 4])).next().is_none());
    }
}
