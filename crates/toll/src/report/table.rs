//! Which rows and columns does a run's table have?
//!
//! Baseline first, then from the least costly to the most; the forms (text, Markdown) only draw it.

use super::figures;
use crate::analyse::{UNTIL_DONE, harm, judged};
use toll_record::{ArmResult, Role, RunResult, Verdict};

/// Columns in order; the second one, what an arm is, gives way when room is short.
pub struct Table {
    pub head: [String; 8],
    pub rows: Vec<Row>,
}

/// One arm.
pub struct Row {
    pub cells: [String; 8],
    /// On throughput and response time, for whoever paints.
    pub verdicts: [Verdict; 2],
    /// The baseline and controls stand beside what is asked.
    pub asked: bool,
}

impl Table {
    pub fn of(run: &RunResult) -> Self {
        let response = response_outcome(run);
        let response_head = match response {
            "latency_us_mean" => "response time (mean)".to_owned(),
            name => {
                format!("response time ({})", name.trim_start_matches("latency_us_").replace("p999", "p99.9"))
            }
        };
        let mut arms: Vec<&ArmResult> = run.arms.iter().filter(|arm| arm.windows > 0).collect();
        // A stable sort: equals stay in the order of the plan.
        arms.sort_by(|a, b| {
            let ((group_a, harm_a), (group_b, harm_b)) = (rank(run, a), rank(run, b));
            group_a.cmp(&group_b).then(harm_a.total_cmp(&harm_b))
        });
        Table {
            head: [
                "arm",
                "what it is",
                "throughput",
                response_head.as_str(),
                "CPU/query",
                "stalls",
                "caught",
                "MB/s",
            ]
            .map(String::from),
            rows: arms.into_iter().map(|arm| row(run, arm, response)).collect(),
        }
    }
}

/// Arms stand behind what they are compared with, by what they cost.
fn rank(run: &RunResult, arm: &ArmResult) -> (usize, f64) {
    let position = |name: &str| match name {
        name if name == run.baseline => 0,
        name => run.arms.iter().position(|a| a.name == name).map_or(usize::MAX, |i| i + 1),
    };
    match &arm.against {
        None if arm.role == Role::Baseline => (position(&arm.name), f64::NEG_INFINITY),
        against => {
            let group = position(against.as_deref().unwrap_or(&run.baseline));
            (group, judged(run, arm).map_or(f64::INFINITY, harm))
        }
    }
}

/// What to add to the name of the baseline where some arms are compared with another arm.
pub fn or_another(run: &RunResult) -> &'static str {
    let another = |arm: &ArmResult| arm.windows > 0 && other_reference(run, arm).is_some();
    if run.arms.iter().any(another) { ", or the arm that a row names," } else { "" }
}

fn other_reference<'a>(run: &RunResult, arm: &'a ArmResult) -> Option<&'a str> {
    arm.against.as_deref().filter(|name| *name != run.baseline)
}

fn row(run: &RunResult, arm: &ArmResult, response: &str) -> Row {
    let outcome = |name: &str| arm.outcomes.get(name);
    let text = |name: &str| outcome(name).map_or("-".to_owned(), figures::toll);
    let verdict = |name: &str| outcome(name).map_or(Verdict::NoInterval, |o| o.verdict);
    let cpu = outcome("cpu_us_per_query").map_or("-".to_owned(), |o| match o.toll_pct {
        Some(toll) => figures::percent(toll),
        None => figures::absolute(o.mean, &o.unit),
    });
    let stalls = match arm.stalls.count {
        0 => "0".to_owned(),
        n => format!("{n} ({:.1} s)", arm.stalls.total_s),
    };
    let mut title = match arm.role {
        Role::Aa if !arm.title.contains("A/A") => format!("A/A: {}", arm.title),
        _ => arm.title.clone(),
    };
    if let Some(reference) = other_reference(run, arm) {
        title = format!("vs {reference}: {title}");
    }
    let waited = match outcome(response) {
        None if outcome(UNTIL_DONE).is_some() => UNTIL_DONE,
        _ => response,
    };
    let until = if waited == UNTIL_DONE { " until done" } else { "" };
    Row {
        cells: [
            arm.name.clone(),
            title,
            text("qps"),
            text(waited) + until,
            cpu,
            stalls,
            caught(arm),
            arm.artefact.as_ref().map_or("-".to_owned(), |a| figures::megabytes(a.bytes_per_s)),
        ],
        verdicts: [verdict("qps"), verdict(waited)],
        asked: arm.role == Role::Treatment,
    }
}

fn caught(arm: &ArmResult) -> String {
    match arm.captured_ratio {
        _ if arm.artefact.as_ref().is_some_and(|a| a.encrypted) => "encrypted".to_owned(),
        Some(ratio) => format!("{:.1}%", 100.0 * ratio),
        None => "-".to_owned(),
    }
}

/// The response time that this run can speak of: the primary outcome if it is one, else the farthest
/// percentile that windows had events enough for.
fn response_outcome(run: &RunResult) -> &str {
    if run.primary.starts_with("latency_us_") {
        return &run.primary;
    }
    let measured =
        |name: &str| run.arms.iter().filter(|arm| arm.windows > 0).all(|arm| arm.outcomes.contains_key(name));
    ["latency_us_p99", "latency_us_p95"].into_iter().find(|name| measured(name)).unwrap_or("latency_us_mean")
}
