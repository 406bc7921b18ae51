//! Report of a run for a terminal, at most 120 columns.
//!
//! Never reads the environment: the caller decides on colours.

use super::table::{INTERVAL_COLUMNS, LEADING_COLUMNS, Row, Table, other_reference_suffix};
use super::{chart_tables, dose_lines, findings, notes, parties, pooled, trust};
use textwrap::{Options, WordSplitter};
use toll_analysis::describe_margin;
use toll_record::{RunResult, Verdict};

const WIDTH: usize = 120;
/// Narrowest useful description, characters.
const NARROWEST_TITLE: usize = 12;

/// Colouring of important words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColourMode {
    Plain,
    Ansi,
}

/// The whole report of one run. Ends with a newline.
pub fn text(run: &RunResult, ink: ColourMode) -> String {
    let mut out = String::new();
    let heading = format!("{} ({}): {}", run.scenario, run.profile, run.question);
    write_line(&mut out, &paint(ink, BOLD, &clip(&heading, WIDTH)));
    write_paragraph(&mut out, "", &run.answer);
    write_paragraph(&mut out, "", &trust::describe_resolution(run));
    if !run.complete {
        write_line(&mut out, &paint(ink, YELLOW, "This run is incomplete: see the warnings."));
    }
    out.push('\n');
    write_table(&mut out, run, ink);
    let by_party = parties::party_lines(run);
    if !by_party.is_empty() {
        out.push('\n');
        write_line(&mut out, &paint(ink, BOLD, "Instructions per query, by party"));
        by_party.iter().for_each(|line| write_line(&mut out, line));
    }
    if let Some(parts) = &run.parts {
        out.push('\n');
        out += &pooled::table(parts);
    }
    for chart in chart_tables::tables(&run.charts) {
        out.push('\n');
        write_line(&mut out, &paint(ink, BOLD, &chart.title));
        out += &chart_tables::text(&chart);
    }
    write_section(&mut out, ink, "Advice", run.advice.iter().map(|sentence| ("-", sentence.clone())));
    write_section(&mut out, ink, "Doses", dose_lines::dose_report_lines(run).into_iter());
    write_section(&mut out, ink, "Contrasts", findings::contrast_lines(run).into_iter());
    write_section(&mut out, ink, "Pauses", findings::pause_lines(run).into_iter());
    write_section(&mut out, ink, "Limits", findings::limit_lines(run).into_iter());
    let ledgers = findings::packet_accounting_lines(run);
    write_section(&mut out, ink, "Packets", ledgers.iter().map(|(arms, told)| (arms.as_str(), told.clone())));
    let notes = notes::note_lines(run).into_iter().map(|(arms, note)| ("-", format!("{arms}: {note}")));
    write_section(&mut out, ink, "Notes", notes);
    write_section(&mut out, ink, "Trust", trust::trust_lines(run).into_iter());
    write_warnings(&mut out, run, ink);
    out
}

fn write_table(out: &mut String, run: &RunResult, ink: ColourMode) {
    let table = Table::of(run);
    if table.rows.is_empty() {
        write_line(out, "No window was measured.");
        return;
    }
    let mut widths: Vec<usize> = table.head.iter().map(|head| head.chars().count()).collect();
    for row in &table.rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let others = |widths: &[usize]| {
        widths.iter().enumerate().map(|(i, width)| width + column_gap(i).len()).sum::<usize>() - widths[1]
    };
    // Columns are dropped from the right until a description has room.
    let mut left_out = Vec::new();
    while widths.len() > LEADING_COLUMNS + 1 && others(&widths) + NARROWEST_TITLE > WIDTH {
        widths.pop();
        left_out.insert(0, table.head[widths.len()].as_str());
    }
    widths[1] = widths[1].min(WIDTH.saturating_sub(others(&widths)).max(NARROWEST_TITLE));
    let head = join_cells(&align_cells(&table.head, &widths));
    write_line(out, &paint(ink, BOLD, head.trim_end()));
    for row in &table.rows {
        write_line(out, join_cells(&paint_row(row, &widths, ink)).trim_end());
    }
    if !left_out.is_empty() {
        write_paragraph(out, "", &format!("Not shown here, but on the page: {}.", left_out.join(", ")));
    }
    write_paragraph(
        out,
        "",
        &format!(
            "Overheads are relative to {}{} in the same round, with {:.0}% intervals; \"no effect\" is within ±{}.",
            run.baseline,
            other_reference_suffix(run),
            100.0 * (1.0 - run.alpha),
            describe_margin(run)
        ),
    );
    if let Some(told) = notes::describe_long_windows(run) {
        write_paragraph(out, "", &told);
    }
    for arm in run.arms.iter().filter(|arm| arm.unavailable.is_some()) {
        let why = arm.unavailable.as_deref().unwrap_or_default();
        write_paragraph(out, "  ", &format!("{} ({}) not measured: {why}", arm.name, arm.title));
    }
}

/// Space before a column. Plain figures are right-aligned, which separates them already.
fn column_gap(column: usize) -> &'static str {
    match column {
        0 => "",
        column if column <= LEADING_COLUMNS + INTERVAL_COLUMNS => "  ",
        _ => " ",
    }
}

fn join_cells(cells: &[String]) -> String {
    cells.iter().enumerate().flat_map(|(i, cell)| [column_gap(i), cell.as_str()]).collect()
}

/// Names, descriptions and overheads left-aligned, plain figures right-aligned. As many cells as there are
/// widths.
fn align_cells(cells: &[String], widths: &[usize]) -> Vec<String> {
    let pad = |(i, (cell, &width)): (usize, (&String, &usize))| {
        let cell = clip(cell, width);
        let blanks = " ".repeat(width - cell.chars().count());
        if i < LEADING_COLUMNS + INTERVAL_COLUMNS { cell + &blanks } else { blanks + &cell }
    };
    cells.iter().zip(widths).enumerate().map(pad).collect()
}

fn paint_row(row: &Row, widths: &[usize], ink: ColourMode) -> Vec<String> {
    let mut cells = align_cells(&row.cells, widths);
    for (cell, verdict) in cells.iter_mut().skip(LEADING_COLUMNS).zip(&row.verdicts).take(INTERVAL_COLUMNS) {
        let colour = match verdict {
            Verdict::Costly => RED,
            Verdict::Cheaper | Verdict::NoEffect => GREEN,
            Verdict::Unclear => YELLOW,
            Verdict::Baseline | Verdict::NoInterval | Verdict::NotCompared => continue,
        };
        *cell = paint(ink, colour, cell);
    }
    if !row.is_treatment {
        cells[1] = paint(ink, DIM, &cells[1]);
    }
    cells
}

fn write_section<'a>(
    out: &mut String,
    ink: ColourMode,
    title: &str,
    items: impl Iterator<Item = (&'a str, String)>,
) {
    let items: Vec<(&str, String)> = items.collect();
    if items.is_empty() {
        return;
    }
    out.push('\n');
    write_line(out, &paint(ink, BOLD, title));
    let width = items.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    for (label, text) in items {
        let blanks = " ".repeat(width - label.chars().count());
        write_paragraph(out, &format!("  {label}{blanks} "), &text);
    }
}

fn write_warnings(out: &mut String, run: &RunResult, ink: ColourMode) {
    if run.warnings.is_empty() {
        return;
    }
    out.push('\n');
    write_line(out, &paint(ink, BOLD, "Warnings"));
    for group in notes::group_warnings(run) {
        for warning in &group {
            let begin = out.len();
            write_paragraph(out, "  ! ", &format!("{}: {}", warning.code, warning.text));
            if ink == ColourMode::Ansi {
                let painted = paint(ink, YELLOW, out[begin..].trim_end_matches('\n'));
                out.truncate(begin);
                write_line(out, &painted);
            }
        }
        write_paragraph(out, "      ", &group[0].advice);
    }
}

/// Wraps to the width, further lines indented by the length of `lead`.
fn write_paragraph(out: &mut String, lead: &str, text: &str) {
    let indent = " ".repeat(lead.chars().count());
    // What is longer than a line is a path or a command: broken, it could not be pasted.
    let options = Options::new(WIDTH)
        .initial_indent(lead)
        .subsequent_indent(&indent)
        .break_words(false)
        .word_splitter(WordSplitter::NoHyphenation);
    write_line(out, &textwrap::fill(text, options));
}

/// Cuts to `width` characters; the last one marks the cut.
fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

fn write_line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

const BOLD: &str = "1";
const DIM: &str = "2";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

fn paint(ink: ColourMode, colour: &str, text: &str) -> String {
    match ink {
        ColourMode::Plain => text.to_owned(),
        ColourMode::Ansi => format!("\x1b[{colour}m{text}\x1b[0m"),
    }
}
