//! Ports of a load's connections, so that a filter by port keeps the same share of them in every run.
//!
//! Packet filters that thin out a capture look at the lowest bits of the client's port. The kernel hands out even ports in
//! a random order: of eight connections such a filter keeps none, one or five, and what it costs differs as much.

/// Below the range that the kernel hands out from (`net.ipv4.ip_local_port_range`).
const FIRST: u16 = 16_384;
/// Of another seed, other ports: two loads may run side by side.
const BASES: u64 = 64;
/// As the kernel, which leaves odd ports to listeners.
const STEP: u16 = 2;
/// A multiple of what filters look at, to the next try where a port is taken.
const NEXT_TRY: u16 = 1024;
const TRIES: u16 = 6;
/// More connections than this spread evenly by themselves.
const MOST: usize = 2_000;

/// Ports to try for the connection of that number, best first; none: the kernel chooses.
pub fn candidates(seed: u64, connection: usize) -> impl Iterator<Item = u16> {
    let base = FIRST + (seed % BASES) as u16 * 8;
    let tries = if connection < MOST { TRIES } else { 0 };
    (0..tries).map(move |attempt| base + STEP * connection as u16 + NEXT_TRY * attempt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_by_the_lowest_bits_keeps_the_same_share_whatever_the_seed_and_the_try() {
        for seed in 0..200 {
            let mut kept = [0; 8];
            for connection in 0..8 {
                for port in candidates(seed, connection) {
                    assert!(port < 32_768);
                    kept[usize::from(port & 7)] += 1;
                }
            }
            assert_eq!(kept, [12, 0, 12, 0, 12, 0, 12, 0]);
        }
        assert_eq!(candidates(0, MOST).count(), 0);
        assert!(candidates(63, MOST - 1).all(|port| port < 32_768));
    }
}
