//! Report of a run for a terminal, at most 100 columns.
//!
//! The first screen has the result, the checks, the overheads and the warnings in short. The whole report adds every
//! metric, the notes, and the warnings in full. Never reads the environment: the caller decides on colours.

use super::table::{LEADING_COLUMNS, Table, other_reference_suffix};
use super::{chart_tables, checks, dose_lines, findings, notes, overhead_table, parties, pooled};
use textwrap::{Options, WordSplitter};
use toll_analysis::describe_margin;
use toll_record::{RunResult, Verdict};
use toll_sys::count_format::format_count;

/// Most columns of a report.
pub const WIDTH: usize = 100;
/// Narrowest useful description, characters.
const NARROWEST_TITLE: usize = 12;
/// Longest sentence of advice on the first screen, characters: two lines.
const LONGEST_BRIEF: usize = 190;
/// Most sentences of advice, and groups of warnings, on the first screen.
const MOST_ADVICE: usize = 1;
const MOST_WARNINGS: usize = 3;
/// Most rows of the first screen where a chart has the same.
const MOST_ROWS: usize = 30;
/// Warnings that the checks above them say already.
const IN_CHECKS: [&str; 4] = ["low-power", "noisy", "aa-failed", "control-missed"];

/// Colouring of important words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColourMode {
    Plain,
    Ansi,
}

/// Extent of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// What fits one screen.
    Brief,
    All,
}

/// The report of one run. Ends with a newline.
pub fn text(run: &RunResult, ink: ColourMode, detail: Detail) -> String {
    let mut out = String::new();
    write_heading(&mut out, run, ink);
    write_result(&mut out, run, ink);
    if run.arms.iter().all(|arm| arm.windows == 0) {
        out.push('\n');
        write_line(&mut out, "No window was measured.");
    }
    let begin = out.len();
    // A long sweep is a chart below, which has it all in a few lines.
    let is_charted = chart_tables::tables(&run.charts).next().is_some();
    if detail == Detail::All || !is_charted || overhead_table::rows(run) <= MOST_ROWS {
        overhead_table::write(&mut out, run, ink);
    }
    if out.len() > begin {
        out.insert(begin, '\n');
    }
    for arm in run.arms.iter().filter(|arm| arm.unavailable.is_some()) {
        let why = arm.unavailable.as_deref().unwrap_or_default();
        write_paragraph(&mut out, "  ", &format!("{} ({}) not measured: {why}", arm.name, arm.title));
    }
    if let Some(parts) = &run.parts {
        out.push('\n');
        out += &pooled::table(parts);
    }
    for chart in chart_tables::tables(&run.charts) {
        out.push('\n');
        write_line(&mut out, &bold(ink, &chart.title));
        out += &chart_tables::text(&chart);
    }
    write_section(&mut out, ink, "Doses", dose_lines::dose_report_lines(run).into_iter());
    let mut contrasts = findings::contrast_lines(run);
    if detail == Detail::Brief {
        let known = |name: &str| run.contrasts.iter().any(|c| c.name == name && c.ratio.is_some());
        contrasts.retain(|(name, _)| known(name));
    }
    write_section(&mut out, ink, "Contrasts", contrasts.into_iter());
    write_section(&mut out, ink, "Pauses", findings::pause_lines(run).into_iter());
    write_section(&mut out, ink, "Limits", findings::limit_lines(run).into_iter());
    let packets = findings::packet_accounting_lines(run);
    write_section(
        &mut out,
        ink,
        "Packets",
        packets.iter().map(|(arms, found)| (arms.as_str(), found.clone())),
    );
    match detail {
        Detail::Brief => write_brief_warnings(&mut out, run, ink),
        Detail::All => write_details(&mut out, run, ink),
    }
    out
}

/// Scenario and conditions on one line, the question below.
fn write_heading(out: &mut String, run: &RunResult, ink: ColourMode) {
    let mut heading = format!("{} ({})", run.scenario, run.profile);
    let mut facts = checks::brief_conditions(run);
    let fits = |facts: &[String]| heading.chars().count() + 3 + facts.join(", ").chars().count() <= WIDTH;
    while !facts.is_empty() && !fits(&facts) {
        facts.pop();
    }
    if !facts.is_empty() {
        let facts = facts.join(", ");
        let blanks = WIDTH - heading.chars().count() - facts.chars().count();
        heading += &format!("{}{facts}", " ".repeat(blanks));
    }
    write_line(out, &bold(ink, &heading));
    write_paragraph(out, "", &run.question);
    if !run.complete {
        write_line(out, &paint(ink, YELLOW, "This run is incomplete: see the warnings."));
    }
}

fn write_result(out: &mut String, run: &RunResult, ink: ColourMode) {
    out.push('\n');
    write_labelled(out, ink, "RESULT", &run.answer);
    for sentence in brief_advice(run) {
        write_paragraph(out, LABEL_BLANKS, sentence);
    }
    let mut lines: Vec<String> = Vec::new();
    for check in checks::brief_checks(run) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 3 + check.chars().count() <= WIDTH - LABEL_BLANKS.len() => {
                line.push_str("   ");
                line.push_str(&check);
            }
            _ => lines.push(check),
        }
    }
    lines.push(checks::describe_resolution(run));
    for (i, line) in lines.iter().enumerate() {
        match i {
            0 => write_labelled(out, ink, "CHECKS", line),
            _ => write_paragraph(out, LABEL_BLANKS, line),
        }
    }
}

/// Advice of the first screen.
fn brief_advice(run: &RunResult) -> impl Iterator<Item = &String> {
    run.advice.iter().filter(|sentence| sentence.chars().count() <= LONGEST_BRIEF).take(MOST_ADVICE)
}

/// Everything beyond the first screen.
fn write_details(out: &mut String, run: &RunResult, ink: ColourMode) {
    let by_party = parties::party_lines(run);
    if !by_party.is_empty() {
        out.push('\n');
        write_line(out, &bold(ink, "Instructions per query, by party"));
        by_party.iter().for_each(|line| write_line(out, line));
    }
    write_metrics(out, run, ink);
    write_section(out, ink, "Advice", run.advice.iter().map(|sentence| ("-", sentence.clone())));
    let notes = notes::note_lines(run).into_iter().map(|(arms, note)| ("-", format!("{arms}: {note}")));
    write_section(out, ink, "Notes", notes);
    write_section(out, ink, "Checks", checks::check_lines(run).into_iter());
    write_warnings(out, run, ink);
}

/// Every column of the run, for all variants, baseline and controls among them.
fn write_metrics(out: &mut String, run: &RunResult, ink: ColourMode) {
    let table = Table::of(run);
    if table.rows.is_empty() {
        return;
    }
    let mut widths: Vec<usize> = table.head.iter().map(|head| head.chars().count()).collect();
    for row in &table.rows {
        for (width, cell) in widths.iter_mut().zip(&row.cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let others = |widths: &[usize]| widths.iter().sum::<usize>() + GAP.len() * (widths.len() - 1) - widths[1];
    let mut left_out = Vec::new();
    while widths.len() > LEADING_COLUMNS + 1 && others(&widths) + NARROWEST_TITLE > WIDTH {
        widths.pop();
        left_out.insert(0, table.head[widths.len()].as_str());
    }
    widths[1] = widths[1].min(WIDTH.saturating_sub(others(&widths)).max(NARROWEST_TITLE));
    out.push('\n');
    write_line(out, &bold(ink, "Metrics"));
    for cells in std::iter::once(&table.head).chain(table.rows.iter().map(|row| &row.cells)) {
        write_line(out, align_cells(cells, &widths).join(GAP).trim_end());
    }
    if !left_out.is_empty() {
        write_paragraph(out, "", &format!("Only on the page: {}.", left_out.join(", ")));
    }
    let relative = format!(
        "Relative to {}{} in the same round, with {:.0}% confidence intervals; \"equivalent\" is within ±{}.",
        run.baseline,
        other_reference_suffix(run),
        100.0 * (1.0 - run.alpha),
        describe_margin(run)
    );
    write_paragraph(out, "", &relative);
    if let Some(windows) = notes::describe_long_windows(run) {
        write_paragraph(out, "", &windows);
    }
}

const GAP: &str = "  ";

/// Words left-aligned, figures right-aligned. As many cells as there are widths.
fn align_cells(cells: &[String], widths: &[usize]) -> Vec<String> {
    let pad = |(i, (cell, &width)): (usize, (&String, &usize))| {
        let cell = clip(cell, width);
        let blanks = " ".repeat(width - cell.chars().count());
        if i < LEADING_COLUMNS { cell + &blanks } else { blanks + &cell }
    };
    cells.iter().zip(widths).enumerate().map(pad).collect()
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
    write_line(out, &bold(ink, title));
    let width = items.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    for (label, text) in items {
        let blanks = " ".repeat(width - label.chars().count());
        write_paragraph(out, &format!("  {label}{blanks} "), &text);
    }
}

/// The first line of each kind of warning.
fn write_brief_warnings(out: &mut String, run: &RunResult, ink: ColourMode) {
    let mut groups = notes::group_warnings(run);
    groups.retain(|group| !IN_CHECKS.contains(&group[0].code.as_str()));
    if groups.is_empty() {
        return;
    }
    out.push('\n');
    for (i, group) in groups.iter().take(MOST_WARNINGS).enumerate() {
        let label = if i == 0 { "WARNINGS " } else { LABEL_BLANKS };
        let more = match group.len() {
            1 => String::new(),
            several => format!(" (and {} more)", several - 1),
        };
        let room = WIDTH - LABEL_BLANKS.len() - more.chars().count();
        write_line(out, &paint(ink, YELLOW, &format!("{label}{}{more}", clip(&group[0].text, room))));
    }
    if groups.len() > MOST_WARNINGS {
        let more = format_count((groups.len() - MOST_WARNINGS) as u64, "more kind");
        write_line(out, &format!("{LABEL_BLANKS}and {more} of warnings"));
    }
}

fn write_warnings(out: &mut String, run: &RunResult, ink: ColourMode) {
    if run.warnings.is_empty() {
        return;
    }
    out.push('\n');
    write_line(out, &bold(ink, "Warnings"));
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

const LABEL_BLANKS: &str = "         ";

/// `RESULT   text`, further lines below the text.
fn write_labelled(out: &mut String, ink: ColourMode, label: &str, text: &str) {
    let begin = out.len();
    write_paragraph(out, &format!("{label:<width$}", width = LABEL_BLANKS.len()), text);
    let painted = bold(ink, label);
    out.replace_range(begin..begin + label.len(), &painted);
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
pub fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

pub fn write_line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

const BOLD: &str = "1";
const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";

pub fn bold(ink: ColourMode, text: &str) -> String {
    paint(ink, BOLD, text)
}

/// A row in the colour of its verdict.
pub fn paint_verdict(ink: ColourMode, verdict: Verdict, text: &str) -> String {
    match verdict {
        Verdict::Costly => paint(ink, RED, text),
        Verdict::Cheaper | Verdict::NoEffect => paint(ink, GREEN, text),
        Verdict::Unclear => paint(ink, YELLOW, text),
        Verdict::Baseline | Verdict::NoInterval | Verdict::NotCompared => text.to_owned(),
    }
}

fn paint(ink: ColourMode, colour: &str, text: &str) -> String {
    match ink {
        ColourMode::Plain => text.to_owned(),
        ColourMode::Ansi => format!("\x1b[{colour}m{text}\x1b[0m"),
    }
}
