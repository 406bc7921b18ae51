//! Data recipe `website`: the database of a web site.
//!
//! Its shape follows a typical backup: 21 tables, 856,262 rows, 2,733 MB (`data_length + index_length`) at
//! full size. Most of it is text.
//!
//! # Invariants
//! A row depends on seed, scale and its table alone, never on the number of loading threads.

mod rows;
mod tables;
mod text;

use super::{DataGenerator, LoadProgress};
use crate::treatment::AdminSession;
use anyhow::{Context, bail};
use rows::RowWriter;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};
use tables::TABLES;
use text::Lexicon;
use toll_journal::quoted_name;
use toll_mysql::{Connection, Target};
use toll_record::DataSetup;
use toll_server::DatasetSpec;
use toll_sys::cancel::CancelToken;
use toll_sys::count_format::format_count;

pub(super) const GENERATOR: DataGenerator = DataGenerator { recipe: "website", spec, load_data: load, check };

/// Data and indexes of the whole at scale 1, as MariaDB 10.11 reports them, bytes.
const FULL_BYTES: f64 = 2_733e6;
/// Bytes of one INSERT: far below every server's default max_allowed_packet.
const INSERT_BYTES: usize = 1 << 20;
/// Statements of a transaction: keeps undo logs short.
const COMMIT_EVERY: u32 = 16;

fn spec(data: &DataSetup) -> DatasetSpec {
    let scale = scale(data);
    DatasetSpec {
        key: format!("website-scale{scale}-seed{}", data.seed),
        // Room for undo and dictionary.
        bytes: (FULL_BYTES * scale * 1.15) as u64 + (64 << 20),
        what: format!("a web site's {} tables, {} rows", TABLES.len(), all_rows(scale)),
    }
}

fn scale(data: &DataSetup) -> f64 {
    data.scale.unwrap_or(1.0)
}

fn all_rows(scale: f64) -> u64 {
    TABLES.iter().map(|table| table.rows(scale)).sum()
}

/// Creates tables first, then rows: several tables at a time, the slowest first.
fn load(
    target: &Target,
    data: &DataSetup,
    loading: &dyn LoadProgress,
    cancel: &CancelToken,
) -> anyhow::Result<()> {
    let mut connection = connect(target)?;
    for table in &TABLES {
        let create = table.create();
        connection.exec_drop(&create).with_context(|| format!("the server refused `{create}`"))?;
    }
    let scale = scale(data);
    let lexicon = Lexicon::of(data.seed);
    let (whole, loaded) = (all_rows(scale), AtomicU64::new(0));
    let count = |rows: u64| loading.show_rows(loaded.fetch_add(rows, Relaxed) + rows, whole);
    let mut largest_first: Vec<usize> = (0..TABLES.len()).collect();
    largest_first.sort_by_key(|&i| std::cmp::Reverse(TABLES[i].bytes()));
    let next = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let failure: Mutex<Option<anyhow::Error>> = Mutex::new(None);
    let threads = std::thread::available_parallelism().map_or(2, usize::from).min(TABLES.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&number) = largest_first.get(next.fetch_add(1, Relaxed)) {
                    let filled = insert_rows(
                        target,
                        RowWriter::new(&lexicon, data.seed, scale, number),
                        &stop,
                        cancel,
                        &count,
                    );
                    if let Err(error) = filled {
                        stop.store(true, Relaxed);
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            });
        }
    });
    loading.finish_rows();
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    // Stopped in the middle, it has filled some tables only.
    cancel.check()
}

/// Connects with default escapes, whatever the server's own mode.
fn connect(target: &Target) -> anyhow::Result<Connection> {
    let mut connection = Connection::connect(target)?;
    connection
        .exec_drop("SET SESSION sql_mode = 'STRICT_ALL_TABLES', foreign_key_checks = 0, autocommit = 0")?;
    Ok(connection)
}

fn insert_rows(
    target: &Target,
    mut writer: RowWriter<'_>,
    stop: &AtomicBool,
    cancel: &CancelToken,
    count: &dyn Fn(u64),
) -> anyhow::Result<()> {
    let table = writer.table;
    let failed = || format!("cannot fill the table {}", table.name);
    let mut connection = connect(target).with_context(failed)?;
    let head = table.insert();
    let mut sql = Vec::with_capacity(INSERT_BYTES + (256 << 10));
    let mut statements = 0;
    while !writer.is_done() && !stop.load(Relaxed) && !cancel.is_cancelled() {
        sql.clear();
        sql.extend_from_slice(head.as_bytes());
        let mut rows = 0;
        while sql.len() < INSERT_BYTES && !writer.is_done() {
            if rows > 0 {
                sql.push(b',');
            }
            writer.write_row(&mut sql);
            rows += 1;
        }
        connection.exec_bytes(&sql).with_context(failed)?;
        count(rows);
        statements += 1;
        if statements % COMMIT_EVERY == 0 {
            connection.exec_drop("COMMIT").with_context(failed)?;
        }
    }
    connection.exec_drop("COMMIT").with_context(failed)
}

fn check(admin: &mut AdminSession, schema: &str, data: &DataSetup) -> anyhow::Result<()> {
    let quoted = quoted_name(schema);
    for table in &TABLES {
        let wanted = table.rows(scale(data));
        let there = admin
            .query_number(&format!("SELECT COALESCE(MAX(id), 0) FROM {quoted}.{}", quoted_name(table.name)));
        if there.is_none_or(|there| there < wanted) {
            bail!(
                "the schema {schema} has no table {} of {}: let toll make a schema of its own with \
                 --allow-schema NAME, or ask for less of it with --scale",
                table.name,
                format_count(wanted, "row")
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_its_full_size_it_has_the_tables_and_rows_of_the_document() {
        assert_eq!((TABLES.len(), all_rows(1.0)), (21, 856_262));
        assert!(TABLES.iter().all(|table| table.rows(1e-6) == 1), "no table is empty at any scale");
        assert_eq!(
            spec(&DataSetup { seed: 3, scale: Some(0.05), ..DataSetup::default() }).key,
            "website-scale0.05-seed3"
        );
    }

    #[test]
    fn tables_refer_only_to_tables_that_there_are() {
        for table in &TABLES {
            for other in table.refers_to() {
                assert!(TABLES.iter().any(|table| table.name == other), "{} refers to {other}", table.name);
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_rows_and_another_one_others() {
        let rows = |seed: u64, number: usize| {
            let lexicon = Lexicon::of(seed);
            let mut writer = RowWriter::new(&lexicon, seed, 0.0005, number);
            let mut out = Vec::new();
            while !writer.is_done() {
                writer.write_row(&mut out);
            }
            out
        };
        for (number, table) in TABLES.iter().enumerate() {
            assert_eq!(rows(1, number), rows(1, number), "{}", table.name);
            assert_ne!(rows(1, number), rows(2, number), "{}", table.name);
        }
    }
}
