//! A table whose files are those that manifests name when it is asked: what arrives meanwhile is in the next answer.

use crate::tables::TimeRange;
use anyhow::Context;
use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::Session;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::datasource::{MemTable, TableProvider, TableType};
use datafusion::logical_expr::{Expr, Operator, TableProviderFilterPushDown};
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::physical_plan::ExecutionPlan;
use std::sync::Arc;
use toll_tables::{
    Store, Table, cluster_path, empty_file, hour_of_path, live_files, read_manifests, table_of_path,
};

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

    /// Files with rows of a range of time.
    ///
    /// # Errors
    /// A manifest cannot be read.
    async fn files(&self, range: TimeRange) -> anyhow::Result<Vec<ListingTableUrl>> {
        let (store, table) = (Arc::clone(&self.store), self.table);
        // A server that is slow is waited for, but not by threads that compute.
        let found = tokio::task::spawn_blocking(move || {
            let manifests = read_manifests(&*store, range.days())?;
            let live = live_files(manifests.values());
            let read_from = if table == Table::ClusterDigests { Table::Digests } else { table };
            let of_table = live
                .keys()
                .filter(|path| table_of_path(path) == Some(read_from))
                .filter(|path| hour_of_path(path).is_some_and(|hour| range.has_hour(hour)));
            // What is not compacted yet has rows of hosts alone: other columns are the same.
            let folded = |path: &str| {
                let path = cluster_path(path).filter(|_| table == Table::ClusterDigests)?;
                live.get_key_value(path.as_str()).map(|(path, _)| *path)
            };
            of_table
                .map(|path| {
                    let path = format!("{}/{}", store.location(), folded(path).unwrap_or(path));
                    ListingTableUrl::parse(&path).with_context(|| format!("{path} is no path of a file"))
                })
                .collect()
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
        let range = time_range(filters, self.time_column());
        // All of its causes on one line, as of the program's other errors.
        let files =
            self.files(range).await.map_err(|error| DataFusionError::Execution(format!("{error:#}")))?;
        if files.is_empty() {
            let none = MemTable::try_new(self.schema(), vec![Vec::new()])?;
            return none.scan(state, projection, filters, limit).await;
        }
        let options = ListingOptions::new(Arc::new(ParquetFormat::default()));
        let config = ListingTableConfig::new_with_multi_paths(files)
            .with_listing_options(options)
            .with_schema(self.schema());
        ListingTable::try_new(config)?.scan(state, projection, filters, limit).await
    }
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
    use datafusion::logical_expr::{col, lit};

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
}
