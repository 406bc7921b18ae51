//! Tables of a directory as SQL tables: files that manifests name, within a range of time.

use crate::histogram;
use anyhow::{Context, bail};
use datafusion::arrow::array::RecordBatch;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::prelude::{ParquetReadOptions, SQLOptions, SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;
use std::ops::RangeInclusive;
use std::path::Path;
use toll_digest::TimeBound;
use toll_tables::{ALL_DAYS, hour_of_path, live_files, read_manifests};

/// Unix time, microseconds: `since` is in the range, `until` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    pub since_us: i64,
    pub until_us: i64,
}

impl TimeRange {
    pub const ALL: Self = Self { since_us: i64::MIN, until_us: i64::MAX };

    fn has_hour(self, hour: i64) -> bool {
        let begin_us = hour.saturating_mul(HOUR_US);
        begin_us.saturating_add(HOUR_US) > self.since_us && begin_us < self.until_us
    }

    /// From the begin of its first day: a class's text is written once a day.
    fn with_whole_first_day(self) -> Self {
        let since_us = self.since_us.saturating_sub(self.since_us.rem_euclid(DAY_US));
        Self { since_us, until_us: self.until_us }
    }

    /// Its days since 1970.
    fn days(self) -> RangeInclusive<i64> {
        self.since_us.div_euclid(DAY_US)..=self.until_us.saturating_sub(1).div_euclid(DAY_US)
    }
}

/// As the tables have it.
pub fn unix_us(bound: TimeBound) -> i64 {
    i64::try_from(bound.0 / 1_000).unwrap_or(i64::MAX)
}

const HOUR_US: i64 = 3_600_000_000;
const DAY_US: i64 = 24 * HOUR_US;

/// Names of the tables, in SQL and in the directory.
pub const TABLES: [&str; 3] = ["digests", "texts", "coverage"];

/// Opens `digests`, `texts` and `coverage` of a directory, with toll's functions.
///
/// `of`: a condition on hosts and clusters; `None`: all.
///
/// # Errors
/// The directory or a manifest cannot be read, or it holds no tables.
pub async fn open(root: &Path, range: TimeRange, of: Option<Expr>) -> anyhow::Result<SessionContext> {
    // PostgreSQL's, in which `cluster` is a name like any other.
    let config = SessionConfig::new()
        .with_information_schema(true)
        .set_str("datafusion.sql_parser.dialect", "postgresql")
        // Columns of rows that a condition leaves out are not decoded: histograms are most of a file.
        .set_bool("datafusion.execution.parquet.pushdown_filters", true);
    let session = SessionContext::new_with_config(config);
    session.register_udaf(histogram::merging_function());
    session.register_udf(histogram::quantile_function());
    let mut manifests = read_manifests(root, range.days())?;
    if manifests.is_empty() {
        // A table without rows needs its columns all the same: of any file.
        manifests = read_manifests(root, ALL_DAYS)?;
    }
    let files: Vec<&str> = live_files(manifests.values()).into_keys().collect();
    if files.is_empty() {
        bail!(
            "{} has no tables: `toll capture --digest --every 1m --parquet {}` writes them",
            root.display(),
            root.display()
        );
    }
    for table in TABLES {
        let within = if table == "texts" { range.with_whole_first_day() } else { range };
        let of_table = files.iter().copied().filter(|path| path.starts_with(&format!("{table}/")));
        let is_within = |path: &&str| hour_of_path(path).is_some_and(|hour| within.has_hour(hour));
        let (chosen, others): (Vec<&str>, Vec<&str>) = of_table.partition(is_within);
        let any = chosen.first().or(others.first()).copied();
        let Some(any) = any else { bail!("{} has no file of {table}", root.display()) };
        let frame = read(&session, root, if chosen.is_empty() { vec![any] } else { chosen }).await?;
        let frame = match (table, &of) {
            ("texts", _) => frame,
            (_, None) => frame.filter(condition(within))?,
            (_, Some(of)) => frame.filter(condition(within).and(of.clone()))?,
        };
        session.register_table(table, frame.into_view())?;
    }
    Ok(session)
}

async fn read(session: &SessionContext, root: &Path, files: Vec<&str>) -> anyhow::Result<DataFrame> {
    let paths: Vec<String> = files.iter().map(|file| root.join(file).display().to_string()).collect();
    let first = paths.first().cloned().unwrap_or_default();
    session
        .read_parquet(paths, ParquetReadOptions::default())
        .await
        .with_context(|| format!("cannot read tables, such as {first}"))
}

fn condition(range: TimeRange) -> Expr {
    let moment = |us: i64| lit(ScalarValue::TimestampMicrosecond(Some(us), Some("UTC".into())));
    col("ts").gt_eq(moment(range.since_us)).and(col("ts").lt(moment(range.until_us)))
}

/// Rows of a statement, which can change nothing and read no other file.
///
/// # Errors
/// The statement is wrong, or a file cannot be read.
pub async fn rows(session: &SessionContext, sql: &str) -> anyhow::Result<Vec<RecordBatch>> {
    let only_reads =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let asked = async { session.sql_with_options(sql, only_reads).await?.collect().await };
    // Its causes say the same again.
    asked.await.map_err(|error| anyhow::Error::msg(error.strip_backtrace()))
}
