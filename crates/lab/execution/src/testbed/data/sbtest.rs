//! Data recipe `sbtest`: the tables of sysbench.

use super::{DataGenerator, LoadProgress};
use crate::treatment::AdminSession;
use anyhow::{Context, bail};
use toll_journal::quoted_name;
use toll_load::mix::{Distribution, TableSet};
use toll_load::tables::{self, PrepareProgress, TableLayout};
use toll_mysql::Target;
use toll_record::DataSetup;
use toll_server::DatasetSpec;
use toll_sys::cancel::CancelToken;
use toll_sys::count_format::format_count;

pub(super) const GENERATOR: DataGenerator = DataGenerator { recipe: "sbtest", spec, load_data: load, check };

fn spec(data: &DataSetup) -> DatasetSpec {
    DatasetSpec {
        key: format!("tables{}-rows{}-seed{}", data.tables, data.rows, data.seed),
        bytes: bytes(data.tables, data.rows),
        what: format!("{} of {} rows", format_count(data.tables.into(), "table"), data.rows),
    }
}

/// Bytes in memory, with room for undo, dictionary and page overhead.
///
/// A row is 189 bytes of columns. InnoDB stores 240 to 250 bytes a row with its index on `k` (measured:
/// 10,000 and 1,000,000 rows, MariaDB 10.11). A quarter is added for half-full pages.
fn bytes(tables: u32, rows: u64) -> u64 {
    const ROW: u64 = 250;
    u64::from(tables) * rows * ROW / 4 * 5 + (64 << 20)
}

/// Loads the tables, and prints the progress now and then.
fn load(
    target: &Target,
    data: &DataSetup,
    loading: &dyn LoadProgress,
    cancel: &CancelToken,
) -> anyhow::Result<()> {
    let layout = TableLayout {
        table: TableSet { tables: data.tables, rows: data.rows, distribution: Distribution::Special },
        seed: data.seed,
        threads: std::thread::available_parallelism().map_or(2, usize::from),
    };
    let whole = data.rows * u64::from(data.tables);
    let loaded = tables::prepare_tables(target, &layout, cancel.flag(), |progress| {
        if let PrepareProgress::Rows(rows) = progress {
            loading.show_rows(rows, whole);
        }
    });
    loading.finish_rows();
    loaded.context("cannot fill the load's tables")?;
    // Stopped in the middle, it has filled some of them only.
    cancel.check()
}

fn check(admin: &mut AdminSession, schema: &str, data: &DataSetup) -> anyhow::Result<()> {
    let quoted = quoted_name(schema);
    for number in 1..=data.tables {
        let there = admin.query_number(&format!("SELECT COALESCE(MAX(id), 0) FROM {quoted}.sbtest{number}"));
        if there.is_none_or(|there| there < data.rows) {
            bail!(
                "the schema {schema} has no table sbtest{number} of {} rows: prepare it with `toll load prepare` \
                 or sysbench, or let toll make a schema of its own with --allow-schema NAME",
                data.rows
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_of_a_million_rows_is_taken_for_what_was_measured() {
        assert_eq!(bytes(1, 1_000_000), 312_500_000 + (64 << 20));
    }
}
