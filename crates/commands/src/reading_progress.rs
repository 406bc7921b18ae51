//! Display of how far reading has come, and how long it may take yet.

use crate::console::eprint_line;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use toll_input::{Progress, ProgressDisplay, format_magnitude, total_file_bytes};

/// What is over sooner shows nothing.
const SHORT: Duration = Duration::from_secs(1);
/// Without a terminal: a line so often, as pt-query-digest does.
const LINE_EVERY: Duration = Duration::from_secs(30);

/// A bar on a terminal, a line now and then elsewhere, both on standard error.
pub fn reading_progress(files: &[PathBuf]) -> Progress {
    let whole = total_file_bytes(files);
    let bar = std::io::stderr().is_terminal().then(|| new_bar(whole));
    Progress::with_display(Box::new(ReadingProgress {
        begun: Instant::now(),
        whole,
        shown: AtomicU64::new(0),
        bar,
    }))
}

#[derive(Debug)]
struct ReadingProgress {
    begun: Instant,
    whole: Option<u64>,
    /// Times that something was shown, at most one for each beat.
    shown: AtomicU64,
    bar: Option<ProgressBar>,
}

impl ProgressDisplay for ReadingProgress {
    fn show(&self, done: u64) {
        let since_begin = self.begun.elapsed();
        let every = if self.bar.is_some() { SHORT } else { LINE_EVERY };
        let beat = (since_begin.as_nanos() / every.as_nanos()) as u64;
        let is_due = self.shown.fetch_max(beat, Ordering::Relaxed) < beat;
        match (&self.bar, self.whole) {
            (Some(bar), _) => {
                if is_due && bar.is_hidden() {
                    bar.set_draw_target(ProgressDrawTarget::stderr());
                }
                bar.set_position(done);
            }
            (None, Some(whole)) if is_due => eprint_line!("toll: {}", format_line(done, whole, since_begin)),
            (None, _) => {}
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn new_bar(whole: Option<u64>) -> ProgressBar {
    let (length, template) = match whole {
        Some(_) => (whole, "{wide_bar} {bytes} of {total_bytes}  {eta} left"),
        None => (None, "{bytes} read, {bytes_per_sec}, {elapsed}; Ctrl-C ends it and prints what was seen"),
    };
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::hidden());
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn format_line(done: u64, whole: u64, since_begin: Duration) -> String {
    let share = done as f64 / whole.max(1) as f64;
    // A file may grow while it is read.
    let left = since_begin.mul_f64((1.0 / share - 1.0).clamp(0.0, 1e6)).as_secs();
    let whole = format_magnitude(whole as f64, 1024.0);
    format!("{:.0}% of {whole} read, {}:{:02} left", share * 100.0, left / 60, left % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_as_the_time_so_far() {
        let seconds = Duration::from_secs;
        assert_eq!(format_line(1 << 30, 4 << 30, seconds(30)), "25% of 4.00G read, 1:30 left");
        assert_eq!(format_line(5, 4, seconds(30)), "125% of 4 read, 0:00 left");
        assert!(format_line(0, 4, seconds(30)).ends_with("left"));
    }
}
