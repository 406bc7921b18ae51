//! Synthetic video traffic: long downloads, and the small requests of a player.

use super::http::{ask, open, size, to_a_server};
use super::traffic::{Script, Scripts, Sent, Span};
use super::wire::{Message, Speaker, Wire};
use toll_stats::random::Rng;

pub struct Flash {
    /// No video is longer, so that a short capture has more than one.
    longest: f64,
}

/// Bytes between two looks whether the user still watches.
const PIECE: usize = 16 * 1448;

impl Flash {
    pub fn new(span: Span) -> Self {
        Flash { longest: (span.bytes() / 12.0).clamp(50_000.0, 8e6) }
    }
}

impl Scripts for Flash {
    const AT_ONCE: usize = 4;

    fn begin(&mut self, number: u64, _: Sent, dice: &mut Rng) -> (Wire, Box<dyn Script>) {
        let wire = to_a_server(number, dice);
        let script = if dice.below(10) < 6 {
            let bytes = size(2e6, 0.8, 50_000.0..=self.longest, dice);
            Watching { number, is_open: false, video: Some(bytes), parts: 0 }
        } else {
            Watching { number, is_open: false, video: None, parts: 2 + dice.below(3) }
        };
        (wire, Box::new(script))
    }
}

struct Watching {
    number: u64,
    is_open: bool,
    /// Bytes of a video that are yet to come.
    video: Option<usize>,
    /// Parts of a player that are yet to come.
    parts: u64,
}

impl Script for Watching {
    fn next(&mut self, wire: &mut Wire, dice: &mut Rng) -> bool {
        if !std::mem::replace(&mut self.is_open, true) {
            open(wire, self.number, dice);
            if let Some(bytes) = self.video {
                ask_for_video(wire, bytes);
            }
            return true;
        }
        match &mut self.video {
            Some(0) => false,
            Some(rest) => {
                let bytes = PIECE.min(*rest);
                *rest -= bytes;
                wire.say(Speaker::Server, Message::with_noise(Vec::new(), bytes, dice), true);
                true
            }
            None if self.parts == 0 => false,
            None => {
                self.parts -= 1;
                let bytes = size(20_000.0, 0.8, 1_000.0..=80_000.0, dice);
                ask(wire, "player.swf", "application/octet-stream", bytes, dice);
                true
            }
        }
    }
}

/// The request, and the head of the answer; the video itself comes in pieces.
fn ask_for_video(wire: &mut Wire, bytes: usize) {
    let request = b"GET /video.flv HTTP/1.1\r\nHost: www.example.com\r\nAccept: */*\r\n\r\n";
    wire.say(Speaker::Client, Message::new(request.to_vec()), true);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: video/x-flv\r\nContent-Length: {bytes}\r\n\r\n");
    wire.say(Speaker::Server, Message::new(head.into_bytes()), true);
}
