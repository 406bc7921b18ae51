//! How do lines reach the user, even one who has stopped listening?
//!
//! `eprintln!` and `println!` panic once nobody reads any more (a lost SSH connection, `2>&1 | head`),
//! and a panic in the middle of a run is the last moment at which to lose control. A lint forbids them.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Lines that wait for their reader, at most.
const WAITING: usize = 64;

/// Where lines go while they are written in the background.
static BACKGROUND: Mutex<Option<SyncSender<Line>>> = Mutex::new(None);

/// A line to standard error.
#[macro_export]
macro_rules! tell {
    ($($text:tt)*) => { $crate::say::to_stderr(format_args!($($text)*)) };
}

/// A line to standard output.
#[macro_export]
macro_rules! show {
    () => { $crate::say::to_stdout(format_args!("")) };
    ($($text:tt)*) => { $crate::say::to_stdout(format_args!($($text)*)) };
}

pub fn to_stderr(text: Arguments<'_>) {
    Line::Err(text.to_string()).say();
}

pub fn to_stdout(text: Arguments<'_>) {
    Line::Out(text.to_string()).say();
}

enum Line {
    Out(String),
    Err(String),
}

impl Line {
    fn say(self) {
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

/// While it lives, lines are written by a thread of its own: a terminal that is held (Ctrl-S) or a pipe that nobody reads
/// holds up nobody who speaks. What comes while 64 lines wait is not said.
#[derive(Debug)]
pub struct InBackground {
    writer: Option<JoinHandle<()>>,
}

impl InBackground {
    /// # Errors
    /// There is no thread to be had.
    pub fn start() -> std::io::Result<Self> {
        let (lines, to_write): (_, Receiver<Line>) = sync_channel(WAITING);
        let writer = std::thread::Builder::new()
            .name("toll-say".into())
            .spawn(move || to_write.into_iter().for_each(Line::write))?;
        *BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(lines);
        Ok(Self { writer: Some(writer) })
    }
}

/// Waits until all is said.
impl Drop for InBackground {
    fn drop(&mut self) {
        *BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(writer) = self.writer.take() {
            // Its panic is on standard error already.
            let _ = writer.join();
        }
    }
}

/// A line that is told if something takes longer than it should; dropped once that is done.
#[derive(Debug)]
pub struct TellIfSlow {
    _done: Sender<()>,
}

impl TellIfSlow {
    pub fn after(patience: Duration, line: String) -> Self {
        let (done, wait) = channel::<()>();
        std::thread::spawn(move || {
            if wait.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                tell!("{line}");
            }
        });
        Self { _done: done }
    }
}
