//! Report of a run for a terminal, at most 120 columns.
//!
//! Never reads the environment: the caller decides on colours.

use super::table::{LEADING, Row, Table, WHOLE, or_another};
use super::{charted, doses, findings, notes, pooled, trust};
use textwrap::{Options, WordSplitter};
use toll_analysis::margin;
use toll_record::{RunResult, Verdict};

const WIDTH: usize = 120;
/// Narrowest useful description, characters.
const NARROWEST_TITLE: usize = 12;

/// Colouring of important words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ink {
    Plain,
    Ansi,
}

/// The whole report of one run. Ends with a newline.
pub fn text(run: &RunResult, ink: Ink) -> String {
    let mut out = String::new();
    let heading = format!("{} ({}): {}", run.scenario, run.profile, run.question);
    line(&mut out, &paint(ink, BOLD, &clip(&heading, WIDTH)));
    paragraph(&mut out, "", &run.answer);
    paragraph(&mut out, "", &trust::resolution(run));
    if !run.complete {
        line(&mut out, &paint(ink, YELLOW, "This run is not whole: see the warnings."));
    }
    out.push('\n');
    table(&mut out, run, ink);
    if let Some(parts) = &run.parts {
        out.push('\n');
        out += &pooled::table(parts);
    }
    for chart in charted::tables(&run.charts) {
        out.push('\n');
        line(&mut out, &paint(ink, BOLD, &chart.title));
        out += &charted::text(chart);
    }
    section(&mut out, ink, "Advice", run.advice.iter().map(|sentence| ("-", sentence.clone())));
    section(&mut out, ink, "Doses", doses::lines(run).into_iter());
    section(&mut out, ink, "Contrasts", findings::contrasts(run).into_iter());
    section(&mut out, ink, "Pauses", findings::pauses(run).into_iter());
    section(&mut out, ink, "Limits", findings::limits(run).into_iter());
    let ledgers = findings::ledgers(run);
    section(&mut out, ink, "Packets", ledgers.iter().map(|(arms, told)| (arms.as_str(), told.clone())));
    let notes = notes::notes(run).into_iter().map(|(arms, note)| ("-", format!("{arms}: {note}")));
    section(&mut out, ink, "Notes", notes);
    section(&mut out, ink, "Trust", trust::facts(run).into_iter());
    warnings(&mut out, run, ink);
    out
}

fn table(out: &mut String, run: &RunResult, ink: Ink) {
    let table = Table::of(run);
    if table.rows.is_empty() {
        line(out, "No window was measured.");
        return;
    }
    let mut widths: Vec<usize> = table.head.iter().map(|head| head.chars().count()).collect();
    for row in &table.rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let others = |widths: &[usize]| {
        widths.iter().enumerate().map(|(i, width)| width + gap(i).len()).sum::<usize>() - widths[1]
    };
    // Columns are dropped from the right until a description has room.
    let mut left_out = Vec::new();
    while widths.len() > LEADING + 1 && others(&widths) + NARROWEST_TITLE > WIDTH {
        widths.pop();
        left_out.insert(0, table.head[widths.len()].as_str());
    }
    widths[1] = widths[1].min(WIDTH.saturating_sub(others(&widths)).max(NARROWEST_TITLE));
    let head = joined(&aligned(&table.head, &widths));
    line(out, &paint(ink, BOLD, head.trim_end()));
    for row in &table.rows {
        line(out, joined(&painted(row, &widths, ink)).trim_end());
    }
    if !left_out.is_empty() {
        paragraph(
            out,
            "",
            &format!("Not shown for want of room, as they are on the page: {}.", left_out.join(", ")),
        );
    }
    paragraph(
        out,
        "",
        &format!(
            "Tolls are against {}{} in the same round, with {:.0}% intervals; \"no effect\" is within ±{}.",
            run.baseline,
            or_another(run),
            100.0 * (1.0 - run.alpha),
            margin(run)
        ),
    );
    if let Some(told) = notes::long_windows(run) {
        paragraph(out, "", &told);
    }
    for arm in run.arms.iter().filter(|arm| arm.unavailable.is_some()) {
        let why = arm.unavailable.as_deref().unwrap_or_default();
        paragraph(out, "  ", &format!("{} ({}) not measured: {why}", arm.name, arm.title));
    }
}

/// Space before a column. Plain figures are right-aligned, which separates them already.
fn gap(column: usize) -> &'static str {
    match column {
        0 => "",
        column if column <= LEADING + WHOLE => "  ",
        _ => " ",
    }
}

fn joined(cells: &[String]) -> String {
    cells.iter().enumerate().flat_map(|(i, cell)| [gap(i), cell.as_str()]).collect()
}

/// Names, descriptions and overheads left-aligned, plain figures right-aligned. As many cells as there are
/// widths.
fn aligned(cells: &[String], widths: &[usize]) -> Vec<String> {
    let pad = |(i, (cell, &width)): (usize, (&String, &usize))| {
        let cell = clip(cell, width);
        let blanks = " ".repeat(width - cell.chars().count());
        if i < LEADING + WHOLE { cell + &blanks } else { blanks + &cell }
    };
    cells.iter().zip(widths).enumerate().map(pad).collect()
}

fn painted(row: &Row, widths: &[usize], ink: Ink) -> Vec<String> {
    let mut cells = aligned(&row.cells, widths);
    for (cell, verdict) in cells.iter_mut().skip(LEADING).zip(&row.verdicts).take(WHOLE) {
        let colour = match verdict {
            Verdict::Costly => RED,
            Verdict::Cheaper | Verdict::NoEffect => GREEN,
            Verdict::Unclear => YELLOW,
            Verdict::Baseline | Verdict::NoInterval | Verdict::NotCompared => continue,
        };
        *cell = paint(ink, colour, cell);
    }
    if !row.asked {
        cells[1] = paint(ink, DIM, &cells[1]);
    }
    cells
}

fn section<'a>(out: &mut String, ink: Ink, title: &str, items: impl Iterator<Item = (&'a str, String)>) {
    let items: Vec<(&str, String)> = items.collect();
    if items.is_empty() {
        return;
    }
    out.push('\n');
    line(out, &paint(ink, BOLD, title));
    let width = items.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    for (label, text) in items {
        let blanks = " ".repeat(width - label.chars().count());
        paragraph(out, &format!("  {label}{blanks} "), &text);
    }
}

fn warnings(out: &mut String, run: &RunResult, ink: Ink) {
    if run.warnings.is_empty() {
        return;
    }
    out.push('\n');
    line(out, &paint(ink, BOLD, "Warnings"));
    for group in notes::warnings(run) {
        for warning in &group {
            let begin = out.len();
            paragraph(out, "  ! ", &format!("{}: {}", warning.code, warning.text));
            if ink == Ink::Ansi {
                let painted = paint(ink, YELLOW, out[begin..].trim_end_matches('\n'));
                out.truncate(begin);
                line(out, &painted);
            }
        }
        paragraph(out, "      ", &group[0].advice);
    }
}

/// Wraps to the width, further lines indented by the length of `lead`.
fn paragraph(out: &mut String, lead: &str, text: &str) {
    let indent = " ".repeat(lead.chars().count());
    // What is longer than a line is a path or a command: broken, it could not be pasted.
    let options = Options::new(WIDTH)
        .initial_indent(lead)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation);
    line(out, &textwrap::fill(text, options));
}

/// Cuts to `width` characters; the last one marks the cut.
fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

fn paint(ink: Ink, colour: &str, text: &str) -> String {
    match ink {
        Ink::Plain => text.to_owned(),
        Ink::Ansi => format!("\x1b[{colour}m{text}\x1b[0m"),
    }
}
