//! Text report of a capture profile.

use super::json::{ByTransport, Flows, Port, ProfileEntry, TopLength, pct};
use std::io::{self, Write};
use toll_input::format_magnitude;
use toll_sys::count_format::format_count;
use toll_sys::number_format::format_grouped;

/// Columns of the line of rates.
const COLUMNS: usize = 60;
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One profile, from what programs are told.
pub fn write_text(one: &ProfileEntry, out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<String> = one
        .inputs
        .iter()
        .map(|input| format!("{} ({}, {} bytes)", input.name, input.r#type, number(input.bytes)))
        .collect();
    writeln!(out, "# {}", names.join(", "))?;
    if one.interrupted {
        writeln!(out, "interrupted  this is what was read until then")?;
    }
    write_totals(one, out)?;
    if one.packets > 0 {
        write_rates(one, out)?;
        write_protocols(one, out)?;
        write_lengths(one, out)?;
        write_flows(&one.flows, out)?;
        write_ports(&one.top_ports, out)?;
    }
    write_accounting(one, out)
}

fn number(n: u64) -> String {
    format_grouped(n as f64)
}

fn write_totals(one: &ProfileEntry, out: &mut dyn Write) -> io::Result<()> {
    let cut = match one.cut_packets {
        0 => String::new(),
        cut => format!(", {} of them cut by a snap length", number(cut)),
    };
    writeln!(out, "packets      {}{cut}", number(one.packets))?;
    writeln!(out, "bytes        {} on the wire, {} captured", number(one.bytes), number(one.captured_bytes))?;
    if let Some(length) = &one.length_bytes {
        let median = length.median.map_or("more".to_owned(), |median| median.to_string());
        let (min, mean, max) = (length.min, length.mean, length.max);
        writeln!(out, "length       {min} to {max} bytes, half up to {median}, mean {mean:.0}")?;
    }
    let (Some(first), Some(last)) = (&one.first_seen, &one.last_seen) else { return Ok(()) };
    writeln!(out, "time         {first} to {last}, {:.6} s", one.duration_s)?;
    if one.disordered_packets > 0 {
        writeln!(
            out,
            "order        {} older than the one before, by {} us at most",
            format_count(one.disordered_packets, "packet"),
            format_grouped(one.disorder_us_max.ceil())
        )?;
    }
    Ok(())
}

fn write_rates(one: &ProfileEntry, out: &mut dyn Write) -> io::Result<()> {
    let (Some(packets), Some(bits)) = (one.packets_per_s, one.bits_per_s) else { return Ok(()) };
    writeln!(out, "rate         {}b/s, {} packets/s", scale(bits), format_grouped(packets))?;
    let Some(busiest) = &one.rates.busiest else { return Ok(()) };
    writeln!(
        out,
        "busiest      {}b/s in {} from {:.3} s on",
        scale(busiest.bits_per_s),
        describe_interval(one.rates.stretch_s),
        busiest.at_s
    )?;
    let (line, column_s) = draw_sparkline(&one.rates.bytes, one.rates.stretch_s);
    writeln!(out, "over time    {line} (bytes, columns of {})", describe_interval(column_s))
}

/// `12.3M`; with a blank before the unit that follows.
pub fn scale(value: f64) -> String {
    let text = format_magnitude(value, 1_000.0);
    let digits = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..digits], &text[digits..])
}

fn describe_interval(seconds: f64) -> String {
    if seconds < 1.0 { format!("{:.0} ms", seconds * 1e3) } else { format!("{seconds:.0} s") }
}

/// A bar for each column, as high as its share of the highest; and the length of a column, s.
fn draw_sparkline(bytes: &[u64], stretch_s: f64) -> (String, f64) {
    let each = bytes.len().div_ceil(COLUMNS).max(1);
    let sums: Vec<u64> = bytes.chunks(each).map(|chunk| chunk.iter().sum()).collect();
    let highest = sums.iter().copied().max().unwrap_or(0).max(1);
    let bar = |&sum: &u64| match sum {
        0 => ' ',
        sum => BARS[((sum as f64 / highest as f64 * BARS.len() as f64).ceil() as usize).clamp(1, 8) - 1],
    };
    (sums.iter().map(bar).collect(), each as f64 * stretch_s)
}

fn write_protocols(one: &ProfileEntry, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{:<12} {:>15} {:>7} {:>19} {:>7}", "protocol", "packets", "", "bytes", "")?;
    let mut shares: Vec<_> = one.protocols.iter().filter(|(_, share)| share.packets > 0).collect();
    shares.sort_by(|(a, more), (b, less)| less.packets.cmp(&more.packets).then_with(|| a.cmp(b)));
    for (name, share) in shares {
        writeln!(
            out,
            "{:<12} {:>15} {:>6.2}% {:>19} {:>6.2}%",
            name.replace('_', " "),
            number(share.packets),
            share.packets_pct,
            number(share.bytes),
            share.bytes_pct
        )?;
    }
    Ok(())
}

fn write_lengths(one: &ProfileEntry, out: &mut dyn Write) -> io::Result<()> {
    let whole = |name| one.protocols.get(name).map_or(0, |share: &super::json::Share| share.packets);
    let (tcp, udp) = (whole("tcp"), whole("udp"));
    let other = one.packets - tcp - udp;
    writeln!(out, "\n{:<15} {:>20} {:>20} {:>20}", "length, bytes", "tcp", "udp", "other")?;
    let cell = |packets: u64, whole: u64| match packets {
        0 => String::new(),
        packets => format!("{} {:>6.2}%", number(packets), pct(packets, whole)),
    };
    for bin in &one.length_bins {
        let line = format!(
            "{:<15} {:>20} {:>20} {:>20}",
            format!("{:>6}-{}", bin.from, bin.to),
            cell(bin.tcp, tcp),
            cell(bin.udp, udp),
            cell(bin.other, other)
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    if one.longer_packets > 0 {
        writeln!(out, "longer         {}", format_count(one.longer_packets, "packet"))?;
    }
    for (name, top) in [("tcp", &one.top_lengths.tcp), ("udp", &one.top_lengths.udp)] {
        let one = |top: &TopLength| format!("{} ({:.1}%)", top.length, top.packets_pct);
        write_list(&format!("top {name}"), top, one, out)?;
    }
    Ok(())
}

/// A line of at most six; none where there is nothing to list.
fn write_list<T>(name: &str, all: &[T], one: impl Fn(&T) -> String, out: &mut dyn Write) -> io::Result<()> {
    if all.is_empty() {
        return Ok(());
    }
    let text: Vec<String> = all.iter().take(6).map(one).collect();
    writeln!(out, "{name:<12} {}", text.join(", "))
}

fn write_flows(flows: &Flows, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "\nflows        {} TCP ({} begun and {} ended in the capture), {} UDP",
        number(flows.tcp),
        number(flows.tcp_begun),
        number(flows.tcp_ended),
        number(flows.udp)
    )?;
    if let Some(estimated) = flows.estimated {
        writeln!(
            out,
            "             these are the first; some {} in all, to whose rest {} packets belong",
            number(estimated),
            number(flows.packets_beyond)
        )?;
    }
    for flow in flows.top.iter().take(5) {
        writeln!(
            out,
            "  {:>12} packets {:>17} bytes {:>11.3} s  {} {} - {}",
            number(flow.packets),
            number(flow.bytes),
            flow.duration_s,
            flow.transport,
            flow.client,
            flow.server
        )?;
    }
    Ok(())
}

fn write_ports(ports: &ByTransport<Port>, out: &mut dyn Write) -> io::Result<()> {
    for (name, top) in [("tcp", &ports.tcp), ("udp", &ports.udp)] {
        let one = |port: &Port| format!("{} ({:.1}%)", port.port, port.packets_pct);
        write_list(&format!("{name} ports"), top, one, out)?;
    }
    Ok(())
}

fn write_accounting(one: &ProfileEntry, out: &mut dyn Write) -> io::Result<()> {
    let terms: Vec<String> = one
        .protocols
        .iter()
        .map(|(name, share)| format!("{} {}", name.replace('_', " "), share.packets))
        .collect();
    writeln!(out, "\nledger       {} packets = {}", one.packets, terms.join(" + "))?;
    if let Some(dropped) = one.ledger.dropped_by_capture {
        writeln!(out, "dropped      {dropped} packets, by the capturing program's own account")?;
    }
    if one.ledger.unread_tail_bytes > 0 {
        writeln!(out, "cut          it ends within a record: {} bytes unread", one.ledger.unread_tail_bytes)?;
    }
    if one.untimed_packets > 0 {
        writeln!(out, "untimed      {} without a time", format_count(one.untimed_packets, "packet"))?;
    }
    if one.fragments > 0 {
        writeln!(out, "fragments    {}, in no flow and no port", number(one.fragments))?;
    }
    for damage in &one.ledger.damage {
        writeln!(out, "damaged      {damage}")?;
    }
    if !one.ledger.adds_up {
        writeln!(out, "It does not add up: a fault of toll's. Please report it with the input.")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_rates_is_as_high_as_its_busiest_column() {
        assert_eq!(draw_sparkline(&[0, 1, 4, 8], 0.001), (" ▁▄█".to_owned(), 0.001));
        let (line, column_s) = draw_sparkline(&[7; 600], 0.01);
        assert_eq!((line.chars().count(), column_s), (60, 0.1));
        assert_eq!(draw_sparkline(&[], 1.0).0, "");
    }

    #[test]
    fn figures_keep_a_blank_before_their_unit() {
        assert_eq!(scale(161_400_000.0) + "b/s", "161.40 Mb/s");
        assert_eq!(scale(20.0) + "b/s", "20 b/s");
    }
}
