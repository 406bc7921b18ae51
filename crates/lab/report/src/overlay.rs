//! Results of several runs together: pooled, or side by side.

use super::markdown::safe;
use super::{charted, pooled};
use std::fmt::Write;
use textwrap::Options;
use toll_analysis::Together;
use toll_record::{Axis, Chart, ChartKind, ChartSeries, Overlay, Platform};
use toll_sys::count_format::format_count;

const WIDTH: usize = 120;

/// For a terminal. Ends with a newline.
pub fn text(together: &Together) -> String {
    match together {
        Together::Pooled(pooled) => pooled::table(pooled),
        Together::Apart(why) => unlike(why),
        Together::Overlaid(overlay) => {
            let mut out = heading(overlay) + "\n\nPlatforms\n";
            for platform in &overlay.platforms {
                let options = Options::new(WIDTH).initial_indent("  ").subsequent_indent("    ");
                out += &textwrap::fill(&format!("{}: {}", platform.name, in_words(platform)), options);
                out.push('\n');
            }
            for chart in &overlay.charts {
                let _ = write!(out, "\n{}\n{}", chart.title, charted::text(&as_lines(chart)));
            }
            out
        }
    }
}

/// As GitHub Markdown. Ends with a newline.
pub fn markdown(together: &Together) -> String {
    match together {
        Together::Pooled(pooled) => pooled::markdown_table(pooled),
        Together::Apart(why) => unlike(why),
        Together::Overlaid(overlay) => {
            let whats = overlay.platforms.first().map_or(&[][..], |platform| platform.facts.as_slice());
            let head: Vec<String> = whats.iter().map(|(what, _)| safe(what)).collect();
            let mut out = format!("## {}\n\n| platform | {} |\n", safe(&heading(overlay)), head.join(" | "));
            out += &format!("|{}\n", "---|".repeat(head.len() + 1));
            for Platform { name, facts } in &overlay.platforms {
                let cells: Vec<String> = facts.iter().map(|(_, which)| safe(which)).collect();
                let _ = writeln!(out, "| {} | {} |", safe(name), cells.join(" | "));
            }
            for chart in &overlay.charts {
                let _ =
                    write!(out, "\n### {}\n\n{}", safe(&chart.title), charted::markdown(&as_lines(chart)));
            }
            out
        }
    }
}

fn unlike(why: &str) -> String {
    format!("These runs are neither pooled nor laid over each other: {why}.\n")
}

fn heading(overlay: &Overlay) -> String {
    let runs = format_count(overlay.platforms.len() as u64, "run");
    format!("{runs} side by side: they differ in {}", overlay.differ_in.join(", "))
}

fn in_words(platform: &Platform) -> String {
    let known = platform.facts.iter().filter(|(_, which)| !which.is_empty());
    known.map(|(what, which)| format!("{what} {which}")).collect::<Vec<_>>().join("; ")
}

/// A chart with its lines as rows. In a table of arms the rows are its positions.
fn as_lines(chart: &Chart) -> Chart {
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
