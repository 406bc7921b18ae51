//! Probe query, chosen so that it waits for the same resources as users' queries.
//!
//! It reads one row by primary key, anywhere in the largest tables with a numeric key. So it depends on the
//! server's CPU, its locks and, where the table exceeds memory, its disk. It selects the key alone, so no row
//! leaves the server and no BLOB is fetched. Never writes.
//!
//! The query names one exact key, not the next existing one. To plan a range, the server reads some ten pages
//! at either of its ends (`btr_estimate_n_rows_in_range`). Two hundred such queries a second would read more
//! of the disk than the dump.

use anyhow::{Context, Result};
use toll_journal::quoted_name;
use toll_mysql::{Connection, Target, sql_string};
use toll_stats::random::Rng;

/// Tables that are asked in turn.
const MAX_TABLES: usize = 4;
/// Largest tables that are looked at for a key that will do.
const MAX_CANDIDATES: usize = 24;

/// A probe query.
#[derive(Debug, Clone, PartialEq)]
pub enum ProbeQuery {
    /// The user's own statement.
    Custom(String),
    /// A row of one of these.
    PrimaryKeyLookup(Vec<KeyedTable>),
    /// No readable table: measures only the round trip to the server.
    RoundTrip,
}

/// A table whose primary key is one whole number.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyedTable {
    schema: String,
    table: String,
    key: String,
    low: i128,
    high: i128,
}

impl ProbeQuery {
    /// Selects tables that the user may read. A statement of the user's own is tried once.
    pub fn choose(target: &Target, custom: Option<&str>) -> Result<Self> {
        let mut connection = Connection::connect(target)?;
        if let Some(sql) = custom {
            connection.query(sql).with_context(|| format!("the probe query {sql:?} failed in a test"))?;
            return Ok(Self::Custom(sql.to_owned()));
        }
        let mut found = Vec::new();
        for (schema, table) in largest_tables(&mut connection, target.db.as_deref()) {
            found.extend(find_keyed_table(&mut connection, &schema, &table));
            if found.len() == MAX_TABLES {
                break;
            }
        }
        Ok(if found.is_empty() { Self::RoundTrip } else { Self::PrimaryKeyLookup(found) })
    }

    /// In words, for people.
    pub fn describe(&self) -> String {
        match self {
            Self::Custom(sql) => format!("`{sql}`"),
            Self::PrimaryKeyLookup(tables) => {
                let names: Vec<String> =
                    tables.iter().map(|keyed| format!("{}.{}", keyed.schema, keyed.table)).collect();
                format!("one row by primary key, anywhere in {}", names.join(", "))
            }
            Self::RoundTrip => "SELECT 1: no readable table with a numeric primary key".into(),
        }
    }

    /// The next statement.
    pub fn next_sql(&self, rng: &mut Rng) -> String {
        match self {
            Self::Custom(sql) => sql.clone(),
            Self::RoundTrip => "SELECT 1".into(),
            Self::PrimaryKeyLookup(tables) => {
                let keyed = &tables[rng.below(tables.len() as u64) as usize];
                keyed.lookup_sql(rng)
            }
        }
    }
}

impl KeyedTable {
    fn lookup_sql(&self, rng: &mut Rng) -> String {
        let span = u64::try_from(self.high - self.low).unwrap_or(u64::MAX).saturating_add(1);
        let id = self.low + i128::from(rng.below(span));
        let (table, key) = (self.qualified_name(), quoted_name(&self.key));
        // In a gap between keys there is no row, but the page that would hold it is read all the same.
        format!("SELECT {key} FROM {table} WHERE {key} = {id}")
    }

    fn qualified_name(&self) -> String {
        format!("{}.{}", quoted_name(&self.schema), quoted_name(&self.table))
    }
}

/// Tables by size, the largest first, as far as the user may ask. InnoDB's own statistics are read where
/// that is allowed: information_schema opens every table of the server to say how large it is.
fn largest_tables(connection: &mut Connection, schema: Option<&str>) -> Vec<(String, String)> {
    let not_the_servers = "NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')";
    let only = schema.map(|schema| format!("= {}", sql_string(schema)));
    let within = only.as_deref().unwrap_or(not_the_servers);
    let cheap = format!(
        "SELECT database_name, table_name FROM mysql.innodb_table_stats WHERE database_name {within} \
         AND table_name NOT LIKE '%#p#%' AND table_name NOT LIKE '%#P#%' \
         ORDER BY clustered_index_size DESC LIMIT {MAX_CANDIDATES}"
    );
    let dear = format!(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' \
         AND engine = 'InnoDB' AND table_schema {within} ORDER BY data_length DESC LIMIT {MAX_CANDIDATES}"
    );
    [cheap, dear]
        .iter()
        .filter_map(|sql| connection.query(sql).ok())
        .map(|rows| rows.pairs().map(|(schema, table)| (schema.to_owned(), table.to_owned())).collect())
        .find(|tables: &Vec<_>| !tables.is_empty())
        .unwrap_or_default()
}

/// None unless its primary key is one whole number, and the user may read it.
fn find_keyed_table(connection: &mut Connection, schema: &str, table: &str) -> Option<KeyedTable> {
    let sql = format!(
        "SELECT column_name, data_type FROM information_schema.columns \
         WHERE table_schema = {} AND table_name = {} AND column_key = 'PRI'",
        sql_string(schema),
        sql_string(table)
    );
    let columns = connection.query(&sql).ok()?;
    let [(key, kind)] = columns.pairs().collect::<Vec<_>>()[..] else { return None };
    if !["tinyint", "smallint", "mediumint", "int", "bigint"].contains(&kind) {
        return None;
    }
    let mut keyed = KeyedTable {
        schema: schema.to_owned(),
        table: table.to_owned(),
        key: key.to_owned(),
        low: 0,
        high: 0,
    };
    let name = quoted_name(key);
    let ends =
        connection.query(&format!("SELECT MIN({name}), MAX({name}) FROM {}", keyed.qualified_name())).ok()?;
    let (low, high) = ends.pairs().next()?;
    (keyed.low, keyed.high) = (low.parse().ok()?, high.parse().ok()?);
    Some(keyed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_lie_within_the_keys_and_quote_what_needs_it() {
        let odd = KeyedTable {
            schema: "my db".into(),
            table: "it`s".into(),
            key: "the id".into(),
            low: -5,
            high: i128::from(u64::MAX),
        };
        let one = KeyedTable { low: 7, high: 7, ..odd.clone() };
        let mut rng = Rng::new(1, 1);
        assert_eq!(
            ProbeQuery::PrimaryKeyLookup(vec![one]).next_sql(&mut rng),
            "SELECT `the id` FROM `my db`.`it``s` WHERE `the id` = 7"
        );
        for _ in 0..1_000 {
            let sql = odd.lookup_sql(&mut rng);
            let id: i128 = sql.split("= ").nth(1).unwrap().parse().unwrap();
            assert!((odd.low..=odd.high).contains(&id), "{sql}");
        }
    }
}
