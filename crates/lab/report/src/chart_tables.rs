//! Charts over named positions, as tables.
//!
//! A row for each line, a column for each position. Intervals are beside the values if they fit.

use super::markdown::escape_markdown;
use super::terminal::WIDTH;
use std::borrow::Cow;
use std::fmt::Write;
use toll_analysis::both_clocks;
use toll_record::{Axis, Chart, ChartKind, ChartPoint, ChartSeries};
use toll_sys::number_format::format_without_unit;

/// Space between two columns.
const GAP: &str = "  ";

/// Charts that a table shows completely.
pub fn tables(charts: &[Chart]) -> impl Iterator<Item = Cow<'_, Chart>> {
    charts.iter().filter_map(|chart| match chart.kind {
        ChartKind::Line if !chart.x.categories.is_empty() => Some(Cow::Borrowed(chart)),
        ChartKind::Table if chart.id == both_clocks::CHART => Some(Cow::Owned(transpose(chart, "clock"))),
        _ => None,
    })
}

/// The chart with its lines as positions, called `label`, and its positions as lines.
pub fn transpose(chart: &Chart, label: &str) -> Chart {
    let row = |(at, name): (usize, &String)| {
        let of = |(column, series): (u32, &ChartSeries)| {
            let &(_, y, low, high) = series.points.iter().find(|point| point.0 == at as f64)?;
            Some((f64::from(column), y, low, high))
        };
        ChartSeries { name: name.clone(), points: (0..).zip(&chart.series).filter_map(of).collect() }
    };
    let names = chart.series.iter().map(|series| series.name.clone()).collect();
    Chart {
        x: Axis { label: label.to_owned(), categories: names, ..chart.x.clone() },
        series: chart.x.categories.iter().enumerate().map(row).collect(),
        ..chart.clone()
    }
}

/// Formatter of a point as a cell.
type Cell = fn(&ChartPoint, &str) -> String;

/// For a terminal, without its title. Ends with a newline.
pub fn text(chart: &Chart) -> String {
    let grid = Grid::of(chart, format_with_interval);
    let grid = if grid.width() <= WIDTH { grid } else { Grid::of(chart, format_point) };
    let mut out = caption(chart) + "\n";
    for columns in grid.columns_that_fit() {
        for row in &grid.rows {
            let mut line = format!("{:<width$}", row[0], width = grid.widths[0]);
            for column in columns.clone() {
                let _ = write!(line, "{GAP}{:>width$}", row[column], width = grid.widths[column]);
            }
            out += line.trim_end();
            out.push('\n');
        }
    }
    let note = textwrap::Options::new(WIDTH).break_words(false);
    out + &textwrap::fill(&chart.note, note) + "\n"
}

/// As a GitHub table, without its title. Ends with a newline.
pub fn markdown(chart: &Chart) -> String {
    let grid = Grid::of(chart, format_with_interval);
    let mut out = String::new();
    for (at, row) in grid.rows.iter().enumerate() {
        let cells: Vec<String> = row.iter().map(|cell| escape_markdown(cell)).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
        if at == 0 {
            let _ = writeln!(out, "|---|{}", "---:|".repeat(row.len() - 1));
        }
    }
    format!("{out}\n{}. {}\n", escape_markdown(&caption(chart)), escape_markdown(&chart.note))
}

/// Quantity in the cells, and the axis.
fn caption(chart: &Chart) -> String {
    let unit = if chart.y.unit.is_empty() { String::new() } else { format!(", {}", chart.y.unit) };
    format!("{}{unit}, by {}", chart.y.label, chart.x.label)
}

/// Cells, the header row first.
struct Grid {
    rows: Vec<Vec<String>>,
    widths: Vec<usize>,
}

impl Grid {
    fn of(chart: &Chart, cell: Cell) -> Self {
        let head = std::iter::once(String::new()).chain(chart.x.categories.iter().cloned());
        let row = |series: &ChartSeries| -> Vec<String> {
            let of_place = |at: usize| {
                let found = series.points.iter().find(|point| point.0 == at as f64);
                found.map_or_else(|| "-".to_owned(), |point| cell(point, &chart.y.unit))
            };
            std::iter::once(series.name.clone()).chain((0..chart.x.categories.len()).map(of_place)).collect()
        };
        let rows: Vec<Vec<String>> =
            std::iter::once(head.collect()).chain(chart.series.iter().map(row)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths = (0..=chart.x.categories.len()).map(width).collect();
        Grid { rows, widths }
    }

    fn width(&self) -> usize {
        self.widths.iter().sum::<usize>() + GAP.len() * (self.widths.len() - 1)
    }

    /// Ranges of columns that fit side by side, the name column apart.
    fn columns_that_fit(&self) -> Vec<std::ops::Range<usize>> {
        let mut found = Vec::new();
        let (mut begin, mut taken) = (1, self.widths[0]);
        for column in 1..self.widths.len() {
            let needed = GAP.len() + self.widths[column];
            if column > begin && taken + needed > WIDTH {
                found.push(begin..column);
                (begin, taken) = (column, self.widths[0]);
            }
            taken += needed;
        }
        found.push(begin..self.widths.len());
        found
    }
}

fn format_with_interval(point: &ChartPoint, unit: &str) -> String {
    let value = format_point(point, unit);
    let &(_, _, Some(low), Some(high)) = point else { return value };
    format!("{value} [{},{}]", format_without_unit(low, unit), format_without_unit(high, unit))
}

fn format_point(point: &ChartPoint, unit: &str) -> String {
    format_without_unit(point.1, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(places: usize, with_intervals: bool) -> Chart {
        let end = |value: f64| with_intervals.then_some(value);
        let point = |at: usize| (at as f64, at as f64 / 2.0, end(0.0), end(at as f64));
        Chart {
            id: "varied-loss".into(),
            title: "Loss by rate".into(),
            kind: ChartKind::Line,
            x: Axis {
                label: "rate".into(),
                categories: (0..places).map(|at| format!("{}", 100 * (at + 1))).collect(),
                ..Axis::default()
            },
            y: Axis { label: "Packets lost".into(), unit: "%".into(), ..Axis::default() },
            series: vec![
                ChartSeries { name: "http".into(), points: (0..places).map(point).collect() },
                ChartSeries { name: "skype".into(), points: vec![point(1)] },
            ],
            note: "Medians.".into(),
        }
    }

    #[test]
    fn a_line_is_a_row_and_what_it_lacks_is_said() {
        assert_eq!(
            text(&chart(3, true)),
            "Packets lost, %, by rate\n                    100               200               300\n\
             http   0.00 [0.00,0.00]  0.50 [0.00,1.00]  1.00 [0.00,2.00]\n\
             skype                 -  0.50 [0.00,1.00]                 -\nMedians.\n"
        );
        assert!(markdown(&chart(3, true)).starts_with(
            "|  | 100 | 200 | 300 |\n|---|---:|---:|---:|\n| http | 0.00 \\[0.00,0.00] | 0.50 \\[0.00,1.00] |"
        ));
    }

    #[test]
    fn a_wide_table_leaves_intervals_out_and_goes_on_below() {
        let ten = text(&chart(10, true));
        assert!(!ten.contains('[') && ten.lines().count() == 5, "{ten}");
        let many = text(&chart(40, true));
        assert!(many.lines().all(|line| line.chars().count() <= WIDTH), "{many}");
        assert_eq!(many.lines().filter(|line| line.starts_with("http")).count(), 3, "{many}");
        assert!(many.contains(" 4000\n") && many.contains(" 19.5\n"), "{many}");
    }
}
