//! Time limits and window lengths of a run, from flags and profile.
//!
//! The result is one of two: fixed rounds and windows, or a time (or a minimum detectable effect). For the
//! latter, rounds and windows are chosen after the pilot.

use super::RunOverrides;
use crate::scenario::Profile;
use toll_sys::units::Seconds;

/// Longest time that is chosen for a requested minimum detectable effect, seconds.
pub const MAX_CHOSEN_TIME_S: f64 = 4.0 * 3600.0;
/// Default settling time of an arm before its window, seconds: start-up within the first bins is over.
const USUAL_SETTLE_S: f64 = 0.3;
/// Longest run of a command that ends by itself, as a share of the time, if nothing else is set.
const DONE_SHARE: f64 = 0.1;

/// Resolved times. Flags win over the profile.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeSettings {
    /// Seconds from the pilot's begin to the last window's end. `None`: rounds are fixed, or an effect is
    /// requested.
    pub time_s: Option<f64>,
    /// A flag set the time: a choice that does not fit is an error.
    pub time_is_explicit: bool,
    /// Requested minimum detectable effect, percent.
    pub find_pct: Option<f64>,
    pub rounds: Option<u32>,
    pub window_s: Option<f64>,
    pub settle_s: f64,
    /// A flag set the settling time: all arms then settle alike.
    pub settle_is_explicit: bool,
    pub gap_s: f64,
    /// Length of the baseline's pilot if nothing is to be chosen, seconds.
    pub pilot_s: f64,
}

impl TimeSettings {
    pub fn resolve(profile: &Profile, overrides: &RunOverrides) -> Self {
        let seconds = |seconds: Option<Seconds>| seconds.map(|seconds| seconds.0);
        // A time, or an effect, from the command line replaces the profile's lengths.
        let is_asked = overrides.time.is_some() || overrides.find_pct.is_some();
        let of_profile = |seconds: Option<Seconds>| seconds.filter(|_| !is_asked);
        let rounds = overrides.rounds.or(profile.rounds.filter(|_| !is_asked));
        let window = overrides.window.or(of_profile(profile.window));
        // Nothing is left to choose.
        let is_said = rounds.is_some() && window.is_some();
        Self {
            time_s: seconds(overrides.time.or(of_profile(profile.time))).filter(|_| !is_said),
            time_is_explicit: overrides.time.is_some(),
            find_pct: overrides.find_pct.filter(|_| !is_said),
            rounds,
            window_s: seconds(window),
            settle_s: seconds(overrides.settle.or(profile.settle)).unwrap_or(USUAL_SETTLE_S),
            settle_is_explicit: overrides.settle.is_some(),
            gap_s: overrides.gap.unwrap_or(profile.gap).0,
            pilot_s: resolve_pilot_s(profile, rounds, seconds(window)),
        }
    }

    /// True if windows and rounds are still to be chosen.
    pub fn needs_sizing(&self) -> bool {
        self.time_s.is_some() || self.find_pct.is_some()
    }

    /// Window length of a draft whose windows are still to be chosen, seconds.
    pub fn draft_window_s(&self) -> f64 {
        const DRAFT_S: f64 = 1.0;
        self.window_s.unwrap_or(DRAFT_S)
    }

    /// Longest window that something other than time ends, if its arm sets no limit, seconds.
    pub fn max_done_window_s(&self) -> f64 {
        self.window_s.unwrap_or_else(|| self.time_s.unwrap_or(MAX_CHOSEN_TIME_S) * DONE_SHARE)
    }
}

/// Seconds of the baseline's pilot, if windows and rounds are fixed.
///
/// A profile with a time sets no pilot. The writeback baseline must be measured all the same.
fn resolve_pilot_s(profile: &Profile, rounds: Option<u32>, window_s: Option<f64>) -> f64 {
    const MOST_S: f64 = 5.0;
    match (profile.time, rounds, window_s) {
        (Some(_), Some(rounds), Some(window_s)) if profile.pilot.0 == 0.0 => {
            (2.0 * f64::from(rounds) * window_s).min(MOST_S)
        }
        _ => profile.pilot.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Preset;

    fn times(profile: &str, overrides: RunOverrides) -> TimeSettings {
        let scenario = Preset::named("tcpdump-impact").unwrap().scenario().unwrap();
        TimeSettings::resolve(&scenario.profile[profile], &overrides)
    }

    #[test]
    fn a_time_stands_in_the_place_of_a_profiles_lengths_and_rounds_with_a_window_in_that_of_a_time() {
        let asked = RunOverrides { time: Some(Seconds(600.0)), ..RunOverrides::default() };
        let faithful = times("faithful", asked);
        assert_eq!((faithful.time_s, faithful.rounds, faithful.window_s), (Some(600.0), None, None));
        assert!(faithful.time_is_explicit && faithful.needs_sizing());

        let standard = times("standard", RunOverrides::default());
        assert!(standard.time_s == Some(1_800.0) && !standard.time_is_explicit);
        let said = RunOverrides {
            rounds: Some(3),
            window: Some(Seconds(2.0)),
            time: Some(Seconds(9.0)),
            ..RunOverrides::default()
        };
        let said = times("standard", said);
        assert_eq!((said.time_s, said.rounds, said.window_s), (None, Some(3), Some(2.0)));
        assert!(!said.needs_sizing() && said.pilot_s == 5.0);
        assert_eq!(times("faithful", RunOverrides::default()).pilot_s, 30.0);
    }

    #[test]
    fn an_effect_to_be_found_chooses_its_time() {
        let found = times("standard", RunOverrides { find_pct: Some(2.0), ..RunOverrides::default() });
        assert_eq!((found.time_s, found.find_pct), (None, Some(2.0)));
        let settle = RunOverrides { settle: Some(Seconds(0.0)), ..RunOverrides::default() };
        let settle = times("standard", settle);
        assert!(settle.settle_is_explicit && settle.settle_s == 0.0);
        assert_eq!(times("standard", RunOverrides::default()).settle_s, USUAL_SETTLE_S);
    }
}
