//! Table of overheads for a terminal: treatments by verdict, each with its interval as figures and as a bar.
//!
//! The baseline and the controls have no row: the checks above the table cover them.

use super::axis::Axis;
use super::interval_bar::Bars;
use super::terminal::{Terminal, clip};
use std::collections::BTreeSet;
use toll_analysis::estimate_format::{self, format_brief, format_ends, verdict_word};
use toll_analysis::{COMPLETE_SHARE, describe_margin, harm, judged_outcome, judged_outcome_name};
use toll_record::catalogue::find_definition;
use toll_record::{
    Aggregate, ArmResult, ArtefactColumn, Compare, Definition, LoadColumn, Outcome, Role, RunResult, Source,
    Verdict,
};
use toll_sys::number_format::{capitalise, format_value};

/// Narrowest title that says anything, characters.
const NARROWEST_TITLE: usize = 16;
const NARROWEST_BAR: usize = 20;
const WIDEST_BAR: usize = 32;
/// Most columns beside the judged outcome.
const MOST_EXTRAS: usize = 4;
/// Verdicts in the order of groups.
const ORDER: [Verdict; 6] = [
    Verdict::Costly,
    Verdict::Cheaper,
    Verdict::NoEffect,
    Verdict::Unclear,
    Verdict::NoInterval,
    Verdict::NotCompared,
];

/// A treatment with the outcome of its verdict.
#[derive(Clone, Copy)]
struct Row<'a> {
    arm: &'a ArmResult,
    outcome: &'a Outcome,
}

/// Treatments with one heading.
struct Group<'a> {
    heading: String,
    rows: Vec<Row<'a>>,
}

/// Number of treatments that have a row.
pub fn count_rows(run: &RunResult) -> usize {
    rows(run).count()
}

/// Measured treatments with the outcome of their verdict.
fn rows(run: &RunResult) -> impl Iterator<Item = Row<'_>> {
    let measured = run.arms.iter().filter(|arm| arm.role == Role::Treatment && arm.windows > 0);
    measured.filter_map(|arm| Some(Row { arm, outcome: judged_outcome(run, arm)? }))
}

/// Appends the table. Nothing, if no treatment was measured.
pub fn write(term: &mut Terminal, run: &RunResult) {
    let rows: Vec<Row> = rows(run).collect();
    if rows.is_empty() {
        return;
    }
    let layout = Layout::of(run, &rows, term.width);
    term.bold_line(&title(run, &rows, layout.has_hidden));
    term.bold_line(layout.head().trim_end());
    for group in groups(run, &rows) {
        term.line(&group.heading);
        for row in &group.rows {
            term.verdict_line(row.outcome.verdict, layout.line(*row).trim_end());
        }
    }
}

/// `Mean response time vs none (2.70 ms), 95% CI`
fn title(run: &RunResult, rows: &[Row], has_hidden: bool) -> String {
    let heading = capitalise(
        find_definition(&run.definitions, &run.primary).map_or(run.primary.as_str(), |o| &o.title),
    );
    let vs = match &references(rows)[..] {
        [one] => format!(" vs {}", describe_reference(run, one.unwrap_or(&run.baseline), &run.primary)),
        _ => String::new(),
    };
    let hidden = if has_hidden { "; ~ includes 0" } else { "" };
    format!("{heading}{vs}, {:.0}% CI{hidden}", 100.0 * (1.0 - run.alpha))
}

/// What the rows are compared with, in their order.
fn references<'a>(rows: &[Row<'a>]) -> Vec<Option<&'a str>> {
    let mut seen = Vec::new();
    for row in rows {
        let reference = row.arm.against.as_deref();
        if !seen.contains(&reference) {
            seen.push(reference);
        }
    }
    seen
}

/// A baseline's name and its own value.
fn describe_reference(run: &RunResult, name: &str, outcome: &str) -> String {
    let arm = run.arms.iter().find(|arm| arm.name == name);
    match arm.and_then(|arm| arm.outcomes.get(outcome)) {
        Some(own) => format!("{name} ({})", format_value(own.mean, &own.unit)),
        None => name.to_owned(),
    }
}

fn groups<'a>(run: &RunResult, rows: &[Row<'a>]) -> Vec<Group<'a>> {
    let all = references(rows);
    let outcomes: BTreeSet<&str> = rows.iter().map(|row| judged_outcome_name(run, row.arm)).collect();
    let captures = rows.iter().any(|row| completeness_of(row).is_some());
    let mut groups = Vec::new();
    for reference in &all {
        for verdict in ORDER {
            for completeness in [Some(true), None, Some(false)] {
                let belongs = |row: &&Row| {
                    row.arm.against.as_deref() == *reference
                        && row.outcome.verdict == verdict
                        && completeness_of(row) == completeness
                };
                let mut of_group: Vec<Row> = rows.iter().filter(belongs).copied().collect();
                let Some(first) = of_group.first() else { continue };
                let outcome = judged_outcome_name(run, first.arm);
                let mut heading = name_verdict(run, outcome, verdict);
                if all.len() > 1 {
                    let name = reference.unwrap_or(&run.baseline);
                    heading += &format!(" vs {}", describe_reference(run, name, outcome));
                }
                heading += match completeness {
                    Some(true) => ", captures every query",
                    Some(false) => ", misses queries",
                    None if verdict == Verdict::Costly && captures => ", queries not counted",
                    None => "",
                };
                if outcomes.len() > 1 {
                    let title = find_definition(&run.definitions, outcome).map_or(outcome, |o| &o.title);
                    heading += &format!(", in {title}");
                }
                of_group.sort_by(|a, b| harm(a.outcome).total_cmp(&harm(b.outcome)));
                if let Some(meaning) = explain_verdict(run, outcome, verdict) {
                    heading += &format!(": {meaning}");
                }
                groups.push(Group { heading, rows: of_group });
            }
        }
    }
    groups
}

/// Whether a costly capture has every query. `None` where that is not what decides.
fn completeness_of(row: &Row) -> Option<bool> {
    let ratio = row.arm.captured_ratio.filter(|_| row.outcome.verdict == Verdict::Costly)?;
    Some(ratio >= COMPLETE_SHARE)
}

fn name_verdict(run: &RunResult, outcome: &str, verdict: Verdict) -> String {
    match verdict {
        Verdict::NoEffect if !has_margin(run, outcome) => "Equal".to_owned(),
        Verdict::NoInterval => "Undecided".to_owned(),
        Verdict::NotCompared => "Measured by itself".to_owned(),
        _ => capitalise(verdict_word(run, outcome, verdict)),
    }
}

fn explain_verdict(run: &RunResult, outcome: &str, verdict: Verdict) -> Option<String> {
    match verdict {
        Verdict::NoEffect if has_margin(run, outcome) => Some(format!("within ±{}", describe_margin(run))),
        Verdict::NoEffect => Some("no difference in any window".to_owned()),
        Verdict::Unclear => Some("the interval includes 0".to_owned()),
        Verdict::NoInterval => Some("too few rounds for an interval".to_owned()),
        _ => None,
    }
}

fn has_margin(run: &RunResult, outcome: &str) -> bool {
    let definition = find_definition(&run.definitions, outcome);
    definition.is_none_or(|outcome| outcome.compare == Compare::LogRatio || outcome.margin.is_some())
}

/// A column beside the judged outcome.
struct Extra<'a> {
    head: String,
    definition: &'a Definition,
    width: usize,
}

/// Widths of the columns, and what they draw from.
struct Layout<'a> {
    name: usize,
    title: usize,
    estimate: usize,
    /// Width of either end of an interval; none where no row has one.
    ends: Option<[usize; 2]>,
    bars: Option<Bars>,
    extras: Vec<Extra<'a>>,
    has_hidden: bool,
}

impl<'a> Layout<'a> {
    fn of(run: &'a RunResult, rows: &[Row], width: usize) -> Self {
        let widest = |of: &dyn Fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let ends = |row: &Row, i: usize| format_ends(row.outcome).map_or(0, |ends| ends[i].chars().count());
        let ends = [widest(&|row| ends(row, 0)), widest(&|row| ends(row, 1))];
        let mut layout = Layout {
            name: widest(&|row| row.arm.name.chars().count()).max("variant".len()),
            title: 0,
            estimate: widest(&|row| format_brief(row.outcome).chars().count()),
            ends: (ends[0] > 0).then_some(ends),
            bars: Axis::over(rows.iter().map(|row| row.outcome)).map(|axis| Bars::new(axis, NARROWEST_BAR)),
            extras: extras(run, rows),
            has_hidden: false,
        };
        let full_title = widest(&|row| row.arm.title.chars().count());
        while layout.fixed_width() + NARROWEST_TITLE.min(full_title) + 2 > width
            && layout.extras.pop().is_some()
        {}
        let left = width.saturating_sub(layout.fixed_width() + 2);
        layout.title = full_title.min(left);
        if let Some(bars) = &mut layout.bars {
            bars.width = (bars.width + left - layout.title).min(WIDEST_BAR);
        }
        let is_hidden = |row: &Row, extra: &Extra| extra_cell(row, extra.definition) == "~";
        layout.has_hidden = rows.iter().any(|row| layout.extras.iter().any(|extra| is_hidden(row, extra)));
        layout
    }

    /// All columns but the title.
    fn fixed_width(&self) -> usize {
        let ends = self.ends.map_or(0, |[low, high]| low + high + 5);
        let bar = self.bars.as_ref().map_or(0, |bars| bars.width + 2);
        let extras: usize = self.extras.iter().map(|extra| extra.width + 2).sum();
        2 + self.name + 2 + self.estimate + ends + bar + extras
    }

    fn head(&self) -> String {
        let mut line = format!("  {:<name$}", "variant", name = self.name);
        if self.title > 0 {
            line += &format!("  {:<title$}", "", title = self.title);
        }
        line += &format!("  {:>width$}", "", width = self.estimate);
        if let Some([low, high]) = self.ends {
            line += &format!(" {:<width$}", "", width = low + high + 4);
        }
        if let Some(bars) = &self.bars {
            line += &format!("  {}", bars.labels());
        }
        for extra in &self.extras {
            line += &format!("  {:>width$}", extra.head, width = extra.width);
        }
        line
    }

    fn line(&self, row: Row) -> String {
        let mut line = format!("  {:<name$}", row.arm.name, name = self.name);
        if self.title > 0 {
            line += &format!("  {:<title$}", clip(&row.arm.title, self.title), title = self.title);
        }
        line += &format!("  {:>width$}", format_brief(row.outcome), width = self.estimate);
        if let Some([low_width, high_width]) = self.ends {
            line += &match format_ends(row.outcome) {
                Some([low, high]) => format!(" [{low:>low_width$}, {high:>high_width$}]"),
                None => " ".repeat(low_width + high_width + 5),
            };
        }
        if let Some(bars) = &self.bars {
            line += &format!("  {}", bars.bar(row.outcome));
        }
        for extra in &self.extras {
            line += &format!("  {:>width$}", extra_cell(&row, extra.definition), width = extra.width);
        }
        line
    }
}

/// Columns beside the judged outcome: p99, what the output holds, then the run's other columns. A rate of the load is the
/// inverse of its response times, and what is zero everywhere says nothing.
fn extras<'a>(run: &'a RunResult, rows: &[Row]) -> Vec<Extra<'a>> {
    let p99 = |definition: &Definition| {
        definition.source == Source::Latency && definition.aggregate == Aggregate::Quantile(0.99)
    };
    let is_rate = |definition: &Definition| {
        matches!(definition.source, Source::Load { column: LoadColumn::Statements | LoadColumn::Events })
    };
    let of_output = |definition: &&Definition| matches!(definition.source, Source::Artefact { .. });
    let columns: Vec<&Definition> =
        run.columns.iter().filter_map(|name| find_definition(&run.definitions, name)).collect();
    let (of_output, others): (Vec<_>, Vec<_>) = columns.into_iter().partition(of_output);
    let p99 = run.definitions.iter().filter(|definition| p99(definition));
    let mut found: Vec<Extra> = Vec::new();
    for definition in p99.chain(of_output).chain(others) {
        let is_known =
            definition.name == run.primary || found.iter().any(|e| e.definition.name == definition.name);
        let mut cells = rows.iter().map(|row| extra_cell(row, definition));
        let says_something = |cell: String| cell != "~" && cell.contains(|c| matches!(c, '1'..='9'));
        if is_known || is_rate(definition) || !cells.any(says_something) {
            continue;
        }
        let head = match definition.aggregate {
            Aggregate::Quantile(of) if definition.source == Source::Latency => format!("p{}", 100.0 * of),
            Aggregate::Mean if definition.source == Source::Latency => "mean".to_owned(),
            _ => definition.column_title().to_owned(),
        };
        let cells = rows.iter().map(|row| extra_cell(row, definition).chars().count());
        let width = cells.max().unwrap_or(0).max(head.chars().count());
        found.push(Extra { head, definition, width });
    }
    found.truncate(MOST_EXTRAS);
    found
}

/// A value beside the judged outcome: `~` if it cannot be told from the baseline's.
fn extra_cell(row: &Row, definition: &Definition) -> String {
    if let (Source::Artefact { column: ArtefactColumn::QueriesShare }, Some(ratio)) =
        (&definition.source, row.arm.captured_ratio)
    {
        return format!("{:.1}%", 100.0 * ratio);
    }
    let Some(outcome) = row.arm.outcomes.get(&definition.name) else { return "-".to_owned() };
    let includes_zero =
        estimate_format::interval_of(outcome).is_some_and(|[low, high]| low <= 0.0 && high >= 0.0);
    match outcome.verdict {
        Verdict::NotCompared | Verdict::Baseline => format_brief(outcome),
        _ if includes_zero => "~".to_owned(),
        _ => format_brief(outcome),
    }
}
