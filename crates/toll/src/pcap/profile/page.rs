//! How do profiles become a page that opens anywhere, offline? Drawn here, once: the page has no script.

use super::json::{Document, One, pct};
use super::text::scaled;
use crate::figures::grouped;
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");
/// A figure's width and height, and what is left for its axes, in units of the drawing.
const WIDTH: f64 = 1100.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 90.0;
const BELOW: f64 = 24.0;
/// Points of a line; more than these nobody tells apart.
const POINTS: usize = 500;

/// One page that shows all profiles: their shares side by side, then each by itself.
pub fn page(document: &Document) -> String {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>toll: profiles of captures</title>\n<style>\n",
    );
    page += STYLE;
    page += "</style>\n</head>\n<body>\n<h1>What the captures are made of</h1>\n\
             <p><span class=\"key tcp\">TCP</span><span class=\"key udp\">UDP</span>\
             <span class=\"key other\">other</span></p>\n";
    page += &shares(&document.profiles);
    for one in &document.profiles {
        page += &section(one);
    }
    page += "</body>\n</html>\n";
    page
}

/// For text and attributes alike: a file may have any name.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            c => out.push(c),
        }
    }
    out
}

fn name(one: &One) -> String {
    let names: Vec<&str> = one.inputs.iter().map(|input| input.name.as_str()).collect();
    escaped(&names.join(", "))
}

/// Packets: TCP, UDP, other.
fn kinds(one: &One) -> [(&'static str, u64); 3] {
    let of = |name| one.protocols.get(name).map_or(0, |share| share.packets);
    let (tcp, udp) = (of("tcp"), of("udp"));
    [("tcp", tcp), ("udp", udp), ("other", one.packets - tcp - udp)]
}

/// A bar for each capture, from none to all of its packets.
fn shares(profiles: &[One]) -> String {
    const ROW: f64 = 30.0;
    const NAMES: f64 = 320.0;
    let mut svg = format!(
        "<section><h2>Packets by protocol</h2>\n<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">\n",
        ROW * profiles.len() as f64
    );
    for (row, one) in profiles.iter().enumerate() {
        let y = row as f64 * ROW;
        let mut x = NAMES;
        let _ = writeln!(svg, "<text x=\"0\" y=\"{:.1}\">{}</text>", y + 18.0, name(one));
        for (kind, packets) in kinds(one) {
            let share = pct(packets, one.packets);
            let width = (WIDTH - NAMES) * share / 100.0;
            let _ = writeln!(
                svg,
                "<rect class=\"{kind}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"20\">\
                 <title>{kind}: {} packets, {share:.2}%</title></rect>",
                y + 4.0,
                grouped(packets as f64)
            );
            x += width;
        }
    }
    svg + "</svg></section>\n"
}

fn section(one: &One) -> String {
    let mut out = format!(
        "<section><h2>{}</h2>\n<p>{} packets, {} bytes on the wire, {:.3} s{}</p>\n",
        name(one),
        grouped(one.packets as f64),
        grouped(one.bytes as f64),
        one.duration_s,
        one.bits_per_s.map_or(String::new(), |bits| format!(", {}b/s", scaled(bits)))
    );
    for damage in &one.ledger.damage {
        let _ = writeln!(out, "<p>Damaged: {}</p>", escaped(damage));
    }
    out += &histogram(one);
    out += &rates(one);
    out += &flows(one);
    out + "</section>\n"
}

/// Axes: from none to `highest` upwards, and in quarters from 0 to `last` of a unit to the right.
fn frame(highest: &str, last: f64, unit: &str, what: &str) -> String {
    let (bottom, right) = (HEIGHT - BELOW, WIDTH);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{what}\">\n\
         <line class=\"axis\" x1=\"{LEFT}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/>\n\
         <line class=\"axis\" x1=\"{LEFT}\" y1=\"8\" x2=\"{LEFT}\" y2=\"{bottom}\"/>\n\
         <text x=\"{0}\" y=\"16\" text-anchor=\"end\">{highest}</text>\n\
         <text x=\"{0}\" y=\"{bottom}\" text-anchor=\"end\">0</text>\n",
        LEFT - 6.0,
    );
    let decimals = if last < 40.0 { 2 } else { 0 };
    for (quarter, anchor) in (0..).zip(["start", "middle", "middle", "middle", "end"]) {
        let share = f64::from(quarter) / 4.0;
        let x = LEFT + (WIDTH - LEFT) * share;
        let unit = if quarter == 4 { unit } else { "" };
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{:.decimals$}{unit}</text>",
            HEIGHT - 6.0,
            last * share
        );
    }
    svg
}

/// Packets of each bin of lengths.
fn histogram(one: &One) -> String {
    let (Some(last), Some(highest)) = (
        one.length_bins.last().map(|bin| bin.to + 1),
        one.length_bins.iter().map(|bin| bin.tcp.max(bin.udp).max(bin.other)).max(),
    ) else {
        return String::new();
    };
    let mut svg = "<h3>Packets by length, in bins of 100 bytes</h3>\n".to_owned();
    svg += &frame(&scaled(highest as f64), last as f64, " bytes", "packets by length");
    let bins = (last / 100) as f64;
    let slot = (WIDTH - LEFT) / bins;
    for bin in &one.length_bins {
        for (at, (kind, packets)) in
            [("tcp", bin.tcp), ("udp", bin.udp), ("other", bin.other)].into_iter().enumerate()
        {
            if packets == 0 {
                continue;
            }
            let height = (HEIGHT - BELOW - 8.0) * packets as f64 / highest as f64;
            let x = LEFT + (bin.from / 100) as f64 * slot + slot * (0.1 + 0.27 * at as f64);
            let _ = writeln!(
                svg,
                "<rect class=\"{kind}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\">\
                 <title>{kind}, {} to {} bytes: {} packets</title></rect>",
                HEIGHT - BELOW - height,
                slot * 0.25,
                bin.from,
                bin.to,
                grouped(packets as f64)
            );
        }
    }
    svg + "</svg>\n"
}

/// Bits a second over time.
fn rates(one: &One) -> String {
    let each = one.rates.bytes.len().div_ceil(POINTS).max(1);
    let width_s = one.rates.stretch_s * each as f64;
    let bits: Vec<f64> =
        one.rates.bytes.chunks(each).map(|chunk| chunk.iter().sum::<u64>() as f64 * 8.0 / width_s).collect();
    let highest = bits.iter().copied().fold(0.0, f64::max);
    if bits.len() < 2 || highest == 0.0 {
        return String::new();
    }
    let mut svg = "<h3>Rate over time</h3>\n".to_owned();
    let last_s = width_s * bits.len() as f64;
    svg += &frame(&format!("{}b/s", scaled(highest)), last_s, " s", "rate over time");
    svg += "<polyline class=\"rate\" points=\"";
    for (at, bits) in bits.iter().enumerate() {
        let x = LEFT + (WIDTH - LEFT) * (at as f64 + 0.5) / (one.rates.bytes.len().div_ceil(each)) as f64;
        let y = HEIGHT - BELOW - (HEIGHT - BELOW - 8.0) * bits / highest;
        let _ = write!(svg, "{x:.1},{y:.1} ");
    }
    svg + "\"/></svg>\n"
}

fn flows(one: &One) -> String {
    if one.flows.top.is_empty() {
        return String::new();
    }
    let mut table = format!(
        "<h3>Flows: {} TCP, {} UDP</h3>\n<table><tr><th>packets</th><th>bytes</th><th>seconds</th><th>between</th></tr>\n",
        grouped(one.flows.tcp as f64),
        grouped(one.flows.udp as f64)
    );
    for flow in &one.flows.top {
        let _ = writeln!(
            table,
            "<tr><td>{}</td><td>{}</td><td>{:.3}</td><td>{} {} - {}</td></tr>",
            grouped(flow.packets as f64),
            grouped(flow.bytes as f64),
            flow.duration_s,
            flow.transport,
            flow.client,
            flow.server
        );
    }
    table + "</table>\n"
}

#[cfg(test)]
mod tests {
    use super::super::{Input, Profiled, json};
    use super::*;
    use toll_wire::pcap::{Frame, Link};

    #[test]
    fn a_page_shows_every_profile_and_no_name_escapes_into_it() {
        let mut profiled = Profiled::default();
        let name = "<script>alert('x')</script>&\".pcap".to_owned();
        profiled.inputs.push(Input { name, r#type: "pcap", bytes: 1 });
        for n in 0..10u64 {
            let bytes = [0; 60];
            let frame =
                Frame { time_ns: 1 + n * 1_000_000, link: Link::Ethernet, wire_len: 60, bytes: &bytes };
            profiled.profile.frame(&frame);
        }
        let page = page(&json::document(&[profiled, Profiled::default()]));
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"));
        assert_eq!(page.matches("<section>").count(), 3);
        assert!(page.contains("0 to 99 bytes: 10 packets") && page.contains("<polyline"));
        // What is opened is closed.
        for tag in ["section", "svg", "rect", "table", "text"] {
            let opened = page.matches(&format!("<{tag}")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }
}
