//! Downsampling of long series that keeps every peak and stall.
//!
//! Never averages: every point that is kept was measured.

/// Most points of a series. At 1280 px a point in six is visible; the rest is for zooming in.
///
/// Two hours of one-second samples and thirteen minutes of 100 ms bins are not reduced.
pub const MAX_POINTS: usize = 8_000;

/// Rising indices of `values` to keep. All of them if there are at most `keep`.
///
/// Otherwise the lowest and highest of each of `keep / 2` stretches of equal length. The first gap in each is
/// kept too, so that a line breaks there.
pub fn downsample(values: &[Option<i64>], keep: usize) -> Vec<usize> {
    if values.len() <= keep {
        return (0..values.len()).collect();
    }
    let stretches = (keep / 2).max(1);
    let mut kept = Vec::with_capacity(keep + keep / 8);
    for s in 0..stretches {
        let begin = s * values.len() / stretches;
        let end = (s + 1) * values.len() / stretches;
        let measured = || (begin..end).filter_map(|i| values[i].map(|v| (v, i)));
        let low = measured().min().map(|(_, i)| i);
        let high = measured().max_by_key(|&(v, i)| (v, std::cmp::Reverse(i))).map(|(_, i)| i);
        let gap = (begin..end).find(|&i| values[i].is_none());
        let first = kept.len();
        kept.extend([low, high, gap].into_iter().flatten());
        kept[first..].sort_unstable();
        kept.dedup();
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_series_is_kept_whole() {
        let values: Vec<_> = (0..100).map(Some).collect();
        assert_eq!(downsample(&values, 100), (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn a_single_peak_a_single_trough_and_a_gap_survive() {
        let mut values = vec![Some(50); 100_000];
        values[12_345] = Some(9_000);
        values[54_321] = Some(-7);
        values[77_777] = None;
        let kept = downsample(&values, 1_000);
        assert!(kept.len() <= 1_500, "{}", kept.len());
        for index in [12_345, 54_321, 77_777] {
            assert!(kept.contains(&index), "{index} is lost");
        }
        assert!(kept.is_sorted_by(|a, b| a < b));
    }
}
