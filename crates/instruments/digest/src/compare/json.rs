//! JSON of a comparison. Names that end in `_us` are microseconds, in `_pct` percent.

use super::{ComparedClass, Comparison, typical_ns};
use crate::classes::{Class, Measure};
use crate::json::{duration_s, format_time, kind_name, lossy_text};
use crate::{DigestResult, InputSource};
use serde::Serialize;
use std::io::Write;
use toll_stats::{Interval, IntervalError, log_ratio_to_pct};
use toll_wire::attribute::Attribute;

const NAME: &str = "toll-digest-comparison";
const VERSION: u32 = 1;

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: Schema,
    before: SideRow<'a>,
    after: SideRow<'a>,
    /// Repeats of each side; null: too few stretches of time, so no class is tested.
    slices: Option<usize>,
    min_change_pct: f64,
    common_change_pct: Option<EstimateRow>,
    /// Classes that the common change is of.
    common_classes: Option<usize>,
    /// Spread of the changes between the sides beyond the error of the slices; it is in the intervals.
    between_sd_pct: Option<f64>,
    classes: Vec<ClassRow>,
}

#[derive(Debug, Serialize)]
struct Schema {
    name: &'static str,
    version: u32,
    group_by: String,
}

#[derive(Debug, Serialize)]
struct SideRow<'a> {
    inputs: &'a [InputSource],
    commands: u64,
    queries: u64,
    first_seen: Option<String>,
    last_seen: Option<String>,
    duration_s: f64,
    /// Classes that were not kept apart: one of them is neither new nor gone.
    folded_classes: u64,
    /// Figures are of a share of the connections.
    is_sampled: bool,
}

#[derive(Debug, Serialize)]
struct EstimateRow {
    estimate: f64,
    low: Option<f64>,
    high: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    no_interval: Option<String>,
}

#[derive(Debug, Serialize)]
struct ClassRow {
    id: String,
    fingerprint: String,
    distill: String,
    kind: &'static str,
    change: &'static str,
    /// Of the typical query time, relative to the common change.
    change_pct: Option<EstimateRow>,
    before: Option<FiguresRow>,
    after: Option<FiguresRow>,
}

#[derive(Debug, Serialize)]
struct FiguresRow {
    count: u64,
    calls_per_s: Option<f64>,
    errors: u64,
    /// Geometric mean.
    typical_us: Option<f64>,
    mean_us: Option<f64>,
    p99_us: Option<f64>,
    sum_us: Option<f64>,
}

pub fn write_json(comparison: &Comparison<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let document = Document {
        schema: Schema {
            name: NAME,
            version: VERSION,
            group_by: comparison.after.digest.settings().group_by.to_string(),
        },
        before: side_row(comparison.before),
        after: side_row(comparison.after),
        slices: comparison.slices,
        min_change_pct: comparison.min_change_pct,
        common_change_pct: comparison.common.map(|common| estimate_row(common.mean, common.interval)),
        common_classes: comparison.common.map(|common| common.series),
        between_sd_pct: comparison.between_sd.map(log_ratio_to_pct),
        classes: comparison.classes.iter().filter_map(|class| class_row(comparison, class)).collect(),
    };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)?;
    Ok(())
}

fn side_row(side: &DigestResult) -> SideRow<'_> {
    let totals = &side.digest.totals;
    SideRow {
        inputs: &side.inputs,
        commands: totals.commands,
        queries: totals.queries,
        first_seen: format_time(totals.first_ns),
        last_seen: format_time(totals.last_ns),
        duration_s: duration_s(&side.digest),
        folded_classes: side.digest.folded_classes,
        is_sampled: side.sampled.totals().is_some(),
    }
}

fn estimate_row(mean: f64, interval: Result<Interval, IntervalError>) -> EstimateRow {
    let pct = interval.map(Interval::to_pct);
    EstimateRow {
        estimate: log_ratio_to_pct(mean),
        low: pct.map(|pct| pct.low).ok(),
        high: pct.map(|pct| pct.high).ok(),
        no_interval: pct.err().map(|reason| reason.to_string()),
    }
}

fn class_row(comparison: &Comparison<'_>, compared: &ComparedClass<'_>) -> Option<ClassRow> {
    let class = compared.class()?;
    Some(ClassRow {
        id: class.id.to_string(),
        fingerprint: lossy_text(&class.text),
        distill: lossy_text(&class.distill),
        kind: kind_name(class.kind),
        change: compared.change.name(),
        change_pct: compared.log_change.map(|change| estimate_row(change.mean, change.interval)),
        before: compared.before.map(|class| figures_row(comparison.before, class)),
        after: compared.after.map(|class| figures_row(comparison.after, class)),
    })
}

fn figures_row(side: &DigestResult, class: &Class) -> FiguresRow {
    let us = |ns: f64| ns.round() / 1_000.0;
    let measure = class.measure(Attribute::QueryTime);
    let duration_s = duration_s(&side.digest);
    FiguresRow {
        count: class.count,
        calls_per_s: (duration_s > 0.0).then(|| class.count as f64 / duration_s),
        errors: class.errors,
        typical_us: typical_ns(class).map(us),
        mean_us: measure.map(Measure::mean).map(us),
        p99_us: measure.map(|measure| us(measure.quantile(0.99) as f64)),
        sum_us: measure.map(|measure| us(measure.sum as f64)),
    }
}
