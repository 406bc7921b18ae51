//! Report of a run as CommonMark with one GitHub table, for a pull request or a document.
//!
//! It has the same facts as the terminal's whole report.

use super::table::{INTERVAL_COLUMNS, LEADING_COLUMNS, Table, other_reference_suffix};
use super::{chart_tables, checks, dose_lines, findings, notes, pooled};
use std::fmt::Write;
use toll_analysis::describe_margin;
use toll_record::RunResult;

/// One run. Ends with a newline.
pub fn markdown(run: &RunResult) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write_report(&mut out, run);
    out
}

fn write_report(out: &mut String, run: &RunResult) -> std::fmt::Result {
    writeln!(
        out,
        "## {} ({})\n\n{}\n\n**{}** {}\n",
        run.scenario,
        run.profile,
        escape_markdown(&run.question),
        escape_markdown(&run.answer),
        escape_markdown(&checks::describe_resolution(run))
    )?;
    let table = Table::of(run);
    if table.rows.is_empty() {
        writeln!(out, "No window was measured.\n")?;
    } else {
        let rules = (0..table.head.len())
            .map(|i| if i < LEADING_COLUMNS + INTERVAL_COLUMNS { "---" } else { "---:" });
        let rules: Vec<&str> = rules.collect();
        writeln!(out, "| {} |\n|{}|", table.head.join(" | "), rules.join("|"))?;
        for row in &table.rows {
            let cells: Vec<String> = row.cells.iter().map(|cell| escape_markdown(cell)).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        writeln!(
            out,
            "\nOverheads are relative to `{}`{} in the same round, with {:.0}% confidence intervals; \"equivalent\" is within ±{}.\n",
            run.baseline,
            other_reference_suffix(run),
            100.0 * (1.0 - run.alpha),
            describe_margin(run)
        )?;
        if let Some(told) = notes::describe_long_windows(run) {
            writeln!(out, "{}\n", escape_markdown(&told))?;
        }
    }
    for arm in &run.arms {
        if let Some(why) = &arm.unavailable {
            writeln!(
                out,
                "- `{}` ({}) not measured: {}",
                arm.name,
                escape_markdown(&arm.title),
                escape_markdown(why)
            )?;
        }
    }
    if let Some(parts) = &run.parts {
        writeln!(out, "\n{}", pooled::markdown_table(parts))?;
    }
    for chart in chart_tables::tables(&run.charts) {
        writeln!(out, "\n### {}\n\n{}", escape_markdown(&chart.title), chart_tables::markdown(&chart))?;
    }
    if !run.advice.is_empty() {
        writeln!(out, "\n### Advice\n")?;
        for sentence in &run.advice {
            writeln!(out, "- {}", escape_markdown(sentence))?;
        }
    }
    let doses = dose_lines::dose_report_lines(run);
    if !doses.is_empty() {
        writeln!(out, "\n### Doses\n")?;
    }
    for (arm, dose) in doses {
        writeln!(out, "- {}: {}", escape_markdown(arm), escape_markdown(&dose))?;
    }
    let ledgers = findings::packet_accounting_lines(run);
    let ledgers = ledgers.iter().map(|(arms, told)| (arms.as_str(), told.clone())).collect();
    let sections = [
        ("Contrasts", findings::contrast_lines(run)),
        ("Pauses", findings::pause_lines(run)),
        ("Limits", findings::limit_lines(run)),
        ("Packets", ledgers),
    ];
    for (title, lines) in sections {
        if !lines.is_empty() {
            writeln!(out, "\n### {title}\n")?;
        }
        for (what, found) in lines {
            writeln!(out, "- {}: {}", escape_markdown(what), escape_markdown(&found))?;
        }
    }
    let notes = notes::note_lines(run);
    if !notes.is_empty() {
        writeln!(out, "\n### Notes\n")?;
    }
    for (arms, note) in notes {
        writeln!(out, "- {}: {}", escape_markdown(&arms), escape_markdown(note))?;
    }
    writeln!(out, "\n### Checks\n")?;
    for (what, fact) in checks::check_lines(run) {
        if what == "again" {
            writeln!(out, "- again: `{fact}`")?;
        } else {
            writeln!(out, "- {what}: {}", escape_markdown(&fact))?;
        }
    }
    if !run.warnings.is_empty() {
        writeln!(out, "\n### Warnings\n")?;
        for group in notes::group_warnings(run) {
            let texts: Vec<String> = group.iter().map(|warning| escape_markdown(&warning.text)).collect();
            writeln!(
                out,
                "- **{}**: {}. _{}_",
                group[0].code,
                texts.join("; "),
                escape_markdown(&group[0].advice)
            )?;
        }
    }
    Ok(())
}

/// Escapes text, so that a table cell or a list item shows it unchanged.
pub(super) fn escape_markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '`' | '<' | '[' | '\\' => out.extend(['\\', c]),
            '\n' | '\r' => out.push(' '),
            c => out.push(c),
        }
    }
    out
}
