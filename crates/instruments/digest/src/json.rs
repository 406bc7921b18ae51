//! Writer of digests as JSON: rows of the schema, built from a digest.

use super::plan::ClassPlan;
use super::sample_estimator::{Estimate, SampledTotals};
use super::schema::{
    self, ClassRow, Document, ExactValues, FlagRow, JsonEstimate, JsonMeasure, JsonSampled, MeasureRow,
    NameCount, Other, Schema, Sum, Totals,
};
use super::{DigestResult, Request};
use crate::classes::{Class, Digest, FLAG_NAMES, HISTOGRAM_SCHEME, Measure, NameCounts};
use std::collections::BTreeMap;
use std::io::Write;
use toll_wire::attribute::{Attribute, Unit};
use toll_wire::event::CommandKind;

pub fn write_json(request: &Request, done: &DigestResult, out: &mut dyn Write) -> anyhow::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &build_document(request, done))?;
    writeln!(out)?;
    Ok(())
}

pub fn build_document(request: &Request, done: &DigestResult) -> Document {
    let digest = &done.digest;
    let (shown, beyond) = digest.ranked(request.limit);
    let rest = digest.merge_rest(&beyond);
    let other_time = rest.class.measure(Attribute::QueryTime).map_or(0, |measure| measure.sum);
    Document {
        schema: Some(Schema {
            name: schema::NAME.to_owned(),
            version: schema::VERSION,
            group_by: digest.settings().group_by.to_string(),
            histogram: HISTOGRAM_SCHEME.to_owned(),
        }),
        inputs: done.inputs.clone(),
        interrupted: done.interrupted,
        merged: Some(done.merged.clone()).filter(|merged| merged.digests > 0),
        totals: Some(totals(digest)),
        sampled: done.sampled.totals().as_ref().map(sampled_row),
        classes: shown
            .iter()
            .zip(1..)
            .map(|(class, rank)| class_row(done, class, rank, request.literals))
            .collect(),
        other: Other {
            classes: rest.classes,
            folded_classes: digest.folded_classes,
            count: rest.class.count,
            query_time_us: (other_time > 0).then(|| Sum { sum: us(other_time as f64) }),
            errors: rest.class.errors,
            tainted: rest.class.tainted,
            count_max: rest.count_max,
            exact: exact(digest, &rest.class),
        },
        ledger: done.accounting.row(),
    }
}

fn sampled_row(found: &SampledTotals) -> JsonSampled {
    let estimate = |of: &Estimate, scale: f64| JsonEstimate {
        estimate: (of.total * scale).round(),
        low: of.interval.map(|(low, _)| (low * scale).round()),
        high: of.interval.map(|(_, high)| (high * scale).round()),
    };
    JsonSampled {
        share_least: found.share_min,
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
        first_seen: format_time(totals.first_ns),
        last_seen: format_time(totals.last_ns),
        duration_s,
        qps: (duration_s > 0.0).then(|| totals.commands as f64 / duration_s),
        concurrency: (duration_s > 0.0).then(|| busy_s / duration_s),
        measures: measures(digest, &digest.all),
        flags: flags(&digest.all),
        exact: exact(digest, &digest.all),
    }
}

/// From the first event to the last.
pub fn duration_s(digest: &Digest) -> f64 {
    digest.totals.last_ns.saturating_sub(digest.totals.first_ns) as f64 / 1e9
}

/// One class; `rank`: its place, from 1.
fn class_row(done: &DigestResult, class: &Class, rank: usize, literals: bool) -> ClassRow {
    let digest = &done.digest;
    let names = |names: &NameCounts| {
        let named = |(id, count)| NameCount { name: lossy_text(digest.name(id)), count };
        names.by_count().into_iter().map(named).collect()
    };
    let sample = class.sample.as_ref().filter(|_| literals);
    ClassRow {
        rank,
        id: class.id.to_string(),
        fingerprint: lossy_text(&class.text),
        distill: lossy_text(&class.distill),
        kind: kind_name(class.kind).to_owned(),
        count: class.count,
        errors: class.errors,
        tainted: class.tainted,
        count_short_by_at_most: class.count_short_by_at_most,
        measures: measures(digest, class),
        flags: flags(class),
        error_numbers: class.error_numbers.iter().copied().collect(),
        tables: class.tables.iter().map(|table| lossy_text(table)).collect(),
        users: names(&class.users),
        dbs: names(&class.dbs),
        hosts: names(&class.hosts),
        first_seen: format_time(class.first_ns),
        last_seen: format_time(class.last_ns),
        sample: sample.map(|sample| lossy_text(&sample.render())),
        plan: done.plans.get(&class.id).map(ClassPlan::row),
        exact: ExactValues {
            fingerprint_hex: std::str::from_utf8(&class.text).is_err().then(|| hex(&class.text)),
            sample_start_ns: sample.map(|sample| sample.start_ns),
            sample_query_ns: sample.map(|sample| sample.query_ns),
            ..exact(digest, class)
        },
    }
}

fn exact(digest: &Digest, class: &Class) -> ExactValues {
    let flags = FLAG_NAMES.into_iter().zip(class.flags).filter(|(_, (_, told))| *told > 0);
    ExactValues {
        first_ns: class.first_ns,
        last_ns: class.last_ns,
        flags: flags
            .map(|(name, (set, reported))| FlagRow { name: name.to_owned(), set, reported })
            .collect(),
        measures: measures_by_name(digest, class, |name, unit, measure| MeasureRow {
            name: name.to_owned(),
            unit: unit_name(unit).to_owned(),
            count: measure.count,
            sum: measure.sum,
            sum_of_squares: measure.sum_of_squares(),
            min: measure.min,
            max: measure.max,
            histogram: measure.histogram.buckets(),
        })
        .collect(),
        ..ExactValues::default()
    }
}

pub fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::Time => "ns",
        Unit::Count => "count",
        Unit::Bytes => "bytes",
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
    measures_by_name(digest, class, |of, unit, measure| {
        (name(&of.to_ascii_lowercase(), unit), json_measure(measure, unit))
    })
    .collect()
}

/// Attributes of toll's own, then those that logs name.
fn measures_by_name<'a, T>(
    digest: &'a Digest,
    class: &'a Class,
    with: impl Fn(&str, Unit, &Measure) -> T + Copy + 'a,
) -> impl Iterator<Item = T> + 'a {
    let own = Attribute::ALL.into_iter().filter_map(move |attribute| {
        Some(with(attribute.name(), attribute.unit(), class.measure(attribute)?))
    });
    let others = (0_u8..)
        .zip(digest.other_attributes())
        .filter_map(move |(id, (other, unit))| Some(with(other, *unit, class.other(id)?)));
    own.chain(others)
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
pub fn format_time(ns: u64) -> Option<String> {
    let time = jiff::Timestamp::from_nanosecond(i128::from(ns)).ok().filter(|_| ns > 0)?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

pub fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
