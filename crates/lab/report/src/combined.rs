//! Results of several runs together: pooled, or side by side.

use super::markdown::escape_markdown;
use super::{chart_tables, pooled};
use std::fmt::Write;
use textwrap::Options;
use toll_analysis::CombinedRuns;
use toll_record::{Axis, Chart, ChartKind, ChartSeries, Overlay, Platform};
use toll_sys::count_format::format_count;

const WIDTH: usize = 120;

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
                let _ = write!(out, "\n{}\n{}", chart.title, chart_tables::text(&to_line_chart(chart)));
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
                    chart_tables::markdown(&to_line_chart(chart))
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

/// A chart with its lines as rows. In a table of arms the rows are its positions.
fn to_line_chart(chart: &Chart) -> Chart {
    if chart.kind != ChartKind::Table {
        return chart.clone();
    }
    let row = |(at, name): (usize, &String)| {
        let of = |(column, series): (u32, &ChartSeries)| {
            let &(_, y, low, high) = series.points.iter().find(|point| point.0 == at as f64)?;
            Some((f64::from(column), y, low, high))
        };
        ChartSeries { name: name.clone(), points: (0..).zip(&chart.series).filter_map(of).collect() }
    };
    let of_platforms = chart.series.iter().map(|series| series.name.clone()).collect();
    Chart {
        x: Axis { label: "platform".into(), categories: of_platforms, ..chart.x.clone() },
        series: chart.x.categories.iter().enumerate().map(row).collect(),
        ..chart.clone()
    }
}
