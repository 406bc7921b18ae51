//! Data of the HTML page, for runs or captures.
//!
//! Reads run directories, lists their missing parts, and redacts passwords in commands. Never estimates:
//! figures come from the analysis, series from the samples.

mod captures;
mod downsample;
mod timeline;
#[cfg(test)]
mod typescript;

use super::command::format_shell_command;
use super::names;
use anyhow::Context;
use captures::Captures;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use timeline::Timeline;
use toll_analysis::{AnalysedRun, CombinedRuns, combine_runs};
use toll_net::pcap::profile::json::Document;
use toll_record::{Artefact, Plan, ReadError, RunDir, RunResult};
use toll_sys::redact;

/// Largest exact integer in a browser. Larger ones are passed as strings.
const EXACT_IN_BROWSER: u64 = 1 << 53;

/// All data that `page.html` draws from.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Page {
    toll_version: &'static str,
    runs: Vec<PageRun>,
    /// Overlay of runs with the same question on different platforms.
    #[cfg_attr(test, ts(type = "record.Overlay | null"))]
    overlay: Option<Value>,
    /// Profiles of captures: those that the runs sent, or those that the page is about.
    captures: Vec<Captures>,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
struct PageRun {
    /// Name in legends, unique on the page.
    name: String,
    directory: String,
    missing: Vec<Missing>,
    #[cfg_attr(test, ts(type = "Shown<record.Plan>"))]
    plan: Value,
    #[cfg_attr(test, ts(type = "Shown<record.RunResult>"))]
    result: Value,
    /// By arm: smallest and largest captured share of queries in a window.
    captured: BTreeMap<String, Captured>,
    timeline: Timeline,
}

/// A part of the run that cannot be shown, and the reason.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
struct Missing {
    part: &'static str,
    why: String,
}

#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
struct Captured {
    low: f64,
    high: f64,
    windows: u32,
}

impl Page {
    /// A page of runs and their results, side by side in this order.
    ///
    /// # Errors
    /// A run directory cannot be read.
    pub fn of_runs(runs: &[RunDir], results: &[RunResult]) -> anyhow::Result<Self> {
        assert_eq!(runs.len(), results.len(), "each run has its result");
        let read = runs.iter().map(RunFiles::read).collect::<anyhow::Result<Vec<_>>>()?;
        let made: Vec<AnalysedRun> =
            read.iter().zip(results).map(|(read, result)| AnalysedRun { plan: &read.plan, result }).collect();
        let names = names::distinguish_runs(runs, &made);
        let overlay = match combine_runs(&made, &names) {
            Some(CombinedRuns::Overlaid(overlay)) => Some(to_showable_json(&overlay)?),
            Some(CombinedRuns::Pooled(_) | CombinedRuns::Incompatible(_)) | None => None,
        };
        let captures = captures::profiles_of_runs(read.iter().map(|read| read.captures.as_ref()).zip(&names));
        let runs = read.into_iter().zip(results).zip(names);
        Ok(Self {
            toll_version: env!("CARGO_PKG_VERSION"),
            runs: runs
                .map(|((read, result), name)| read.into_page_run(result, name))
                .collect::<anyhow::Result<_>>()?,
            overlay,
            captures,
        })
    }

    /// A page of captures alone.
    pub fn of_captures(document: &Document) -> Self {
        let captures = captures::profiles_of_document(document);
        Self { toll_version: env!("CARGO_PKG_VERSION"), runs: Vec::new(), overlay: None, captures }
    }
}

/// Data of a run directory, without its result.
struct RunFiles {
    directory: String,
    missing: Vec<Missing>,
    plan: Plan,
    captures: Option<Document>,
    artefacts: Vec<Artefact>,
    timeline: Timeline,
}

impl RunFiles {
    fn read(run: &RunDir) -> anyhow::Result<Self> {
        let mut missing = Vec::new();
        let plan = run.plan()?;
        if let Err(error) = run.host() {
            missing.push(Missing { part: "host.json", why: describe_read_error(&error) });
        }
        let trials = note_if_empty("trials.ndjson", run.trials()?, &mut missing);
        let samples = note_if_empty("samples.ndjson", run.samples()?, &mut missing);
        let mut artefacts = run.artefacts()?;
        if plan.arms.iter().any(|arm| arm.artefact.is_some() && arm.unavailable.is_none()) {
            artefacts = note_if_empty("artefacts.ndjson", artefacts, &mut missing);
        }
        let captures = captures::read(run).unwrap_or_else(|why| {
            missing.push(Missing { part: "captures.json", why });
            None
        });
        let timeline = Timeline::of(&trials, &samples);
        Ok(Self { directory: names::directory_name(run), missing, plan, captures, artefacts, timeline })
    }

    fn into_page_run(self, result: &RunResult, name: String) -> anyhow::Result<PageRun> {
        Ok(PageRun {
            name,
            directory: self.directory,
            missing: self.missing,
            plan: to_showable_json(&self.plan)?,
            result: to_showable_json(result)?,
            captured: captured_ranges(&self.artefacts),
            timeline: self.timeline,
        })
    }
}

/// `rows` unchanged. If empty, the part is listed as missing.
fn note_if_empty<T>(part: &'static str, rows: Vec<T>, missing: &mut Vec<Missing>) -> Vec<T> {
    if rows.is_empty() {
        missing.push(Missing { part, why: "holds no line".to_owned() });
    }
    rows
}

/// The reason without the path: the run's location stays private.
fn describe_read_error(error: &ReadError) -> String {
    match error {
        ReadError::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => {
            "is not there".to_owned()
        }
        ReadError::Io { cause, .. } => format!("cannot be read: {cause}"),
        ReadError::Json { line, cause, .. } => format!("is broken in line {line}: {cause}"),
        other => format!("cannot be read: {other}"),
    }
}

fn captured_ranges(artefacts: &[Artefact]) -> BTreeMap<String, Captured> {
    let mut by_arm: BTreeMap<String, Captured> = BTreeMap::new();
    for artefact in artefacts.iter().filter(|a| !a.encrypted) {
        let Some(found) = &artefact.queries else { continue };
        let executed = found.executed.unwrap_or(artefact.executed);
        if executed == 0 {
            continue;
        }
        let ratio = found.queries as f64 / executed as f64;
        let range =
            by_arm.entry(artefact.arm.clone()).or_insert(Captured { low: ratio, high: ratio, windows: 0 });
        range.low = range.low.min(ratio);
        range.high = range.high.max(ratio);
        range.windows += 1;
    }
    by_arm
}

/// `part` ready for the page: passwords redacted, integers that a browser would round as strings.
fn to_showable_json<T: Serialize>(part: &T) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(part).context("cannot write a part of the run as JSON")?;
    make_showable(&mut value);
    Ok(value)
}

fn make_showable(value: &mut Value) {
    match value {
        Value::String(text) => {
            *text = redact::redact_text(text);
        }
        Value::Number(n) => {
            if let Some(wide) = n.as_u64().filter(|&n| n > EXACT_IN_BROWSER) {
                *value = Value::String(wide.to_string());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(make_showable),
        Value::Object(fields) => {
            // Words of a command become one line, as a shell would take it: only whole, with the name of its
            // tool, can a command be searched for passwords.
            if let Some(command) = fields.get_mut("command")
                && let Value::Array(words) = command
            {
                *command = Value::String(format_shell_command(words.iter().filter_map(Value::as_str)));
            }
            fields.values_mut().for_each(make_showable);
        }
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
#[path = "page/tests.rs"]
mod tests;
