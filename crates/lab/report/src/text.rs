//! Report of a run for a terminal.
//!
//! The first screen has the result, the checks, the overheads and the warnings in short. The whole report adds every
//! metric, the notes, and the warnings in full.

use super::table::{LEADING_COLUMNS, Table, other_reference_suffix};
pub use super::terminal::ColourMode;
use super::terminal::{Terminal, WIDTH, clip};
use super::{chart_tables, checks, dose_lines, findings, notes, overhead_table, parties, pooled};
use toll_analysis::describe_margin;
use toll_record::RunResult;
use toll_sys::count_format::format_count;

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

/// Extent of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// What fits one screen of so many columns.
    Brief {
        columns: usize,
    },
    All,
}

/// The report of one run. Ends with a newline.
pub fn text(run: &RunResult, ink: ColourMode, detail: Detail) -> String {
    let columns = match detail {
        Detail::Brief { columns } => columns,
        Detail::All => WIDTH,
    };
    let term = &mut Terminal::new(ink, columns);
    write_heading(term, run);
    write_result(term, run);
    if run.arms.iter().all(|arm| arm.windows == 0) {
        term.blank();
        term.line("No window was measured.");
    }
    let begin = term.out.len();
    // A long sweep is a chart below, which has it all in a few lines.
    let is_charted = chart_tables::tables(&run.charts).next().is_some();
    if detail == Detail::All || !is_charted || overhead_table::count_rows(run) <= MOST_ROWS {
        overhead_table::write(term, run);
    }
    if term.out.len() > begin {
        term.out.insert(begin, '\n');
    }
    for arm in run.arms.iter().filter(|arm| arm.unavailable.is_some()) {
        let why = arm.unavailable.as_deref().unwrap_or_default();
        term.paragraph("  ", &format!("{} ({}) not measured: {why}", arm.name, arm.title));
    }
    if let Some(parts) = &run.parts {
        term.blank();
        term.out += &pooled::table(parts);
    }
    for chart in chart_tables::tables(&run.charts) {
        term.blank();
        term.bold_line(&chart.title);
        term.out += &chart_tables::text(&chart);
    }
    write_section(term, "Doses", dose_lines::dose_report_lines(run).into_iter());
    let mut contrasts = findings::contrast_lines(run);
    if detail != Detail::All {
        let known = |name: &str| run.contrasts.iter().any(|c| c.name == name && c.ratio.is_some());
        contrasts.retain(|(name, _)| known(name));
    }
    write_section(term, "Contrasts", contrasts.into_iter());
    write_section(term, "Pauses", findings::pause_lines(run).into_iter());
    write_section(term, "Limits", findings::limit_lines(run).into_iter());
    let packets = findings::packet_accounting_lines(run);
    write_section(term, "Packets", packets.iter().map(|(arms, found)| (arms.as_str(), found.clone())));
    if detail != Detail::All && overhead_table::count_rows(run) == 0 && run.doses.is_empty() {
        // The baseline alone, say: its own figures are all there is.
        write_metrics(term, run);
    }
    match detail {
        Detail::Brief { .. } => write_brief_warnings(term, run),
        Detail::All => write_details(term, run),
    }
    std::mem::take(&mut term.out)
}

/// Scenario and conditions on one line, the question below.
fn write_heading(term: &mut Terminal, run: &RunResult) {
    let mut heading = format!("{} ({})", run.scenario, run.profile);
    let mut facts = checks::brief_conditions(run);
    let fits =
        |facts: &[String]| heading.chars().count() + 3 + facts.join(", ").chars().count() <= term.width;
    while !facts.is_empty() && !fits(&facts) {
        facts.pop();
    }
    if !facts.is_empty() {
        let facts = facts.join(", ");
        let blanks = term.width - heading.chars().count() - facts.chars().count();
        heading += &format!("{}{facts}", " ".repeat(blanks));
    }
    term.bold_line(&heading);
    term.paragraph("", &run.question);
    if !run.complete {
        term.yellow_line("This run is incomplete: see the warnings.");
    }
}

fn write_result(term: &mut Terminal, run: &RunResult) {
    term.blank();
    write_labelled(term, "RESULT", &run.answer);
    for sentence in brief_advice(run) {
        term.paragraph(LABEL_BLANKS, sentence);
    }
    let mut lines: Vec<String> = Vec::new();
    for check in checks::brief_checks(run) {
        match lines.last_mut() {
            Some(line)
                if line.chars().count() + 3 + check.chars().count() <= term.width - LABEL_BLANKS.len() =>
            {
                line.push_str("   ");
                line.push_str(&check);
            }
            _ => lines.push(check),
        }
    }
    lines.push(checks::describe_resolution(run));
    for (i, line) in lines.iter().enumerate() {
        match i {
            0 => write_labelled(term, "CHECKS", line),
            _ => term.paragraph(LABEL_BLANKS, line),
        }
    }
}

/// Advice of the first screen.
fn brief_advice(run: &RunResult) -> impl Iterator<Item = &String> {
    run.advice.iter().filter(|sentence| sentence.chars().count() <= LONGEST_BRIEF).take(MOST_ADVICE)
}

/// Everything beyond the first screen.
fn write_details(term: &mut Terminal, run: &RunResult) {
    let by_party = parties::party_lines(run);
    if !by_party.is_empty() {
        term.blank();
        term.bold_line("Instructions per query, by party");
        by_party.iter().for_each(|line| term.line(line));
    }
    write_metrics(term, run);
    write_section(term, "Advice", run.advice.iter().map(|sentence| ("-", sentence.clone())));
    let notes = notes::note_lines(run).into_iter().map(|(arms, note)| ("-", format!("{arms}: {note}")));
    write_section(term, "Notes", notes);
    write_section(term, "Checks", checks::check_lines(run).into_iter());
    write_warnings(term, run);
}

/// Every column of the run, for all variants, baseline and controls among them.
fn write_metrics(term: &mut Terminal, run: &RunResult) {
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
    while widths.len() > LEADING_COLUMNS + 1 && others(&widths) + NARROWEST_TITLE > term.width {
        widths.pop();
        left_out.insert(0, table.head[widths.len()].as_str());
    }
    widths[1] = widths[1].min(term.width.saturating_sub(others(&widths)).max(NARROWEST_TITLE));
    term.blank();
    term.bold_line("Metrics");
    for cells in std::iter::once(&table.head).chain(table.rows.iter().map(|row| &row.cells)) {
        term.line(align_cells(cells, &widths).join(GAP).trim_end());
    }
    if !left_out.is_empty() {
        term.paragraph("", &format!("Only on the page: {}.", left_out.join(", ")));
    }
    let relative = format!(
        "Relative to {}{} in the same round, with {:.0}% confidence intervals; \"equivalent\" is within ±{}.",
        run.baseline,
        other_reference_suffix(run),
        100.0 * (1.0 - run.alpha),
        describe_margin(run)
    );
    term.paragraph("", &relative);
    if let Some(windows) = notes::describe_long_windows(run) {
        term.paragraph("", &windows);
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

fn write_section<'a>(term: &mut Terminal, title: &str, items: impl Iterator<Item = (&'a str, String)>) {
    let items: Vec<(&str, String)> = items.collect();
    if items.is_empty() {
        return;
    }
    term.blank();
    term.bold_line(title);
    let width = items.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    for (label, text) in items {
        let blanks = " ".repeat(width - label.chars().count());
        term.paragraph(&format!("  {label}{blanks} "), &text);
    }
}

/// The first line of each kind of warning.
fn write_brief_warnings(term: &mut Terminal, run: &RunResult) {
    let mut groups = notes::group_warnings(run);
    groups.retain(|group| !IN_CHECKS.contains(&group[0].code.as_str()));
    if groups.is_empty() {
        return;
    }
    term.blank();
    for (i, group) in groups.iter().take(MOST_WARNINGS).enumerate() {
        let label = if i == 0 { "WARNINGS " } else { LABEL_BLANKS };
        let more = match group.len() {
            1 => String::new(),
            several => format!(" (and {} more)", several - 1),
        };
        let room = term.width - LABEL_BLANKS.len() - more.chars().count();
        term.yellow_line(&format!("{label}{}{more}", clip(&group[0].text, room)));
    }
    if groups.len() > MOST_WARNINGS {
        let more = format_count((groups.len() - MOST_WARNINGS) as u64, "more kind");
        term.line(&format!("{LABEL_BLANKS}and {more} of warnings"));
    }
}

fn write_warnings(term: &mut Terminal, run: &RunResult) {
    if run.warnings.is_empty() {
        return;
    }
    term.blank();
    term.bold_line("Warnings");
    for group in notes::group_warnings(run) {
        for warning in &group {
            term.yellow_paragraph("  ! ", &format!("{}: {}", warning.code, warning.text));
        }
        term.paragraph("      ", &group[0].advice);
    }
}

const LABEL_BLANKS: &str = "         ";

/// `RESULT   text`, further lines below the text.
fn write_labelled(term: &mut Terminal, label: &str, text: &str) {
    let begin = term.out.len();
    term.paragraph(&format!("{label:<width$}", width = LABEL_BLANKS.len()), text);
    let painted = term.bold(label);
    term.out.replace_range(begin..begin + label.len(), &painted);
}
