//! Artefacts of each arm, and the share of executed queries in them.

use super::run_data::RunData;
use super::windows::Window;
use std::collections::{BTreeMap, BTreeSet};
use toll_record::{Artefact, ArtefactResult, PacketCounts, QueryCount};

const ENCRYPTED: &str =
    "the session is encrypted (TLS): queries cannot be read from packets; its size and cost hold";

/// All artefacts of one arm.
#[derive(Debug, Clone)]
pub struct ArmArtefacts {
    pub result: ArtefactResult,
    /// Queries found over statements executed, in the counted windows.
    pub captured_ratio: Option<f64>,
    /// Windows whose queries were counted.
    pub counted: usize,
    /// The trial loop's notes, each once.
    pub remarks: Vec<String>,
}

/// Artefacts by position in the plan's arms. Those of trials without a window are left out.
pub fn group_by_arm(recorded: &RunData, windows: &[Window]) -> BTreeMap<usize, ArmArtefacts> {
    let lines: BTreeMap<u32, &Artefact> = recorded.artefacts.iter().map(|a| (a.trial, a)).collect();
    let mut pairs: BTreeMap<usize, Vec<(&Window, &Artefact)>> = BTreeMap::new();
    for window in windows {
        if let Some(artefact) = lines.get(&window.trial) {
            pairs.entry(window.arm).or_default().push((window, artefact));
        }
    }
    pairs.into_iter().map(|(arm, pairs)| (arm, merge_artefacts(&pairs))).collect()
}

fn merge_artefacts(pairs: &[(&Window, &Artefact)]) -> ArmArtefacts {
    let lines = || pairs.iter().map(|(_, artefact)| *artefact);
    let bytes: u64 = lines().map(|a| a.window_bytes).sum();
    let seconds: f64 = pairs.iter().map(|(window, _)| window.seconds()).sum();
    let bytes_per_s = bytes as f64 / seconds;

    // The window's own counts where every trial has them; a mixture would compare unlike stretches.
    let whole = sum_packet_counts(lines().map(|a| a.packets));
    let inside = if lines().all(|a| a.window_packets.is_some()) {
        sum_packet_counts(lines().map(|a| a.window_packets))
    } else {
        whole
    };
    let counts: Vec<(&Artefact, &QueryCount)> =
        lines().filter_map(|a| Some((a, a.queries.as_ref()?))).collect();
    let queries: u64 = counts.iter().map(|(_, count)| count.queries).sum();
    let executed: u64 = counts.iter().map(|(a, count)| count.executed.unwrap_or(a.executed)).sum();
    let by_pt_query_digest = sum_pt_query_digest(lines());
    let encrypted = lines().any(|a| a.encrypted);
    ArmArtefacts {
        result: ArtefactResult {
            kind: pairs[0].1.kind,
            bytes,
            bytes_per_s,
            link_mbit_per_s: bytes_per_s * 8.0 / 1e6,
            packets: inside.map(|p| p.captured),
            received: inside.map(|p| p.received),
            dropped: inside.map(|p| p.dropped),
            packet_counts: whole,
            queries: (!counts.is_empty()).then_some(queries),
            counted_by: join_counter_names(counts.iter().map(|(_, count)| *count)),
            pt_query_digest: by_pt_query_digest.clone(),
            encrypted,
        },
        captured_ratio: (executed > 0)
            .then(|| queries as f64 / executed as f64)
            .or_else(|| by_pt_query_digest.as_ref().and_then(counted_share))
            .filter(|_| !encrypted),
        counted: counts.len(),
        remarks: lines().filter_map(|a| a.note.clone()).collect::<BTreeSet<_>>().into_iter().collect(),
    }
}

fn sum_packet_counts(counts: impl Iterator<Item = Option<PacketCounts>>) -> Option<PacketCounts> {
    counts.flatten().reduce(|a, b| PacketCounts {
        captured: a.captured + b.captured,
        received: a.received + b.received,
        dropped: a.dropped + b.dropped,
    })
}

fn join_counter_names<'a>(counts: impl Iterator<Item = &'a QueryCount>) -> Option<String> {
    let names: BTreeSet<&str> = counts.map(|count| count.by.as_str()).collect();
    (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(", "))
}

fn sum_pt_query_digest<'a>(lines: impl Iterator<Item = &'a Artefact>) -> Option<QueryCount> {
    let counts: Vec<(&Artefact, &QueryCount)> =
        lines.filter_map(|a| Some((a, a.pt_query_digest.as_ref()?))).collect();
    let by = join_counter_names(counts.iter().map(|(_, count)| *count))?;
    Some(QueryCount {
        queries: counts.iter().map(|(_, count)| count.queries).sum(),
        by,
        bytes_read: counts.iter().map(|(_, count)| count.bytes_read).sum(),
        executed: counts.iter().map(|(_, count)| count.executed).sum(),
        by_toll: counts.iter().map(|(_, count)| count.by_toll).sum(),
    })
}

/// pt-query-digest's count over the queries executed in the stretches that it read.
pub fn counted_share(count: &QueryCount) -> Option<f64> {
    count.executed.filter(|&n| n > 0).map(|executed| count.queries as f64 / executed as f64)
}

/// Note on the captured share: the reason why it is missing, or another counter's name.
pub fn describe_cross_check(artefact: &ArtefactResult) -> Option<String> {
    if artefact.encrypted {
        return Some(ENCRYPTED.to_owned());
    }
    let count = artefact.pt_query_digest.as_ref()?;
    let (executed, share) = (count.executed?, counted_share(count)?);
    let beside =
        count.by_toll.map_or_else(String::new, |queries| format!(", toll {queries} in the same bytes"));
    Some(format!(
        "{} finds {} queries where {executed} were executed ({:.1}%){beside}",
        count.by,
        count.queries,
        100.0 * share
    ))
}
