//! Forest plot of a run as an SVG picture, for documents: each treatment's overhead with its interval.
//!
//! The page draws the same with a library, and with everything that can be clicked. This one is a picture.

use super::axis::{Axis, estimate};
use std::fmt::Write;
use toll_analysis::estimate_format::{format_brief, format_ends, interval_of};
use toll_analysis::{harm, judged_outcome, judged_outcome_name};
use toll_record::catalogue::find_definition;
use toll_record::{ArmResult, Outcome, Role, RunResult, Verdict};
use toll_sys::number_format::{capitalise, format_value};

const WIDTH: f64 = 820.0;
const ROW: f64 = 22.0;
/// Above the first row: title, conditions, labels of the axis.
const TOP: f64 = 78.0;
const BOTTOM: f64 = 14.0;
/// Left and right end of the axis.
const AXIS: [f64; 2] = [330.0, 660.0];
/// Most labels along the axis.
const TICKS: usize = 8;

/// The picture. Treatments without an interval are left out.
///
/// # Errors
/// No treatment has an interval, or they differ in unit.
pub fn svg(run: &RunResult) -> anyhow::Result<String> {
    let mut rows: Vec<(&ArmResult, &Outcome)> = run
        .arms
        .iter()
        .filter(|arm| arm.role == Role::Treatment)
        .filter_map(|arm| Some((arm, judged_outcome(run, arm)?)))
        .filter(|(arm, outcome)| {
            interval_of(outcome).is_some() && judged_outcome_name(run, arm) == run.primary
        })
        .collect();
    rows.sort_by(|a, b| harm(a.1).total_cmp(&harm(b.1)));
    let axis = Axis::over(rows.iter().map(|(_, outcome)| *outcome));
    let Some(axis) = axis else {
        anyhow::bail!(
            "no picture of this run: none of its treatments has an overhead with an interval in {}",
            run.primary
        );
    };
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = draw(&mut out, run, &rows, &axis);
    Ok(out)
}

fn draw(out: &mut String, run: &RunResult, rows: &[(&ArmResult, &Outcome)], axis: &Axis) -> std::fmt::Result {
    let height = TOP + ROW * rows.len() as f64 + BOTTOM;
    let title = title(run);
    writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}" font-family="system-ui, sans-serif" font-size="13" fill="#1b1f24">"##
    )?;
    writeln!(out, r##"<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>"##)?;
    writeln!(out, r#"<text x="12" y="24" font-size="15" font-weight="600">{title}</text>"#)?;
    writeln!(out, r##"<text x="12" y="44" fill="#57606a">{}</text>"##, escape(&conditions(run)))?;
    for value in axis.round_values(TICKS) {
        let x = place(axis.position(value));
        writeln!(
            out,
            r##"<line x1="{x:.1}" x2="{x:.1}" y1="{TOP}" y2="{}" stroke="#eceff2"/><text x="{x:.1}" y="{}" text-anchor="middle" font-size="11" fill="#57606a">{}</text>"##,
            height - BOTTOM,
            TOP - 8.0,
            escape(&axis.label(value))
        )?;
    }
    let zero = place(axis.position(0.0));
    writeln!(
        out,
        r##"<line x1="{zero:.1}" x2="{zero:.1}" y1="{TOP}" y2="{}" stroke="#57606a"/>"##,
        height - BOTTOM
    )?;
    for (i, (arm, outcome)) in rows.iter().enumerate() {
        draw_row(out, arm, outcome, axis, TOP + ROW * (i as f64 + 0.5))?;
    }
    writeln!(out, "</svg>")
}

fn draw_row(out: &mut String, arm: &ArmResult, outcome: &Outcome, axis: &Axis, y: f64) -> std::fmt::Result {
    let text_y = y + 4.5;
    let colour = match outcome.verdict {
        Verdict::Costly => "#b3431f",
        Verdict::Cheaper | Verdict::NoEffect => "#1f7a5c",
        _ => "#57606a",
    };
    writeln!(
        out,
        r##"<text x="12" y="{text_y}" font-weight="600">{}<tspan dx="8" font-weight="400" fill="#57606a">{}</tspan></text>"##,
        escape(&arm.name),
        escape(&shorten(&arm.title, &arm.name))
    )?;
    let inside = |value: f64| place(axis.position(value).clamp(0.0, 1.0));
    if let Some([low, high]) = interval_of(outcome) {
        let (begin, end) = (inside(low), inside(high));
        writeln!(
            out,
            r#"<line x1="{begin:.1}" x2="{end:.1}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="3"/>"#
        )?;
        if axis.position(high) > 1.0 {
            let tip = AXIS[1] + 7.0;
            writeln!(
                out,
                r#"<path d="M{} {} L{tip} {y} L{} {} Z" fill="{colour}"/>"#,
                AXIS[1],
                y - 4.0,
                AXIS[1],
                y + 4.0
            )?;
        }
        if axis.position(estimate(outcome)) <= 1.0 {
            writeln!(
                out,
                r#"<circle cx="{:.1}" cy="{y}" r="4" fill="{colour}"/>"#,
                inside(estimate(outcome))
            )?;
        }
    }
    let ends = format_ends(outcome).map_or_else(String::new, |[low, high]| format!(" [{low}, {high}]"));
    writeln!(
        out,
        r#"<text x="{}" y="{text_y}" fill="{colour}">{}</text>"#,
        AXIS[1] + 16.0,
        escape(&(format_brief(outcome) + &ends))
    )
}

/// Horizontal place of a position on the axis.
fn place(position: f64) -> f64 {
    AXIS[0] + position * (AXIS[1] - AXIS[0])
}

fn title(run: &RunResult) -> String {
    let heading = find_definition(&run.definitions, &run.primary).map_or(run.primary.as_str(), |o| &o.title);
    let baseline = run.arms.iter().find(|arm| arm.name == run.baseline);
    let value = baseline.and_then(|arm| arm.outcomes.get(&run.primary));
    let value = value.map_or_else(String::new, |own| format!(" ({})", format_value(own.mean, &own.unit)));
    let percent = 100.0 * (1.0 - run.alpha);
    escape(&format!("{} vs {}{value}, {percent:.0}% CI", capitalise(heading), run.baseline))
}

fn conditions(run: &RunResult) -> String {
    format!("{}: {}", run.scenario, super::checks::brief_conditions(run).join(", "))
}

/// A title in the room that the name leaves.
fn shorten(title: &str, name: &str) -> String {
    const LETTERS: usize = 44;
    super::terminal::clip(title, LETTERS.saturating_sub(name.chars().count()))
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn a_name_cannot_end_its_element() {
        assert_eq!(escape(r#"</text><script a="&">"#), "&lt;/text&gt;&lt;script a=&quot;&amp;&quot;&gt;");
    }
}
