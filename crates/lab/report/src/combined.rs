//! Results of several runs together: pooled, or side by side.

use super::markdown::escape_markdown;
use super::terminal::WIDTH;
use super::{chart_tables, pooled};
use std::fmt::Write;
use textwrap::Options;
use toll_analysis::CombinedRuns;
use toll_record::{Chart, ChartKind, Overlay, Platform};
use toll_sys::count_format::format_count;

/// For a terminal. Ends with a newline.
pub fn text(together: &CombinedRuns) -> String {
    match together {
        CombinedRuns::Pooled(pooled) => pooled::table(pooled),
        CombinedRuns::Incompatible(why) => describe_incompatibility(why),
        CombinedRuns::Overlaid(overlay) => {
            let mut out = format_heading(overlay) + "\n\nPlatforms\n";
            for platform in &overlay.platforms {
                let options = Options::new(WIDTH).initial_indent("  ").subsequent_indent("    ");
                out +=
                    &textwrap::fill(&format!("{}: {}", platform.name, describe_platform(platform)), options);
                out.push('\n');
            }
            for chart in &overlay.charts {
                let _ = write!(out, "\n{}\n{}", chart.title, chart_tables::text(&by_platform(chart)));
            }
            out
        }
    }
}

/// As GitHub Markdown. Ends with a newline.
pub fn markdown(together: &CombinedRuns) -> String {
    match together {
        CombinedRuns::Pooled(pooled) => pooled::markdown_table(pooled),
        CombinedRuns::Incompatible(why) => describe_incompatibility(why),
        CombinedRuns::Overlaid(overlay) => {
            let whats = overlay.platforms.first().map_or(&[][..], |platform| platform.facts.as_slice());
            let head: Vec<String> = whats.iter().map(|(what, _)| escape_markdown(what)).collect();
            let mut out = format!(
                "## {}\n\n| platform | {} |\n",
                escape_markdown(&format_heading(overlay)),
                head.join(" | ")
            );
            out += &format!("|{}\n", "---|".repeat(head.len() + 1));
            for Platform { name, facts } in &overlay.platforms {
                let cells: Vec<String> = facts.iter().map(|(_, which)| escape_markdown(which)).collect();
                let _ = writeln!(out, "| {} | {} |", escape_markdown(name), cells.join(" | "));
            }
            for chart in &overlay.charts {
                let _ = write!(
                    out,
                    "\n### {}\n\n{}",
                    escape_markdown(&chart.title),
                    chart_tables::markdown(&by_platform(chart))
                );
            }
            out
        }
    }
}

fn describe_incompatibility(why: &str) -> String {
    format!("These runs are neither pooled nor laid over each other: {why}.\n")
}

fn format_heading(overlay: &Overlay) -> String {
    let runs = format_count(overlay.platforms.len() as u64, "run");
    format!("{runs} side by side: they differ in {}", overlay.differ_in.join(", "))
}

fn describe_platform(platform: &Platform) -> String {
    let known = platform.facts.iter().filter(|(_, which)| !which.is_empty());
    known.map(|(what, which)| format!("{what} {which}")).collect::<Vec<_>>().join("; ")
}

/// Its lines as columns, where it is a table of arms.
fn by_platform(chart: &Chart) -> Chart {
    match chart.kind {
        ChartKind::Table => chart_tables::transpose(chart, "platform"),
        _ => chart.clone(),
    }
}
