//! Creation and filling of the workload's tables, fast and deterministic.
//!
//! Layout, names and value formats are those of sysbench's oltp tests. Every row depends on the seed and its
//! table alone, not on the number of threads.

use crate::mix::{Distribution, TableSet, write_decimal, write_digits};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};
use toll_mysql::connection::{Connection, Error};
use toll_mysql::target::Target;
use toll_stats::random::Rng;

#[derive(Debug, Clone)]
pub struct TableLayout {
    pub table: TableSet,
    pub seed: u64,
    /// Tables made at the same time.
    pub threads: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrepareProgress {
    /// So many rows of all tables are in.
    Rows(u64),
    Indexing(u32),
    Done(u32),
}

/// Bytes of one INSERT: far below every server's default max_allowed_packet.
const INSERT_BYTES: usize = 1 << 20;
/// Rows of a transaction where the server does not load in bulk: keeps undo logs short.
const COMMIT_ROWS: u64 = 100_000;
const NO_SUCH_DATABASE: u16 = 1049;

/// Makes the schema where it is missing, then `sbtest1..=N`; each is indexed once it is full, as
/// sysbench does. Fails where a table is there already.
pub fn prepare_tables(
    target: &Target,
    layout: &TableLayout,
    stop: &AtomicBool,
    see: impl Fn(PrepareProgress) + Sync,
) -> Result<(), Error> {
    ensure_schema(target)?;
    let next = AtomicU64::new(1);
    let rows = AtomicU64::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..layout.threads.clamp(1, layout.table.tables.max(1) as usize) {
            scope.spawn(|| {
                while !stop.load(Relaxed) && failure.lock().unwrap_or_else(PoisonError::into_inner).is_none()
                {
                    let number = next.fetch_add(1, Relaxed);
                    if number > u64::from(layout.table.tables) {
                        return;
                    }
                    if let Err(e) = create_table(target, layout, number as u32, stop, &rows, &see) {
                        *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(e);
                    }
                }
            });
        }
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Makes the target's schema where it is missing.
pub fn ensure_schema(target: &Target) -> Result<(), Error> {
    match Connection::connect(target) {
        Err(Error::Server(e)) if e.code == NO_SUCH_DATABASE => {}
        other => return other.map(drop),
    }
    let name = target.db.as_deref().unwrap_or_default().replace('`', "``");
    let mut connection = Connection::connect(&Target { db: None, ..target.clone() })?;
    connection.exec_drop(&format!("CREATE DATABASE IF NOT EXISTS `{name}`"))
}

fn create_table(
    target: &Target,
    layout: &TableLayout,
    number: u32,
    stop: &AtomicBool,
    total: &AtomicU64,
    see: &(impl Fn(PrepareProgress) + Sync),
) -> Result<(), Error> {
    let mut connection = Connection::connect(target)?;
    connection.exec_drop(&format!(
        "CREATE TABLE sbtest{number}(\
           id INTEGER NOT NULL AUTO_INCREMENT, \
           k INTEGER DEFAULT '0' NOT NULL, \
           c CHAR(120) DEFAULT '' NOT NULL, \
           pad CHAR(60) DEFAULT '' NOT NULL, \
           PRIMARY KEY (id)) /*! ENGINE = innodb */"
    ))?;
    // MariaDB loads an empty table in bulk within one transaction if both checks are off.
    connection.exec_drop("SET unique_checks = 0, foreign_key_checks = 0, autocommit = 0")?;
    let bulk = connection.is_mariadb();
    let mut rng = Rng::new(layout.seed, u64::from(number));
    let mut sql = Vec::with_capacity(INSERT_BYTES + 512);
    let head = format!("INSERT INTO sbtest{number}(k, c, pad) VALUES");
    let (mut done, mut uncommitted) = (0, 0);
    while done < layout.table.rows && !stop.load(Relaxed) {
        sql.clear();
        sql.extend_from_slice(head.as_bytes());
        let before = done;
        while done < layout.table.rows && sql.len() < INSERT_BYTES {
            if done > before {
                sql.push(b',');
            }
            write_row(&mut sql, &mut rng, layout.table);
            done += 1;
        }
        connection.exec_bytes(&sql)?;
        uncommitted += done - before;
        if !bulk && uncommitted >= COMMIT_ROWS {
            connection.exec_drop("COMMIT")?;
            uncommitted = 0;
        }
        see(PrepareProgress::Rows(total.fetch_add(done - before, Relaxed) + done - before));
    }
    connection.exec_drop("COMMIT")?;
    see(PrepareProgress::Indexing(number));
    connection.exec_drop(&format!("CREATE INDEX k_{number} ON sbtest{number}(k)"))?;
    see(PrepareProgress::Done(number));
    Ok(())
}

fn write_row(sql: &mut Vec<u8>, rng: &mut Rng, table: TableSet) {
    let TableSet { rows, distribution, .. } = table;
    sql.push(b'(');
    write_decimal(sql, Distribution::draw(distribution, rng, rows) as i64);
    sql.extend_from_slice(b",'");
    write_digits(sql, rng, 10);
    sql.extend_from_slice(b"','");
    write_digits(sql, rng, 5);
    sql.extend_from_slice(b"')");
}

/// Drops `sbtest1..=N`; those that are not there are no error.
pub fn drop_tables(target: &Target, tables: u32) -> Result<(), Error> {
    let mut connection = Connection::connect(target)?;
    (1..=tables).try_for_each(|number| connection.exec_drop(&format!("DROP TABLE IF EXISTS sbtest{number}")))
}
