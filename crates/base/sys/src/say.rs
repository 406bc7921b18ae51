//! Console output that never panics and never blocks the caller.
//!
//! `eprintln!` and `println!` panic when the reader is gone (a lost SSH connection, `2>&1 | head`). A panic
//! in the middle of a run would lose control of it, so a lint forbids them.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Maximum number of queued lines.
const WAITING: usize = 64;

/// Queue to the writer thread, if there is one.
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

/// Background writer for console lines, active until it is dropped. A held terminal (Ctrl-S) or an unread
/// pipe does not block the caller. Drops further lines while 64 lines wait.
#[derive(Debug)]
pub struct InBackground {
    writer: Option<JoinHandle<()>>,
}

impl InBackground {
    /// # Errors
    /// Fails if no thread can be started.
    pub fn start() -> std::io::Result<Self> {
        let (lines, to_write): (_, Receiver<Line>) = sync_channel(WAITING);
        let writer = std::thread::Builder::new()
            .name("toll-say".into())
            .spawn(move || to_write.into_iter().for_each(Line::write))?;
        *BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(lines);
        Ok(Self { writer: Some(writer) })
    }
}

/// Waits until all lines are written.
impl Drop for InBackground {
    fn drop(&mut self) {
        *BACKGROUND.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Some(writer) = self.writer.take() {
            // Its panic is on standard error already.
            let _ = writer.join();
        }
    }
}

/// A line that is printed if an operation takes longer than expected. Drop it when the operation is complete.
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
