//! What may the reader of a dump do now, and why?
//!
//! The words in which the steering speaks to the gate, the log and the user. Decides nothing.

use serde::Serialize;

/// What the reader of the dump may do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Allow {
    /// As fast as it goes.
    Open,
    /// Bytes a second.
    Rate(f64),
    /// Nothing.
    Still,
}

/// Why it may do that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// The rate doubles until the canary feels it.
    Starting,
    /// There is room within the promise.
    Climbing,
    /// The rate suits, or the dump does not use it.
    Holding,
    /// The p99 is nearer to the promise than its error allows.
    Easing,
    /// The last second was beyond the promise.
    Braking,
    /// A pause that shows what the canary takes undisturbed.
    Looking,
    /// The promise is broken at the slowest rate: the host itself is slow, or the promise too small.
    Unkept,
    /// Somebody asked for a pause.
    ByHand,
    /// A pause lasted as long as the server waits for its reader: just enough goes on.
    Trickling,
    /// The canary does not answer.
    Blind,
    /// A limit of time or history was passed, and the promise given up for it.
    Freed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    pub allow: Allow,
    pub why: Why,
}

/// What went on while the canary waited for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meanwhile {
    Dump,
    Pause,
    /// The one was turning into the other.
    Between,
}

/// Between which ends the rate may lie, and how long a pause may be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Bytes a second; above 0.
    pub floor: f64,
    /// The user asked for it, however much users feel: no pause is made longer because the promise is broken at it.
    pub floor_is_asked: bool,
    /// Bytes a second that keep the server from taking its reader for dead; no more than the floor.
    pub trickle: f64,
    pub ceiling: Option<f64>,
    /// Then the server must get rid of something, lest it takes its reader for dead.
    pub longest_pause_s: f64,
}

impl Limits {
    /// Bytes that set the server free to write, between two of the longest pauses.
    pub fn frees_writer(&self) -> u64 {
        (self.trickle * self.longest_pause_s) as u64
    }
}
