//! Progress display of a throttled dump.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::time::{Duration, Instant};
use toll_sys::{figures, tell};

/// Without a terminal: a line so often.
const LINE_EVERY: Duration = Duration::from_secs(30);
/// On a terminal.
const REDRAWN_EVERY: Duration = Duration::from_millis(500);

/// A line on a terminal, written anew; a line every half minute elsewhere. Both on standard error.
#[derive(Debug)]
pub struct Progress {
    bar: Option<ProgressBar>,
    shown: Instant,
}

/// What is known at a moment.
#[derive(Debug, Clone)]
pub struct Now {
    pub bytes: u64,
    pub bytes_per_s: f64,
    /// What the reader may do and why, in words.
    pub allowed: String,
    /// Probe p99, microseconds: recent, and undisturbed.
    pub p99_us: Option<(f64, f64)>,
    pub max_toll_pct: f64,
    pub kept: u32,
    pub judged: u32,
}

impl Progress {
    pub fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}").ok();
        let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
        if let (Some(bar), Some(style)) = (&bar, style) {
            bar.set_style(style);
        }
        Self { bar, shown: Instant::now() }
    }

    pub fn show(&mut self, now: &Now) {
        let every = if self.bar.is_some() { REDRAWN_EVERY } else { LINE_EVERY };
        if self.shown.elapsed() < every {
            return;
        }
        self.shown = Instant::now();
        match &self.bar {
            Some(bar) => {
                bar.set_message(now.line());
                bar.tick();
            }
            None => tell!("toll: {}", now.line()),
        }
    }

    /// A line that stays.
    pub fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(format!("toll: {text}")),
            None => tell!("toll: {text}"),
        }
    }

    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Now {
    pub fn line(&self) -> String {
        let canary = match self.p99_us {
            Some((now, base)) => format!(
                "canary p99 {} against {} ({})",
                figures::duration_us(now),
                figures::duration_us(base),
                figures::percent(100.0 * (now / base - 1.0))
            ),
            None => "canary not known yet".into(),
        };
        format!(
            "{} MB, {} MB/s ({}), {canary}, within +{}% in {} of {} windows",
            figures::megabytes(self.bytes as f64),
            figures::megabytes(self.bytes_per_s),
            self.allowed,
            self.max_toll_pct,
            self.kept,
            self.judged
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_where_the_dump_and_the_promise_are() {
        let now = Now {
            bytes: 120_000_000,
            bytes_per_s: 12_500_000.0,
            allowed: "climbing, 13.0 MB/s allowed".into(),
            p99_us: Some((1_050.0, 1_000.0)),
            max_toll_pct: 10.0,
            kept: 3,
            judged: 4,
        };
        assert_eq!(
            now.line(),
            "120 MB, 12.5 MB/s (climbing, 13.0 MB/s allowed), canary p99 1.05 ms against 1.00 ms (+5.0%), \
             within +10% in 3 of 4 windows"
        );
        assert!(Now { p99_us: None, ..now }.line().contains("not known yet"));
    }
}
