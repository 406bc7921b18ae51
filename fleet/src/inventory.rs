//! Command `inventory`, and the table `hosts`: what is known of hosts beside their queries, such as roles, versions and regions.
//!
//! One file holds it, and each call replaces it whole. Its columns are those of the CSV file that it comes from.

use crate::tables::{check_has_tables, rows, without_causes};
use anyhow::{Context, bail, ensure};
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::TableProvider;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::logical_expr::{cast, col, ident};
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use datafusion::prelude::{CsvReadOptions, SessionContext};
use std::path::Path;
use std::sync::Arc;
use toll_tables::Store;

/// Below the root of the tables.
const FILE: &str = "hosts/v=1/hosts.parquet";
/// Columns of `hosts` that come from the tables.
const OWN_COLUMNS: [&str; 2] = ["first", "last"];
/// Rows from which the types of columns follow.
const TYPED_ROWS: usize = 100_000;
/// A file of a million hosts has so many bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Writes what a CSV file says of hosts in place of what was said before, and returns its rows.
///
/// # Errors
/// The file cannot be read, names no hosts, or one twice; or nothing can be written.
pub async fn write(store: Arc<dyn Store>, csv: &Path) -> anyhow::Result<usize> {
    // Else a path that is misspelt would become a directory.
    check_has_tables(&*store)?;
    let name = || csv.display();
    let bytes = std::fs::metadata(csv).with_context(|| format!("cannot read {}", name()))?.len();
    ensure!(bytes <= FILE_BYTES_MAX, "{} is larger than {} MB", name(), FILE_BYTES_MAX >> 20);
    let batch = read_csv(csv).await.with_context(|| format!("{} is no list of hosts", name()))?;
    let mut file = Vec::new();
    let mut writer = ArrowWriter::try_new(&mut file, batch.schema(), None)?;
    writer.write(&batch)?;
    writer.close()?;
    tokio::task::spawn_blocking(move || store.put(FILE, &file)).await??;
    Ok(batch.num_rows())
}

async fn read_csv(csv: &Path) -> anyhow::Result<RecordBatch> {
    let session = SessionContext::new();
    let path = csv.to_str().context("its path is not UTF-8")?;
    let options =
        CsvReadOptions::new().has_header(true).file_extension("").schema_infer_max_records(TYPED_ROWS);
    let frame = session.read_csv(path, options).await.map_err(|error| without_causes(&error))?;
    // As SQL has names that nobody quotes.
    let plain = |name: &str| name.trim().to_lowercase();
    let fields = frame.schema().fields().iter();
    let names: Vec<(String, String)> =
        fields.map(|field| (field.name().clone(), plain(field.name()))).collect();
    let has = |name: &str| names.iter().any(|(_, column)| column == name);
    ensure!(has("host"), "its first line names no column host, as in host,cluster,role,version");
    if let Some(taken) = OWN_COLUMNS.iter().find(|name| has(name)) {
        bail!("{taken} is a column of the table hosts already: give the file's another name");
    }
    // Names of hosts may be numbers.
    let columns = names.iter().map(|(name, column)| match column.as_str() {
        "host" | "cluster" => cast(ident(name), DataType::Utf8).alias(column),
        _ => ident(name).alias(column),
    });
    let frame = frame.select(columns.collect::<Vec<_>>()).map_err(|error| without_causes(&error))?;
    let frame = frame.sort_by(vec![col("host")])?;
    session.register_table("hosts", frame.clone().into_view())?;
    let key = if has("cluster") { "host, cluster" } else { "host" };
    let twice = format!("SELECT host FROM hosts GROUP BY {key} HAVING count(*) > 1 OR host IS NULL LIMIT 1");
    if let Some(batch) = rows(&session, &twice).await?.iter().find(|batch| batch.num_rows() > 0) {
        match crate::columns::texts(batch, "host").first().filter(|host| !host.is_empty()) {
            Some(host) => bail!("it has {host} twice"),
            None => bail!("it has a row without a host"),
        }
    }
    let schema = Arc::new(frame.schema().as_arrow().clone());
    let batches = frame.collect().await.map_err(|error| without_causes(&error))?;
    ensure!(batches.iter().any(|batch| batch.num_rows() > 0), "it has no rows");
    Ok(datafusion::arrow::compute::concat_batches(&schema, &batches)?)
}

/// Columns of what was written; `None`: nothing was.
///
/// # Errors
/// It cannot be read.
pub fn read_schema(store: &dyn Store) -> anyhow::Result<Option<SchemaRef>> {
    let Some(bytes) = store.get(FILE)? else { return Ok(None) };
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes::Bytes::from(bytes))
        .with_context(|| format!("{FILE} in {} is no list of hosts", store.location()))?;
    let fields = reader.schema().fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    Ok(Some(Arc::new(Schema::new(fields.collect::<Vec<Field>>()))))
}

/// The table that was written.
///
/// # Errors
/// Never, but for a fault of the library.
pub fn table(store: &dyn Store, schema: &SchemaRef) -> anyhow::Result<Arc<dyn TableProvider>> {
    let path = ListingTableUrl::parse(format!("{}/{FILE}", store.location()))?;
    let options = ListingOptions::new(Arc::new(ParquetFormat::default()));
    let config = ListingTableConfig::new(path).with_listing_options(options).with_schema(Arc::clone(schema));
    Ok(Arc::new(ListingTable::try_new(config)?))
}

/// The SQL of the table `hosts`: those that the tables `coverage` and `inventory` know. `None`: there is no inventory.
pub fn hosts_sql(inventory: Option<&SchemaRef>) -> String {
    let seen = "SELECT host, cluster, min(ts) AS first,
      max(arrow_cast(CAST(ts AS BIGINT) + width_us, 'Timestamp(Microsecond, Some(\"UTC\"))')) AS last
      FROM coverage GROUP BY host, cluster";
    let Some(schema) = inventory else { return seen.to_owned() };
    let names = || schema.fields().iter().map(|field| field.name().as_str());
    let column = |name: &str| {
        let quoted = format!("\"{}\"", name.replace('"', "\"\""));
        format!(", inventory.{quoted} AS {quoted}")
    };
    let more =
        names().filter(|name| !matches!(*name, "host" | "cluster")).map(column).collect::<Vec<_>>().concat();
    let (cluster, same_cluster) = if names().any(|name| name == "cluster") {
        ("coalesce(seen.cluster, inventory.cluster)", " AND seen.cluster = inventory.cluster")
    } else {
        ("seen.cluster", "")
    };
    format!(
        "SELECT coalesce(seen.host, inventory.host) AS host, {cluster} AS cluster, seen.first AS first, seen.last AS last{more}
      FROM ({seen}) AS seen FULL JOIN inventory ON seen.host = inventory.host{same_cluster}"
    )
}
