//! Display of a throttled dump.

use crate::cli::console::tell;
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
pub struct Dump(Mutex<Option<Begun>>);

/// Once there is something to show.
#[derive(Debug)]
struct Begun {
    bar: Option<ProgressBar>,
    shown: Instant,
}

impl Begun {
    fn new() -> Self {
        let style = ProgressStyle::with_template("{spinner} {msg}").ok();
        let bar = std::io::stderr().is_terminal().then(ProgressBar::new_spinner);
        if let (Some(bar), Some(style)) = (&bar, style) {
            bar.set_style(style);
        }
        Self { bar, shown: Instant::now() }
    }
}

impl Dump {
    fn with(&self, work: impl FnOnce(&mut Begun)) {
        work(self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_with(Begun::new));
    }
}

impl Progress for Dump {
    fn show(&self, now: &ProgressSnapshot) {
        self.with(|begun| {
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
                None => tell!("toll: {}", now.render_line()),
            }
        });
    }

    fn show_message(&self, text: &str) {
        self.with(|begun| match &begun.bar {
            Some(bar) => bar.println(format!("toll: {text}")),
            None => tell!("toll: {text}"),
        });
    }

    fn finish(&self) {
        self.with(|begun| {
            if let Some(bar) = &begun.bar {
                bar.finish_and_clear();
            }
        });
    }
}
