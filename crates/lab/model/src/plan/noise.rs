//! Noise model: variance between two windows of unchanged load, by their length and distance.
//!
//! Fits two numbers to a pilot's bins: white noise, which averages out, and 1/f noise, which does not. Never
//! reads a clock.

use toll_record::{Apart, Bin, Noise};

/// ln of an outcome in consecutive bins; `None` for a bin without a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Series {
    pub width_s: f64,
    pub ln: Vec<Option<f64>>,
}

/// Outcome of a bin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BinOutcome {
    /// Mean response time of the bin's events.
    Latency,
    /// Statements, or whatever the meter counts.
    Count,
}

/// Fewest bins for an estimate.
const FEWEST_BINS: usize = 8;
/// Window lengths in bins, and distances in windows, at which variances are computed.
const WIDTHS: [usize; 7] = [1, 2, 5, 10, 20, 50, 100];
const LAGS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

impl Series {
    /// A series of the bins within one of these stretches (begin, end], microseconds.
    pub fn from_bins(bins: &[Bin], outcome: BinOutcome, stretches: &[(u64, u64)]) -> Self {
        let Some(first) = bins.first() else { return Self::default() };
        let width_us = first.width_us.max(1);
        let mut ln: Vec<Option<f64>> = Vec::with_capacity(bins.len());
        for bin in bins {
            let at = (bin.mono_us.saturating_sub(first.mono_us) as f64 / width_us as f64).round() as usize;
            // A meter that was silent for an hour is no series.
            if at > bins.len() * 10 {
                break;
            }
            ln.resize(ln.len().max(at + 1), None);
            let inside = stretches.iter().any(|(begin, end)| {
                bin.mono_us > *begin && bin.mono_us <= *end && bin.mono_us - begin >= bin.width_us
            });
            let value = match outcome {
                BinOutcome::Latency => bin.latency_us_sum as f64 / bin.events as f64,
                BinOutcome::Count => bin.statements as f64 / bin.width_us.max(1) as f64,
            };
            ln[at] = Some(value.ln()).filter(|ln| inside && ln.is_finite());
        }
        Self { width_s: width_us as f64 / 1e6, ln }
    }

    /// Mean of `bins` bins from `from`. `None` if one of them has no value.
    fn mean(&self, from: usize, bins: usize) -> Option<f64> {
        let of = self.ln.get(from..from + bins)?;
        let sum: Option<f64> = of.iter().copied().sum();
        Some(sum? / bins as f64)
    }

    /// Seconds as a number of bins, at least one.
    fn count_bins(&self, seconds: f64) -> usize {
        (seconds / self.width_s).round().max(1.0) as usize
    }
}

/// Noise fitted to a series. `None` if the series is too short.
pub fn fit_noise(series: &Series) -> Option<Noise> {
    let known = series.ln.iter().flatten().count();
    if known < FEWEST_BINS {
        return None;
    }
    let mut seen: Vec<(Apart, f64)> = Vec::new();
    for width in WIDTHS.into_iter().filter(|width| width * 4 <= known) {
        for lag in LAGS.map(|lag| lag * width).into_iter().filter(|lag| lag * 3 <= known * 2) {
            let differences: Vec<f64> = (0..series.ln.len())
                .filter_map(|i| Some(series.mean(i + lag, width)? - series.mean(i, width)?))
                .collect();
            let independent = differences.len() as f64 / width as f64;
            if let Some(variance) =
                estimate_robust_variance(&differences, independent).filter(|_| independent >= 2.0)
            {
                let apart = Apart {
                    width_s: width as f64 * series.width_s,
                    lag_s: lag as f64 * series.width_s,
                    sd_pct: 100.0 * variance.sqrt(),
                };
                seen.push((apart, independent));
            }
        }
    }
    let (white_s, pink) = fit_components(&seen)?;
    Some(Noise { white_s, pink, seen: seen.into_iter().map(|(apart, _)| apart).collect() })
}

/// Cressie and Hawkins' robust estimator (Mathematical Geology 12, 1980): a stall in the pilot is not noise.
fn estimate_robust_variance(differences: &[f64], independent: f64) -> Option<f64> {
    if differences.is_empty() {
        return None;
    }
    let root = differences.iter().map(|d| d.abs().sqrt()).sum::<f64>() / differences.len() as f64;
    Some(root.powi(4) / (0.457 + 0.494 / independent.max(1.0)))
}

/// Weighted least squares of `2 white / w + 2 pink F(l / w)`, neither below zero.
///
/// The error of a variance is proportional to the variance. Weights therefore come from the previous fit.
fn fit_components(seen: &[(Apart, f64)]) -> Option<(f64, f64)> {
    const TURNS: usize = 4;
    let rows: Vec<([f64; 2], f64, f64)> = seen
        .iter()
        .map(|(apart, weight)| {
            (component_terms(apart.width_s, apart.lag_s), (apart.sd_pct / 100.0).powi(2), *weight)
        })
        .collect();
    if rows.is_empty() {
        return None;
    }
    let usual = rows.iter().map(|row| row.1).sum::<f64>() / rows.len() as f64;
    if usual <= 0.0 {
        return Some((0.0, 0.0));
    }
    let mut found = [0.0, 0.0];
    for turn in 0..TURNS {
        let (mut a, mut b) = ([[0.0; 2]; 2], [0.0; 2]);
        for (x, y, weight) in &rows {
            let expected = if turn == 0 { usual } else { found[0] * x[0] + found[1] * x[1] };
            let weight = weight / expected.max(usual * 1e-3).powi(2);
            for i in 0..2 {
                b[i] += weight * x[i] * y;
                for j in 0..2 {
                    a[i][j] += weight * x[i] * x[j];
                }
            }
        }
        let determinant = a[0][0] * a[1][1] - a[0][1] * a[1][0];
        found = if determinant > 1e-9 * a[0][0] * a[1][1] {
            [(b[0] * a[1][1] - b[1] * a[0][1]) / determinant, (b[1] * a[0][0] - b[0] * a[1][0]) / determinant]
        } else {
            [0.0, b[1] / a[1][1]]
        };
        if found[0] < 0.0 {
            found = [0.0, b[1] / a[1][1]];
        } else if found[1] < 0.0 {
            found = [b[0] / a[0][0], 0.0];
        }
    }
    found.iter().all(|x| x.is_finite()).then_some((found[0], found[1]))
}

/// Variance of the difference between two windows, by their length and the distance of their begins, seconds.
pub fn difference_variance(noise: &Noise, width_s: f64, lag_s: f64) -> f64 {
    let [white, pink] = component_terms(width_s, lag_s);
    noise.white_s * white + noise.pink * pink
}

fn component_terms(width_s: f64, lag_s: f64) -> [f64; 2] {
    // Windows never overlap.
    let m = (lag_s / width_s).max(1.0);
    let square_ln = |x: f64| if x > 0.0 { x * x * x.ln() } else { 0.0 };
    let by_lag = if m > 1e4 {
        // Its limit, where the difference of large numbers would drown it.
        m.ln() + 1.5
    } else {
        (square_ln(m + 1.0) + square_ln(m - 1.0) - 2.0 * square_ln(m)) / 2.0
    };
    [2.0 / width_s, 2.0 * by_lag]
}

/// Standard errors by which stretches may differ.
const MAX_STANDARD_ERRORS: f64 = 2.0;

/// Seconds from the begin of the series until it is steady, at least `from_s`.
///
/// The series is steady if its next stretch differs from its last one by no more than chance. Several series
/// of one arm are averaged. `None` if the series is too short.
pub fn find_steady_start(series: &[Series], noise: &Noise, from_s: f64, stretch_s: f64) -> Option<f64> {
    let first = series.first().filter(|first| first.width_s > 0.0)?;
    let stretch = first.count_bins(stretch_s);
    let length = series.iter().map(|series| series.ln.len()).min()?;
    let last = length.checked_sub(stretch)?;
    let begin = if from_s > 0.0 { first.count_bins(from_s) } else { 0 };
    if begin + stretch > last {
        return None;
    }
    // Whole microseconds, as the bins are.
    let seconds = |bins: usize| (bins as f64 * first.width_s * 1e6).round() / 1e6;
    for at in begin..=last - stretch {
        let differences: Vec<f64> = series
            .iter()
            .filter_map(|series| Some(series.mean(at, stretch)? - series.mean(last, stretch)?))
            .collect();
        if differences.is_empty() {
            continue;
        }
        let lag_s = (last - at) as f64 * first.width_s;
        let error = (difference_variance(noise, stretch_s, lag_s) / differences.len() as f64).sqrt();
        if toll_stats::mean(&differences).abs() <= MAX_STANDARD_ERRORS * error {
            return Some(seconds(at));
        }
    }
    Some(seconds(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Normal draws, by the sum of twelve uniform ones.
    fn normal(draws: &mut toll_stats::SeededRng) -> f64 {
        (0..12).map(|_| draws.next_fraction()).sum::<f64>() - 6.0
    }

    fn white(seed: u64, bins: usize, sd: f64) -> Series {
        let mut draws = toll_stats::SeededRng::new(seed, 1);
        Series { width_s: 0.1, ln: (0..bins).map(|_| Some(sd * normal(&mut draws))).collect() }
    }

    /// Octaves of equal variance, each held for twice as long as the one before: about 1/f.
    fn pink(seed: u64, bins: usize, sd: f64) -> Series {
        let mut draws = toll_stats::SeededRng::new(seed, 2);
        let mut octaves = [0.0; 14];
        let ln = (0..bins).map(|i| {
            for (octave, value) in octaves.iter_mut().enumerate() {
                // At random moments, so that no octave keeps step with windows.
                if i == 0 || draws.next_fraction() < 0.5_f64.powi(octave as i32) {
                    *value = sd * normal(&mut draws);
                }
            }
            Some(octaves.iter().sum::<f64>())
        });
        Series { width_s: 0.1, ln: ln.collect() }
    }

    #[test]
    fn noise_that_averages_out_is_told_from_noise_that_does_not() {
        let noise = fit_noise(&white(1, 3000, 0.05)).unwrap();
        // 5% in bins of 0.1 s: .0025 x .1.
        assert!((noise.white_s - 2.5e-4).abs() < 0.5e-4 && noise.pink < 2e-5, "{noise:?}");
        let noise = fit_noise(&pink(1, 6000, 0.02)).unwrap();
        let [near, far] = [1.0, 50.0].map(|lag| difference_variance(&noise, 1.0, lag).sqrt());
        let short = difference_variance(&noise, 0.2, 0.2).sqrt();
        assert!(far > 1.3 * near && (0.6..1.7).contains(&(short / near)), "{short} {near} {far}");
    }

    #[test]
    fn what_was_fitted_foretells_what_is_seen() {
        let series = pink(7, 6000, 0.02);
        let noise = fit_noise(&series).unwrap();
        for apart in &noise.seen {
            let told = 100.0 * difference_variance(&noise, apart.width_s, apart.lag_s).sqrt();
            let ratio = told / apart.sd_pct;
            assert!((0.5..2.0).contains(&ratio), "{apart:?} {told}");
        }
    }

    #[test]
    fn a_stall_in_the_pilot_hardly_changes_the_noise() {
        let mut series = white(3, 600, 0.05);
        let calm = fit_noise(&series).unwrap();
        series.ln[300] = Some(3.0);
        series.ln[301] = None;
        let stalled = fit_noise(&series).unwrap();
        let grown = difference_variance(&stalled, 1.0, 10.0) / difference_variance(&calm, 1.0, 10.0);
        assert!(grown < 1.5, "{grown}");
    }

    #[test]
    fn the_variance_has_its_known_values() {
        let noise = Noise { white_s: 0.0, pink: 1.0, seen: Vec::new() };
        // Neighbours: twice the Allan variance of flicker noise, 2 ln 2.
        assert!((difference_variance(&noise, 1.0, 1.0) - 4.0 * 2.0_f64.ln()).abs() < 1e-12);
        assert_eq!(difference_variance(&noise, 0.5, 5.0), difference_variance(&noise, 5.0, 50.0));
        assert!(
            (difference_variance(&noise, 1.0, 9_999.0) - difference_variance(&noise, 1.0, 10_001.0)).abs()
                < 1e-3
        );
        let noise = Noise { white_s: 0.5, pink: 0.0, seen: Vec::new() };
        assert_eq!(difference_variance(&noise, 2.0, 9.0), 0.5);
    }

    #[test]
    fn too_few_bins_tell_nothing() {
        assert_eq!(fit_noise(&white(1, 7, 0.1)), None);
        assert_eq!(fit_noise(&Series::default()), None);
        // No noise at all is no noise, not none known.
        let still = Series { width_s: 0.1, ln: vec![Some(1.0); 50] };
        assert_eq!(fit_noise(&still).map(|noise| (noise.white_s, noise.pink)), Some((0.0, 0.0)));
    }

    #[test]
    fn a_load_that_slows_for_three_seconds_is_steady_from_then_on() {
        let noise = fit_noise(&white(1, 3000, 0.02)).unwrap();
        let slow = |seed| {
            let mut series = white(seed, 80, 0.02);
            for (i, ln) in series.ln.iter_mut().take(30).enumerate() {
                *ln = ln.map(|ln| ln + 0.10 * (30 - i) as f64 / 30.0);
            }
            series
        };
        let steady = find_steady_start(&[slow(5), slow(6)], &noise, 0.0, 1.0).unwrap();
        assert!((1.0..=3.2).contains(&steady), "{steady}");
        assert_eq!(find_steady_start(&[white(8, 80, 0.02)], &noise, 0.3, 1.0), Some(0.3));
        assert_eq!(find_steady_start(&[white(8, 15, 0.02)], &noise, 0.0, 1.0), None);
    }

    #[test]
    fn bins_outside_of_windows_and_without_events_are_none() {
        let bin = |i: u64, events: u64| Bin {
            mono_us: 100_000 * i,
            width_us: 100_000,
            statements: 10 * events,
            events,
            errors: 0,
            latency_us_sum: 2_000 * events,
            latency_us_max: None,
            in_flight: 0,
            oldest_us: 0,
            errors_by_code: Default::default(),
        };
        let bins = [bin(1, 5), bin(2, 0), bin(3, 5), bin(5, 5), bin(6, 5)];
        let series = Series::from_bins(&bins, BinOutcome::Latency, &[(0, 500_000)]);
        let known: Vec<bool> = series.ln.iter().map(Option::is_some).collect();
        assert_eq!(known, [true, false, true, false, true, false]);
        assert!((series.ln[0].unwrap() - 2_000.0_f64.ln()).abs() < 1e-12);
    }
}
