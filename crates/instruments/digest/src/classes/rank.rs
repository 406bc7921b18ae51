//! Ranking of query classes, and the number of classes shown.

use super::class::Class;
use super::{Digest, Measure};
use std::str::FromStr;
use toll_wire::attribute::Attribute;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    Sum,
    Count,
    Min,
    Max,
    Mean,
    P50,
    P95,
    P99,
}

/// `attribute:aggregate`, such as `query_time:sum`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    pub attribute: Attribute,
    pub aggregate: Aggregate,
}

impl Default for Rank {
    fn default() -> Self {
        Self { attribute: Attribute::QueryTime, aggregate: Aggregate::Sum }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RankError {
    #[error(
        "`{0}` is no attribute: use one of query_time, first_byte_time, lock_time, rows_sent, rows_examined, rows_affected, warnings, bytes_sent, bytes_received, query_size"
    )]
    Attribute(String),
    #[error("`{0}` is no aggregate: use one of sum, cnt, min, max, mean, p50, p95, p99")]
    Aggregate(String),
    #[error("`{0}` is no limit: use a count (20), a share (95%), or both (95%:20)")]
    Limit(String),
}

impl FromStr for Rank {
    type Err = RankError;

    fn from_str(text: &str) -> Result<Self, RankError> {
        let (attribute, aggregate) = text.split_once(':').unwrap_or((text, "sum"));
        let aggregate = match aggregate.to_ascii_lowercase().as_str() {
            "sum" => Aggregate::Sum,
            "cnt" | "count" => Aggregate::Count,
            "min" => Aggregate::Min,
            "max" => Aggregate::Max,
            "mean" | "avg" => Aggregate::Mean,
            "p50" | "median" => Aggregate::P50,
            "p95" | "pct_95" => Aggregate::P95,
            "p99" => Aggregate::P99,
            _ => return Err(RankError::Aggregate(aggregate.to_owned())),
        };
        let attribute =
            Attribute::from_name(attribute).ok_or_else(|| RankError::Attribute(attribute.to_owned()))?;
        Ok(Self { attribute, aggregate })
    }
}

impl Rank {
    /// Sort order of classes: larger is slower. Ties go to the more frequent class.
    pub fn key(&self, class: &Class) -> (u128, u64) {
        (class.measure(self.attribute).map_or(0, |measure| self.value(class, measure)), class.count)
    }

    fn value(&self, class: &Class, measure: &Measure) -> u128 {
        match self.aggregate {
            Aggregate::Sum => measure.sum,
            Aggregate::Count => u128::from(class.count),
            Aggregate::Min => u128::from(measure.min),
            Aggregate::Max => u128::from(measure.max),
            Aggregate::Mean => measure.sum / u128::from(measure.count.max(1)),
            Aggregate::P50 => u128::from(measure.quantile(0.5)),
            Aggregate::P95 => u128::from(measure.quantile(0.95)),
            Aggregate::P99 => u128::from(measure.quantile(0.99)),
        }
    }
}

/// Number of classes shown: the slowest ones that make up a share, and no more than a count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limit {
    pub share: Option<f64>,
    pub count: Option<usize>,
}

impl Default for Limit {
    fn default() -> Self {
        Self { share: Some(0.95), count: Some(20) }
    }
}

impl FromStr for Limit {
    type Err = RankError;

    /// `20`, `95%` or `95%:20`.
    fn from_str(text: &str) -> Result<Self, RankError> {
        let error = || RankError::Limit(text.to_owned());
        let (share, count) = match text.split_once('%') {
            None => (None, Some(text)),
            Some((share, "")) => (Some(share), None),
            Some((share, count)) => (Some(share), Some(count.strip_prefix(':').ok_or_else(error)?)),
        };
        let share = share.map(|s| s.parse::<f64>().map_err(|_| error())).transpose()?;
        let count = count.map(|c| c.parse::<usize>().map_err(|_| error())).transpose()?;
        if share.is_some_and(|s| !(0.0..=100.0).contains(&s)) {
            return Err(error());
        }
        Ok(Self { share: share.map(|s| s / 100.0), count })
    }
}

pub(super) fn rank_classes(digest: &Digest, limit: Limit) -> (Vec<&Class>, Vec<&Class>) {
    let rank = digest.settings.rank;
    let mut classes: Vec<(&Class, (u128, u64))> = digest.classes.iter().map(|c| (c, rank.key(c))).collect();
    classes.sort_by(|(a, x), (b, y)| y.cmp(x).then_with(|| (&a.text, a.id).cmp(&(&b.text, b.id))));
    let total: u128 = classes.iter().map(|(_, key)| key.0).sum();
    // All of it includes what weighs nothing.
    let enough = limit.share.filter(|share| *share < 1.0).map(|share| total as f64 * share);
    let mut running = 0;
    let shown = classes
        .iter()
        .enumerate()
        .take_while(|(n, (_, key))| {
            let is_in = enough.is_none_or(|enough| enough <= 0.0 || (running as f64) < enough)
                && limit.count.is_none_or(|count| count == 0 || *n < count);
            running += key.0;
            is_in
        })
        .count();
    let mut classes: Vec<&Class> = classes.into_iter().map(|(class, _)| class).collect();
    let beyond = classes.split_off(shown);
    (classes, beyond)
}
