//! Scheduler of synthetic conversations: several at once, at a steady average rate.

use super::Packets;
use super::wire::{Noise, Wire};
use toll_stats::random::Rng;

/// Duration and volume.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    pub seconds: f64,
    /// On average, of whole frames.
    pub bytes_per_s: f64,
}

impl Span {
    pub fn bytes(&self) -> f64 {
        self.seconds * self.bytes_per_s
    }
}

/// What the two ends of a conversation say.
pub trait Script {
    /// Puts the next exchange onto the wire; false: all is said.
    fn next(&mut self, wire: &mut Wire, dice: &mut Rng) -> bool;

    /// Takes leave, because all is said or the time is over.
    fn end(&mut self, wire: &mut Wire) {
        wire.close();
    }
}

/// Packets so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    pub tcp: u64,
    pub udp: u64,
}

/// Conversations of a traffic set.
pub trait Scripts {
    /// Conversations at once, where there is room for them.
    const AT_ONCE: usize;

    /// The conversation of this number, of those that begin.
    fn begin(&mut self, number: u64, sent: Sent, dice: &mut Rng) -> (Wire, Box<dyn Script>);
}

struct Talk {
    wire: Wire,
    script: Box<dyn Script>,
    is_over: bool,
}

/// The packets of a set.
pub struct Traffic<S> {
    scripts: S,
    talks: Vec<Talk>,
    at_once: usize,
    begun: u64,
    sent: Sent,
    dice: Rng,
    noise: Noise,
    ns_per_byte: f64,
    now_ns: f64,
    end_ns: f64,
    /// No conversation begins any more, and none goes on.
    is_closing: bool,
}

/// Bytes for each conversation at once at least, so that a short capture has few rather than stumps.
const ROOM: f64 = 100_000.0;

impl<S: Scripts> Traffic<S> {
    /// `stream` tells the sets of one seed apart.
    pub fn new(scripts: S, span: Span, seed: u64, stream: u64) -> Self {
        let mut dice = Rng::new(seed, stream);
        let noise = Noise::new(&mut dice);
        let at_once = ((span.bytes() / ROOM) as usize).clamp(1, S::AT_ONCE);
        Traffic {
            scripts,
            talks: Vec::new(),
            at_once,
            begun: 0,
            sent: Sent::default(),
            dice,
            noise,
            ns_per_byte: 1e9 / span.bytes_per_s,
            now_ns: 0.0,
            end_ns: span.seconds * 1e9,
            is_closing: false,
        }
    }

    /// True if the pending conversations fill the remaining time.
    fn is_due(&self) -> bool {
        let bytes: u64 = self.talks.iter().map(|talk| talk.wire.bytes_to_end()).sum();
        self.now_ns + bytes as f64 * self.ns_per_byte >= self.end_ns
    }
}

impl<S: Scripts> Packets for Traffic<S> {
    fn next(&mut self, frame: &mut Vec<u8>) -> Option<u64> {
        loop {
            while !self.is_closing && self.talks.len() < self.at_once {
                let (wire, script) = self.scripts.begin(self.begun, self.sent, &mut self.dice);
                self.begun += 1;
                self.talks.push(Talk { wire, script, is_over: false });
            }
            if self.talks.is_empty() {
                return None;
            }
            let at = self.dice.below(self.talks.len() as u64) as usize;
            let talk = &mut self.talks[at];
            let now_ms = (self.now_ns / 1e6) as u32;
            if let Some(is_tcp) = talk.wire.next(now_ms, &self.noise, frame) {
                if is_tcp {
                    self.sent.tcp += 1;
                } else {
                    self.sent.udp += 1;
                }
                let time_ns = self.now_ns as u64;
                // Between half and one and a half of the mean: neither a beat nor bursts that the average
                // of a short capture would show.
                self.now_ns += frame.len() as f64 * self.ns_per_byte * (0.5 + self.dice.unit());
                self.is_closing = self.is_closing || self.is_due();
                return Some(time_ns);
            }
            if talk.is_over {
                self.talks.swap_remove(at);
            } else if self.is_closing || !talk.script.next(&mut talk.wire, &mut self.dice) {
                talk.script.end(&mut talk.wire);
                talk.is_over = true;
            }
        }
    }
}
