//! Table of pooled runs.

use std::fmt::Write;
use toll_record::Pooled;
use toll_sys::number_format::format_signed_percent;

const HEAD: [&str; 5] = ["variant", "metric", "each run", "pooled", "between runs (SD)"];
const EXPLAINED: &str = "Random effects: an interval holds the mean over all of them, and counts how far they differ (Hartung-Knapp).";

/// For a terminal. Ends with a newline.
pub fn table(pooled: &Pooled) -> String {
    let rows: Vec<[String; 5]> = std::iter::once(HEAD.map(str::to_owned)).chain(rows(pooled)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let mut out = title(pooled) + "\n";
    for row in &rows {
        let cells = row.iter().enumerate().map(|(i, cell)| format!("{cell:<width$}", width = width(i)));
        out += cells.collect::<Vec<_>>().join("  ").trim_end();
        out.push('\n');
    }
    out + EXPLAINED + "\n"
}

/// As GitHub Markdown. Ends with a newline.
pub fn markdown_table(pooled: &Pooled) -> String {
    let rules = "---|".repeat(HEAD.len());
    let mut out = format!("### {}\n\n| {} |\n|{rules}\n", title(pooled), HEAD.join(" | "));
    for row in rows(pooled) {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "| {} |", row.join(" | "));
    }
    out + "\n" + EXPLAINED + "\n"
}

fn title(pooled: &Pooled) -> String {
    format!("Pooled over {}", pooled.over)
}

fn rows(pooled: &Pooled) -> Vec<[String; 5]> {
    let each = |tolls: &[Option<f64>]| {
        tolls
            .iter()
            .map(|toll| toll.map_or("-".to_owned(), format_signed_percent))
            .collect::<Vec<_>>()
            .join(" ")
    };
    let row = |arm: &toll_record::PooledArm| {
        let [low, high] = arm.ci95_pct.map(|end| format_signed_percent(end).trim_end_matches('%').to_owned());
        [
            arm.name.clone(),
            arm.outcome.clone(),
            each(&arm.tolls_pct),
            format!("{} [{low},{high}]", format_signed_percent(arm.toll_pct)),
            format!("{:.1}%", arm.between_pct),
        ]
    };
    pooled.arms.iter().map(row).collect()
}
