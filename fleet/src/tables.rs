//! Tables of a directory as SQL tables, within a range of time.

use crate::distributed::Workers;
use crate::live_table::LiveTable;
use crate::{columns, histogram, inventory};
use anyhow::{Context, bail};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::logical_expr::{Expr, col, lit};
use datafusion::prelude::{SQLOptions, SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use std::collections::BTreeMap;
use std::iter::successors;
use std::ops::RangeInclusive;
use std::sync::Arc;
use toll_digest::TimeBound;
use toll_sys::memory::available_bytes;
use toll_sys::s3_settings::read_settings;
use toll_tables::{Location, Span, Store, Table, is_empty};

/// Unix time, microseconds: `since` is in the range, `until` is not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeRange {
    pub since_us: i64,
    pub until_us: i64,
}

impl TimeRange {
    pub const ALL: Self = Self { since_us: i64::MIN, until_us: i64::MAX };

    pub fn overlaps(self, span: Span) -> bool {
        span.end_us() > self.since_us && span.begin_us() < self.until_us
    }

    /// Its days since 1970.
    pub fn days(self) -> RangeInclusive<i64> {
        self.since_us.div_euclid(DAY_US)..=self.until_us.saturating_sub(1).div_euclid(DAY_US)
    }

    /// All of its days: a class's text is written once a day.
    fn whole_days(self) -> Self {
        let days = self.days();
        Self {
            since_us: days.start().saturating_mul(DAY_US),
            until_us: days.end().saturating_add(1).saturating_mul(DAY_US),
        }
    }
}

/// As the tables have it.
pub fn unix_us(bound: TimeBound) -> i64 {
    i64::try_from(bound.0 / 1_000).unwrap_or(i64::MAX)
}

/// # Errors
/// The place cannot be read, or it holds no tables.
pub fn check_has_tables(store: &dyn Store) -> anyhow::Result<()> {
    let root = store.location();
    if is_empty(store)? {
        bail!("{root} has no tables: `toll capture --digest --every 1m --parquet {root}` writes them");
    }
    Ok(())
}

/// Memory that questions may take even where less is free.
const MIN_MEMORY_BYTES: usize = 256 << 20;
const DAY_US: i64 = 86_400_000_000;

/// Tables of a directory or bucket, and the memory of all questions about them.
pub struct Tables {
    store: Arc<dyn Store>,
    /// With its name.
    bucket: Option<(String, Arc<AmazonS3>)>,
    runtime: Arc<RuntimeEnv>,
    /// Columns that are known of hosts.
    inventory: Option<SchemaRef>,
    workers: Workers,
}

impl Tables {
    /// # Errors
    /// The place cannot be read, or it holds no tables.
    pub fn open(root: &Location) -> anyhow::Result<Self> {
        let store = root.open()?;
        check_has_tables(&*store)?;
        let bucket = match root {
            Location::Directory(_) => None,
            Location::Bucket { name, .. } => Some((name.clone(), Arc::new(open_bucket(name)?))),
        };
        // Many clients may ask at once: what takes more memory ends with an error, and not with this host.
        let memory = usize::try_from(available_bytes() / 2).unwrap_or(usize::MAX).max(MIN_MEMORY_BYTES);
        let runtime = RuntimeEnvBuilder::new().with_memory_limit(memory, 1.0).build_arc()?;
        let inventory = inventory::read_schema(&*store)?;
        Ok(Self { store, bucket, runtime, inventory, workers: Workers::default() })
    }

    /// Questions go to these.
    pub fn with_workers(self, workers: Workers) -> Self {
        Self { workers, ..self }
    }

    pub fn workers(&self) -> &Workers {
        &self.workers
    }

    /// For parts of questions, which name files of the bucket.
    ///
    /// # Errors
    /// Never, but for a fault of the library.
    pub fn worker_runtime(&self) -> anyhow::Result<Arc<RuntimeEnv>> {
        if let Some((name, bucket)) = &self.bucket {
            self.runtime.register_object_store(&format!("s3://{name}").parse()?, Arc::clone(bucket) as _);
        }
        Ok(Arc::clone(&self.runtime))
    }

    /// A session that knows toll's functions and all tables.
    ///
    /// # Errors
    /// Never, but for a fault of the library.
    pub async fn session(&self) -> anyhow::Result<SessionContext> {
        let session = self.session_without_hosts()?;
        self.register_hosts(&session).await?;
        Ok(session)
    }

    fn session_without_hosts(&self) -> anyhow::Result<SessionContext> {
        // PostgreSQL's, in which `cluster` is a name like any other.
        let config = SessionConfig::new()
            .with_information_schema(true)
            .set_str("datafusion.sql_parser.dialect", "postgresql")
            // Columns of rows that a condition leaves out are not decoded: histograms are most of a file.
            .set_bool("datafusion.execution.parquet.pushdown_filters", true)
            // There are none, and to look for them in each group of rows took longer than to open the files.
            .set_bool("datafusion.execution.parquet.bloom_filter_on_read", false);
        let state = SessionStateBuilder::new()
            .with_config(config)
            .with_runtime_env(self.worker_runtime()?)
            .with_default_features();
        let session = SessionContext::new_with_state(self.workers.spread(state)?.build());
        session.register_udaf(histogram::merging_function());
        session.register_udf(histogram::quantile_function());
        for table in Table::ALL {
            session
                .register_table(table.name(), Arc::new(LiveTable::new(Arc::clone(&self.store), table)?))?;
        }
        if let Some(schema) = &self.inventory {
            session.register_table("inventory", inventory::table(&*self.store, schema)?)?;
        }
        Ok(session)
    }

    /// Made of the others.
    async fn register_hosts(&self, session: &SessionContext) -> anyhow::Result<()> {
        let hosts = session.sql(&inventory::hosts_sql(self.inventory.as_ref())).await?;
        session.register_table("hosts", hosts.into_view())?;
        Ok(())
    }

    /// The same of a range of time, and of those hosts and clusters that a condition chooses; `None`: all.
    ///
    /// # Errors
    /// As [`Self::session`].
    pub async fn within(&self, range: TimeRange, of: Option<Expr>) -> anyhow::Result<SessionContext> {
        let session = self.session_without_hosts()?;
        let is_chosen_by = |column: &&str| {
            of.as_ref().is_some_and(|of| of.column_refs().iter().any(|of| of.name == **column))
        };
        for table in Table::ALL {
            // Rows without hosts cannot be chosen by them.
            let mut tables = successors(Some(table), |table| table.finer());
            let from = tables.find(|table| !table.folded_columns().iter().any(is_chosen_by));
            let from = from.unwrap_or(table);
            let frame = session.table(from.name()).await?;
            let of_time = match table {
                Table::Texts => within("first_seen", range.whole_days()),
                _ => within("ts", range),
            };
            let of_hosts = of.clone().filter(|_| table != Table::Texts);
            let frame = match of_time.into_iter().chain(of_hosts).reduce(Expr::and) {
                Some(condition) => frame.filter(condition)?,
                None => frame,
            };
            session.deregister_table(table.name())?;
            session.register_table(table.name(), frame.into_view())?;
        }
        self.register_hosts(&session).await?;
        Ok(session)
    }

    /// Chooses the rows of the hosts for which a condition on the table `hosts` holds (`None`: there is none); `None`: all rows.
    ///
    /// # Errors
    /// It is no condition, or holds for no host.
    pub async fn chosen(&self, range: TimeRange, condition: Option<&str>) -> anyhow::Result<Option<Expr>> {
        let Some(condition) = condition else { return Ok(None) };
        let session = self.within(range, None).await?;
        let sql = format!(
            "SELECT cluster, host, CASE WHEN ({condition}) THEN 1 ELSE 0 END AS chosen FROM hosts
             WHERE cluster IS NOT NULL ORDER BY cluster, host"
        );
        let found = rows(&session, &sql).await.with_context(|| format!("--where {condition}"))?;
        let mut clusters = BTreeMap::<String, Vec<(String, bool)>>::new();
        for batch in &found {
            let names = columns::texts(batch, "cluster").into_iter().zip(columns::texts(batch, "host"));
            for (row, (cluster, host)) in names.enumerate() {
                let is_chosen = columns::int(batch, "chosen", row) == 1;
                clusters.entry(cluster).or_default().push((host, is_chosen));
            }
        }
        // A cluster of which all are chosen is read without its hosts.
        let (mut whole, mut parts) = (Vec::new(), Vec::new());
        let all = clusters.len();
        for (cluster, hosts) in clusters {
            let count = hosts.len();
            let chosen = hosts.into_iter().filter(|(_, is_chosen)| *is_chosen);
            let chosen: Vec<Expr> = chosen.map(|(host, _)| lit(host)).collect();
            if chosen.len() == count {
                whole.push(lit(cluster));
            } else if !chosen.is_empty() {
                parts.push(col("cluster").eq(lit(cluster)).and(col("host").in_list(chosen, false)));
            }
        }
        if whole.len() == all && all > 0 {
            return Ok(None);
        }
        if !whole.is_empty() {
            parts.push(col("cluster").in_list(whole, false));
        }
        let chosen = parts.into_iter().reduce(Expr::or).with_context(|| {
            format!(
                "--where {condition} holds for no host: `toll-fleet sql 'SELECT * FROM hosts'` shows what is known of them"
            )
        })?;
        Ok(Some(chosen))
    }
}

/// As toll's own store of a bucket is opened, by the same settings.
fn open_bucket(name: &str) -> anyhow::Result<AmazonS3> {
    let settings = read_settings(|name| std::env::var(name).ok());
    let mut builder = AmazonS3Builder::new().with_bucket_name(name);
    for (name, key) in [
        ("AWS_ACCESS_KEY_ID", AmazonS3ConfigKey::AccessKeyId),
        ("AWS_SECRET_ACCESS_KEY", AmazonS3ConfigKey::SecretAccessKey),
        ("AWS_SESSION_TOKEN", AmazonS3ConfigKey::Token),
        ("AWS_REGION", AmazonS3ConfigKey::Region),
        ("AWS_ENDPOINT_URL", AmazonS3ConfigKey::Endpoint),
    ] {
        if let Some(value) = settings.get(name) {
            builder = builder.with_config(key, value);
        }
    }
    let is_plain = settings.get("AWS_ENDPOINT_URL").is_some_and(|url| url.starts_with("http://"));
    builder.with_allow_http(is_plain).build().context("no such bucket")
}

/// `None`: all moments are, and the column need not be read.
fn within(column: &str, range: TimeRange) -> Option<Expr> {
    let moment = |us: i64| lit(ScalarValue::TimestampMicrosecond(Some(us), Some("UTC".into())));
    let since = (range.since_us > i64::MIN).then(|| col(column).gt_eq(moment(range.since_us)));
    let until = (range.until_us < i64::MAX).then(|| col(column).lt(moment(range.until_us)));
    since.into_iter().chain(until).reduce(Expr::and)
}

/// Rows of a statement, which can change nothing and read no other file.
///
/// # Errors
/// The statement is wrong, or a file cannot be read.
pub async fn rows(session: &SessionContext, sql: &str) -> anyhow::Result<Vec<RecordBatch>> {
    let only_reads =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let asked = async { session.sql_with_options(sql, only_reads).await?.collect().await };
    asked.await.map_err(|error| without_causes(&error))
}

/// Its causes say the same again.
pub fn without_causes(error: &DataFusionError) -> anyhow::Error {
    anyhow::Error::msg(error.strip_backtrace())
}
