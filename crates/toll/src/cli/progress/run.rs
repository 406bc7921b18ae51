//! Display of a run: where it is, how long it takes yet, and the load.

use super::LoadingBar;
use crate::cli::console::tell;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};
use toll_execution::Live;
use toll_execution::conduct::Progress;
use toll_execution::stage::data::Loading;
use toll_model::plan;
use toll_record::Plan;

/// A bar on a terminal; a line every half minute elsewhere.
#[derive(Debug)]
pub struct Run {
    loading: LoadingBar,
    bar: ProgressBar,
    plain: bool,
    ahead: Mutex<Ahead>,
    place: Mutex<Place>,
}

/// What the plan says of the trials; nothing before there is one.
#[derive(Debug, Clone, Copy, Default)]
struct Ahead {
    trials: u64,
    rounds: u32,
    /// What all trials take; believed until the first has ended.
    planned: Duration,
    /// All that they are given, where that ends them.
    given: Option<Duration>,
}

/// Where the run is.
#[derive(Debug, Default)]
struct Place {
    /// When the first trial began.
    begun: Option<Instant>,
    /// Trials that have ended, and when the last of them did, since `begun`.
    done: u64,
    done_after: Duration,
    what: String,
    load: String,
    /// How small an effect is found so far.
    finds: String,
    last_line: Option<Instant>,
}

const PLAIN_EVERY: Duration = Duration::from_secs(30);

impl Run {
    pub fn on_stderr() -> Self {
        let plain = !std::io::stderr().is_terminal();
        let bar = if plain { ProgressBar::hidden() } else { ProgressBar::new(0) };
        if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len}  {msg}") {
            bar.set_style(style);
        }
        Self { loading: LoadingBar::default(), bar, plain, ahead: Mutex::default(), place: Mutex::default() }
    }

    fn ahead(&self) -> Ahead {
        self.ahead.lock().map(|ahead| *ahead).unwrap_or_default()
    }

    fn show(&self, place: &mut Place) {
        let Some(begun) = place.begun else { return };
        let left = left(&self.ahead(), place, begun.elapsed()).as_secs();
        let left = format!("{}:{:02} left", left / 60, left % 60);
        if !self.plain {
            self.bar.set_message(format!("{:>22}{}  {left}", place.load, place.finds));
        } else if place.last_line.is_none_or(|at| at.elapsed() >= PLAIN_EVERY) {
            let load = if place.load.is_empty() { "its load begins" } else { &place.load };
            tell!("toll: {}, {load}{}  {left}", place.what, place.finds);
            place.last_line = Some(Instant::now());
        }
    }
}

impl Loading for Run {
    fn rows(&self, loaded: u64, whole: u64) {
        self.loading.rows(loaded, whole);
    }

    fn rows_end(&self) {
        self.loading.rows_end();
    }
}

impl Progress for Run {
    fn plan(&self, plan: &Plan) {
        let trials = plan.order.iter().map(Vec::len).sum::<usize>() as u64;
        let planned = Duration::from_secs_f64(plan::expected_s(plan));
        let given = plan.time_s.map(Duration::from_secs_f64);
        self.bar.set_length(trials);
        if let Ok(mut ahead) = self.ahead.lock() {
            *ahead = Ahead { trials, rounds: plan.rounds, planned, given };
        }
    }

    fn trial(&self, round: u32, trial: u32, arm: &str) {
        self.bar.set_position(u64::from(trial));
        let Ahead { rounds, trials, .. } = self.ahead();
        self.bar.set_prefix(format!("round {}/{rounds}  {arm:<11}", round + 1));
        if let Ok(mut place) = self.place.lock() {
            place.done_after = place.begun.get_or_insert_with(Instant::now).elapsed();
            place.done = u64::from(trial);
            place.what = format!("round {}/{rounds}, trial {}/{trials}, arm {arm}", round + 1, trial + 1);
            // What is known is of the arm before.
            place.load.clear();
            self.show(&mut place);
        }
    }

    fn finds(&self, pct: f64) {
        if let Ok(mut place) = self.place.lock() {
            place.finds = format!("  finds {pct:.1}% so far");
        }
    }

    fn feed(&self, live: Option<Live>) {
        if let (Some(live), Ok(mut place)) = (live, self.place.lock()) {
            place.load = format!("{:.0} q/s", live.statements_per_s);
            if let Some(us) = live.latency_us_mean {
                place.load += &format!("  {:.2} ms", us / 1000.0);
            }
            self.show(&mut place);
        }
    }

    fn say(&self, text: &str) {
        if self.plain {
            tell!("toll: {text}");
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
fn left(ahead: &Ahead, place: &Place, since_begin: Duration) -> Duration {
    let whole = match place.done {
        0 => ahead.planned,
        done => place.done_after.mul_f64(ahead.trials as f64 / done as f64),
    };
    ahead.given.map_or(whole, |given| whole.min(given)).saturating_sub(since_begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_the_plans_at_first_and_then_that_of_the_trials_so_far() {
        let minutes = |n: u64| Duration::from_secs(60 * n);
        let ahead = Ahead { trials: 14, rounds: 1, planned: minutes(90), given: None };
        let first = Place::default();
        assert_eq!(left(&ahead, &first, minutes(5)), minutes(85));
        let third = Place { done: 2, done_after: minutes(14), ..Place::default() };
        assert_eq!(left(&ahead, &third, minutes(20)), minutes(78));
        assert_eq!(left(&ahead, &third, minutes(99)), Duration::ZERO);
        let ahead = Ahead { given: Some(minutes(30)), ..ahead };
        assert_eq!(left(&ahead, &third, minutes(20)), minutes(10));
    }
}
