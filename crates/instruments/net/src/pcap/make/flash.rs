//! Synthetic video traffic: long downloads, and the small requests of a player.

use super::http::{draw_size, new_connection, open_connection, queue_request};
use super::packetiser::{Endpoint, Packetiser, Payload};
use super::traffic::{Conversation, ConversationSource, SentCounts, TrafficVolume};
use toll_stats::random::Rng;

pub struct Flash {
    /// No video is longer, so that a short capture has more than one.
    longest: f64,
}

/// Bytes between two looks whether the user still watches.
const PIECE: usize = 16 * 1448;

impl Flash {
    pub fn new(span: TrafficVolume) -> Self {
        Flash { longest: (span.bytes() / 12.0).clamp(50_000.0, 8e6) }
    }
}

impl ConversationSource for Flash {
    const MAX_CONCURRENT: usize = 4;

    fn start_conversation(
        &mut self,
        number: u64,
        _: SentCounts,
        rng: &mut Rng,
    ) -> (Packetiser, Box<dyn Conversation>) {
        let wire = new_connection(number, rng);
        let script = if rng.below(10) < 6 {
            let bytes = draw_size(2e6, 0.8, 50_000.0..=self.longest, rng);
            VideoSession { number, is_open: false, video: Some(bytes), parts: 0 }
        } else {
            VideoSession { number, is_open: false, video: None, parts: 2 + rng.below(3) }
        };
        (wire, Box::new(script))
    }
}

struct VideoSession {
    number: u64,
    is_open: bool,
    /// Bytes of a video that are yet to come.
    video: Option<usize>,
    /// Parts of a player that are yet to come.
    parts: u64,
}

impl Conversation for VideoSession {
    fn queue_next(&mut self, wire: &mut Packetiser, rng: &mut Rng) -> bool {
        if !std::mem::replace(&mut self.is_open, true) {
            open_connection(wire, self.number, rng);
            if let Some(bytes) = self.video {
                request_video(wire, bytes);
            }
            return true;
        }
        match &mut self.video {
            Some(0) => false,
            Some(rest) => {
                let bytes = PIECE.min(*rest);
                *rest -= bytes;
                wire.queue_message(Endpoint::Server, Payload::with_filler(Vec::new(), bytes, rng), true);
                true
            }
            None if self.parts == 0 => false,
            None => {
                self.parts -= 1;
                let bytes = draw_size(20_000.0, 0.8, 1_000.0..=80_000.0, rng);
                queue_request(wire, "player.swf", "application/octet-stream", bytes, rng);
                true
            }
        }
    }
}

/// The request, and the head of the answer; the video itself comes in pieces.
fn request_video(wire: &mut Packetiser, bytes: usize) {
    let request = b"GET /video.flv HTTP/1.1\r\nHost: www.example.com\r\nAccept: */*\r\n\r\n";
    wire.queue_message(Endpoint::Client, Payload::new(request.to_vec()), true);
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: video/x-flv\r\nContent-Length: {bytes}\r\n\r\n");
    wire.queue_message(Endpoint::Server, Payload::new(head.into_bytes()), true);
}
