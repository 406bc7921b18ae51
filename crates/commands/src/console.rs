//! Console output that never panics and never blocks the caller.
//!
//! `eprintln!` and `println!` panic when the reader is gone (a lost SSH connection, `2>&1 | head`). A panic
//! in the middle of a run would lose control of it, so a lint forbids them.

use std::fmt::{Arguments, Debug, Write as _};
use std::io::Write;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Maximum number of queued lines.
const MAX_QUEUED_LINES: usize = 64;

/// Queue to the writer thread, if there is one.
static BACKGROUND: Mutex<Option<SyncSender<Line>>> = Mutex::new(None);

/// A line to standard error.
#[macro_export]
macro_rules! eprint_line {
    ($($text:tt)*) => { $crate::console::to_stderr(format_args!($($text)*)) };
}

/// A line to standard output.
#[macro_export]
macro_rules! print_line {
    () => { $crate::console::to_stdout(format_args!("")) };
    ($($text:tt)*) => { $crate::console::to_stdout(format_args!($($text)*)) };
}

pub use {eprint_line, print_line};

pub fn to_stderr(text: Arguments<'_>) {
    Line::Err(text.to_string()).queue_or_write();
}

pub fn to_stdout(text: Arguments<'_>) {
    Line::Out(text.to_string()).queue_or_write();
}

enum Line {
    Out(String),
    Err(String),
}

impl Line {
    fn queue_or_write(self) {
        let background = BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner);
        match background.as_ref() {
            // Full: nobody reads.
            Some(lines) => drop(lines.try_send(self)),
            None => {
                drop(background);
                self.write();
            }
        }
    }

    /// One write for the whole line: other processes write to the same terminal.
    fn write(self) {
        let _ = match self {
            Self::Out(text) => std::io::stdout().write_all(format!("{text}\n").as_bytes()),
            Self::Err(text) => std::io::stderr().write_all(format!("{text}\n").as_bytes()),
        };
    }
}

/// Background writer for console lines, active until it is dropped. A held terminal (Ctrl-S) or an unread
/// pipe does not block the caller. Drops further lines while 64 lines wait.
#[derive(Debug)]
pub struct BackgroundWriter {
    writer: Option<JoinHandle<()>>,
}

impl BackgroundWriter {
    /// # Errors
    /// Fails if no thread can be started.
    pub fn start() -> std::io::Result<Self> {
        let (lines, to_write): (_, Receiver<Line>) = sync_channel(MAX_QUEUED_LINES);
        let writer = std::thread::Builder::new()
            .name("toll-say".into())
            .spawn(move || to_write.into_iter().for_each(Line::write))?;
        *BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(lines);
        Ok(Self { writer: Some(writer) })
    }
}

/// Waits until all lines are written.
impl Drop for BackgroundWriter {
    fn drop(&mut self) {
        *BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(writer) = self.writer.take() {
            // Its panic is on standard error already.
            let _ = writer.join();
        }
    }
}

/// Prints events of `tracing` as lines on standard error.
#[derive(Debug)]
pub struct EventPrinter;

impl EventPrinter {
    /// From now on until the process ends.
    pub fn install() {
        // An error says that there is a subscriber already, and there is one caller.
        let _ = tracing::subscriber::set_global_default(Self);
    }
}

impl Subscriber for EventPrinter {
    /// Other people's libraries report for developers, not for users.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        !metadata.is_span() && *metadata.level() <= Level::INFO && metadata.target().starts_with("toll")
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        eprint_line!("toll: {}", message.0);
    }

    // None is enabled.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The text of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            // A string cannot refuse it.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_tolls_own_libraries_have_to_say_to_users_is_printed() {
        tracing::subscriber::with_default(EventPrinter, || {
            assert!(tracing::enabled!(target: "toll_agent::capture", Level::WARN));
            assert!(tracing::enabled!(target: "toll_agent::capture", Level::INFO));
            assert!(!tracing::enabled!(target: "toll_agent::capture", Level::DEBUG));
            assert!(!tracing::enabled!(target: "hyper_util::client", Level::WARN));
        });
    }
}
