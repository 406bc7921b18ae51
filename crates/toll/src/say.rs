//! How do lines reach the user, even one who has stopped listening?
//!
//! `eprintln!` and `println!` panic once nobody reads any more (a lost SSH connection, `2>&1 | head`),
//! and a panic in the middle of a run is the last moment at which to lose control. A lint forbids them.

use std::fmt::Arguments;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// A line to standard error.
macro_rules! tell {
    ($($text:tt)*) => { $crate::say::to_stderr(format_args!($($text)*)) };
}

/// A line to standard output.
macro_rules! show {
    () => { $crate::say::to_stdout(format_args!("")) };
    ($($text:tt)*) => { $crate::say::to_stdout(format_args!($($text)*)) };
}

pub(crate) use {show, tell};

pub(crate) fn to_stderr(text: Arguments<'_>) {
    // One write for the whole line: other processes write to the same terminal.
    let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
}

pub(crate) fn to_stdout(text: Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

/// A line that is told if something takes longer than it should; dropped once that is done.
#[derive(Debug)]
pub(crate) struct TellIfSlow {
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
