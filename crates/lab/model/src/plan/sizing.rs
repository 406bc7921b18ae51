//! Sample-size optimiser: window length and rounds with the smallest detectable effect in the time given.
//!
//! A pure function of the pilot's figures and the user's options. Never reads a clock.

use super::noise;
use toll_record::Noise;

/// Candidate window lengths, seconds.
///
/// Shorter windows hold more of the switch than of the arm. Longer ones do not average out 1/f noise.
const WINDOWS_S: [f64; 10] = [0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0, 10.0];
/// Window length if no noise is known and nothing favours another, seconds.
const USUAL_WINDOW_S: f64 = 2.0;
/// Fewest bins of the meter in a window.
const FEWEST_BINS: f64 = 3.0;
/// Power at which the minimum detectable effect is stated.
const POWER: f64 = 0.8;
/// Largest share of the time for rounds of long windows. There are at least as many as an interval needs.
const LONG_SHARE: f64 = 1.0 / 3.0;
pub const LONG_ROUNDS: u32 = 6;
/// Bounds of a long window. Stalls cannot be measured in a shorter one; a longer one is split in two.
const LONG_WINDOWS_S: [f64; 2] = [2.0, 30.0];

/// Time that one arm's trials need in addition to their window.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialTiming {
    pub name: String,
    pub settle_s: f64,
    /// Load, start, stop, and the wait for a boundary between bins, seconds.
    pub switch_s: f64,
    /// Seconds to count the artefact, per second that the arm was on.
    pub count_s_per_s: f64,
    /// Length of its windows, if something other than time ends them.
    pub fixed_window_s: Option<f64>,
}

/// Input of the optimiser.
#[derive(Debug, Clone)]
pub struct SizingInput {
    /// The arms of a round.
    pub timings: Vec<TrialTiming>,
    pub gap_s: f64,
    /// Largest random shift of a window's begin, as a share of the window.
    pub jitter: f64,
    /// Noise of ln(primary outcome). `None` if unknown, or if the outcome is not compared as a ratio.
    pub noise: Option<Noise>,
    /// Width of the meter's bins, seconds.
    pub bin_s: f64,
    /// Shortest window that holds enough events for a mean, seconds.
    pub min_window_s: f64,
    pub alpha: f64,
    /// Number of verdicts that share one error rate.
    pub treatments: u32,
    /// Window length set by the user.
    pub window_s: Option<f64>,
    pub rounds: Option<u32>,
    /// True if a shown outcome needs long windows.
    pub needs_long_windows: bool,
}

/// Result of the optimiser.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sizing {
    pub window_s: f64,
    /// Rounds of these windows.
    pub rounds: u32,
    pub long_windows: Option<LongWindowSizing>,
    /// Minimum detectable effect (80% power) on the primary outcome, as a difference of logarithms.
    pub mde_ln: Option<f64>,
    /// Predicted duration of all trials, seconds.
    pub duration_s: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LongWindowSizing {
    pub window_s: f64,
    pub rounds: u32,
}

impl Sizing {
    pub fn total_rounds(&self) -> u32 {
        self.rounds + self.long_windows.map_or(0, |long| long.rounds)
    }
}

/// Error: the time is too short for an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimeTooShort {
    /// Rounds that an interval needs. `needed_s` is their duration with the shortest windows.
    pub rounds: u32,
    pub needed_s: f64,
}

/// Seconds of one round of these arms with windows of that length. `counted`: artefacts are counted.
pub fn round_s(slots: &[TrialTiming], gap_s: f64, jitter: f64, window_s: f64, counted: bool) -> f64 {
    let trial_s = |slot: &TrialTiming| {
        let lasts_s = slot.fixed_window_s.unwrap_or(window_s);
        let on_s = slot.settle_s + window_s * jitter / 2.0 + lasts_s;
        let count_s = if counted { on_s * slot.count_s_per_s } else { 0.0 };
        on_s + count_s + slot.switch_s + gap_s
    };
    slots.iter().map(trial_s).sum()
}

impl SizingInput {
    /// Seconds of one round with windows of that length, artefacts counted.
    pub fn round_s(&self, window_s: f64) -> f64 {
        round_s(&self.timings, self.gap_s, self.jitter, window_s, true)
    }

    /// Minimum detectable effect after that many rounds, as a difference of logarithms.
    ///
    /// It is valid for all treatments together, by Bonferroni's share of alpha. No correction that toll
    /// applies needs more. An arm and its baseline may be any number of trials of a round apart.
    pub fn mde_ln(&self, window_s: f64, rounds: u32) -> Option<f64> {
        let noise = self.noise.as_ref()?;
        let arms = self.timings.len();
        if arms < 2 {
            return None;
        }
        let slot_s = self.round_s(window_s) / arms as f64;
        let pairs = (arms * (arms - 1)) as f64;
        let variance: f64 = (1..arms)
            .map(|apart| {
                let share = 2.0 * (arms - apart) as f64 / pairs;
                share * noise::difference_variance(noise, window_s, apart as f64 * slot_s)
            })
            .sum();
        toll_stats::minimum_detectable_effect(variance.sqrt(), rounds, self.alpha, self.treatments, POWER)
    }

    /// Fewest rounds that give an interval. Joint verdicts need no more than a single one.
    pub fn min_rounds(&self) -> u32 {
        u32::try_from(toll_stats::rounds_for_interval(self.alpha)).unwrap_or(u32::MAX)
    }

    fn candidate_windows(&self) -> Vec<f64> {
        if let Some(window_s) = self.window_s {
            return vec![window_s];
        }
        let least = self.min_window_s.max(FEWEST_BINS * self.bin_s);
        let fit: Vec<f64> = WINDOWS_S.into_iter().filter(|window_s| *window_s >= least - 1e-9).collect();
        if fit.is_empty() { vec![least.ceil()] } else { fit }
    }

    /// The least that an interval needs: rounds and seconds.
    pub fn minimum_time(&self) -> TimeTooShort {
        let rounds = self.min_rounds();
        let shortest = self.candidate_windows().into_iter().fold(f64::INFINITY, f64::min);
        TimeTooShort { rounds, needed_s: f64::from(rounds) * self.round_s(shortest) }
    }

    /// Windows and rounds with the smallest detectable effect in the given time for all trials.
    ///
    /// # Errors
    /// Too few rounds fit for an interval.
    pub fn optimise_within(&self, time_s: f64) -> Result<Sizing, TimeTooShort> {
        let windows = self.candidate_windows();
        let long = self.size_long_windows(time_s);
        let long_s = long.map_or(0.0, |long| f64::from(long.rounds) * self.round_s(long.window_s));
        let weighed = windows.iter().filter_map(|&window_s| {
            // Where there are longer windows, only theirs are counted.
            let round_s = round_s(&self.timings, self.gap_s, self.jitter, window_s, long.is_none());
            let rounds =
                ((time_s - long_s) / round_s + 1e-9).floor().min(f64::from(crate::scenario::MAX_ROUNDS));
            let mut choice =
                Sizing { window_s, rounds: rounds as u32, long_windows: long, mde_ln: None, duration_s: 0.0 };
            if choice.total_rounds() < self.min_rounds() {
                return None;
            }
            choice.mde_ln = self.mde_ln(window_s, choice.total_rounds());
            choice.duration_s = f64::from(choice.rounds) * round_s + long_s;
            Some(choice)
        });
        let far = |choice: &Sizing| match choice.mde_ln {
            Some(finds) => finds,
            None => (choice.window_s - USUAL_WINDOW_S).abs(),
        };
        let best = weighed.min_by(|a, b| far(a).total_cmp(&far(b))).ok_or_else(|| self.minimum_time())?;
        Ok(self.with_user_rounds(best))
    }

    /// Replaces the chosen rounds by the user's, if given. These are all of one kind.
    fn with_user_rounds(&self, chosen: Sizing) -> Sizing {
        let Some(rounds) = self.rounds else { return chosen };
        Sizing {
            rounds,
            long_windows: None,
            mde_ln: self.mde_ln(chosen.window_s, rounds),
            duration_s: f64::from(rounds) * self.round_s(chosen.window_s),
            ..chosen
        }
    }

    /// Long rounds within their share of the time. `None` if not wanted, or if too few fit.
    fn size_long_windows(&self, time_s: f64) -> Option<LongWindowSizing> {
        if !self.needs_long_windows || !self.has_timed_windows() || self.rounds.is_some() {
            return None;
        }
        let share_s = time_s * LONG_SHARE;
        let [shortest, longest] = LONG_WINDOWS_S;
        // A round grows in proportion to its window.
        let (empty_s, per_s) = (self.round_s(0.0), self.round_s(1.0) - self.round_s(0.0));
        let fits_s = (share_s / f64::from(LONG_ROUNDS) - empty_s) / per_s;
        let shortest_of_all = self.candidate_windows().into_iter().fold(f64::INFINITY, f64::min);
        if fits_s < shortest.max(2.0 * shortest_of_all) {
            return None;
        }
        // Whole tenths, so that they are what they are said to be; whole bins of a slow meter.
        let step = self.bin_s.max(0.1);
        let window_s = ((fits_s.min(longest) / step + 1e-9).floor() * step * 1e6).round() / 1e6;
        let rounds = (share_s / self.round_s(window_s) + 1e-9).floor() as u32;
        Some(LongWindowSizing { window_s, rounds: rounds.max(LONG_ROUNDS) })
    }

    /// The shortest time in which an effect of that size is detectable, at most `most_s` seconds.
    ///
    /// `None` if no such time is enough, or if the noise is unknown.
    pub fn time_for_mde(&self, effect: f64, most_s: f64) -> Option<f64> {
        let finds = |time_s: f64| {
            self.optimise_within(time_s)
                .ok()
                .and_then(|choice| choice.mde_ln)
                .is_some_and(|finds| finds <= effect)
        };
        if !finds(most_s) {
            return None;
        }
        let (mut too_short, mut enough) = (0.0, most_s);
        while enough - too_short > 1.0 {
            let middle = (too_short + enough) / 2.0;
            if finds(middle) { enough = middle } else { too_short = middle }
        }
        Some(enough)
    }

    /// True if time ends at least some windows. False if all of them end with their arm's command.
    pub fn has_timed_windows(&self) -> bool {
        self.timings.iter().any(|slot| slot.fixed_window_s.is_none())
    }

    /// Percent of a round inside windows of that length. `None` if something else ends all windows.
    pub fn measured_share_pct(&self, window_s: f64) -> Option<f64> {
        let timed = self.timings.iter().filter(|slot| slot.fixed_window_s.is_none()).count();
        (timed > 0).then(|| 100.0 * timed as f64 * window_s / self.round_s(window_s))
    }

    /// The arm whose settling and switching needs most of a round, and its percent of the round.
    pub fn slowest_arm(&self, window_s: f64) -> Option<(&TrialTiming, f64)> {
        let beside_s = |slot: &TrialTiming| {
            slot.settle_s
                + slot.switch_s
                + slot.count_s_per_s * (slot.settle_s + slot.fixed_window_s.unwrap_or(window_s))
        };
        let dearest = self.timings.iter().max_by(|a, b| beside_s(a).total_cmp(&beside_s(b)))?;
        Some((dearest, 100.0 * beside_s(dearest) / self.round_s(window_s)))
    }
}

/// Positions of the long rounds among all rounds, random, one in each of equally long stretches.
///
/// The last positions are left to short rounds, which a late run can drop.
pub fn place_long_rounds(seed: u64, long: u32, all: u32) -> Vec<u32> {
    /// Random stream that nothing else uses.
    const STREAM: u64 = 101;
    const EARLY: f64 = 0.9;
    let mut draws = toll_stats::SeededRng::new(seed, STREAM);
    let span = (f64::from(all) * EARLY).floor().max(f64::from(long));
    (0..long)
        .map(|i| {
            let [begin, end] =
                [i, i + 1].map(|edge| (span * f64::from(edge) / f64::from(long)).floor() as u32);
            begin + draws.below((end - begin).max(1))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(name: &str, settle_s: f64) -> TrialTiming {
        TrialTiming { name: name.into(), settle_s, switch_s: 0.2, count_s_per_s: 0.0, fixed_window_s: None }
    }

    /// The noise of a 4-core virtual machine: 3.3% between neighbours.
    fn question(arms: usize) -> SizingInput {
        SizingInput {
            timings: (0..arms).map(|i| slot(&format!("a{i}"), 0.3)).collect(),
            gap_s: 0.0,
            jitter: 0.2,
            noise: Some(Noise { white_s: 0.0, pink: 3.9e-4, seen: Vec::new() }),
            bin_s: 0.1,
            min_window_s: 0.0,
            alpha: 0.05,
            treatments: arms as u32 - 1,
            window_s: None,
            rounds: None,
            needs_long_windows: false,
        }
    }

    #[test]
    fn a_round_takes_what_its_trials_take() {
        let mut question = question(3);
        // .3 + .05 + .5 + .2, three times.
        assert!((question.round_s(0.5) - 3.15).abs() < 1e-9);
        question.timings[1].settle_s = 5.3;
        question.timings[2].fixed_window_s = Some(8.0);
        question.gap_s = 1.0;
        assert!((question.round_s(0.5) - (3.15 + 5.0 + 7.5 + 3.0)).abs() < 1e-9);
        let (dearest, share) = question.slowest_arm(0.5).unwrap();
        assert_eq!((dearest.name.as_str(), share.round()), ("a1", 29.0));
        assert_eq!(question.measured_share_pct(0.5).map(f64::round), Some(5.0));
    }

    #[test]
    fn noise_of_the_1_f_kind_asks_for_short_windows_and_noise_that_averages_out_for_long_ones() {
        let pink = question(8).optimise_within(1_200.0).unwrap();
        assert_eq!(pink.window_s, 0.5);
        assert!(pink.duration_s <= 1_200.0 && pink.duration_s > 1_150.0, "{pink:?}");
        let white = Noise { white_s: 2e-3, pink: 0.0, seen: Vec::new() };
        let white = SizingInput { noise: Some(white), ..question(8) }.optimise_within(1_200.0).unwrap();
        assert!(white.window_s >= 5.0, "{white:?}");
        assert!(white.rounds < pink.rounds / 3);
    }

    #[test]
    fn an_arm_that_settles_slowly_makes_windows_longer() {
        let mut slow = question(8);
        slow.timings.iter_mut().for_each(|slot| slot.settle_s = 10.0);
        slow.noise = Some(Noise { white_s: 5e-4, pink: 3.9e-4, seen: Vec::new() });
        let quick = SizingInput { timings: question(8).timings, ..slow.clone() };
        assert!(
            slow.optimise_within(3_600.0).unwrap().window_s
                > quick.optimise_within(3_600.0).unwrap().window_s
        );
    }

    #[test]
    fn more_time_finds_less_and_the_time_to_find_is_the_least_that_does() {
        let question = question(8);
        let finds = |time_s: f64| question.optimise_within(time_s).unwrap().mde_ln.unwrap();
        assert!(finds(600.0) > finds(1_200.0) && finds(1_200.0) > finds(3_600.0));
        let time_s = question.time_for_mde(0.02, 14_400.0).unwrap();
        assert!(finds(time_s) <= 0.02 && finds(time_s - 60.0) > 0.02, "{time_s}");
        assert_eq!(question.time_for_mde(1e-5, 14_400.0), None);
        assert_eq!(SizingInput { noise: None, ..question }.time_for_mde(0.02, 14_400.0), None);
    }

    #[test]
    fn a_time_too_short_for_an_interval_says_what_would_do() {
        let question = question(8);
        let least = question.optimise_within(20.0).unwrap_err();
        // 2^(1-n) <= .05.
        assert_eq!(least.rounds, 6);
        assert!((least.needed_s - 6.0 * question.round_s(0.5)).abs() < 1e-9);
        assert_eq!(question.optimise_within(least.needed_s).unwrap().rounds, 6);
    }

    #[test]
    fn what_the_user_gives_wins() {
        let asked = SizingInput { window_s: Some(3.0), ..question(4) };
        assert_eq!(asked.optimise_within(600.0).unwrap().window_s, 3.0);
        let asked = SizingInput { rounds: Some(5), needs_long_windows: true, ..question(4) };
        let choice = asked.optimise_within(600.0).unwrap();
        assert_eq!((choice.rounds, choice.long_windows, choice.mde_ln), (5, None, None));
    }

    #[test]
    fn a_slow_meter_and_few_events_have_windows_of_some_length() {
        let choice = SizingInput { bin_s: 1.0, ..question(4) }.optimise_within(600.0).unwrap();
        assert!(choice.window_s >= 3.0, "{choice:?}");
        let choice = SizingInput { min_window_s: 1.7, ..question(4) }.optimise_within(600.0).unwrap();
        assert_eq!(choice.window_s, 2.0);
        let choice = SizingInput { min_window_s: 25.2, ..question(4) }.optimise_within(3_600.0).unwrap();
        assert_eq!(choice.window_s, 26.0);
        let unknown = SizingInput { noise: None, ..question(4) }.optimise_within(600.0).unwrap();
        assert_eq!((unknown.window_s, unknown.mde_ln), (2.0, None));
    }

    #[test]
    fn long_rounds_get_a_third_of_the_time_at_most_or_none() {
        let asked = SizingInput { needs_long_windows: true, ..question(24) };
        let choice = asked.optimise_within(1_620.0).unwrap();
        let long = choice.long_windows.unwrap();
        assert!(long.rounds >= 6 && (2.0..=4.0).contains(&long.window_s), "{long:?}");
        assert!(f64::from(long.rounds) * asked.round_s(long.window_s) <= 540.0 + 1e-6);
        assert!(choice.duration_s <= 1_620.0);
        assert_eq!(asked.optimise_within(140.0).map(|choice| choice.long_windows), Err(asked.minimum_time()));
        let few = SizingInput { needs_long_windows: true, ..question(4) };
        assert_eq!(few.optimise_within(90.0).unwrap().long_windows, None);
        let hours = few.optimise_within(14_400.0).unwrap().long_windows.unwrap();
        assert!(hours.window_s == 30.0 && hours.rounds > 6, "{hours:?}");
        // Of arms that all end by themselves no window is longer than another.
        let mut dumps = few;
        dumps.timings.iter_mut().for_each(|slot| slot.fixed_window_s = Some(2.0));
        assert_eq!(dumps.optimise_within(3_600.0).unwrap().long_windows, None);
    }

    #[test]
    fn long_rounds_lie_evenly_among_the_others_and_never_at_the_end() {
        let places = place_long_rounds(5, 6, 46);
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        for (i, place) in places.iter().enumerate() {
            assert!((i as u32 * 41 / 6..=(i as u32 + 1) * 41 / 6).contains(place), "{places:?}");
        }
        assert_eq!(place_long_rounds(5, 6, 46), places);
        assert_ne!(place_long_rounds(6, 6, 46), places);
        assert_eq!(place_long_rounds(1, 6, 6), [0, 1, 2, 3, 4, 5]);
    }
}
