//! Charts of capture profiles: captures that a run sent, or that a page is about.
//!
//! Describes charts by their data. Never reads a capture.

use serde::Serialize;
use toll_net::pcap::profile::json::{ByTransport, Document, ProfileEntry, TopLength, pct};
use toll_net::pcap::profile::scale;
use toll_record::{Axis, Chart, ChartKind, ChartPoint, ChartSeries, RunDir};
use toll_sys::number_format::format_grouped;
use toll_wire::profile::BIN_WIDTH;

/// Most points of a line. A reader cannot distinguish more.
const MAX_POINTS: usize = 500;
/// Number of frequent packet lengths listed for TCP and UDP each.
const MAX_NAMED_LENGTHS: usize = 3;

/// Captures that belong together.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Captures {
    /// Title of the group. Empty if there is only one.
    title: String,
    facts: Vec<String>,
    #[cfg_attr(test, ts(type = "record.Chart[]"))]
    charts: Vec<Chart>,
}

/// Profiles of the captures that a run sent. The error is the reason why they cannot be read.
pub fn read(run: &RunDir) -> Result<Option<Document>, String> {
    let Some(value) = run.captures().map_err(|error| super::describe_read_error(&error))? else {
        return Ok(None);
    };
    serde_json::from_value(value).map(Some).map_err(|error| format!("is not what toll writes: {error}"))
}

/// Profiles of the captures that runs sent, equal ones once.
pub fn profiles_of_runs<'a>(runs: impl Iterator<Item = (Option<&'a Document>, &'a String)>) -> Vec<Captures> {
    let mut found: Vec<(&Document, Vec<&str>)> = Vec::new();
    for (document, name) in runs {
        let Some(document) = document else { continue };
        match found.iter_mut().find(|(known, _)| *known == document) {
            Some((_, names)) => names.push(name),
            None => found.push((document, vec![name])),
        }
    }
    let single = found.len() == 1;
    let of = |(document, names): (&Document, Vec<&str>)| Captures {
        title: if single { String::new() } else { names.join("; ") },
        facts: Vec::new(),
        charts: std::iter::once(share_chart(&document.profiles))
            .chain(document.profiles.iter().filter_map(length_chart))
            .collect(),
    };
    found.into_iter().map(of).collect()
}

/// All charts of each capture.
pub fn profiles_of_document(document: &Document) -> Vec<Captures> {
    let all =
        Captures { title: String::new(), facts: Vec::new(), charts: vec![share_chart(&document.profiles)] };
    let one = |one: &ProfileEntry| Captures {
        title: profile_name(one),
        facts: describe_profile(one),
        charts: [length_chart(one), rate_chart(one), flow_chart(one)].into_iter().flatten().collect(),
    };
    std::iter::once(all).chain(document.profiles.iter().map(one)).collect()
}

fn profile_name(one: &ProfileEntry) -> String {
    one.inputs.iter().map(|input| input.name.as_str()).collect::<Vec<_>>().join(", ")
}

fn describe_profile(one: &ProfileEntry) -> Vec<String> {
    let rate = one.bits_per_s.map_or_else(String::new, |bits| format!(", {}b/s", scale(bits)));
    let mut facts = vec![format!(
        "{} packets, {} bytes on the wire, {:.3} s{rate}; flows: {} TCP, {} UDP",
        format_grouped(one.packets as f64),
        format_grouped(one.bytes as f64),
        one.duration_s,
        format_grouped(one.flows.tcp as f64),
        format_grouped(one.flows.udp as f64)
    )];
    if one.longer_packets > 0 {
        facts.push(format!("{} packets too long to be drawn", format_grouped(one.longer_packets as f64)));
    }
    facts.extend(one.ledger.damage.iter().map(|damage| format!("Damaged: {damage}")));
    facts
}

/// Packets: TCP, UDP, other.
fn packet_kinds(one: &ProfileEntry) -> [(&'static str, u64); 3] {
    let of = |name| one.protocols.get(name).map_or(0, |share| share.packets);
    let (tcp, udp) = (of("tcp"), of("udp"));
    [("TCP", tcp), ("UDP", udp), ("other", one.packets - tcp - udp)]
}

/// A bar for each capture, from none to all of its packets.
fn share_chart(profiles: &[ProfileEntry]) -> Chart {
    let of_kind = |kind: usize| -> Vec<ChartPoint> {
        let share = |one: &ProfileEntry| pct(packet_kinds(one)[kind].1, one.packets);
        (0..).zip(profiles).map(|(at, one)| (f64::from(at), share(one), None, None)).collect()
    };
    let names = ["TCP", "UDP", "other"];
    let series = names.iter().enumerate().map(|(kind, name)| to_series(name, of_kind(kind)));
    Chart {
        id: "capture-shares".into(),
        title: "Packets by protocol".into(),
        kind: ChartKind::Stacked,
        x: Axis {
            label: "capture".into(),
            categories: profiles.iter().map(profile_name).collect(),
            ..Axis::default()
        },
        y: Axis { label: "of its packets".into(), unit: "%".into(), ..Axis::default() },
        series: series.collect(),
        note: String::new(),
    }
}

fn to_series(name: &str, points: Vec<ChartPoint>) -> ChartSeries {
    ChartSeries { name: name.to_owned(), points }
}

/// Packets in each bin of lengths, empty bins included: a gap is a finding.
fn length_chart(one: &ProfileEntry) -> Option<Chart> {
    let last = one.length_bins.last()?.from;
    let of = |kind: usize| -> Vec<ChartPoint> {
        let packets = |from: usize| {
            let bin = one.length_bins.iter().find(|bin| bin.from == from);
            bin.map_or(0, |bin| [bin.tcp, bin.udp, bin.other][kind])
        };
        (0..=last).step_by(BIN_WIDTH).map(|from| (from as f64, packets(from) as f64, None, None)).collect()
    };
    let all = packet_kinds(one).into_iter().enumerate().filter(|(_, (_, packets))| *packets > 0);
    Some(Chart {
        id: format!("capture-lengths-{}", profile_name(one)),
        title: format!("Packets by length: {}", profile_name(one)),
        kind: ChartKind::Histogram,
        x: Axis {
            label: format!("length on the wire, in bins of {BIN_WIDTH}"),
            unit: "bytes".into(),
            ..Axis::default()
        },
        y: Axis { label: "packets".into(), ..Axis::default() },
        series: all.map(|(kind, (name, _))| to_series(name, of(kind))).collect(),
        note: describe_most_frequent(&one.top_lengths),
    })
}

/// `Most frequent: TCP 1518 bytes (45.1%), 66 (30.2%); UDP 80 (61.0%).`
fn describe_most_frequent(top: &ByTransport<TopLength>) -> String {
    let told = |(kind, top): (&str, &Vec<TopLength>)| {
        let one = |top: &TopLength| format!("{} ({:.1}%)", top.length, top.packets_pct);
        let all: Vec<String> = top.iter().take(MAX_NAMED_LENGTHS).map(one).collect();
        (!all.is_empty()).then(|| format!("{kind} {}", all.join(", ")))
    };
    let told: Vec<String> = [("TCP", &top.tcp), ("UDP", &top.udp)].into_iter().filter_map(told).collect();
    if told.is_empty() { String::new() } else { format!("Most frequent, in bytes: {}.", told.join("; ")) }
}

/// Bits a second over time. `None` for a capture of a single stretch.
fn rate_chart(one: &ProfileEntry) -> Option<Chart> {
    let each = one.rates.bytes.len().div_ceil(MAX_POINTS).max(1);
    let width_s = one.rates.stretch_s * each as f64;
    let mbps = |bytes: &[u64]| bytes.iter().sum::<u64>() as f64 * 8.0 / width_s / 1e6;
    let stretches = (0..).zip(one.rates.bytes.chunks(each));
    let points: Vec<ChartPoint> =
        stretches.map(|(at, bytes)| ((f64::from(at) + 0.5) * width_s, mbps(bytes), None, None)).collect();
    (points.len() > 1).then(|| Chart {
        id: format!("capture-rate-{}", profile_name(one)),
        title: format!("Rate over time: {}", profile_name(one)),
        kind: ChartKind::Line,
        x: Axis { label: "time since the first packet".into(), unit: "s".into(), ..Axis::default() },
        y: Axis { label: "rate".into(), unit: "Mb/s".into(), ..Axis::default() },
        series: vec![to_series("rate", points)],
        note: String::new(),
    })
}

/// The largest flows.
fn flow_chart(one: &ProfileEntry) -> Option<Chart> {
    let flows = &one.flows.top;
    let points = |values: Vec<f64>| (0..).zip(values).map(|(at, v)| (f64::from(at), v, None, None)).collect();
    (!flows.is_empty()).then(|| Chart {
        id: format!("capture-flows-{}", profile_name(one)),
        title: format!("Flows of most bytes: {}", profile_name(one)),
        kind: ChartKind::Table,
        x: Axis {
            label: "between".into(),
            categories: flows
                .iter()
                .map(|flow| format!("{} {} - {}", flow.transport, flow.client, flow.server))
                .collect(),
            ..Axis::default()
        },
        y: Axis::default(),
        series: vec![
            to_series("packets", points(flows.iter().map(|flow| flow.packets as f64).collect())),
            to_series("bytes", points(flows.iter().map(|flow| flow.bytes as f64).collect())),
            to_series("seconds", points(flows.iter().map(|flow| flow.duration_s).collect())),
        ],
        note: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_net::pcap::profile::json::build_document;
    use toll_net::pcap::profile::{Input, InputProfile};
    use toll_wire::pcap::{Frame, Link};

    /// Profile of a capture with packets of these lengths, of no known protocol.
    fn captured(name: &str, lengths: &[u32]) -> Document {
        let mut profiled = InputProfile::default();
        profiled.inputs.push(Input { name: name.into(), r#type: "pcap".into(), bytes: 1 });
        for (at, &wire_len) in (1..).zip(lengths) {
            let bytes = [0; 60];
            let frame = Frame { time_ns: at * 1_000_000, link: Link::Ethernet, wire_len, bytes: &bytes };
            profiled.profile.add_frame(&frame);
        }
        build_document(&[profiled])
    }

    #[test]
    fn empty_bins_are_points_and_what_there_is_none_of_is_no_series() {
        let whole = profiles_of_document(&captured("a.pcap", &[60, 60, 310]));
        let [shares, one] = &whole[..] else { panic!("{whole:?}") };
        let shares: Vec<f64> = shares.charts[0].series.iter().map(|series| series.points[0].1).collect();
        assert_eq!(shares, [0.0, 0.0, 100.0]);
        let [lengths, rates] = &one.charts[..] else { panic!("{one:?}") };
        let [other] = &lengths.series[..] else { panic!("{lengths:?}") };
        let bins: Vec<(f64, f64)> = other.points.iter().map(|point| (point.0, point.1)).collect();
        assert_eq!(bins, [(0.0, 2.0), (100.0, 0.0), (200.0, 0.0), (300.0, 1.0)]);
        assert_eq!((rates.series[0].points.len(), rates.y.unit.as_str()), (3, "Mb/s"));
        assert!(one.facts[0].starts_with("3 packets, 430 bytes on the wire"), "{}", one.facts[0]);
    }

    #[test]
    fn runs_that_sent_the_same_show_it_once() {
        let (one, other) = (captured("a.pcap", &[60]), captured("a.pcap", &[61]));
        let names = ["first", "second", "third"].map(str::to_owned);
        let titles = |documents: [Option<&Document>; 3]| -> Vec<String> {
            profiles_of_runs(documents.into_iter().zip(&names))
                .into_iter()
                .map(|captures| captures.title)
                .collect()
        };
        assert_eq!(titles([Some(&one), None, Some(&one)]), [""]);
        assert_eq!(titles([Some(&one), Some(&other), Some(&one)]), ["first; third", "second"]);
        assert_eq!(titles([None; 3]), [""; 0]);
    }
}
