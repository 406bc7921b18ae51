//! Scheduler of synthetic conversations: several at once, at a steady average rate.

use super::PacketSource;
use super::packetiser::{Filler, Packetiser};
use toll_stats::random::Rng;

/// Duration and volume.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrafficVolume {
    pub seconds: f64,
    /// On average, of whole frames.
    pub bytes_per_s: f64,
}

impl TrafficVolume {
    pub fn bytes(&self) -> f64 {
        self.seconds * self.bytes_per_s
    }
}

/// What the two ends of a conversation say.
pub trait Conversation {
    /// Puts the next exchange onto the wire; false: all is said.
    fn queue_next(&mut self, wire: &mut Packetiser, rng: &mut Rng) -> bool;

    /// Takes leave, because all is said or the time is over.
    fn queue_end(&mut self, wire: &mut Packetiser) {
        wire.queue_close();
    }
}

/// Packets so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct SentCounts {
    pub tcp: u64,
    pub udp: u64,
}

/// Conversations of a traffic set.
pub trait ConversationSource {
    /// Conversations at once, where there is room for them.
    const MAX_CONCURRENT: usize;

    /// The conversation of this number, of those that begin.
    fn start_conversation(
        &mut self,
        number: u64,
        sent: SentCounts,
        rng: &mut Rng,
    ) -> (Packetiser, Box<dyn Conversation>);
}

struct ActiveConversation {
    wire: Packetiser,
    script: Box<dyn Conversation>,
    is_over: bool,
}

/// The packets of a set.
pub struct Traffic<S> {
    source: S,
    active: Vec<ActiveConversation>,
    max_concurrent: usize,
    started: u64,
    sent: SentCounts,
    rng: Rng,
    noise: Filler,
    ns_per_byte: f64,
    now_ns: f64,
    end_ns: f64,
    /// No conversation begins any more, and none goes on.
    is_closing: bool,
}

/// Bytes for each conversation at once at least, so that a short capture has few rather than stumps.
const BYTES_PER_CONVERSATION: f64 = 100_000.0;

impl<S: ConversationSource> Traffic<S> {
    /// `stream` tells the sets of one seed apart.
    pub fn new(scripts: S, span: TrafficVolume, seed: u64, stream: u64) -> Self {
        let mut rng = Rng::new(seed, stream);
        let noise = Filler::new(&mut rng);
        let at_once = ((span.bytes() / BYTES_PER_CONVERSATION) as usize).clamp(1, S::MAX_CONCURRENT);
        Traffic {
            source: scripts,
            active: Vec::new(),
            max_concurrent: at_once,
            started: 0,
            sent: SentCounts::default(),
            rng,
            noise,
            ns_per_byte: 1e9 / span.bytes_per_s,
            now_ns: 0.0,
            end_ns: span.seconds * 1e9,
            is_closing: false,
        }
    }

    /// True if the pending conversations fill the remaining time.
    fn is_due(&self) -> bool {
        let bytes: u64 = self.active.iter().map(|talk| talk.wire.bytes_left()).sum();
        self.now_ns + bytes as f64 * self.ns_per_byte >= self.end_ns
    }
}

impl<S: ConversationSource> PacketSource for Traffic<S> {
    fn next_packet(&mut self, frame: &mut Vec<u8>) -> Option<u64> {
        loop {
            while !self.is_closing && self.active.len() < self.max_concurrent {
                let (wire, script) = self.source.start_conversation(self.started, self.sent, &mut self.rng);
                self.started += 1;
                self.active.push(ActiveConversation { wire, script, is_over: false });
            }
            if self.active.is_empty() {
                return None;
            }
            let at = self.rng.below(self.active.len() as u64) as usize;
            let talk = &mut self.active[at];
            let now_ms = (self.now_ns / 1e6) as u32;
            if let Some(is_tcp) = talk.wire.next_packet(now_ms, &self.noise, frame) {
                if is_tcp {
                    self.sent.tcp += 1;
                } else {
                    self.sent.udp += 1;
                }
                let time_ns = self.now_ns as u64;
                // Between half and one and a half of the mean: neither a beat nor bursts that the average
                // of a short capture would show.
                self.now_ns += frame.len() as f64 * self.ns_per_byte * (0.5 + self.rng.unit());
                self.is_closing = self.is_closing || self.is_due();
                return Some(time_ns);
            }
            if talk.is_over {
                self.active.swap_remove(at);
            } else if self.is_closing || !talk.script.queue_next(&mut talk.wire, &mut self.rng) {
                talk.script.queue_end(&mut talk.wire);
                talk.is_over = true;
            }
        }
    }
}
