//! Text of a comparison: at most 40 lines of 100 columns.

use super::{Change, ComparedClass, Comparison, typical_ns};
use crate::DigestResult;
use crate::classes::Class;
use crate::json::{duration_s, lossy_text};
use crate::report_class::render_time_range;
use std::io::{self, Write};
use toll_input::short_number::format_magnitude;
use toll_stats::{Interval, IntervalError, log_ratio_to_pct};
use toll_sys::number_format::{format_duration_us, format_signed_percent, format_three_digits};

const COLUMNS: usize = 100;
/// Sections, and the most classes that each lists.
const SECTIONS: [(Change, &str, usize); 4] = [
    (Change::Slower, "Slower", 8),
    (Change::Faster, "Faster", 5),
    (Change::New, "New", 5),
    (Change::Gone, "Gone", 4),
];
/// In place of the first two sections where nothing could be tested.
const UNTESTED: (Change, &str, usize) = (Change::NotTested, "Not tested", 10);

pub fn write_report(comparison: &Comparison<'_>, out: &mut dyn Write) -> io::Result<()> {
    for (name, side) in [("Before", comparison.before), ("After", comparison.after)] {
        writeln!(out, "{}", cut(&format!("{name:<7}{}", render_side(side))))?;
    }
    write_conditions(comparison, out)?;
    writeln!(
        out,
        "\n  {:<24} {:>9} {:>9} {:>9} {:>9}  class",
        "change of typical time", "before", "after", "calls/s", "after"
    )?;
    let has_intervals = comparison.slices.is_some();
    for section in SECTIONS {
        match section.0 {
            Change::Slower if !has_intervals => write_section(comparison, UNTESTED, out)?,
            Change::Faster if !has_intervals => {}
            _ => write_section(comparison, section, out)?,
        }
    }
    write_rest(comparison, out)
}

fn render_side(side: &DigestResult) -> String {
    let totals = &side.digest.totals;
    let files: Vec<&str> = side.inputs.iter().map(|input| input.name.as_str()).collect();
    let seconds = duration_s(&side.digest);
    let rate = if seconds > 0.0 {
        format!(", {}/s", format_three_digits(totals.commands as f64 / seconds))
    } else {
        String::new()
    };
    let time = render_time_range(totals.first_ns, totals.last_ns);
    let time = time.map_or(String::new(), |time| format!("{time}, "));
    let events = format_magnitude(totals.commands as f64, 1_000.0);
    let sampled = if side.sampled.totals().is_some() { " of some connections" } else { "" };
    format!("{time}{events} events{rate}{sampled}: {}", files.join(", "))
}

fn write_conditions(comparison: &Comparison<'_>, out: &mut dyn Write) -> io::Result<()> {
    let Some(slices) = comparison.slices else {
        return writeln!(
            out,
            "No intervals: a side has fewer than {} stretches of time with events. Compare captures or logs\n\
             with times, or digests of `toll capture --digest --every`.",
            super::slices::SLICES_MIN
        );
    };
    match &comparison.common {
        Some(common) => writeln!(
            out,
            "All    {} (median of {} classes). Below: changes beyond that.",
            render_estimate(common.mean, common.interval),
            common.series
        )?,
        None => writeln!(
            out,
            "Too few classes to tell a change of the host from that of a class: the host may be the cause."
        )?,
    }
    let spread = match comparison.between_sd {
        Some(sd) => format!("spread between them {:.1}%", log_ratio_to_pct(sd)),
        None => "drift between them unknown".to_owned(),
    };
    writeln!(out, "       {slices} slices of time each, {spread}; 95% intervals of all classes together.")
}

fn write_section(
    comparison: &Comparison<'_>,
    (change, title, most): (Change, &str, usize),
    out: &mut dyn Write,
) -> io::Result<()> {
    let classes: Vec<&ComparedClass<'_>> =
        comparison.classes.iter().filter(|class| class.change == change).collect();
    match classes.len() {
        0 => return writeln!(out, "{title}: none"),
        count if count > most => writeln!(out, "{title}: {count}, the first {most}")?,
        count => writeln!(out, "{title}: {count}")?,
    }
    for compared in classes.into_iter().take(most) {
        writeln!(out, "{}", cut(&render_class(comparison, compared)))?;
    }
    Ok(())
}

fn render_class(comparison: &Comparison<'_>, compared: &ComparedClass<'_>) -> String {
    let change = match (compared.log_change, compared.before.zip(compared.after)) {
        (Some(change), _) => render_estimate(change.mean, change.interval),
        (None, Some((before, after))) => match typical_ns(before).zip(typical_ns(after)) {
            Some((before, after)) => format_signed_percent(100.0 * (after / before - 1.0)),
            None => String::new(),
        },
        (None, None) => String::new(),
    };
    let time = |class: Option<&Class>| {
        class.and_then(typical_ns).map_or("-".to_owned(), |ns| format_duration_us(ns / 1_000.0))
    };
    let rate = |side: &DigestResult, class: Option<&Class>| {
        let seconds = duration_s(&side.digest);
        class
            .filter(|_| seconds > 0.0)
            .map_or("-".to_owned(), |class| format_three_digits(class.count as f64 / seconds))
    };
    format!(
        "  {change:<24} {:>9} {:>9} {:>9} {:>9}  {}",
        time(compared.before),
        time(compared.after),
        rate(comparison.before, compared.before),
        rate(comparison.after, compared.after),
        compared.class().map_or(String::new(), |class| lossy_text(&class.text)),
    )
}

/// `+4.3% [+4.0, +4.6]`, from the log scale.
fn render_estimate(mean: f64, interval: Result<Interval, IntervalError>) -> String {
    let estimate = format_signed_percent(log_ratio_to_pct(mean));
    match interval.map(Interval::to_pct) {
        Ok(Interval { low, high }) => {
            let ends = [low, high].map(|end| format_signed_percent(end).replace('%', ""));
            format!("{estimate} [{}, {}]", ends[0], ends[1])
        }
        Err(_) => estimate,
    }
}

fn write_rest(comparison: &Comparison<'_>, out: &mut dyn Write) -> io::Result<()> {
    let has_intervals = comparison.slices.is_some();
    let margin = format_three_digits(comparison.min_change_pct);
    let within = format!("within ±{margin}%");
    let rest = [
        (Change::Within, within.as_str()),
        (Change::Inconclusive, "inconclusive"),
        (Change::Rare, "too rare"),
        (Change::NotTested, "not tested"),
    ];
    let counts: Vec<String> = rest
        .into_iter()
        .filter(|(change, _)| has_intervals || *change != Change::NotTested)
        .filter_map(|(change, what)| {
            let count = comparison.classes.iter().filter(|class| class.change == change).count();
            (count > 0).then(|| format!("{count} {what}"))
        })
        .collect();
    if !counts.is_empty() {
        writeln!(out, "\nOthers: {}.", counts.join(", "))?;
    }
    writeln!(out, "The order of the sides is not random: statements, data, load or host may be the cause.")
}

/// One line that a terminal of 100 columns shows whole.
fn cut(line: &str) -> String {
    let line: String = line.chars().map(|char| if char.is_control() { ' ' } else { char }).collect();
    let line = line.trim_end();
    match line.char_indices().nth(COLUMNS - 1) {
        Some((end, _)) if line.chars().count() > COLUMNS => format!("{}…", &line[..end]),
        _ => line.to_owned(),
    }
}
