//! Users' traffic in a pilot that switches nothing: its classes with their weights, and how much its response times vary.

use super::SeenStretch;
use std::collections::BTreeMap;
use toll_model::plan::noise::{Series, fit_noise};
use toll_record::{ClassTimes, Noise, QueryClass};

/// Classes that are compared: the most frequent. Others have too few queries in a window.
const CLASSES: usize = 200;
/// Fewer than these in a second are no traffic: windows would hold too few of each class.
const LEAST_QUERIES_PER_S: f64 = 5.0;

/// One value of a series in the pilot: its time, and the value's logarithm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PilotSample {
    pub at_us: u64,
    pub ln: f64,
}

/// What a pilot saw of the users.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SeenTraffic {
    /// With weights that sum to 1; empty: there was next to none.
    pub classes: Vec<QueryClass>,
    pub queries_per_s: f64,
    /// Of the response time at the weights' mix.
    pub noise: Option<Noise>,
    /// That response time over the pilot, in stretches of `width_us`, against its mean.
    pub series: Vec<PilotSample>,
    pub width_us: u64,
}

impl SeenTraffic {
    pub fn of(stretches: &[SeenStretch]) -> Self {
        let mut all: BTreeMap<&str, (&str, ClassTimes)> = BTreeMap::new();
        for class in stretches.iter().flat_map(|stretch| &stretch.classes) {
            let (_, sum) = all.entry(&class.name).or_insert((&class.title, ClassTimes::default()));
            sum.count += class.times.count;
            sum.ln_us_sum += class.times.ln_us_sum;
        }
        let seconds: f64 = stretches.iter().map(|stretch| stretch.width_us as f64 / 1e6).sum();
        let mut frequent: Vec<(&str, (&str, ClassTimes))> = all.into_iter().collect();
        frequent.sort_by_key(|(_, (_, times))| std::cmp::Reverse(times.count));
        frequent.truncate(CLASSES);
        let queries: u64 = frequent.iter().map(|(_, (_, times))| times.count).sum();
        let queries_per_s = queries as f64 / seconds.max(1e-9);
        if queries_per_s < LEAST_QUERIES_PER_S {
            return Self { queries_per_s, ..Self::default() };
        }
        let weight = |times: &ClassTimes| times.count as f64 / queries as f64;
        let usual: BTreeMap<&str, (f64, f64)> = frequent
            .iter()
            .map(|(name, (_, times))| (*name, (weight(times), times.ln_us_sum / times.count as f64)))
            .collect();
        let samples = stretches.iter().filter_map(|stretch| {
            Some(PilotSample { at_us: stretch.mono_us, ln: departure(stretch, &usual)? })
        });
        let series: Vec<PilotSample> = samples.collect();
        let width_us = stretches.first().map_or(0, |stretch| stretch.width_us);
        Self {
            noise: noise_of(&series, width_us),
            series,
            width_us,
            classes: frequent
                .iter()
                .map(|(name, (title, times))| QueryClass {
                    name: (*name).to_owned(),
                    title: (*title).to_owned(),
                    weight: weight(times),
                })
                .collect(),
            queries_per_s,
        }
    }
}

/// By how much a stretch's queries differ from those of the same classes in all stretches: the mix does not matter. Weighted
/// mean of logarithms; `usual`: each class's weight and mean.
fn departure(stretch: &SeenStretch, usual: &BTreeMap<&str, (f64, f64)>) -> Option<f64> {
    let (mut sum, mut weight_sum) = (0.0, 0.0);
    for class in stretch.classes.iter().filter(|class| class.times.count > 0) {
        let Some((weight, usual)) = usual.get(class.name.as_str()) else { continue };
        sum += weight * (class.times.ln_us_sum / class.times.count as f64 - usual);
        weight_sum += weight;
    }
    (weight_sum > 0.0).then(|| sum / weight_sum)
}

/// Noise of a series whose values come about each `width_us`.
pub fn noise_of(samples: &[PilotSample], width_us: u64) -> Option<Noise> {
    let begun_us = samples.first()?.at_us;
    if width_us == 0 {
        return None;
    }
    let mut ln = Vec::new();
    for sample in samples {
        let at = (sample.at_us.saturating_sub(begun_us) as f64 / width_us as f64).round() as usize;
        // A pilot that was stopped for an hour is no series.
        if at > 10 * samples.len() {
            break;
        }
        ln.resize(ln.len().max(at + 1), None);
        ln[at] = Some(sample.ln);
    }
    fit_noise(&Series { width_s: width_us as f64 / 1e6, ln })
}

#[cfg(test)]
mod tests {
    use super::super::SeenClass;
    use super::*;
    use toll_stats::SeededRng;

    fn stretch(i: u64, classes: &[(&str, u64, f64)]) -> SeenStretch {
        let classes = classes.iter().map(|(name, count, us)| SeenClass {
            name: (*name).to_owned(),
            title: (*name).to_owned(),
            times: ClassTimes { count: *count, ln_us_sum: *count as f64 * us.ln() },
        });
        SeenStretch { mono_us: 500_000 * i, width_us: 500_000, classes: classes.collect() }
    }

    #[test]
    fn weights_are_shares_of_the_queries_and_a_mix_that_changes_is_no_noise() {
        let mut draws = SeededRng::new(1, 0);
        let stretches: Vec<SeenStretch> = (0..60)
            .map(|i| {
                let fast = u64::from(draws.below(90)) + 10;
                stretch(i, &[("fast", fast, 100.0), ("slow", 100 - fast, 10_000.0)])
            })
            .collect();
        let seen = SeenTraffic::of(&stretches);
        assert!((seen.queries_per_s - 200.0).abs() < 1e-6, "{seen:?}");
        let sum: f64 = seen.classes.iter().map(|class| class.weight).sum();
        assert!((sum - 1.0).abs() < 1e-12 && seen.classes.len() == 2, "{seen:?}");
        let noise = seen.noise.unwrap();
        assert!(noise.white_s < 1e-12 && noise.pink < 1e-12, "{noise:?}");
    }

    #[test]
    fn times_that_vary_are_noise_and_next_to_no_traffic_has_no_classes() {
        let mut draws = SeededRng::new(2, 0);
        let vary = |i| stretch(i, &[("a", 50, 1_000.0 * (1.0 + 0.2 * draws.next_fraction()))]);
        let seen = SeenTraffic::of(&(0..60).map(vary).collect::<Vec<_>>());
        // Uniform over 18%: a spread of 5.2% in half a second.
        let white_s = seen.noise.unwrap().white_s;
        assert!((0.0005..0.003).contains(&white_s), "{white_s}");
        let idle = SeenTraffic::of(&(0..60).map(|i| stretch(i, &[("a", 1, 10.0)])).collect::<Vec<_>>());
        assert!(idle.classes.is_empty() && idle.noise.is_none(), "{idle:?}");
    }
}
