//! Report of a run as CommonMark with one GitHub table, for a pull request or a document.
//!
//! It has the same facts as the terminal's.

use super::table::{LEADING, Table, WHOLE, or_another};
use super::{charted, doses, findings, notes, pooled, trust};
use std::fmt::Write;
use toll_analysis::margin;
use toll_record::RunResult;

/// One run. Ends with a newline.
pub fn markdown(run: &RunResult) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut out, run);
    out
}

fn write(out: &mut String, run: &RunResult) -> std::fmt::Result {
    writeln!(
        out,
        "## {} ({})\n\n{}\n\n**{}** {}\n",
        run.scenario,
        run.profile,
        safe(&run.question),
        safe(&run.answer),
        safe(&trust::resolution(run))
    )?;
    let table = Table::of(run);
    if table.rows.is_empty() {
        writeln!(out, "No window was measured.\n")?;
    } else {
        let rules = (0..table.head.len()).map(|i| if i < LEADING + WHOLE { "---" } else { "---:" });
        let rules: Vec<&str> = rules.collect();
        writeln!(out, "| {} |\n|{}|", table.head.join(" | "), rules.join("|"))?;
        for row in &table.rows {
            let cells: Vec<String> = row.cells.iter().map(|cell| safe(cell)).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
        }
        writeln!(
            out,
            "\nTolls are against `{}`{} in the same round, with {:.0}% intervals; \"no effect\" is within ±{}.\n",
            run.baseline,
            or_another(run),
            100.0 * (1.0 - run.alpha),
            margin(run)
        )?;
        if let Some(told) = notes::long_windows(run) {
            writeln!(out, "{}\n", safe(&told))?;
        }
    }
    for arm in &run.arms {
        if let Some(why) = &arm.unavailable {
            writeln!(out, "- `{}` ({}) not measured: {}", arm.name, safe(&arm.title), safe(why))?;
        }
    }
    if let Some(parts) = &run.parts {
        writeln!(out, "\n{}", pooled::markdown_table(parts))?;
    }
    for chart in charted::tables(&run.charts) {
        writeln!(out, "\n### {}\n\n{}", safe(&chart.title), charted::markdown(chart))?;
    }
    if !run.advice.is_empty() {
        writeln!(out, "\n### Advice\n")?;
        for sentence in &run.advice {
            writeln!(out, "- {}", safe(sentence))?;
        }
    }
    let doses = doses::lines(run);
    if !doses.is_empty() {
        writeln!(out, "\n### Doses\n")?;
    }
    for (arm, dose) in doses {
        writeln!(out, "- {}: {}", safe(arm), safe(&dose))?;
    }
    let ledgers = findings::ledgers(run);
    let ledgers = ledgers.iter().map(|(arms, told)| (arms.as_str(), told.clone())).collect();
    let sections = [
        ("Contrasts", findings::contrasts(run)),
        ("Pauses", findings::pauses(run)),
        ("Limits", findings::limits(run)),
        ("Packets", ledgers),
    ];
    for (title, lines) in sections {
        if !lines.is_empty() {
            writeln!(out, "\n### {title}\n")?;
        }
        for (what, found) in lines {
            writeln!(out, "- {}: {}", safe(what), safe(&found))?;
        }
    }
    let notes = notes::notes(run);
    if !notes.is_empty() {
        writeln!(out, "\n### Notes\n")?;
    }
    for (arms, note) in notes {
        writeln!(out, "- {}: {}", safe(&arms), safe(note))?;
    }
    writeln!(out, "\n### Trust\n")?;
    for (what, fact) in trust::facts(run) {
        if what == "again" {
            writeln!(out, "- again: `{fact}`")?;
        } else {
            writeln!(out, "- {what}: {}", safe(&fact))?;
        }
    }
    if !run.warnings.is_empty() {
        writeln!(out, "\n### Warnings\n")?;
        for group in notes::warnings(run) {
            let texts: Vec<String> = group.iter().map(|warning| safe(&warning.text)).collect();
            writeln!(out, "- **{}**: {}. _{}_", group[0].code, texts.join("; "), safe(&group[0].advice))?;
        }
    }
    Ok(())
}

/// Escapes text, so that a table cell or a list item shows it unchanged.
pub(super) fn safe(text: &str) -> String {
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
