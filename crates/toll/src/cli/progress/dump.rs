//! Display of a throttled dump.

use crate::cli::console::eprint_line;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use toll_throttle::{Progress, ProgressSnapshot};

/// Without a terminal: a line so often.
const LINE_EVERY: Duration = Duration::from_secs(30);
/// On a terminal.
const REDRAWN_EVERY: Duration = Duration::from_millis(500);

/// A line on a terminal, written anew; a line every half minute elsewhere. Both on standard error.
#[derive(Debug, Default)]
pub struct DumpProgress(Mutex<Option<DumpDisplay>>);

/// Once there is something to show.
#[derive(Debug)]
struct DumpDisplay {
    bar: Option<ProgressBar>,
    shown: Instant,
}

impl DumpDisplay {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}").ok();
        let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
        if let (Some(bar), Some(style)) = (&bar, style) {
            bar.set_style(style);
        }
        Self { bar, shown: Instant::now() }
    }
}

impl DumpProgress {
    fn update(&self, work: impl FnOnce(&mut DumpDisplay)) {
        work(self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(DumpDisplay::new));
    }
}

impl Progress for DumpProgress {
    fn show(&self, now: &ProgressSnapshot) {
        self.update(|begun| {
            let every = if begun.bar.is_some() { REDRAWN_EVERY } else { LINE_EVERY };
            if begun.shown.elapsed() < every {
                return;
            }
            begun.shown = Instant::now();
            match &begun.bar {
                Some(bar) => {
                    bar.set_message(now.render_line());
                    bar.tick();
                }
                None => eprint_line!("toll: {}", now.render_line()),
            }
        });
    }

    fn show_message(&self, text: &str) {
        self.update(|begun| match &begun.bar {
            Some(bar) => bar.println(format!("toll: {text}")),
            None => eprint_line!("toll: {text}"),
        });
    }

    fn finish(&self) {
        self.update(|begun| {
            if let Some(bar) = &begun.bar {
                bar.finish_and_clear();
            }
        });
    }
}
