//! Decision of the controller about the dump's reader, with its reason.
//!
//! The type is shared by controller, rate limiter, log and user output. Decides nothing itself.

use serde::Serialize;

/// Permission of the dump's reader.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ReadLimit {
    /// Unlimited.
    Unlimited,
    /// Bytes a second.
    Rate(f64),
    /// Paused.
    Paused,
}

/// Reason of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The rate rises until the probe latency does.
    Starting,
    /// The latency is below the limit, so the rate rises.
    Climbing,
    /// The rate is right, or the dump does not use it.
    Holding,
    /// The p99 is closer to the limit than its error allows.
    Easing,
    /// The last second exceeded the limit.
    Braking,
    /// A pause that measures the undisturbed probe latency.
    Looking,
    /// The limit is exceeded at the lowest rate: the host itself is slow, or the limit too small.
    Unkept,
    /// A pause requested by the user.
    ByHand,
    /// A pause lasted as long as the server waits for its reader: just enough is read to keep the connection.
    Trickling,
    /// The probe gets no answer.
    Blind,
    /// A limit of time or history was exceeded, and the latency limit is suspended.
    Freed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    pub limit: ReadLimit,
    pub reason: Reason,
}

/// State of the dump while a probe query was pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DumpState {
    Running,
    Paused,
    /// A transition between the two.
    Transition,
}

/// Bounds of the rate and of the length of a pause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Bytes a second; above 0.
    pub floor: f64,
    /// The user set the floor: no pause is made longer because the latency limit is exceeded at it.
    pub floor_is_set_by_user: bool,
    /// Bytes a second that keep the server from timing out its reader; at most the floor.
    pub keepalive_rate: f64,
    pub ceiling: Option<f64>,
    /// After this time the server must be able to send, or it times out its reader. Seconds.
    pub longest_pause_s: f64,
}

impl Limits {
    /// Bytes to read between two of the longest pauses, so that the server can send.
    pub fn keepalive_bytes(&self) -> u64 {
        (self.keepalive_rate * self.longest_pause_s) as u64
    }
}
