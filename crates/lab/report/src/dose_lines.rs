//! Doses of known size and the sizes found, one line each for text and Markdown.
//!
//! A single dose of its kind is a control, which the trust section covers.

use toll_analysis::summarise_dose_line;
use toll_record::{Dose, DoseKind, RunResult};

/// (arm, finding). The last line of each kind has the slope.
pub fn dose_report_lines(run: &RunResult) -> Vec<(&str, String)> {
    let mut lines = Vec::new();
    for line in run.doses.iter().filter(|line| line.doses.len() > 1) {
        for dose in &line.doses {
            lines.push((dose.arm.as_str(), describe_dose(line.kind, &line.outcome, dose)));
        }
        lines.push((dose_kind_name(line.kind), summarise_dose_line(line)));
    }
    lines
}

fn dose_kind_name(kind: DoseKind) -> &'static str {
    match kind {
        DoseKind::Cpu => "cpu",
        DoseKind::Delay => "delay",
    }
}

fn describe_dose(kind: DoseKind, outcome: &str, dose: &Dose) -> String {
    let percent = |of: Option<f64>| of.map_or_else(|| "?".to_owned(), |pct| format!("{pct:.1}%"));
    let took = match kind {
        DoseKind::Cpu => {
            format!("set to {}, used {} of the host", percent(dose.told_pct), percent(dose.took_pct))
        }
        DoseKind::Delay => format!("set to {} of the response time", percent(dose.told_pct)),
    };
    let found = match (dose.found_pct, dose.ci95_pct) {
        (Some(found), Some([low, high])) => format!("{found:+.1}% [{low:+.1}, {high:+.1}]"),
        (Some(found), None) => format!("{found:+.1}% (no interval)"),
        (None, _) => "nothing".to_owned(),
    };
    format!("{took}: {outcome} expected {:+.1}%, measured {found}", dose.given_pct)
}
