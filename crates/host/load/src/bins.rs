//! Machine-readable output of the load generator: one line for each short bin.

use crate::engine::LatencyCounts;
use serde::{Deserialize, Serialize};
use toll_record::Bin;

/// A line of `toll load --bins`: what completed in one bin, with a sparse histogram.
///
/// `mono_us` is the bin's end and a multiple of the width asked for, but for the last bin, which
/// ends where the run does; `width_us` is the stretch that was really covered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BinLine {
    #[serde(flatten)]
    pub bin: Bin,
    /// Event latency from the intended start: (lowest value of the bucket in µs, events), rising;
    /// buckets are at most 1% wide, 1 µs below 256 µs. Counts sum to `bin.events`.
    pub hist: Vec<(u64, u64)>,
}

impl BinLine {
    /// Folds counts of nanoseconds into the line's buckets.
    pub(crate) fn histogram_buckets(nanoseconds: &LatencyCounts) -> Vec<(u64, u64)> {
        let mut buckets: Vec<(u64, u64)> = Vec::new();
        for (ns, count) in nanoseconds.iter() {
            let lowest_us = lowest_of_bucket((ns + 500) / 1000);
            match buckets.last_mut() {
                Some((last, events)) if *last == lowest_us => *events += count,
                _ => buckets.push((lowest_us, count)),
            }
        }
        buckets
    }
}

/// Keeps the eight highest bits: buckets are 1 µs wide below 256 µs, and at most 1/128 from there.
fn lowest_of_bucket(us: u64) -> u64 {
    let shift = (u64::BITS - us.leading_zeros()).saturating_sub(8);
    us >> shift << shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_bucket_is_never_wider_than_one_percent() {
        for us in (0..5_000_000).step_by(37) {
            let lowest = lowest_of_bucket(us);
            assert!(lowest <= us && (us - lowest) as f64 <= 0.01 * us as f64, "{us} in {lowest}");
        }
    }

    #[test]
    fn a_line_reads_back_and_its_counts_are_its_events() {
        let mut ns = LatencyCounts::default();
        (1..=1000).for_each(|i| ns.record(i * 10_000));
        let hist = BinLine::histogram_buckets(&ns);
        assert_eq!(hist.iter().map(|(_, n)| n).sum::<u64>(), 1000);
        assert!(hist.windows(2).all(|w| w[0].0 < w[1].0));
        let bin = Bin {
            mono_us: 100_000,
            width_us: 100_000,
            statements: 16_000,
            events: 1000,
            errors: 0,
            errors_by_code: BTreeMap::from([(1205, 2)]),
            latency_us_sum: 5,
            latency_us_max: Some(10_000),
            in_flight: 1,
            oldest_us: 7,
        };
        let line = BinLine { bin, hist };
        let text = serde_json::to_string(&line).unwrap();
        assert!(text.starts_with(r#"{"mono_us":100000,"#), "{text}");
        assert_eq!(serde_json::from_str::<BinLine>(&text).unwrap(), line);
    }
}
