//! What does the page need to know of runs, or of captures?
//!
//! Reads run directories, names what they lack, and leaves out what nobody should mail: passwords in
//! commands. Never estimates: figures come from the analysis, series from the samples.

mod captures;
mod thin;
mod timeline;

use super::command::pasteable;
use super::names::{self, Unnamed};
use anyhow::Context;
use captures::Captures;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use timeline::Timeline;
use toll_analysis::{Made, Together, together};
use toll_net::pcap::profile::json::Document;
use toll_record::{Artefact, CAPTURES, FORMAT, Host, Plan, ReadError, RunDir, RunResult};
use toll_sys::secrets;

/// Artefact lines shown one by one, for a run without a result; later ones are left to the run directory.
const RAW_ARTEFACTS: usize = 2_000;

/// Integers beyond this lose digits in a browser, and travel as strings.
const EXACT_IN_BROWSER: u64 = 1 << 53;

/// Everything that `page.html` draws from.
#[derive(Debug, Serialize)]
pub struct Page {
    toll_version: &'static str,
    runs: Vec<PageRun>,
    /// Of runs that ask the same on different platforms.
    overlay: Option<Value>,
    /// What captures are made of: those that the runs sent, or those that the page is about.
    captures: Vec<Captures>,
}

#[derive(Debug, Serialize)]
struct PageRun {
    /// What legends call it: unlike any other on the page.
    name: String,
    directory: String,
    missing: Vec<Missing>,
    plan: Option<Value>,
    host: Option<Value>,
    result: Option<Value>,
    /// By arm: share of queries captured in the window that caught least and in the one that caught most.
    captured: BTreeMap<String, Captured>,
    /// Line by line, where there is no result that sums them up.
    artefacts: Vec<Value>,
    timeline: Timeline,
}

/// A part of the run that cannot be shown, and why.
#[derive(Debug, Serialize)]
struct Missing {
    part: &'static str,
    why: String,
}

#[derive(Debug, Serialize)]
struct Captured {
    low: f64,
    high: f64,
    windows: u32,
}

impl Page {
    /// A page of runs, side by side in this order.
    pub fn of(runs: &[RunDir]) -> anyhow::Result<Self> {
        let read = runs.iter().map(Read::of).collect::<anyhow::Result<Vec<_>>>()?;
        let made: Vec<Option<Made>> = read.iter().map(Read::made).collect();
        let unnamed: Vec<Unnamed> = read.iter().zip(&made).map(|(read, made)| read.unnamed(*made)).collect();
        let names = names::apart(&unnamed);
        let together = made.into_iter().collect::<Option<Vec<_>>>().and_then(|m| together(&m, &names));
        let overlay = match together {
            Some(Together::Overlaid(overlay)) => Some(overlay),
            Some(Together::Pooled(_) | Together::Apart(_)) | None => None,
        };
        let captures = captures::of_runs(read.iter().map(|read| read.captures.as_ref()).zip(&names));
        let runs = read.into_iter().zip(names).map(|(read, name)| read.shown(name));
        Ok(Self {
            toll_version: env!("CARGO_PKG_VERSION"),
            runs: runs.collect::<anyhow::Result<_>>()?,
            overlay: overlay.map(|overlay| shown(&overlay)).transpose()?,
            captures,
        })
    }

    /// A page of captures by themselves.
    pub fn of_captures(document: &Document) -> Self {
        let captures = captures::whole(document);
        Self { toll_version: env!("CARGO_PKG_VERSION"), runs: Vec::new(), overlay: None, captures }
    }
}

/// A run as far as it could be read.
struct Read {
    directory: String,
    missing: Vec<Missing>,
    plan: Option<Plan>,
    host: Option<Host>,
    result: Option<RunResult>,
    captures: Option<Document>,
    artefacts: Vec<Artefact>,
    timeline: Timeline,
}

impl Read {
    fn of(run: &RunDir) -> anyhow::Result<Self> {
        let mut missing = Vec::new();
        let plan = match run.plan() {
            Err(e @ ReadError::TooNew { .. }) => return Err(e.into()),
            other => kept("plan.json", other, &mut missing),
        };
        let host = kept("host.json", run.host(), &mut missing);
        let result = result(run, &mut missing);
        let trials = listed("trials.ndjson", run.trials(), &mut missing);
        let samples = listed("samples.ndjson", run.samples(), &mut missing);
        // Without a plan there is no saying that none was due.
        let due = |plan: &Plan| plan.arms.iter().any(|a| a.artefact.is_some() && a.unavailable.is_none());
        let artefacts = if plan.as_ref().is_none_or(due) {
            listed("artefacts.ndjson", run.artefacts(), &mut missing)
        } else {
            kept("artefacts.ndjson", run.artefacts(), &mut missing).unwrap_or_default()
        };
        let captures = captures::read(run).unwrap_or_else(|why| {
            missing.push(Missing { part: CAPTURES, why });
            None
        });
        let timeline = Timeline::of(&trials, &samples);
        let directory = names::directory(run);
        Ok(Self { directory, missing, plan, host, result, captures, artefacts, timeline })
    }

    fn made(&self) -> Option<Made<'_>> {
        Some(Made { plan: self.plan.as_ref()?, result: self.result.as_ref()? })
    }

    fn unnamed<'a>(&'a self, made: Option<Made<'a>>) -> Unnamed<'a> {
        let result = self.result.as_ref();
        let has_label = |host: &&Host| !host.label.is_empty();
        Unnamed {
            directory: &self.directory,
            host: result.map(|result| &result.host).filter(has_label).or(self.host.as_ref()),
            server: result
                .and_then(|result| result.server.as_ref())
                .or_else(|| self.plan.as_ref()?.server.as_ref()),
            made,
        }
    }

    fn shown(self, name: String) -> anyhow::Result<PageRun> {
        let Read { directory, missing, plan, host, result, artefacts, timeline, .. } = self;
        let raw = if result.is_none() { &artefacts[..artefacts.len().min(RAW_ARTEFACTS)] } else { &[] };
        Ok(PageRun {
            name,
            directory,
            missing,
            plan: plan.map(|p| shown(&p)).transpose()?,
            host: host.map(|h| shown(&h)).transpose()?,
            result: result.map(|r| shown(&r)).transpose()?,
            captured: captured(&artefacts),
            artefacts: raw.iter().map(shown).collect::<anyhow::Result<_>>()?,
            timeline,
        })
    }
}

/// What the run's end left in `result.json`; where that is not to be had, or is from another version of
/// toll, what an analysis finds now.
fn result(run: &RunDir, missing: &mut Vec<Missing>) -> Option<RunResult> {
    let stored = run.result();
    let is_ours = |r: &RunResult| r.toll_version == env!("CARGO_PKG_VERSION") && r.format == FORMAT;
    if stored.as_ref().is_ok_and(is_ours) {
        return stored.ok();
    }
    let analysed = toll_analysis::run(run).ok();
    if let Err(e) = &stored {
        let instead = if analysed.is_some() { ": analysed anew from what was recorded" } else { "" };
        missing.push(Missing { part: "result.json", why: format!("{}{instead}", why(e)) });
    }
    analysed.or(stored.ok())
}

fn kept<T>(part: &'static str, read: Result<T, ReadError>, missing: &mut Vec<Missing>) -> Option<T> {
    read.map_err(|e| missing.push(Missing { part, why: why(&e) })).ok()
}

fn listed<T>(part: &'static str, read: Result<Vec<T>, ReadError>, missing: &mut Vec<Missing>) -> Vec<T> {
    let rows = kept(part, read, missing);
    if rows.as_ref().is_some_and(Vec::is_empty) {
        missing.push(Missing { part, why: "holds no line".to_owned() });
    }
    rows.unwrap_or_default()
}

/// The reason without the path: where the run lay is not for the page.
fn why(error: &ReadError) -> String {
    match error {
        ReadError::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => {
            "is not there".to_owned()
        }
        ReadError::Io { cause, .. } => format!("cannot be read: {cause}"),
        ReadError::Json { line, cause, .. } => format!("is broken in line {line}: {cause}"),
        other => format!("cannot be read: {other}"),
    }
}

fn captured(artefacts: &[Artefact]) -> BTreeMap<String, Captured> {
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

/// `part` as the page may show it: passwords hidden, integers that a browser would round as text.
fn shown<T: Serialize>(part: &T) -> anyhow::Result<Value> {
    let mut value = serde_json::to_value(part).context("cannot write a part of the run as JSON")?;
    make_showable(&mut value);
    Ok(value)
}

fn make_showable(value: &mut Value) {
    match value {
        Value::String(text) => {
            *text = secrets::hide(text);
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
                *command = Value::String(pasteable(words.iter().filter_map(Value::as_str)));
            }
            fields.values_mut().for_each(make_showable);
        }
        Value::Null | Value::Bool(_) => {}
    }
}

#[cfg(test)]
#[path = "page/tests.rs"]
mod tests;
