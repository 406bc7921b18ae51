//! What do capture tools say of the packets they saw and lost?

use toll_record::PacketCounts;

/// The last full set of counters in what a tool wrote to its standard error.
///
/// tcpdump: `N packets captured`, `N packets received by filter`, `N packets dropped by kernel`,
/// on one line (asked by signal) or three (at its end). dumpcap: `Packets captured: N` and
/// `Packets received/dropped on interface 'any': N/M`.
pub fn packet_counts(said: &str) -> Option<PacketCounts> {
    tcpdump_counts(said).or_else(|| dumpcap_counts(said))
}

fn tcpdump_counts(said: &str) -> Option<PacketCounts> {
    Some(PacketCounts {
        captured: number_before(said, "captured")?,
        received: number_before(said, "received by filter")?,
        dropped: number_before(said, "dropped by kernel")?,
    })
}

/// The number of the last `N packet(s) WHAT`.
fn number_before(said: &str, what: &str) -> Option<u64> {
    let mut end = said.len();
    while let Some(at) = said[..end].rfind(what) {
        let mut words = said[..at].split_ascii_whitespace().rev();
        if words.next().is_some_and(|w| w == "packets" || w == "packet")
            && let Some(number) = words.next().and_then(|w| w.parse().ok())
        {
            return Some(number);
        }
        end = at;
    }
    None
}

fn dumpcap_counts(said: &str) -> Option<PacketCounts> {
    let line = said.lines().rev().find(|l| l.starts_with("Packets received/dropped"))?;
    let pair = line.split(": ").nth(1)?.split_ascii_whitespace().next()?;
    let (received, dropped) = pair.split_once('/')?;
    let received: u64 = received.parse().ok()?;
    Some(PacketCounts { captured: received, received, dropped: dropped.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_count() {
        let said = "tcpdump: listening on any\n\
            tcpdump: 5 packets captured, 7 packets received by filter, 0 packets dropped by kernel\n\
            100 packets captured\n250 packets received by filter\n1 packet dropped by kernel\n";
        assert_eq!(packet_counts(said), Some(PacketCounts { captured: 100, received: 250, dropped: 1 }));
    }

    #[test]
    fn a_tool_that_was_killed_said_nothing() {
        assert_eq!(packet_counts("tcpdump: listening on any, link-type LINUX_SLL2\n"), None);
    }

    #[test]
    fn dumpcap_has_words_of_its_own() {
        let said = "Capturing on 'any'\nFile: x\nPackets captured: 12\n\
            Packets received/dropped on interface 'any': 12/3 (pcap:3/dumpcap:0/flushed:0/ps_ifdrop:0) (80.0%)\n";
        assert_eq!(packet_counts(said), Some(PacketCounts { captured: 12, received: 12, dropped: 3 }));
    }
}
