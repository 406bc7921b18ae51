//! Packet counts of a trial at each stage between its sender and its file.
//!
//! Pure: its input is the counts. The analysis finds the gaps; this module assigns each counter to its stage.

use crate::testbed::rig::LinkCounters;
use toll_record::{Held, ProcessEnd, Sent, Stage};

/// All that was counted of one trial.
#[derive(Debug)]
pub struct TrialCounters<'a> {
    /// With what they say of packets.
    pub processes: &'a [ProcessEnd],
    /// Both ends of the link before the first of them was started, and after the last had ended.
    pub before: LinkCounters,
    pub after: LinkCounters,
    /// What the capture file holds.
    pub held: Option<Held>,
    /// The capture's filter leaves packets out: what it was offered is another number than what came.
    pub selects: bool,
}

/// In the order of the way, as far as each was counted.
pub fn count_stages(counted: &TrialCounters<'_>) -> Vec<Stage> {
    let TrialCounters { processes, before, after, held, selects } = counted;
    let mut stages = Vec::new();
    let mut stage = |name: &str, packets: u64, lost: Option<u64>| {
        stages.push(Stage { name: name.to_owned(), packets, lost });
    };
    let sent = sum_sent(processes);
    if let Some(sent) = &sent {
        stage("sent", sent.packets, None);
    }
    let refused = match (before.sender, after.sender) {
        (Some(before), Some(after)) => {
            let refused = after.sent_dropped.saturating_sub(before.sent_dropped);
            // Refused, and offered again, it is not lost yet.
            let lost = sent.map(|sent| refused.saturating_sub(sent.again));
            stage("transmitted", after.sent_packets.saturating_sub(before.sent_packets), lost);
            Some(refused)
        }
        _ => None,
    };
    let dropped = after.receiver.received_dropped.saturating_sub(before.receiver.received_dropped);
    // What one end of a veth pair has transmitted the other has received.
    let received = after.receiver.received_packets.saturating_sub(before.receiver.received_packets);
    if refused.is_none() {
        // Of another host's, what the device itself had no room for is lost first.
        stage("arrived", received + dropped, None);
    }
    stage("received", received, Some(refused.map_or(dropped, |_| 0)));
    let refused = refused.unwrap_or(0);
    let mut captures = processes.iter().filter_map(|process| Some((process, process.packets?)));
    // The counts of several are counts of the same packets, and no stages of one way.
    if let (Some((capture, said)), None) = (captures.next(), captures.next()) {
        let saw_all = covers_all_senders(capture, processes);
        // A full backlog is counted by both ends of the pair: the sender's device has refused it already.
        // One that ended first has left packets in its ring, which it neither captured nor dropped.
        let seen = if saw_all { said.received } else { said.captured + said.dropped };
        let is_of_all = saw_all && !selects;
        stage("seen", seen, is_of_all.then(|| dropped.saturating_sub(refused)));
        stage("captured", said.captured, Some(said.dropped));
        if let Some(held) = held {
            stage("written", held.packets, Some(0));
        }
    }
    stages
}

/// Several senders' together; `None`: none says how much.
fn sum_sent(processes: &[ProcessEnd]) -> Option<Sent> {
    processes.iter().filter_map(|process| process.sent).reduce(|a, b| Sent {
        packets: a.packets + b.packets,
        bytes: a.bytes + b.bytes,
        again: a.again + b.again,
        mbps: a.mbps + b.mbps,
    })
}

/// Whether a capture was on for as long as anything was sent.
fn covers_all_senders(capture: &ProcessEnd, processes: &[ProcessEnd]) -> bool {
    let mut senders = processes.iter().filter(|process| process.sent.is_some()).peekable();
    senders.peek().is_some()
        && senders.all(|sender| {
            capture.begin_mono_us < sender.begin_mono_us && capture.end_mono_us > sender.end_mono_us
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_record::PacketCounts;
    use toll_taps::Counters;

    fn process(begin: u64, end: u64, sent: Option<u64>, packets: Option<PacketCounts>) -> ProcessEnd {
        ProcessEnd {
            name: "it".into(),
            begin_mono_us: begin,
            end_mono_us: end,
            exit: Some(0),
            signal: None,
            cpu_us: 0,
            memory_peak_bytes: None,
            waited_cpu_us: None,
            waited_io_us: None,
            waited_memory_us: None,
            read_bytes: None,
            written_bytes: None,
            output_bytes: None,
            sent: sent.map(|packets| Sent { packets, bytes: packets * 60, again: 3, mbps: 1.0 }),
            packets,
        }
    }

    fn link(sent: u64, refused: u64) -> LinkCounters {
        LinkCounters {
            sender: Some(Counters { sent_packets: sent, sent_dropped: refused, ..Counters::default() }),
            receiver: Counters { received_packets: sent, received_dropped: refused, ..Counters::default() },
        }
    }

    fn stage_counts(stages: &[Stage]) -> Vec<(&str, u64, Option<u64>)> {
        stages.iter().map(|stage| (stage.name.as_str(), stage.packets, stage.lost)).collect()
    }

    const SAID: PacketCounts = PacketCounts { captured: 90, received: 100, dropped: 10 };

    #[test]
    fn a_packet_is_lost_where_a_counter_says_so_and_once() {
        let held = Some(Held { packets: 90, ..Held::default() });
        let (before, after) = (link(5, 1), link(105, 6));
        let processes = [process(0, 90, None, Some(SAID)), process(10, 50, Some(102), None)];
        let found =
            count_stages(&TrialCounters { processes: &processes, before, after, held, selects: false });
        let expected = [
            ("sent", 102, None),
            // Five were refused, three of them offered again.
            ("transmitted", 100, Some(2)),
            ("received", 100, Some(0)),
            ("seen", 100, Some(0)),
            ("captured", 90, Some(10)),
            ("written", 90, Some(0)),
        ];
        assert_eq!(stage_counts(&found), expected);

        let found =
            count_stages(&TrialCounters { processes: &processes, before, after, held, selects: true });
        assert_eq!(stage_counts(&found)[3], ("seen", 100, None), "what a filter leaves out is not lost");
    }

    #[test]
    fn a_capture_that_ends_first_says_nothing_of_what_came_after_it() {
        let held = Some(Held { packets: 90, ..Held::default() });
        let (before, after) = (link(0, 0), link(500, 0));
        let said = PacketCounts { received: 130, ..SAID };
        let processes = [process(0, 40, None, Some(said)), process(10, 50, Some(500), None)];
        let found =
            count_stages(&TrialCounters { processes: &processes, before, after, held, selects: false });
        let expected = [("seen", 100, None), ("captured", 90, Some(10)), ("written", 90, Some(0))];
        assert_eq!(stage_counts(&found)[3..], expected);
    }

    #[test]
    fn what_nobody_counted_is_no_stage() {
        let (before, after) = (link(0, 0), link(7, 0));
        let none = count_stages(&TrialCounters {
            processes: &[process(0, 1, None, None)],
            before,
            after,
            held: None,
            selects: false,
        });
        assert_eq!(stage_counts(&none), [("transmitted", 7, None), ("received", 7, Some(0))]);
        let here = |counters: LinkCounters| LinkCounters { sender: None, ..counters };
        let from_elsewhere = count_stages(&TrialCounters {
            processes: &[process(0, 9, None, Some(SAID))],
            before: here(before),
            after: here(after),
            held: None,
            selects: false,
        });
        let expected =
            [("arrived", 7, None), ("received", 7, Some(0)), ("seen", 100, None), ("captured", 90, Some(10))];
        assert_eq!(stage_counts(&from_elsewhere), expected);
        let two =
            [process(0, 9, None, Some(SAID)), process(0, 9, None, Some(SAID)), process(1, 2, Some(7), None)];
        let found =
            count_stages(&TrialCounters { processes: &two, before, after, held: None, selects: false });
        assert_eq!(found.len(), 3, "{found:?}");
    }
}
