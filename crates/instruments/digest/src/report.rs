//! Text report of a digest, in the layout of pt-query-digest's report, which users know.

use super::json::{duration_s, lossy_text};
use super::report_class::{self, AttributeTable};
use super::sample_estimator::{Estimate, SampledTotals};
use super::schema::Merged;
use super::{DigestResult, Request};
use crate::classes::{Class, GroupBy};
use std::io::{self, Write};
use toll_input::short_number::{format_magnitude, format_time};
use toll_wire::attribute::Attribute;

pub(super) const WIDTH: usize = 74;

pub fn write_report(request: &Request, done: &DigestResult, out: &mut dyn Write) -> io::Result<()> {
    let digest = &done.digest;
    if done.interrupted {
        writeln!(out, "# Interrupted: this is what was read until then.")?;
    }
    let files: Vec<&str> = done.inputs.iter().map(|input| input.name.as_str()).collect();
    writeln!(out, "# Files: {}", files.join(", "))?;
    write_merged(done, out)?;
    if digest.totals.commands == 0 {
        writeln!(out, "# No events.{}", explain_wrong_port(request, done))?;
        return done.accounting.write_text(out);
    }
    write_overall(done, out)?;
    let (shown, beyond) = digest.ranked(request.limit);
    write_profile(done, &shown, &beyond, out)?;
    for (rank, class) in (1..).zip(&shown) {
        report_class::write_class(request, done, class, rank, out)?;
    }
    if done.merged.classes_not_listed > 0 {
        writeln!(
            out,
            "\n# {} classes ({} events) are not apart: digests that were merged do not list them, or they were\n\
             # folded to bound memory. One that several digests left out counts as several; a class that is\n\
             # listed is short of at most the count that its block tells. `toll digest --limit 0` lists all.",
            digest.folded_classes, digest.folded.count
        )?;
    } else if digest.folded_classes > 0 {
        writeln!(
            out,
            "\n# {} rarer classes ({} events) were folded together to bound memory; a class that\n\
             # came back is short of at most the count that its block tells.",
            digest.folded_classes, digest.folded.count
        )?;
    }
    writeln!(out)?;
    done.accounting.write_text(out)
}

fn write_merged(done: &DigestResult, out: &mut dyn Write) -> io::Result<()> {
    let Merged { digests, interrupted, .. } = done.merged;
    if digests == 0 {
        return Ok(());
    }
    let which = if interrupted > 0 { format!(", {interrupted} of them interrupted") } else { String::new() };
    writeln!(out, "# Merged: {digests} digests{which}")
}

/// Why a sound capture may hold none: the server listens elsewhere.
fn explain_wrong_port(request: &Request, done: &DigestResult) -> String {
    let Some(capture) = &done.accounting.capture else { return String::new() };
    let frames = &capture.counts.frames;
    if frames.read == 0 || frames.not_ours < frames.read {
        return String::new();
    }
    let ports: Vec<String> = request.capture.ports.iter().map(u16::to_string).collect();
    format!(
        " None of the {} frames goes to or comes from port {}: name the server's port with --port.",
        frames.read,
        ports.join(" or ")
    )
}

fn write_overall(done: &DigestResult, out: &mut dyn Write) -> io::Result<()> {
    let digest = &done.digest;
    let totals = &digest.totals;
    let seconds = duration_s(digest);
    let busy = digest.all.measure(Attribute::QueryTime).map_or(0.0, |measure| measure.sum as f64 / 1e9);
    let rate = |n: f64| if seconds > 0.0 { format_magnitude(n / seconds, 1_000.0) } else { "0".to_owned() };
    let line = format!(
        "# Overall: {} total, {} unique, {} QPS, {}x concurrency ",
        format_magnitude(totals.commands as f64, 1_000.0),
        format_magnitude(digest.unique() as f64, 1_000.0),
        rate(totals.commands as f64),
        rate(busy),
    );
    writeln!(out, "{line:_<WIDTH$}")?;
    report_class::write_time_range(totals.first_ns, totals.last_ns, out)?;
    if totals.tainted > 0 {
        writeln!(out, "# Tainted: {} events lost a part: counted, but without a time", totals.tainted)?;
    }
    if let Some(found) = done.sampled.totals() {
        write_sampled(&found, out)?;
    }
    AttributeTable::from_totals(digest).write(out)?;
    writeln!(out)
}

/// What the figures below are a part of.
fn write_sampled(found: &SampledTotals, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "# Sampled: a share of the connections was sampled, {:.3}% on average, {:.3}% at least;\n\
         # {} connections in the sample. All figures but the next two are of the sample only:",
        found.share_mean * 100.0,
        found.share_min * 100.0,
        found.connections
    )?;
    let line = |name: &str, of: &Estimate, shown: fn(f64) -> String| {
        let interval = of.interval.map_or_else(
            || ", from too few connections for an interval".to_owned(),
            |(low, high)| format!(" [{}, {}] (95%)", shown(low), shown(high)),
        );
        format!("# {name} {}{interval}", shown(of.total))
    };
    writeln!(out, "{}", line("Queries in all:", &found.queries, |n| format_magnitude(n.round(), 1_000.0)))?;
    writeln!(out, "{}", line("Query time in all:", &found.query_ns, format_time))
}

fn write_profile(
    done: &DigestResult,
    shown: &[&Class],
    beyond: &[&Class],
    out: &mut dyn Write,
) -> io::Result<()> {
    let digest = &done.digest;
    let total = response_time(&digest.all).0;
    let by_statement = matches!(digest.settings().group_by, GroupBy::Fingerprint | GroupBy::Distill);
    let mut rows: Vec<[String; 7]> = vec![
        ["Rank", "Query ID", "Response time", "Calls", "R/Call", "V/M", "Item"].map(str::to_owned),
        [
            "====",
            "==================================",
            "===============",
            "=====",
            "======",
            "=====",
            "=====",
        ]
        .map(str::to_owned),
    ];
    let row = |rank: String, id: String, time: f64, calls: u64, spread: String, item: String| {
        let share = if total > 0.0 { time * 100.0 / total } else { 0.0 };
        let per_call = if calls > 0 { time / calls as f64 } else { 0.0 };
        [
            rank,
            id,
            format!("{time:.4} {share:4.1}%"),
            calls.to_string(),
            format!("{per_call:.4}"),
            spread,
            item,
        ]
    };
    for (rank, class) in (1..).zip(shown) {
        let (time, calls) = response_time(class);
        let item = if by_statement { lossy_text(&class.distill) } else { lossy_text(&class.text) };
        rows.push(row(
            rank.to_string(),
            format!("0x{}", class.id),
            time,
            calls,
            format!("{:.2}", report_class::variance_to_mean(class)),
            item,
        ));
    }
    let rest = beyond.len() as u64 + digest.folded_classes;
    if rest > 0 {
        let (time, calls) = beyond
            .iter()
            .map(|class| response_time(class))
            .chain([response_time(&digest.folded)])
            .fold((0.0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        rows.push(row("MISC".into(), "0xMISC".into(), time, calls, "0.0".into(), format!("<{rest} ITEMS>")));
    }
    writeln!(out, "# Profile")?;
    let widths: Vec<usize> =
        (0..7).map(|n| rows.iter().map(|row| row[n].chars().count()).max().unwrap_or(0)).collect();
    for row in rows {
        let cells: Vec<String> = (0..7)
            .map(|n| match n {
                1 => format!("{:<1$}", row[n], widths[n]),
                6 => row[n].clone(),
                _ => format!("{:>1$}", row[n], widths[n]),
            })
            .collect();
        writeln!(out, "# {}", cells.join(" "))?;
    }
    Ok(())
}

/// Seconds and calls.
fn response_time(class: &Class) -> (f64, u64) {
    (class.measure(Attribute::QueryTime).map_or(0.0, |measure| measure.sum as f64 / 1e9), class.count)
}
