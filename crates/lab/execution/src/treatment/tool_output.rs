//! Parsers of tool output: packets received, dropped and sent.

use serde::Deserialize;
use toll_record::{PacketCounts, Sent};

/// The last full set of counters in a tool's standard error.
///
/// tcpdump: `N packets captured`, `N packets received by filter`, `N packets dropped by kernel`, on one line
/// (by signal) or three (at its end). dumpcap: `Packets captured: N` and `Packets received/dropped on
/// interface 'any': N/M`. netsniff-ng: `N  packets incoming (M unread on exit)`, `N  packets passed filter`,
/// `N  packets failed filter (out of space)`.
///
/// "Received" counts packets that came to the socket and passed its filter, dropped or not, as tcpdump does.
pub fn parse_packet_counts(said: &str) -> Option<PacketCounts> {
    parse_tcpdump_counts(said).or_else(|| parse_dumpcap_counts(said)).or_else(|| parse_netsniff_counts(said))
}

/// A sender's final counters. `toll replay --json`: one object in a line. tcpreplay: `Actual: N packets (B
/// bytes)`, `Rated: B Bps, M Mbps, P pps`, `Successful packets: N`, `Retried packets (ENOBUFS): N`.
pub fn parse_sent(said: &str) -> Option<Sent> {
    parse_toll_sent(said).or_else(|| parse_tcpreplay_sent(said))
}

fn parse_toll_sent(said: &str) -> Option<Sent> {
    #[derive(Deserialize)]
    struct Report {
        packets: u64,
        bytes: u64,
        retries: u64,
        /// Absent for a single packet, which has no duration.
        sent_mbps: Option<f64>,
    }
    let mut objects = said.lines().rev().filter(|line| line.starts_with('{'));
    let report: Report = objects.find_map(|line| serde_json::from_str(line).ok())?;
    Some(Sent {
        packets: report.packets,
        bytes: report.bytes,
        again: report.retries,
        mbps: report.sent_mbps.unwrap_or(0.0),
    })
}

fn parse_tcpreplay_sent(said: &str) -> Option<Sent> {
    let after = |what: &str| said.lines().rev().find_map(|line| line.trim().strip_prefix(what));
    let number = |what: &str| after(what)?.trim().parse::<u64>().ok();
    let (_, bytes) = after("Actual:")?.split_once('(')?;
    let rated = after("Rated:")?.split(',').find_map(|part| part.trim().strip_suffix(" Mbps"))?;
    let again = ["Retried packets (ENOBUFS):", "Retried packets (EAGAIN):"];
    Some(Sent {
        packets: number("Successful packets:")?,
        bytes: bytes.split_ascii_whitespace().next()?.parse().ok()?,
        again: again.into_iter().filter_map(number).sum(),
        mbps: rated.parse().ok()?,
    })
}

fn parse_tcpdump_counts(said: &str) -> Option<PacketCounts> {
    Some(PacketCounts {
        captured: parse_number_before(said, "captured")?,
        received: parse_number_before(said, "received by filter")?,
        dropped: parse_number_before(said, "dropped by kernel")? + parse_lost_after_kernel(said),
    })
}

/// Packets that toll's own capture lost after the kernel had delivered them, by its final message.
fn parse_lost_after_kernel(said: &str) -> u64 {
    let places = [" lost in the queue to the writer", " lost on the disk", " lost in the network"];
    let last = said.lines().rev().find(|line| line.contains("dropped by kernel")).unwrap_or_default();
    let number = |place: &str| last.split_once(place)?.0.rsplit(' ').next()?.parse::<u64>().ok();
    places.into_iter().filter_map(number).sum()
}

/// The number of the last `N packet(s) WHAT`.
fn parse_number_before(said: &str, what: &str) -> Option<u64> {
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

fn parse_dumpcap_counts(said: &str) -> Option<PacketCounts> {
    let line = said.lines().rev().find(|l| l.starts_with("Packets received/dropped"))?;
    let pair = line.split(": ").nth(1)?.split_ascii_whitespace().next()?;
    let (received, dropped) = pair.split_once('/')?;
    let (captured, dropped): (u64, u64) = (received.parse().ok()?, dropped.parse().ok()?);
    // What it calls received is what it took from the socket.
    Some(PacketCounts { captured, received: captured + dropped, dropped })
}

/// Incoming packets were read. Packets unread on exit include the dropped ones.
fn parse_netsniff_counts(said: &str) -> Option<PacketCounts> {
    // Its lines overwrite those of its progress.
    let number = |what: &str| {
        let line = said.split(['\r', '\n']).rev().find(|line| line.contains(what))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    let dropped = number("packets failed filter (out of space)")?;
    let received = number("packets passed filter")? + dropped;
    Some(PacketCounts { captured: number("packets incoming")?, received, dropped })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_count() {
        let said = "tcpdump: listening on any\n\
            tcpdump: 5 packets captured, 7 packets received by filter, 0 packets dropped by kernel\n\
            100 packets captured\n250 packets received by filter\n1 packet dropped by kernel\n";
        assert_eq!(
            parse_packet_counts(said),
            Some(PacketCounts { captured: 100, received: 250, dropped: 1 })
        );
        let said = "toll: 600 packets captured, 1000 packets received by filter, 300 packets dropped by kernel; 1.0 MB written \
            in 2 s, 90 lost in the queue to the writer, 10 lost on the disk, losses from 10:00 to 10:01\n";
        assert_eq!(
            parse_packet_counts(said),
            Some(PacketCounts { captured: 600, received: 1000, dropped: 400 })
        );
    }

    #[test]
    fn a_tool_that_was_killed_said_nothing() {
        assert_eq!(parse_packet_counts("tcpdump: listening on any, link-type LINUX_SLL2\n"), None);
    }

    #[test]
    fn dumpcap_has_words_of_its_own() {
        let said = "Capturing on 'any'\nFile: x\nPackets captured: 12\n\
            Packets received/dropped on interface 'any': 12/3 (pcap:3/dumpcap:0/flushed:0/ps_ifdrop:0) (80.0%)\n";
        assert_eq!(parse_packet_counts(said), Some(PacketCounts { captured: 12, received: 15, dropped: 3 }));
    }

    #[test]
    fn netsniff_has_words_of_its_own() {
        let said = "Running! Hang up with ^C!\n\n.(+1/-0)\r          76  packets incoming (14 unread on exit)\n\r          \
            80  packets passed filter\n\r          10  packets failed filter (out of space)\n\r     11.1111%  packet droprate\n";
        assert_eq!(parse_packet_counts(said), Some(PacketCounts { captured: 76, received: 90, dropped: 10 }));
    }

    #[test]
    fn senders_say_what_they_sent() {
        let toll = "toll: 9 packets, 1.0 Mb/s so far\n{\"device\":\"link0\",\"packets\":7,\"bytes\":420,\
            \"retries\":2,\"sent_mbps\":3.5,\"complete\":true}\n";
        assert_eq!(parse_sent(toll), Some(Sent { packets: 7, bytes: 420, again: 2, mbps: 3.5 }));
        let tcpreplay = "Actual: 141 packets (91213 bytes) sent in 3.10 seconds\n\
            Rated: 29423.5 Bps, 0.235 Mbps, 45.48 pps\nStatistics for network device: link0\n\
            \tSuccessful packets:        140\n\tFailed packets:            1\n\
            \tRetried packets (ENOBUFS): 5\n\tRetried packets (EAGAIN):  1\n";
        assert_eq!(parse_sent(tcpreplay), Some(Sent { packets: 140, bytes: 91_213, again: 6, mbps: 0.235 }));
        assert_eq!(parse_sent("tcpdump: listening on link0\n{\"a\":1}\n"), None);
    }
}
