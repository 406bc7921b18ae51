//! Onset of an arm's overhead after it is switched on, and a check that its window began late enough.
//!
//! A log that has yet to fill the page cache costs less than one that has. A window that begins too soon
//! therefore underestimates. Compares bins from the moment the arm was on with the other arm's window of the
//! same round.

use super::arms::{Arms, baseline_of};
use super::run_data::{RunData, samples_within};
use super::warnings::{RunWarning, Slope};
use super::windows::Window;
use std::collections::BTreeMap;
use toll_record::{Axis, Bin, Chart, ChartKind, ChartPoint, ChartSeries, Role};

/// Most points of a curve.
const MAX_POINTS: u64 = 40;
/// Fewest rounds for a spread worth drawing.
const FEWEST_ROUNDS: usize = 3;
/// Maximum number of lines that a reader can distinguish.
const MOST_ARMS: usize = 8;
/// Multiple of the shortest window from which a longer one shows the final overhead.
const LONG_WINDOW_FACTOR: u64 = 2;
/// Smallest slope that matters, percent.
const MIN_SLOPE_PCT: f64 = 1.0;

/// Chart of the onset for the arms with the highest overhead. `None` if no load was counted in bins.
pub fn chart(recorded: &RunData, windows: &[Window], arms: &Arms) -> Option<Chart> {
    let plan = &recorded.plan;
    let look = TimeMeasure::of(recorded)?;
    let on: Vec<TimedWindow> =
        windows.iter().filter_map(|window| TimedWindow::of(recorded, window)).collect();
    let longest = on.iter().map(|w| w.end_us - w.on_us).max()?;
    let stretch_us = longest.div_ceil(MAX_POINTS).max(1).next_multiple_of(look.width_us);
    let usual = look.reference_values(arms, windows);
    let mut chosen: Vec<(f64, usize)> = (0..plan.arms.len())
        .filter(|&i| plan.arms[i].role == Role::Treatment)
        .filter_map(|i| Some((mean_log_ratio(&look, &usual, arms, &on, i)?.abs(), i)))
        .collect();
    chosen.sort_by(|a, b| b.0.total_cmp(&a.0));
    let series: Vec<ChartSeries> = chosen
        .into_iter()
        .take(MOST_ARMS)
        .map(|(_, i)| ChartSeries {
            name: plan.arms[i].name.clone(),
            points: look.onset_curve(arms, &on, &usual, i, stretch_us),
        })
        .filter(|series| series.points.len() > 1)
        .collect();
    (!series.is_empty()).then(|| Chart {
        id: "course".into(),
        title: format!("{}, from when the variant is on", look.title()),
        kind: ChartKind::Line,
        x: Axis { label: "time since it was switched on".into(), unit: "s".into(), ..Axis::default() },
        y: Axis { label: "toll".into(), unit: "%".into(), ..Axis::default() },
        series,
        note: format!(
            "Against {} in the same round, with pointwise {:.0}% intervals; a window should begin where the line has \
             become flat.",
            plan.baseline,
            100.0 * (1.0 - plan.alpha)
        ),
    })
}

/// Adds a warning for arms whose short windows are on the slope, according to their long ones.
pub fn warn_on_slope(recorded: &RunData, windows: &[Window], warnings: &mut Vec<RunWarning>) {
    let plan = &recorded.plan;
    let Some(look) = TimeMeasure::of(recorded) else { return };
    let on: Vec<TimedWindow> =
        windows.iter().filter_map(|window| TimedWindow::of(recorded, window)).collect();
    let changing: Vec<(usize, SlopeChanges)> = (0..plan.arms.len())
        .filter(|&i| plan.arms[i].unavailable.is_none())
        .filter_map(|i| Some((i, look.slope_changes(&on, i)?)))
        .collect();
    // Six long windows of one arm are too few to estimate their variation; those of all arms together are enough.
    let freedom: usize = changing.iter().map(|(_, s)| s.d.len() - 1).sum();
    if freedom == 0 {
        return;
    }
    let squares = |d: &[f64]| (d.len() - 1) as f64 * toll_stats::sd(d).powi(2);
    let sd = (changing.iter().map(|(_, s)| squares(&s.d)).sum::<f64>() / freedom as f64).sqrt();
    let level = 1.0 - plan.alpha / changing.len() as f64 / 2.0;
    let reach = toll_stats::student_t_quantile(level, u32::try_from(freedom).unwrap_or(u32::MAX)) * sd;
    for (i, changes) in changing {
        let (mean, half) = (toll_stats::mean(&changes.d), reach / (changes.d.len() as f64).sqrt());
        let pct = toll_stats::log_ratio_to_pct(mean);
        if mean.abs() > half && pct.abs() > MIN_SLOPE_PCT {
            let ends_pct = [mean - half, mean + half].map(toll_stats::log_ratio_to_pct);
            let SlopeChanges { short_s, late_s, .. } = changes;
            let slope = Slope { what: look.title().to_lowercase(), pct, ends_pct, short_s, late_s };
            warnings.push(RunWarning::WindowOnSlope { arm: plan.arms[i].name.clone(), slope });
        }
    }
}

/// Change from an arm's short windows to the end of its long ones.
struct SlopeChanges {
    /// ln of the ratio, for each long window.
    d: Vec<f64>,
    /// Begin and end of a short window, seconds since the arm was on.
    short_s: [f64; 2],
    late_s: [f64; 2],
}

/// Measure of the bins: time an event took, or time between statements if the driver has no latency.
struct TimeMeasure<'a> {
    recorded: &'a RunData,
    width_us: u64,
    by_latency: bool,
}

/// A window of fixed length, and the time when its arm was on.
struct TimedWindow {
    arm: usize,
    round: u32,
    on_us: u64,
    begin_us: u64,
    end_us: u64,
}

impl TimedWindow {
    /// `None` if it begins and ends with its command, or if the time is unknown.
    fn of(recorded: &RunData, window: &Window) -> Option<Self> {
        let timed = matches!(recorded.plan.arms[window.arm].window, toll_record::Window::Time { .. });
        let &Window { arm, round, begin_us, end_us, .. } = window;
        Some(TimedWindow { arm, round, on_us: window.on_us.filter(|_| timed)?, begin_us, end_us })
    }
}

/// ln of the usual value, by arm and round.
type ReferenceValues = BTreeMap<(usize, u32), f64>;

impl<'a> TimeMeasure<'a> {
    fn of(recorded: &'a RunData) -> Option<Self> {
        let width_us = recorded.bins.iter().map(|bin| bin.width_us).filter(|us| *us > 0).min()?;
        let by_latency = recorded.bins.iter().any(|bin| bin.latency_us_sum > 0);
        Some(TimeMeasure { recorded, width_us, by_latency })
    }

    fn title(&self) -> &'static str {
        if self.by_latency { "Overhead in mean response time" } else { "Overhead in time between statements" }
    }

    /// ln of the time an event, or a statement, took in (begin, end].
    fn ln_time(&self, begin_us: u64, end_us: u64) -> Option<f64> {
        let bins = samples_within(&self.recorded.bins, begin_us, end_us);
        let sum = |of: fn(&Bin) -> u64| bins.iter().map(of).sum::<u64>() as f64;
        let (time, count) = if self.by_latency {
            (sum(|b| b.latency_us_sum), sum(|b| b.events))
        } else {
            (sum(|b| b.width_us), sum(|b| b.statements))
        };
        Some((time / count).ln()).filter(|ln| ln.is_finite())
    }

    /// Position of the arm that this one is compared with. A baseline is its own.
    fn reference(&self, arms: &Arms, arm: usize) -> usize {
        baseline_of(&self.recorded.plan, arm, arms.baseline).unwrap_or(arm)
    }

    fn reference_values(&self, arms: &Arms, windows: &[Window]) -> ReferenceValues {
        let references: Vec<usize> = (0..arms.windows.len()).map(|i| self.reference(arms, i)).collect();
        let is_reference = |window: &&Window| references.contains(&window.arm);
        let usual = |window: &Window| {
            Some(((window.arm, window.round), self.ln_time(window.begin_us, window.end_us)?))
        };
        windows.iter().filter(is_reference).filter_map(usual).collect()
    }

    /// An arm's windows, with the usual values of their rounds.
    fn pair_windows<'w>(
        &self,
        arms: &Arms,
        on: &'w [TimedWindow],
        usual: &ReferenceValues,
        arm: usize,
    ) -> Vec<(&'w TimedWindow, f64)> {
        let reference = self.reference(arms, arm);
        let of_arm = on.iter().filter(|w| w.arm == arm);
        of_arm.filter_map(|w| Some((w, *usual.get(&(reference, w.round))?))).collect()
    }

    /// Overhead in percent in each stretch since the arm was on, with pointwise intervals.
    fn onset_curve(
        &self,
        arms: &Arms,
        on: &[TimedWindow],
        usual: &ReferenceValues,
        arm: usize,
        stretch_us: u64,
    ) -> Vec<ChartPoint> {
        let paired = self.pair_windows(arms, on, usual, arm);
        let longest = paired.iter().map(|(w, _)| w.end_us - w.on_us).max().unwrap_or(0);
        (0..longest / stretch_us)
            .filter_map(|k| {
                let d: Vec<f64> = paired
                    .iter()
                    .filter(|(w, _)| w.on_us + (k + 1) * stretch_us <= w.end_us)
                    .filter_map(|(w, usual)| {
                        let begin_us = w.on_us + k * stretch_us;
                        Some(self.ln_time(begin_us, begin_us + stretch_us)? - usual)
                    })
                    .collect();
                if d.len() < FEWEST_ROUNDS {
                    return None;
                }
                let level = 1.0 - self.recorded.plan.alpha / 2.0;
                let half = toll_stats::student_t_quantile(level, d.len() as u32 - 1) * toll_stats::sd(&d)
                    / (d.len() as f64).sqrt();
                let mean = toll_stats::mean(&d);
                let [at, low, high] = [mean, mean - half, mean + half].map(toll_stats::log_ratio_to_pct);
                let middle_s = (k as f64 + 0.5) * stretch_us as f64 / 1e6;
                Some((middle_s, at, Some(low), Some(high)))
            })
            .collect()
    }

    fn slope_changes(&self, on: &[TimedWindow], arm: usize) -> Option<SlopeChanges> {
        let of_arm: Vec<&TimedWindow> = on.iter().filter(|w| w.arm == arm).collect();
        let shortest = of_arm.iter().map(|w| w.end_us - w.begin_us).min()?;
        let (long, short): (Vec<&TimedWindow>, Vec<&TimedWindow>) =
            of_arm.into_iter().partition(|w| w.end_us - w.begin_us >= LONG_WINDOW_FACTOR * shortest);
        if short.is_empty() || long.len() < 2 {
            return None;
        }
        let offset = |of: fn(&TimedWindow) -> u64| {
            let since_on: Vec<f64> = short.iter().map(|w| (of(w) - w.on_us) as f64).collect();
            toll_stats::median(&since_on) as u64
        };
        let (early_begin, early_end) = (offset(|w| w.begin_us), offset(|w| w.end_us));
        // As long as a short window, or the last third.
        let late = |w: &TimedWindow| (w.end_us - ((w.end_us - w.begin_us) / 3).max(shortest), w.end_us);
        let d: Vec<f64> = long
            .iter()
            .filter(|w| late(w).0 >= w.on_us + early_end)
            .filter_map(|w| {
                let (begin, end) = late(w);
                Some(self.ln_time(begin, end)? - self.ln_time(w.on_us + early_begin, w.on_us + early_end)?)
            })
            .collect();
        let last = long.last()?;
        let (late_begin, late_end) = late(last);
        let since = |us: u64| us.saturating_sub(last.on_us) as f64 / 1e6;
        (d.len() >= 2).then(|| SlopeChanges {
            d,
            short_s: [early_begin as f64 / 1e6, early_end as f64 / 1e6],
            late_s: [since(late_begin), since(late_end)],
        })
    }
}

/// Mean log ratio of the arm's windows as measured.
fn mean_log_ratio(
    look: &TimeMeasure,
    usual: &ReferenceValues,
    arms: &Arms,
    on: &[TimedWindow],
    arm: usize,
) -> Option<f64> {
    let paired = look.pair_windows(arms, on, usual, arm);
    let d: Vec<f64> =
        paired.iter().filter_map(|(w, usual)| Some(look.ln_time(w.begin_us, w.end_us)? - usual)).collect();
    (!d.is_empty()).then(|| toll_stats::mean(&d))
}
