//! What does a digest look like to a program? Every type here is a promise (docs/digest.md):
//! fields may be added, never renamed. Times are microseconds, moments RFC 3339 in UTC.

use super::ledger::Written;
use super::sampled::{Estimate, Found};
use super::{Digested, Request, Source};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use toll_wire::digest::{Attribute, Class, Digest, FLAG_NAMES, Measure, Names, Unit};
use toll_wire::event::CommandKind;

#[derive(Debug, Serialize)]
pub struct Document {
    pub inputs: Vec<Source>,
    pub interrupted: bool,
    pub totals: Totals,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sampled: Option<JsonSampled>,
    pub classes: Vec<JsonClass>,
    pub other: Other,
    pub ledger: Written,
}

#[derive(Debug, Serialize)]
pub struct Totals {
    pub commands: u64,
    pub queries: u64,
    pub prepares: u64,
    pub admin: u64,
    pub errors: u64,
    pub tainted: u64,
    pub unique: u64,
    pub first_seen: Option<String>,
    pub last_seen: Option<String>,
    pub duration_s: f64,
    /// Commands a second; absent where the duration is 0.
    pub qps: Option<f64>,
    /// Query time spent in each second.
    pub concurrency: Option<f64>,
    #[serde(flatten)]
    pub measures: BTreeMap<String, JsonMeasure>,
    pub flags: BTreeMap<&'static str, u64>,
}

/// What there was in all, where only a share of the connections was looked at.
#[derive(Debug, Serialize)]
pub struct JsonSampled {
    /// The smallest share that was kept, and the mean over the time.
    pub share_least: f64,
    pub share_mean: f64,
    /// Connections met while not all were looked at.
    pub connections: u64,
    pub queries: JsonEstimate,
    pub query_time_us: JsonEstimate,
}

/// With its 95% interval; absent where too few connections were met to tell.
#[derive(Debug, Serialize)]
pub struct JsonEstimate {
    pub estimate: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct JsonClass {
    pub rank: usize,
    pub id: String,
    /// What the class is grouped by: the fingerprint, unless asked otherwise.
    pub fingerprint: String,
    pub distill: String,
    pub kind: &'static str,
    pub count: u64,
    pub errors: u64,
    pub tainted: u64,
    /// More may have been counted under `other` while there was no room for this class.
    #[serde(skip_serializing_if = "is_zero")]
    pub count_short_by_at_most: u64,
    #[serde(flatten)]
    pub measures: BTreeMap<String, JsonMeasure>,
    pub flags: BTreeMap<&'static str, u64>,
    pub error_numbers: BTreeMap<u16, u64>,
    pub tables: Vec<String>,
    pub users: Vec<Named>,
    pub dbs: Vec<Named>,
    pub hosts: Vec<Named>,
    pub first_seen: Option<String>,
    pub last_seen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sample: Option<String>,
}

/// Classes that are not listed: beyond the limit, or folded for want of room.
#[derive(Debug, Serialize)]
pub struct Other {
    pub classes: u64,
    pub folded_classes: u64,
    pub count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_time_us: Option<Sum>,
}

#[derive(Debug, Serialize)]
pub struct Sum {
    pub sum: f64,
}

#[derive(Debug, Serialize)]
pub struct Named {
    pub name: String,
    pub count: u64,
}

/// In microseconds for names that end in `_us`, else counts or bytes.
#[derive(Debug, Serialize)]
pub struct JsonMeasure {
    pub count: u64,
    pub sum: f64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub stddev: f64,
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

pub fn write(request: &Request, done: &Digested, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(request, done))?;
    writeln!(out)?;
    Ok(())
}

pub fn document(request: &Request, done: &Digested) -> Document {
    let digest = &done.digest;
    let (shown, beyond) = digest.ranked(request.limit);
    let query_time = |class: &Class| class.measure(Attribute::QueryTime).map_or(0, |measure| measure.sum);
    let other_time = beyond.iter().map(|class| query_time(class)).sum::<u128>() + query_time(&digest.folded);
    Document {
        inputs: done.inputs.clone(),
        interrupted: done.interrupted,
        totals: totals(digest),
        sampled: done.sampled.found().as_ref().map(json_sampled),
        classes: shown
            .iter()
            .zip(1..)
            .map(|(class, rank)| json_class(digest, class, rank, request.literals))
            .collect(),
        other: Other {
            classes: beyond.len() as u64 + digest.folded_classes,
            folded_classes: digest.folded_classes,
            count: beyond.iter().map(|class| class.count).sum::<u64>() + digest.folded.count,
            query_time_us: (other_time > 0).then(|| Sum { sum: us(other_time as f64) }),
        },
        ledger: done.ledger.written(),
    }
}

fn json_sampled(found: &Found) -> JsonSampled {
    let estimate = |of: &Estimate, scale: f64| JsonEstimate {
        estimate: (of.total * scale).round(),
        low: of.interval.map(|(low, _)| (low * scale).round()),
        high: of.interval.map(|(_, high)| (high * scale).round()),
    };
    JsonSampled {
        share_least: found.share_least,
        share_mean: found.share_mean,
        connections: found.connections,
        queries: estimate(&found.queries, 1.0),
        query_time_us: estimate(&found.query_ns, 1e-3),
    }
}

fn totals(digest: &Digest) -> Totals {
    let totals = &digest.totals;
    let duration_s = duration_s(digest);
    let busy_s = digest.all.measure(Attribute::QueryTime).map_or(0.0, |measure| measure.sum as f64 / 1e9);
    Totals {
        commands: totals.commands,
        queries: totals.queries,
        prepares: totals.prepares,
        admin: totals.admin,
        errors: totals.errors,
        tainted: totals.tainted,
        unique: digest.unique(),
        first_seen: moment(totals.first_ns),
        last_seen: moment(totals.last_ns),
        duration_s,
        qps: (duration_s > 0.0).then(|| totals.commands as f64 / duration_s),
        concurrency: (duration_s > 0.0).then(|| busy_s / duration_s),
        measures: measures(digest, &digest.all),
        flags: flags(&digest.all),
    }
}

/// From the first event to the last.
pub fn duration_s(digest: &Digest) -> f64 {
    digest.totals.last_ns.saturating_sub(digest.totals.first_ns) as f64 / 1e9
}

pub fn json_class(digest: &Digest, class: &Class, rank: usize, literals: bool) -> JsonClass {
    let names = |names: &Names| {
        let named = |(id, count)| Named { name: text(digest.name(id)), count };
        names.by_count().into_iter().map(named).collect()
    };
    JsonClass {
        rank,
        id: class.id.to_string(),
        fingerprint: text(&class.text),
        distill: text(&class.distill),
        kind: kind_name(class.kind),
        count: class.count,
        errors: class.errors,
        tainted: class.tainted,
        count_short_by_at_most: class.count_short_by_at_most,
        measures: measures(digest, class),
        flags: flags(class),
        error_numbers: class.error_numbers.iter().copied().collect(),
        tables: class.tables.iter().map(|table| text(table)).collect(),
        users: names(&class.users),
        dbs: names(&class.dbs),
        hosts: names(&class.hosts),
        first_seen: moment(class.first_ns),
        last_seen: moment(class.last_ns),
        sample: class.sample.as_ref().filter(|_| literals).map(|sample| text(&sample.text)),
    }
}

pub fn kind_name(kind: CommandKind) -> &'static str {
    match kind {
        CommandKind::Query => "query",
        CommandKind::Prepare => "prepare",
        CommandKind::Execute => "execute",
        CommandKind::Close => "close",
        CommandKind::Reset => "reset",
        CommandKind::Admin => "admin",
    }
}

fn measures(digest: &Digest, class: &Class) -> BTreeMap<String, JsonMeasure> {
    let own = Attribute::ALL.into_iter().filter_map(|attribute| {
        Some((
            name(attribute.name(), attribute.unit()),
            json_measure(class.measure(attribute)?, attribute.unit()),
        ))
    });
    let others = (0_u8..).zip(digest.other_attributes()).filter_map(|(id, (other, unit))| {
        Some((name(&other.to_ascii_lowercase(), *unit), json_measure(class.other(id)?, *unit)))
    });
    own.chain(others).collect()
}

fn name(name: &str, unit: Unit) -> String {
    if unit == Unit::Time { format!("{name}_us") } else { name.to_owned() }
}

fn json_measure(measure: &Measure, unit: Unit) -> JsonMeasure {
    let scaled = |value: f64| if unit == Unit::Time { us(value) } else { value };
    let quantile = |q: f64| scaled(measure.quantile(q) as f64);
    JsonMeasure {
        count: measure.count,
        sum: scaled(measure.sum as f64),
        min: scaled(measure.min as f64),
        max: scaled(measure.max as f64),
        mean: scaled(measure.mean()),
        stddev: scaled(measure.stddev()),
        p50: quantile(0.5),
        p95: quantile(0.95),
        p99: quantile(0.99),
    }
}

fn flags(class: &Class) -> BTreeMap<&'static str, u64> {
    FLAG_NAMES
        .into_iter()
        .zip(class.flags)
        .filter(|(_, (_, told))| *told > 0)
        .map(|(name, (set, _))| (name, set))
        .collect()
}

/// ns to us, to the nanosecond.
fn us(ns: f64) -> f64 {
    ns.round() / 1_000.0
}

/// Unix ns as RFC 3339 in UTC, to the microsecond.
pub fn moment(ns: u64) -> Option<String> {
    let time = jiff::Timestamp::from_nanosecond(i128::from(ns)).ok().filter(|_| ns > 0)?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
pub fn is_zero(n: &u64) -> bool {
    *n == 0
}
