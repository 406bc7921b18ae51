//! Synthetic mixed traffic: the three sets merged by time, at rates that keep their shares.

use super::traffic::TrafficVolume;
use super::{DEFAULT_SIZE, PacketSource, Set};

/// Shares of the bytes. They make 75% of the packets TCP and 25% UDP, as the paper has it: on average a packet of
/// http has 758 bytes, of flash 1,020 and of skype 734 (20 s each), and nearly all of skype's are UDP.
pub const SHARES: [(Set, f64); 3] = [(Set::Http, 0.37), (Set::Flash, 0.43), (Set::Skype, 0.20)];

/// A set, and its next frame.
struct Part {
    packets: Box<dyn PacketSource>,
    next_ns: Option<u64>,
    frame: Vec<u8>,
}

pub struct MixedTraffic(Vec<Part>);

impl MixedTraffic {
    pub fn new(span: TrafficVolume, seed: u64) -> Self {
        let part = |(set, share): (Set, f64)| {
            let part = TrafficVolume { bytes_per_s: span.bytes_per_s * share, ..span };
            let mut packets = set.packet_source(part, seed, DEFAULT_SIZE);
            let mut frame = Vec::new();
            let next_ns = packets.next_packet(&mut frame);
            Part { packets, next_ns, frame }
        };
        MixedTraffic(SHARES.into_iter().map(part).collect())
    }
}

impl PacketSource for MixedTraffic {
    fn next_packet(&mut self, frame: &mut Vec<u8>) -> Option<u64> {
        let part = self.0.iter_mut().filter(|part| part.next_ns.is_some()).min_by_key(|part| part.next_ns)?;
        let time_ns = part.next_ns;
        std::mem::swap(frame, &mut part.frame);
        part.next_ns = part.packets.next_packet(&mut part.frame);
        time_ns
    }
}
