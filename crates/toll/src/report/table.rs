//! Which rows and columns does a run's table have?
//!
//! Baseline first, then from the least costly to the most; the forms (text, Markdown) only draw it.

use super::figures;
use crate::analyse::harm;
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
        arms.sort_by(|a, b| rank(run, a).total_cmp(&rank(run, b)));
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
            rows: arms.into_iter().map(|arm| row(arm, response)).collect(),
        }
    }
}

fn rank(run: &RunResult, arm: &ArmResult) -> f64 {
    if arm.role == Role::Baseline {
        return f64::NEG_INFINITY;
    }
    arm.outcomes.get(&run.primary).map_or(f64::INFINITY, harm)
}

fn row(arm: &ArmResult, response: &str) -> Row {
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
    let title = match arm.role {
        Role::Aa if !arm.title.contains("A/A") => format!("A/A: {}", arm.title),
        _ => arm.title.clone(),
    };
    Row {
        cells: [
            arm.name.clone(),
            title,
            text("qps"),
            text(response),
            cpu,
            stalls,
            arm.captured_ratio.map_or("-".to_owned(), |r| format!("{:.1}%", 100.0 * r)),
            arm.artefact.as_ref().map_or("-".to_owned(), |a| figures::megabytes(a.bytes_per_s)),
        ],
        verdicts: [verdict("qps"), verdict(response)],
        asked: arm.role == Role::Treatment,
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
