//! What does the user see while the run goes on: where it is, how long yet, and the load?

use crate::workload::Live;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A bar on a terminal; a line every half minute elsewhere.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    rounds: u32,
    plain: bool,
    last_line: Mutex<Option<Instant>>,
}

const PLAIN_EVERY: Duration = Duration::from_secs(30);

impl Progress {
    pub fn new(trials: u64, rounds: u32) -> Self {
        let plain = !std::io::stderr().is_terminal();
        let bar = if plain { ProgressBar::hidden() } else { ProgressBar::new(trials) };
        if let Ok(style) = ProgressStyle::with_template("{prefix} {wide_bar} {pos}/{len}  {msg}  {eta} left")
        {
            bar.set_style(style);
        }
        if plain {
            bar.set_length(trials);
        }
        Self { bar, rounds, plain, last_line: Mutex::new(None) }
    }

    /// A trial begins.
    pub fn trial(&self, round: u32, trial: u32, arm: &str) {
        self.bar.set_position(u64::from(trial));
        self.bar.set_prefix(format!("round {}/{}  {arm:<11}", round + 1, self.rounds));
        if !self.plain {
            return;
        }
        if let Ok(mut last) = self.last_line.lock()
            && last.is_none_or(|t| t.elapsed() >= PLAIN_EVERY)
        {
            let left = self.bar.eta().as_secs();
            let of = self.bar.length().unwrap_or(0);
            eprintln!(
                "toll: round {}/{}, trial {}/{of}, arm {arm}, {}:{:02} left",
                round + 1,
                self.rounds,
                trial + 1,
                left / 60,
                left % 60
            );
            *last = Some(Instant::now());
        }
    }

    /// The load, as of now.
    pub fn feed(&self, live: Option<Live>) {
        if let Some(live) = live {
            self.bar.set_message(format!(
                "{:>7.0} q/s  {:>6.2} ms",
                live.statements_per_s,
                live.latency_us_mean / 1000.0
            ));
        }
    }

    /// A line that stays.
    pub fn say(&self, text: &str) {
        if self.plain {
            eprintln!("toll: {text}");
        } else {
            self.bar.println(format!("toll: {text}"));
        }
    }

    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
