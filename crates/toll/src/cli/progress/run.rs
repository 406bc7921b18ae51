//! Display of a run: where it is, how long it takes yet, and the load.

use super::LoadingBar;
use crate::cli::console::eprint_line;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use toll_execution::LiveLoad;
use toll_execution::testbed::data::LoadProgress;
use toll_execution::trial_loop::{Progress, TrialsAhead};

/// A bar on a terminal; a line every half minute elsewhere.
#[derive(Debug)]
pub struct RunProgress {
    loading: LoadingBar,
    bar: ProgressBar,
    plain: bool,
    planned_trials: Mutex<PlannedTrials>,
    position: Mutex<RunPosition>,
}

/// What the plan says of the trials; nothing before there is one.
#[derive(Debug, Clone, Copy, Default)]
struct PlannedTrials {
    trials: u64,
    rounds: u32,
    /// What all trials take; believed until the first has ended.
    planned: Duration,
    /// All that they are given, where that ends them.
    time_limit: Option<Duration>,
}

/// Where the run is.
#[derive(Debug, Default)]
struct RunPosition {
    /// When the first trial began.
    begun: Option<Instant>,
    /// Trials that have ended, and when the last of them did, since `begun`.
    done: u64,
    done_after: Duration,
    what: String,
    load: String,
    /// Minimum detectable effect so far.
    mde: String,
    last_line: Option<Instant>,
}

const PLAIN_EVERY: Duration = Duration::from_secs(30);

impl RunProgress {
    pub fn on_stderr() -> Self {
        let plain = !std::io::stderr().is_terminal();
        let bar = if plain { ProgressBar::hidden() } else { ProgressBar::new(0) };
        if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len}  {msg}") {
            bar.set_style(style);
        }
        Self {
            loading: LoadingBar::default(),
            bar,
            plain,
            planned_trials: Mutex::default(),
            position: Mutex::default(),
        }
    }

    fn planned_trials(&self) -> PlannedTrials {
        self.planned_trials.lock().map(|ahead| *ahead).unwrap_or_default()
    }

    fn show(&self, place: &mut RunPosition) {
        let Some(begun) = place.begun else { return };
        let left = time_left(&self.planned_trials(), place, begun.elapsed()).as_secs();
        let left = format!("{}:{:02} left", left / 60, left % 60);
        if !self.plain {
            self.bar.set_message(format!("{:>22}{}  {left}", place.load, place.mde));
        } else if place.last_line.is_none_or(|at| at.elapsed() >= PLAIN_EVERY) {
            let load = if place.load.is_empty() { "starting its load" } else { &place.load };
            eprint_line!("toll: {}, {load}{}  {left}", place.what, place.mde);
            place.last_line = Some(Instant::now());
        }
    }
}

impl LoadProgress for RunProgress {
    fn show_rows(&self, loaded: u64, whole: u64) {
        self.loading.show_rows(loaded, whole);
    }

    fn finish_rows(&self) {
        self.loading.finish_rows();
    }
}

impl Progress for RunProgress {
    fn set_ahead(&self, ahead: TrialsAhead) {
        if self.bar.is_finished() {
            // The second part of a run on both clocks, which begins anew.
            self.bar.reset();
            if let Ok(mut place) = self.position.lock() {
                *place = RunPosition::default();
            }
        }
        self.bar.set_length(ahead.trials);
        if let Ok(mut planned) = self.planned_trials.lock() {
            *planned = PlannedTrials {
                trials: ahead.trials,
                rounds: ahead.rounds,
                planned: Duration::from_secs_f64(ahead.expected_s),
                time_limit: ahead.limit_s.map(Duration::from_secs_f64),
            };
        }
    }

    fn begin_trial(&self, round: u32, trial: u32, arm: &str) {
        self.bar.set_position(u64::from(trial));
        let PlannedTrials { rounds, trials, .. } = self.planned_trials();
        self.bar.set_prefix(format!("round {}/{rounds}  {arm:<11}", round + 1));
        if let Ok(mut place) = self.position.lock() {
            place.done_after = place.begun.get_or_insert_with(Instant::now).elapsed();
            place.done = u64::from(trial);
            place.what = format!("round {}/{rounds}, trial {}/{trials}, {arm}", round + 1, trial + 1);
            // What is known is of the arm before.
            place.load.clear();
            self.show(&mut place);
        }
    }

    fn show_mde(&self, pct: f64) {
        if let Ok(mut place) = self.position.lock() {
            place.mde = format!("  MDE {pct:.1}% so far");
        }
    }

    fn show_load(&self, live: Option<LiveLoad>) {
        if let (Some(live), Ok(mut place)) = (live, self.position.lock()) {
            place.load = format!("{:.0} q/s", live.statements_per_s);
            if let Some(us) = live.latency_us_mean {
                place.load += &format!("  {:.2} ms", us / 1000.0);
            }
            self.show(&mut place);
        }
    }

    fn print_line(&self, text: &str) {
        if self.plain {
            eprint_line!("toll: {text}");
        } else {
            self.bar.println(format!("toll: {text}"));
        }
    }

    fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// By the trials that are over, once there are some: they hold what no plan knows, such as how long
/// it takes to count an artefact. Never more than they are given.
fn time_left(ahead: &PlannedTrials, place: &RunPosition, since_begin: Duration) -> Duration {
    let whole = match place.done {
        0 => ahead.planned,
        done => place.done_after.mul_f64(ahead.trials as f64 / done as f64),
    };
    ahead.time_limit.map_or(whole, |given| whole.min(given)).saturating_sub(since_begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_part_of_a_run_begins_its_time_anew() {
        let progress = RunProgress::on_stderr();
        let ahead = || TrialsAhead { trials: 2, rounds: 1, expected_s: 60.0, limit_s: None };
        progress.set_ahead(ahead());
        progress.begin_trial(0, 1, "none");
        progress.set_ahead(ahead());
        assert_eq!(progress.position.lock().unwrap().done, 1, "more is known of the same part");
        progress.finish();
        progress.set_ahead(ahead());
        let place = progress.position.lock().unwrap();
        assert!(place.begun.is_none() && place.done == 0 && !progress.bar.is_finished());
    }

    #[test]
    fn the_time_left_is_the_plans_at_first_and_then_that_of_the_trials_so_far() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let ahead = PlannedTrials { trials: 14, rounds: 1, planned: minutes(90), time_limit: None };
        let first = RunPosition::default();
        assert_eq!(time_left(&ahead, &first, minutes(5)), minutes(85));
        let third = RunPosition { done: 2, done_after: minutes(14), ..RunPosition::default() };
        assert_eq!(time_left(&ahead, &third, minutes(20)), minutes(78));
        assert_eq!(time_left(&ahead, &third, minutes(99)), Duration::ZERO);
        let ahead = PlannedTrials { time_limit: Some(minutes(30)), ..ahead };
        assert_eq!(time_left(&ahead, &third, minutes(20)), minutes(10));
    }
}
