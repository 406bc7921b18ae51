//! Row schema of a stored digest: what JSON holds, and what merges exactly. Every type here is a promise
//! (docs/reference/digest.md): fields may be added, never renamed.
//!
//! Names that end in `_us` are microseconds, `_ns` nanoseconds, moments RFC 3339 in UTC or Unix nanoseconds. Counts are
//! below 2^52 in a file that is read. What is derived (means, percentiles, shares of time) is written for readers and
//! never read back.

use super::InputSource;
use crate::classes::CLASSES_MAX;
use serde::de::{Error, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use toll_wire::accounting::{ByteCounts, CommandCounts, FrameCounts, SessionCounts};
use toll_wire::log::LogAccounting;
use toll_wire::queries::QueriesAccounting;

/// Name and version of this schema.
pub const NAME: &str = "toll-digest";
pub const VERSION: u32 = 1;

/// No server ever counted so many.
const COUNT_MAX: u64 = 1 << 52;
/// Bytes of a text that is read.
const TEXT_MAX: usize = 32 * 1024;
/// Texts of one list that are read.
const TEXTS_MAX: usize = 4_096;
/// Names that a class counts apart, and one for those beyond.
const NAMES_MAX: usize = 33;
/// Attributes of toll's own and of logs.
const MEASURES_MAX: usize = 64;

#[derive(Debug, Serialize, Deserialize)]
pub struct Document {
    /// Absent: written by a toll whose digests do not merge, or no digest.
    #[serde(default, deserialize_with = "known_schema")]
    pub schema: Option<Schema>,
    #[serde(skip_deserializing)]
    pub inputs: Vec<InputSource>,
    #[serde(default)]
    pub interrupted: bool,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub merged: Option<Merged>,
    pub totals: Option<Totals>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled: Option<JsonSampled>,
    #[serde(default, deserialize_with = "at_most::<_, _, CLASSES_MAX>")]
    pub classes: Vec<ClassRow>,
    #[serde(default)]
    pub other: Other,
    #[serde(default)]
    pub ledger: AccountingRow,
}

/// First in a document, so that whoever reads it knows what follows.
#[derive(Debug, Serialize, Deserialize)]
pub struct Schema {
    pub name: String,
    pub version: u32,
    /// Grouping key of the classes.
    pub group_by: String,
    /// Scheme of all histograms, [`crate::classes::HISTOGRAM_SCHEME`].
    pub histogram: String,
}

/// Stored digests that are in this one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Merged {
    pub digests: u64,
    /// Of those: interrupted before their inputs ended.
    pub interrupted: u64,
    /// Classes that they held together with others, not apart.
    pub classes_not_listed: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Totals {
    #[serde(deserialize_with = "count")]
    pub commands: u64,
    #[serde(deserialize_with = "count")]
    pub queries: u64,
    #[serde(deserialize_with = "count")]
    pub prepares: u64,
    #[serde(deserialize_with = "count")]
    pub admin: u64,
    #[serde(deserialize_with = "count")]
    pub errors: u64,
    #[serde(deserialize_with = "count")]
    pub tainted: u64,
    #[serde(skip_deserializing)]
    pub unique: u64,
    #[serde(skip_deserializing)]
    pub first_seen: Option<String>,
    #[serde(skip_deserializing)]
    pub last_seen: Option<String>,
    #[serde(skip_deserializing)]
    pub duration_s: f64,
    /// Commands a second; absent where the duration is 0.
    #[serde(skip_deserializing)]
    pub qps: Option<f64>,
    /// Query time spent in each second.
    #[serde(skip_deserializing)]
    pub concurrency: Option<f64>,
    #[serde(flatten, skip_deserializing)]
    pub measures: BTreeMap<String, JsonMeasure>,
    #[serde(skip_deserializing)]
    pub flags: BTreeMap<&'static str, u64>,
    /// Of all events, whatever they are grouped by.
    #[serde(default)]
    pub exact: ExactValues,
}

/// Estimated totals if only a share of the connections was sampled.
#[derive(Debug, Serialize, Deserialize)]
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
#[derive(Debug, Serialize, Deserialize)]
pub struct JsonEstimate {
    pub estimate: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// One class of queries.
#[derive(Debug, Serialize, Deserialize)]
pub struct ClassRow {
    #[serde(skip_deserializing)]
    pub rank: usize,
    /// MD5 of what the class is grouped by, 32 hexadecimal digits.
    #[serde(deserialize_with = "text")]
    pub id: String,
    /// What the class is grouped by: the fingerprint, unless asked otherwise. Its first 4 KiB.
    #[serde(deserialize_with = "text")]
    pub fingerprint: String,
    #[serde(deserialize_with = "text")]
    pub distill: String,
    #[serde(deserialize_with = "text")]
    pub kind: String,
    #[serde(deserialize_with = "count")]
    pub count: u64,
    #[serde(deserialize_with = "count")]
    pub errors: u64,
    #[serde(deserialize_with = "count")]
    pub tainted: u64,
    /// More may have been counted under `other` while there was no room for this class, or it was not listed.
    #[serde(default, deserialize_with = "count", skip_serializing_if = "is_zero")]
    pub count_short_by_at_most: u64,
    #[serde(flatten, skip_deserializing)]
    pub measures: BTreeMap<String, JsonMeasure>,
    #[serde(skip_deserializing)]
    pub flags: BTreeMap<&'static str, u64>,
    pub error_numbers: BTreeMap<u16, u64>,
    #[serde(deserialize_with = "texts")]
    pub tables: Vec<String>,
    #[serde(deserialize_with = "at_most::<_, _, NAMES_MAX>")]
    pub users: Vec<NameCount>,
    #[serde(deserialize_with = "at_most::<_, _, NAMES_MAX>")]
    pub dbs: Vec<NameCount>,
    #[serde(deserialize_with = "at_most::<_, _, NAMES_MAX>")]
    pub hosts: Vec<NameCount>,
    #[serde(skip_deserializing)]
    pub first_seen: Option<String>,
    #[serde(skip_deserializing)]
    pub last_seen: Option<String>,
    #[serde(default, deserialize_with = "some_text", skip_serializing_if = "Option::is_none")]
    pub sample: Option<String>,
    /// With `--explain`.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanRow>,
    #[serde(default)]
    pub exact: ExactValues,
}

/// EXPLAIN of a class's sample: columns and rows, or why there are none.
#[derive(Debug, Serialize)]
pub struct PlanRow {
    pub server: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Option<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_explained: Option<String>,
}

/// What merges to the last digit.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExactValues {
    /// Bytes of `fingerprint` as hexadecimal digits, where they are not UTF-8.
    #[serde(default, deserialize_with = "some_text", skip_serializing_if = "Option::is_none")]
    pub fingerprint_hex: Option<String>,
    /// Unix ns; 0: unknown.
    pub first_ns: u64,
    pub last_ns: u64,
    /// When `sample` began and how long it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_start_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_query_ns: Option<u64>,
    #[serde(deserialize_with = "at_most::<_, _, MEASURES_MAX>")]
    pub flags: Vec<FlagRow>,
    #[serde(deserialize_with = "at_most::<_, _, MEASURES_MAX>")]
    pub measures: Vec<MeasureRow>,
}

/// Number of events with the flag set, and number with any value.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct FlagRow {
    #[serde(deserialize_with = "text")]
    pub name: String,
    #[serde(deserialize_with = "count")]
    pub set: u64,
    #[serde(deserialize_with = "count")]
    pub reported: u64,
}

/// Values of one attribute. Integers in `unit`; sums have up to 39 digits and are therefore texts.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasureRow {
    #[serde(deserialize_with = "text")]
    pub name: String,
    /// `ns`, `count` or `bytes`.
    #[serde(deserialize_with = "text")]
    pub unit: String,
    #[serde(deserialize_with = "count")]
    pub count: u64,
    #[serde(with = "digits")]
    pub sum: u128,
    #[serde(with = "digits")]
    pub sum_of_squares: u128,
    pub min: u64,
    pub max: u64,
    /// Bucket and count, by bucket; the document's `schema.histogram` says which values a bucket holds.
    #[serde(serialize_with = "on_one_line", deserialize_with = "at_most::<_, _, BUCKETS_MAX>")]
    pub histogram: Vec<(u16, u64)>,
}

const BUCKETS_MAX: usize = crate::classes::BUCKETS as usize;

/// Classes that are not listed: beyond the limit, or folded for want of room.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Other {
    #[serde(deserialize_with = "count")]
    pub classes: u64,
    #[serde(skip_deserializing)]
    pub folded_classes: u64,
    #[serde(deserialize_with = "count")]
    pub count: u64,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub query_time_us: Option<Sum>,
    #[serde(default, deserialize_with = "count")]
    pub errors: u64,
    #[serde(default, deserialize_with = "count")]
    pub tainted: u64,
    /// No class of these has a greater count.
    #[serde(default, deserialize_with = "count")]
    pub count_max: u64,
    /// Of all of them together.
    #[serde(default)]
    pub exact: ExactValues,
}

#[derive(Debug, Serialize)]
pub struct Sum {
    pub sum: f64,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct NameCount {
    #[serde(deserialize_with = "text")]
    pub name: String,
    #[serde(deserialize_with = "count")]
    pub count: u64,
}

/// Derived from a [`MeasureRow`]. In microseconds for names that end in `_us`, else counts or bytes.
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

/// Accounting of all inputs. `frames` to `damage` are of captures, and absent without one.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct AccountingRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<LogAccounting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<FrameCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions: Option<SessionCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<CommandCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<ByteCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unread_tail_bytes: Option<u64>,
    /// Absent without a capture, null where it says nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_by_capture: Option<Option<u64>>,
    #[serde(default, deserialize_with = "some_texts", skip_serializing_if = "Option::is_none")]
    pub damage: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queries: Option<QueriesAccounting>,
    #[serde(skip_deserializing)]
    pub adds_up: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
pub fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Refuses other schemas before anything else of a document is read.
fn known_schema<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Schema>, D::Error> {
    let schema = Schema::deserialize(from)?;
    let histogram = crate::classes::HISTOGRAM_SCHEME;
    if schema.name != NAME {
        return Err(D::Error::custom("it is not a digest of toll's"));
    }
    if schema.version != VERSION || schema.histogram != histogram {
        return Err(D::Error::custom(format!(
            "its schema is version {} with histograms of {:.40}, this toll reads version {VERSION} with {histogram}",
            schema.version, schema.histogram
        )));
    }
    Ok(Some(schema))
}

fn count<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let count = u64::deserialize(from)?;
    if count < COUNT_MAX { Ok(count) } else { Err(D::Error::custom("a count of 2^52 or more")) }
}

/// A text, cut where it is longer than any that matters.
struct Text(String);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut text = String::deserialize(from)?;
        if text.len() > TEXT_MAX {
            let end = (0..=TEXT_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            text.truncate(end);
        }
        Ok(Self(text))
    }
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Text::deserialize(from).map(|text| text.0)
}

fn some_text<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<Text>::deserialize(from)?.map(|text| text.0))
}

/// The first of a list of texts.
fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let first: BoundedList<Text, TEXTS_MAX> = BoundedList::deserialize(from)?;
    Ok(first.0.into_iter().map(|text| text.0).collect())
}

fn some_texts<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<String>>, D::Error> {
    texts(from).map(Some)
}

/// A list that is refused where it is longer than any that toll writes.
fn at_most<'de, D, T, const MAX: usize>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let BoundedList(list, beyond) = BoundedList::<T, MAX>::deserialize(from)?;
    if beyond == 0 { Ok(list) } else { Err(D::Error::custom(format!("a list of more than {MAX}"))) }
}

/// The first `MAX` of a list, and how many more there were.
struct BoundedList<T, const MAX: usize>(Vec<T>, usize);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedList<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_seq(Self(Vec::new(), 0))
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedList<T, MAX> {
    type Value = Self;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Self, A::Error> {
        while self.0.len() < MAX {
            match list.next_element()? {
                Some(one) => self.0.push(one),
                None => return Ok(self),
            }
        }
        while list.next_element::<IgnoredAny>()?.is_some() {
            self.1 += 1;
        }
        Ok(self)
    }
}

/// Numbers that other readers of JSON would round.
mod digits {
    use super::{Deserialize, Deserializer, Error, Serializer, Text};

    pub fn serialize<S: Serializer>(number: &u128, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(number)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        let text = Text::deserialize(from)?.0;
        text.parse().map_err(|_| D::Error::custom("a sum that is no number of at most 39 digits"))
    }
}

fn on_one_line<S: Serializer>(pairs: &[(u16, u64)], to: S) -> Result<S::Ok, S::Error> {
    let line = serde_json::value::to_raw_value(pairs).map_err(serde::ser::Error::custom)?;
    line.serialize(to)
}
