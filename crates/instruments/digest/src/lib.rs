//! Digest of files and streams. Opens, feeds and prints; decodes nothing itself.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod accounting;
pub mod classes;
pub mod compare;
pub mod count;
mod csv;
mod decoder;
mod event_printer;
mod input;
mod json;
mod lines;
mod plan;
mod report;
mod report_class;
pub mod response_times;
mod sample_estimator;
mod schema;
mod select;
mod shards;
mod stored;
mod time_bound;

pub use accounting::InputAccounting;
pub use input::Type;
pub use plan::{ClassPlan, PlanResult};
pub use sample_estimator::{SampleEstimator, SamplingSink};
pub use time_bound::TimeBound;

use crate::classes::{Digest, Limit, Settings};
use anyhow::Context;
use decoder::InputDecoder;
use event_printer::EventPrinter;
use input::Input;
use schema::Merged;
use select::SelectingSink;
use shards::InputPart;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use toll_input::{Progress, pump};
use toll_sys::named_choice::NamedChoice;
use toll_wire::decoder::Config;
use toll_wire::event::Sink;
use toll_wire::filter::Filter;
use toll_wire::fingerprint::QueryId;
use toll_wire::log::INHERITED_DB;

/// Options of a digest.
#[derive(Debug, Clone)]
pub struct Request {
    pub files: Vec<PathBuf>,
    pub kind: Option<Type>,
    /// Ports and addresses of servers, for captures.
    pub capture: Config,
    pub settings: Settings,
    pub limit: Limit,
    pub since: Option<TimeBound>,
    pub until: Option<TimeBound>,
    pub filter: Option<Filter>,
    pub format: Format,
    pub literals: bool,
    pub jobs: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people, in the shape of pt-query-digest's
    Report,
    /// One object: totals, classes, accounting
    Json,
    /// A line for each class, then totals and accounting
    Ndjson,
    /// A row for each class
    Csv,
    /// Events as a slow log
    Slowlog,
}

impl NamedChoice for Format {
    const CHOICES: &'static [(&'static str, Self, &'static str)] = &[
        ("report", Self::Report, "For people, in the shape of pt-query-digest's"),
        ("json", Self::Json, "One object: totals, classes, accounting"),
        ("ndjson", Self::Ndjson, "A line for each class, then totals and accounting"),
        ("csv", Self::Csv, "A row for each class"),
        ("slowlog", Self::Slowlog, "Events as a slow log"),
    ];
}

/// A digest and its sources.
pub struct DigestResult {
    pub digest: Digest,
    pub sampled: SampleEstimator,
    pub accounting: InputAccounting,
    pub inputs: Vec<InputSource>,
    pub interrupted: bool,
    pub merged: Merged,
    /// By class, where they were asked for.
    pub plans: BTreeMap<QueryId, ClassPlan>,
}

/// One file or stream that was read.
#[derive(Debug, Clone, serde::Serialize)]
pub struct InputSource {
    pub name: String,
    pub r#type: &'static str,
    /// Bytes read, after decompression.
    pub bytes: u64,
}

impl DigestResult {
    pub fn new(settings: Settings) -> Self {
        Self {
            digest: Digest::new(settings),
            sampled: SampleEstimator::default(),
            accounting: InputAccounting::default(),
            inputs: Vec::new(),
            interrupted: false,
            merged: Merged::default(),
            plans: BTreeMap::new(),
        }
    }

    /// Returns what it has gathered of a stretch, and begins another.
    pub fn restart(&mut self) -> Self {
        let settings = *self.digest.settings();
        let next =
            Self { digest: self.digest.successor(), sampled: self.sampled.restart(), ..Self::new(settings) };
        std::mem::replace(self, next)
    }
}

/// Reads all inputs of the request. `stop` ends it early with the data read so far.
pub fn digest(request: &Request, progress: &Progress, stop: &AtomicBool) -> anyhow::Result<DigestResult> {
    let mut done = DigestResult::new(request.settings);
    for path in &request.files {
        let input = Input::open(path, request.kind, progress)
            .with_context(|| format!("cannot digest {}", path.display()))?;
        let kind = input.kind;
        if kind == Type::Digest {
            stored::merge_stored(request, input, &mut done, stop)
                .with_context(|| format!("cannot merge {}", path.display()))?;
            if done.interrupted {
                break;
            }
            continue;
        }
        let parts = match input.plain_bytes {
            Some(bytes) => shards::split_input(request, path, kind, bytes)?,
            None => Vec::new(),
        };
        if parts.len() < 2 {
            let mut digest = std::mem::replace(&mut done.digest, Digest::new(request.settings));
            let mut sampled = std::mem::take(&mut done.sampled);
            let mut sink = SamplingSink { digest: &mut digest, sampled: &mut sampled };
            let read = read_input(request, input, &mut sink, &mut done, stop);
            (done.digest, done.sampled) = (digest, sampled);
            read?;
        } else {
            digest_in_parts(request, path, input, &parts, &mut done, progress, stop)?;
        }
        if done.interrupted {
            break;
        }
    }
    done.digest.settle();
    Ok(done)
}

/// Reads one input into a sink, and records its accounting.
fn read_input(
    request: &Request,
    input: Input,
    sink: &mut dyn Sink,
    done: &mut DigestResult,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut decode = InputDecoder::new(input.kind, &request.capture)?;
    let mut sink = SelectingSink::new(request, sink);
    let pumped = pump(input.reader, input.plain_bytes.is_none(), &mut decode.with_sink(&mut sink), stop)
        .with_context(|| format!("cannot read {}", input.name))?;
    done.inputs.push(InputSource { name: input.name, r#type: input.kind.name(), bytes: pumped.bytes });
    done.accounting.merge(&decode.accounting());
    done.interrupted |= pumped.interrupted;
    Ok(())
}

fn digest_in_parts(
    request: &Request,
    path: &Path,
    input: Input,
    parts: &[InputPart],
    done: &mut DigestResult,
    progress: &Progress,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut db = Vec::new();
    let mut bytes = 0;
    for (part, result) in
        parts.iter().zip(shards::digest_parts(request, path, input.kind, parts, progress, stop)?)
    {
        done.digest.merge_following(&result.digest, &db);
        done.sampled.merge(&result.sampled);
        if result.db != INHERITED_DB {
            db = result.db;
        }
        match part {
            InputPart::Bytes { .. } => {
                bytes += result.pumped.bytes;
                done.accounting.merge(&result.accounting);
            }
            // Every thread reads all of a capture, and counts its share.
            InputPart::Connections(shard) => {
                bytes = bytes.max(result.pumped.bytes);
                done.accounting.merge_shard(&result.accounting, shard.index);
            }
        }
        done.interrupted |= result.pumped.interrupted;
    }
    done.inputs.push(InputSource { name: input.name, r#type: input.kind.name(), bytes });
    Ok(())
}

/// Where the events of one input begin or end.
pub enum InputEdge<'a> {
    Begin(Type),
    /// With its accounting, as far as it was read.
    End(&'a InputAccounting),
}

/// Passes each event to a sink, and calls `at_edge` at the edges of each input. Returns whether it was interrupted.
///
/// # Errors
/// An input cannot be read, or `at_edge` failed.
pub fn read_events<S: Sink>(
    request: &Request,
    progress: &Progress,
    stop: &AtomicBool,
    sink: &mut S,
    mut at_edge: impl FnMut(&mut S, InputEdge<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<bool> {
    for path in &request.files {
        let input = Input::open(path, request.kind, progress)
            .with_context(|| format!("cannot read {}", path.display()))?;
        at_edge(sink, InputEdge::Begin(input.kind))?;
        let mut done = DigestResult::new(request.settings);
        read_input(request, input, sink, &mut done, stop)?;
        at_edge(sink, InputEdge::End(&done.accounting))?;
        if done.interrupted {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes each event as it comes instead of digesting it. Returns whether it was interrupted.
pub fn print_events(
    request: &Request,
    progress: &Progress,
    stop: &AtomicBool,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    let mut events = EventPrinter::new(request, out);
    events.write_header()?;
    let interrupted = read_events(request, progress, stop, &mut events, |events, _| events.check())?;
    events.check()?;
    out.flush()?;
    Ok(interrupted)
}

/// Writes a digest as JSON on one line: one of many.
pub fn print_line(request: &Request, done: &DigestResult, out: &mut dyn Write) -> anyhow::Result<()> {
    match request.settings.times_alone {
        true => response_times::write(&done.digest, request.limit, &mut *out)?,
        false => serde_json::to_writer(&mut *out, &json::build_document(request, done))?,
    }
    writeln!(out)?;
    out.flush()?;
    Ok(())
}

/// Writes a digest in the requested format.
pub fn print(request: &Request, done: &DigestResult, out: &mut dyn Write) -> anyhow::Result<()> {
    match request.format {
        Format::Report => report::write_report(request, done, out)?,
        Format::Json => json::write_json(request, done, out)?,
        Format::Ndjson => lines::write_lines(request, done, out)?,
        Format::Csv => csv::write_csv(request, done, out)?,
        Format::Slowlog => anyhow::bail!("the format slowlog holds events: add --events"),
    }
    out.flush()?;
    Ok(())
}

/// Writes a comparison as text or JSON.
///
/// # Errors
/// Another format, or the output failed.
pub fn print_comparison(
    format: Format,
    comparison: &compare::Comparison<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match format {
        Format::Report => compare::write_report(comparison, out)?,
        Format::Json => compare::write_json(comparison, out)?,
        Format::Ndjson | Format::Csv | Format::Slowlog => {
            anyhow::bail!("a comparison is printed as a report or as JSON: write --format report or json")
        }
    }
    out.flush()?;
    Ok(())
}

#[cfg(test)]
mod tests;
