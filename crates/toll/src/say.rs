//! How do lines reach the user, even one who has stopped listening?
//!
//! `eprintln!` and `println!` panic once nobody reads any more (a lost SSH connection, `2>&1 | head`),
//! and a panic in the middle of a run is the last moment at which to lose control. A lint forbids them.

use std::fmt::Arguments;
use std::io::Write;

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
