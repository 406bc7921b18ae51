//! A table whose files are those that manifests name when it is asked: what arrives meanwhile is in the next answer.

use crate::tables::TimeRange;
use anyhow::Context;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl, PartitionedFile,
};
use datafusion::datasource::physical_plan::{FileGroup, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::datasource::{MemTable, TableProvider, TableType};
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown};
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::physical_plan::ExecutionPlan;
use std::collections::{BTreeMap, HashSet};
use std::iter::successors;
use std::sync::Arc;
use toll_tables::{
    ManifestFile, Store, Table, days_with_manifests, empty_file, folded_path, live_files, read_manifests,
    shard_of, shard_of_path, span_of_path, table_of_path,
};

/// Readings of the manifests, where a file that they name is gone: a compaction has replaced it meanwhile.
const ATTEMPTS: u32 = 3;

/// A table of a directory.
#[derive(Debug)]
pub struct LiveTable {
    store: Arc<dyn Store>,
    table: Table,
    schema: SchemaRef,
}

impl LiveTable {
    /// # Errors
    /// Never, but for a fault of the library.
    pub fn new(store: Arc<dyn Store>, table: Table) -> anyhow::Result<Self> {
        let file = empty_file(table)?;
        let reader = ParquetRecordBatchReaderBuilder::try_new(file).context("no schema")?;
        Ok(Self { store, table, schema: Arc::clone(reader.schema()) })
    }

    /// Its column of time, by which files are chosen.
    fn time_column(&self) -> &'static str {
        if self.table == Table::Texts { "first_seen" } else { "ts" }
    }

    /// Files with rows that are chosen.
    ///
    /// # Errors
    /// A manifest cannot be read.
    async fn files(&self, chosen: &Chosen) -> anyhow::Result<Vec<ListingTableUrl>> {
        let (store, table, chosen) = (Arc::clone(&self.store), self.table, chosen.clone());
        // A server that is slow is waited for, but not by threads that compute.
        let found = tokio::task::spawn_blocking(move || {
            let mut files = Vec::new();
            // They name all files that were ever replaced: those of one day at a time.
            for day in days_with_manifests(&*store, &chosen.range.days())? {
                let manifests = read_manifests(&*store, day..=day)?;
                for path in chosen.files(table, &live_files(manifests.values())) {
                    let path = format!("{}/{path}", store.location());
                    files.push(
                        ListingTableUrl::parse(&path)
                            .with_context(|| format!("{path} is no path of a file"))?,
                    );
                }
            }
            Ok(files)
        });
        found.await.context("a thread that reads has failed")?
    }
}

#[async_trait]
impl TableProvider for LiveTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let chosen = Chosen { range: time_range(filters, self.time_column()), shards: shards(filters) };
        let mut missing = None;
        for _ in 0..ATTEMPTS {
            // All of its causes on one line, as of the program's other errors.
            let failed = |error: anyhow::Error| DataFusionError::Execution(format!("{error:#}"));
            let files = self.files(&chosen).await.map_err(failed)?;
            if files.is_empty() {
                let none = MemTable::try_new(self.schema(), vec![Vec::new()])?;
                return none.scan(state, projection, filters, limit).await;
            }
            let format = ParquetFormat::default().with_options(state.default_table_options().parquet);
            let config = ListingTableConfig::new_with_multi_paths(files.clone())
                .with_listing_options(ListingOptions::new(Arc::new(format)))
                .with_schema(self.schema());
            // Without the limit, by which it would leave out files that are there.
            let plan = ListingTable::try_new(config)?.scan(state, projection, filters, None).await?;
            // It leaves out files that are not there without a word.
            let found = files_of(&*plan);
            missing = files.into_iter().find(|file| !found.contains(file.prefix()));
            if missing.is_none() {
                return Ok(plan);
            }
        }
        let missing = missing.map_or_else(String::new, |file| file.to_string());
        Err(DataFusionError::Execution(format!(
            "{missing} is not there, and its manifest is: if tables are being copied, ask again afterwards; else copy the file again"
        )))
    }
}

/// Files that a plan reads.
fn files_of(plan: &dyn ExecutionPlan) -> HashSet<&object_store::path::Path> {
    let scan = plan.downcast_ref::<DataSourceExec>();
    let scanned = scan.and_then(|scan| scan.downcast_to_file_source::<ParquetSource>());
    let groups = scanned.into_iter().flat_map(|(config, _)| &config.file_groups);
    groups.flat_map(FileGroup::iter).map(PartitionedFile::path).collect()
}

/// Files that conditions leave.
#[derive(Debug, Clone)]
struct Chosen {
    range: TimeRange,
    /// `None`: all.
    shards: Option<Vec<u8>>,
}

impl Chosen {
    /// Of those that count, the files that have a table's rows with the least columns.
    fn files<'a>(&self, table: Table, live: &BTreeMap<&'a str, &ManifestFile>) -> Vec<&'a str> {
        // What is not compacted yet has rows of hosts alone: other columns are the same.
        let as_folded = |path: &str, table: Table| {
            let path = folded_path(path, table)?;
            live.get_key_value(path.as_str()).map(|(path, _)| *path)
        };
        let coarsest = |path: &'a str| {
            let mut tables = successors(Some(table), |table| table.finer());
            tables.find_map(|table| as_folded(path, table)).unwrap_or(path)
        };
        let of_table = |path: &&&str| table_of_path(path) == Some(table.finest()) && self.has_file(path);
        live.keys().filter(of_table).map(|path| coarsest(path)).collect()
    }

    fn has_file(&self, path: &str) -> bool {
        let has_shard = |shards: &Vec<u8>| shard_of_path(path).is_some_and(|shard| shards.contains(&shard));
        span_of_path(path).is_some_and(|span| self.range.overlaps(span))
            && self.shards.as_ref().is_none_or(has_shard)
    }
}

/// Shards of the clusters that conditions name; `None`: they leave all.
fn shards(filters: &[Expr]) -> Option<Vec<u8>> {
    let clusters = filters.iter().find_map(clusters)?;
    Some(clusters.into_iter().map(shard_of).collect())
}

/// Clusters of which a condition leaves those alone; `None`: it leaves others too.
fn clusters(filter: &Expr) -> Option<Vec<&str>> {
    let is_cluster = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == "cluster");
    match filter {
        Expr::BinaryExpr(compared) if compared.op == Operator::Or => {
            let (mut either, mut or) = (clusters(&compared.left)?, clusters(&compared.right)?);
            either.append(&mut or);
            Some(either)
        }
        Expr::BinaryExpr(compared) if compared.op == Operator::And => {
            clusters(&compared.left).or_else(|| clusters(&compared.right))
        }
        Expr::BinaryExpr(compared) if compared.op == Operator::Eq => {
            match (&*compared.left, &*compared.right) {
                (column, value) | (value, column) if is_cluster(column) => Some(vec![name(value)?]),
                _ => None,
            }
        }
        Expr::InList(list) if !list.negated && is_cluster(&list.expr) => list.list.iter().map(name).collect(),
        _ => None,
    }
}

fn name(expr: &Expr) -> Option<&str> {
    if let Expr::Literal(value, _) = expr { value.try_as_str().flatten() } else { None }
}

/// The time that conditions on a column leave: all of it, where they are of another form.
fn time_range(filters: &[Expr], column: &str) -> TimeRange {
    let mut range = TimeRange::ALL;
    let of_between = |filter: &Expr| match filter {
        // As Grafana asks.
        Expr::Between(between) if !between.negated => {
            let expr = || (*between.expr).clone();
            vec![expr().gt_eq((*between.low).clone()), expr().lt_eq((*between.high).clone())]
        }
        other => vec![other.clone()],
    };
    for filter in filters.iter().flat_map(of_between) {
        let Expr::BinaryExpr(compared) = filter else { continue };
        let (us, op) = match (&*compared.left, &*compared.right) {
            (Expr::Column(of), Expr::Literal(value, _)) if of.name == column => (value, compared.op),
            (Expr::Literal(value, _), Expr::Column(of)) if of.name == column => {
                let Some(op) = compared.op.swap() else { continue };
                (value, op)
            }
            _ => continue,
        };
        let ScalarValue::TimestampMicrosecond(Some(us), _) = us else { continue };
        match op {
            Operator::Gt | Operator::GtEq => range.since_us = range.since_us.max(*us),
            Operator::Lt => range.until_us = range.until_us.min(*us),
            Operator::LtEq => range.until_us = range.until_us.min(us.saturating_add(1)),
            Operator::Eq => {
                range.since_us = range.since_us.max(*us);
                range.until_us = range.until_us.min(us.saturating_add(1));
            }
            _ => {}
        }
    }
    range
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::rows;
    use datafusion::logical_expr::{col, lit};
    use datafusion::prelude::SessionContext;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;
    use toll_digest::classes::{Digest, Settings};
    use toll_tables::{CompactOptions, Listed, Location, Lock, Source, Stretch, TableWriter, compact};
    use toll_wire::event::{Event, Sink};

    fn moment(us: i64) -> Expr {
        lit(ScalarValue::TimestampMicrosecond(Some(us), Some("UTC".into())))
    }

    #[test]
    fn conditions_on_the_time_choose_files_and_others_do_not() {
        let ts = || col("ts");
        for (filters, since_us, until_us) in [
            (vec![], i64::MIN, i64::MAX),
            (vec![ts().gt_eq(moment(5)), ts().lt(moment(9)), ts().lt(moment(8))], 5, 8),
            (vec![moment(5).lt(ts()), moment(9).gt_eq(ts())], 5, 10),
            (vec![ts().eq(moment(7))], 7, 8),
            (vec![ts().between(moment(5), moment(9))], 5, 10),
            (vec![ts().not_between(moment(5), moment(9))], i64::MIN, i64::MAX),
            (vec![col("n").gt(moment(5)), ts().gt(lit(5))], i64::MIN, i64::MAX),
            (vec![ts().gt(moment(5)).or(ts().lt(moment(3)))], i64::MIN, i64::MAX),
        ] {
            assert_eq!(time_range(&filters, "ts"), TimeRange { since_us, until_us }, "{filters:?}");
        }
    }

    #[test]
    fn conditions_on_the_cluster_choose_shards_and_others_do_not() {
        let cluster = || col("cluster");
        for (filter, expected) in [
            (cluster().eq(lit("a")), Some(vec!["a"])),
            (lit("a").eq(cluster()), Some(vec!["a"])),
            (cluster().in_list(vec![lit("a"), lit("b")], false), Some(vec!["a", "b"])),
            (cluster().eq(lit("a")).or(cluster().eq(lit("b"))), Some(vec!["a", "b"])),
            (col("host").eq(lit("h")).and(cluster().eq(lit("a"))), Some(vec!["a"])),
            (cluster().in_list(vec![lit("a")], true), None),
            (cluster().in_list(vec![lit("a"), col("host")], false), None),
            (cluster().eq(lit("a")).or(col("n").eq(lit(1))), None),
            (cluster().not_eq(lit("a")), None),
            (cluster().eq(col("host")), None),
            (col("host").eq(lit("a")), None),
        ] {
            assert_eq!(clusters(&filter), expected, "{filter:?}");
        }
        let shards = shards(&[col("n").gt(lit(1)), cluster().eq(lit("a"))]);
        let chosen = Chosen { range: TimeRange::ALL, shards };
        let path = |shard: u8| format!("digests/v=1/day=2025-11-26/hour=all/shard={shard:02}/a.parquet");
        let files: Vec<u8> = (0..16).filter(|shard| chosen.has_file(&path(*shard))).collect();
        assert_eq!(files, [shard_of("a")]);
    }

    /// Tables whose files a compaction replaces and removes behind the first manifests that a question reads.
    #[derive(Debug)]
    struct Overlapped {
        tables: Arc<dyn Store>,
        is_over: AtomicBool,
    }

    impl Store for Overlapped {
        fn location(&self) -> Location {
            self.tables.location()
        }

        fn put(&self, path: &str, bytes: &[u8]) -> anyhow::Result<()> {
            self.tables.put(path, bytes)
        }

        fn get(&self, path: &str) -> anyhow::Result<Option<Vec<u8>>> {
            self.tables.get(path)
        }

        fn get_all(&self, paths: &[String]) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
            let found = self.tables.get_all(paths);
            if !self.is_over.swap(true, Ordering::Relaxed) {
                let stop = AtomicBool::new(false);
                compact(&self.tables, &CompactOptions::default(), &stop, |_, _| {})?;
            }
            found
        }

        fn list(&self, dir: &str) -> anyhow::Result<Listed> {
            self.tables.list(dir)
        }

        fn list_all(&self, dir: &str) -> anyhow::Result<Vec<String>> {
            self.tables.list_all(dir)
        }

        fn remove(&self, path: &str) -> anyhow::Result<()> {
            self.tables.remove(path)
        }

        fn check_writable(&self) -> anyhow::Result<()> {
            self.tables.check_writable()
        }

        fn lock(self: Arc<Self>) -> anyhow::Result<Box<dyn Lock>> {
            Arc::clone(&self.tables).lock()
        }
    }

    /// A query of each of two hosts, in a file each.
    fn write_tables(root: &std::path::Path) -> Arc<dyn Store> {
        let tables = Location::Directory(root.into()).open().unwrap();
        for host in ["db1", "db2"] {
            let source = Source { host: host.into(), cluster: "shop".into(), source: "packets", id: [1; 16] };
            let mut writer = TableWriter::open(Arc::clone(&tables), source, Duration::from_mins(10)).unwrap();
            let mut digest = Digest::new(Settings::default());
            digest.on_event(&Event { text: b"select 1", query_ns: Some(7), ..Event::default() });
            digest.settle();
            let begin_us = 1_764_165_600_000_000;
            let stretch =
                Stretch { begin_us, width_us: 60_000_000, digest: &digest, lost: 0, sampled_share: 1.0 };
            writer.add(&stretch).unwrap();
            writer.flush().unwrap();
        }
        tables
    }

    async fn count(store: Arc<dyn Store>) -> anyhow::Result<i64> {
        let session = SessionContext::new();
        let table = LiveTable::new(store, Table::Digests)?;
        session.register_table("digests", Arc::new(table))?;
        let found = rows(&session, "SELECT CAST(sum(n) AS BIGINT) AS n FROM digests").await?;
        Ok(crate::columns::int(&found[0], "n", 0))
    }

    #[tokio::test]
    async fn a_question_that_a_compaction_overtakes_has_every_row() {
        let root = tempfile::tempdir().unwrap();
        let tables = write_tables(root.path());
        let overlapped = Overlapped { tables, is_over: AtomicBool::new(false) };
        assert_eq!(count(Arc::new(overlapped)).await.unwrap(), 2);
    }

    #[tokio::test]
    async fn a_file_that_is_not_there_is_an_error_and_no_fewer_rows() {
        let root = tempfile::tempdir().unwrap();
        let tables = write_tables(root.path());
        assert_eq!(count(Arc::clone(&tables)).await.unwrap(), 2);
        let manifests = read_manifests(&*tables, toll_tables::ALL_DAYS).unwrap();
        let live = live_files(manifests.values());
        let gone = live.keys().find(|path| path.starts_with("digests/")).unwrap();
        tables.remove(gone).unwrap();
        let error = format!("{:#}", count(tables).await.unwrap_err());
        assert!(error.contains("is not there") && error.contains("copy the file again"), "{error}");
    }
}
