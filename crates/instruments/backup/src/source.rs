//! Inspection of the server before a dump: what to back up, and the limits of the dump's consistency.
//!
//! Queries the server; changes nothing.

use super::privileges;
use super::program::Program;
use super::server_identity::ServerIdentity;
use anyhow::{Context, Result, bail};
use toll_mysql::{Connection, Target};
use toll_server::{ExternalServer, Flavour, Version};

/// The server, and the schemas that were asked for.
#[derive(Debug, Clone)]
pub struct Source {
    pub flavour: Flavour,
    pub version: Version,
    pub address: String,
    pub identity: ServerIdentity,
    /// The name that was given to it.
    pub name: Option<String>,
    /// What stands for it in the ids of its backups.
    pub label: String,
    pub schemas: Vec<String>,
    /// What the tables take, as the server estimates; a dump takes about as much.
    pub estimated_bytes: u64,
    /// Accounts that views, triggers, routines and events run as, `user@host`.
    pub definers: Vec<String>,
    /// Tables of MariaDB that keep what their rows once were.
    versioned_tables: Vec<String>,
    /// Columns of MySQL that MariaDB's program dumps wrongly.
    incompatible_columns: Vec<String>,
    /// What the backup lacks, and how to have it there.
    pub warnings: Vec<String>,
    /// Limits of any dump of such tables.
    pub notes: Vec<String>,
}

/// The server's own, which a dump does not carry from one server to another.
pub const SYSTEM_SCHEMAS: [&str; 4] = ["information_schema", "performance_schema", "mysql", "sys"];
/// So many are named, the others counted.
const MAX_NAMES: usize = 5;

impl Source {
    /// `schemas_wanted`; none for all but the system's. `name`: the source's, instead of one made of its identity.
    pub fn inspect(target: &Target, schemas_wanted: &[String], name: Option<&str>) -> Result<Self> {
        let server = ExternalServer::connect(target, None)?;
        let identity = ServerIdentity::find_or_create(&server)?;
        Self::inspect_as(&server, identity, schemas_wanted, name)
    }

    /// The same of a backup that is not taken. A server that has no identity gets none.
    pub fn preview(target: &Target, schemas_wanted: &[String], name: Option<&str>) -> Result<Self> {
        let server = ExternalServer::connect(target, None)?;
        let new = || ServerIdentity { is_new: true, ..ServerIdentity::default() };
        let identity = ServerIdentity::find(&server)?.unwrap_or_else(new);
        Self::inspect_as(&server, identity, schemas_wanted, name)
    }

    fn inspect_as(
        server: &ExternalServer,
        identity: ServerIdentity,
        schemas_wanted: &[String],
        name: Option<&str>,
    ) -> Result<Self> {
        let target = server.target();
        let label = identity.source(name, schemas_wanted)?;
        let mut connection = Connection::connect(server.target())?;
        let there = query_column(&mut connection, "SELECT schema_name FROM information_schema.schemata")?;
        if let Some(missing) = schemas_wanted.iter().find(|name| !there.contains(name)) {
            bail!("there is no schema {missing} on the server at {}: check --schema", target.address);
        }
        let is_own = |name: &String| !SYSTEM_SCHEMAS.contains(&name.to_ascii_lowercase().as_str());
        let mut schemas: Vec<String> = if schemas_wanted.is_empty() {
            there.into_iter().filter(is_own).collect()
        } else {
            schemas_wanted.to_vec()
        };
        schemas.sort();
        schemas.dedup();
        if schemas.is_empty() {
            bail!("the server at {} has no user schemas: nothing to back up", target.address);
        }
        let list: Vec<String> = schemas.iter().map(|name| sql_literal(name)).collect();
        let among = list.join(",");
        let sizes = format!(
            "SELECT COALESCE(SUM(data_length), 0) FROM information_schema.tables WHERE table_schema IN ({among})"
        );
        let estimated = connection.query(&sizes).context("cannot query the size of the tables")?;
        let notes = query_limits(&mut connection, &among)?;
        let all = schemas_wanted.is_empty();
        let warnings =
            privileges::missing_privilege_warnings(&mut connection, server.flavour(), &schemas, all);
        let definers = query_definers(&mut connection, &among)?;
        let (versioned, beyond_mariadb) = match server.flavour() {
            Flavour::Mariadb => (query_versioned_tables(&mut connection, &among)?, Vec::new()),
            Flavour::Mysql | Flavour::Percona => {
                (Vec::new(), query_incompatible_columns(&mut connection, &among)?)
            }
        };
        Ok(Self {
            flavour: server.flavour(),
            version: server.version(),
            address: target.address.to_string(),
            identity,
            name: name.map(str::to_owned),
            label,
            schemas,
            estimated_bytes: estimated.scalar().and_then(|sum| sum.parse().ok()).unwrap_or(0),
            definers,
            versioned_tables: versioned,
            incompatible_columns: beyond_mariadb,
            warnings,
            notes,
        })
    }

    /// What the manifest says of it: all that is not promised.
    pub fn remarks(&self) -> Vec<String> {
        [self.warnings.as_slice(), &self.notes].concat()
    }

    /// Has the program dump all that there is; what it cannot is a warning.
    pub fn configure_program(&mut self, program: &mut Program) {
        if !self.versioned_tables.is_empty() && !program.enable_history(self.version) {
            self.warnings.push(format!(
                "{} with system versioning: their history rows are not in the backup. Use MariaDB 10.11 or \
                 later and its mariadb-dump.",
                summarise_names("table", "tables", &self.versioned_tables)
            ));
        }
    }

    /// Refuses a program whose dump of this server could not be restored.
    pub fn check_program(&self, program: &Program) -> Result<()> {
        if !program.is_mariadb || self.incompatible_columns.is_empty() {
            return Ok(());
        }
        bail!(
            "{} is MariaDB's, which dumps MySQL's generated and invisible columns wrongly ({}): install mysql-client, or \
             name MySQL's own mysqldump with --dump-program",
            program.path.display(),
            summarise_names("column", "columns", &self.incompatible_columns)
        );
    }
}

fn query_definers(connection: &mut Connection, among: &str) -> Result<Vec<String>> {
    let of = |table: &str, schema: &str| {
        format!("SELECT definer FROM information_schema.{table} WHERE {schema} IN ({among})")
    };
    let all = [
        of("views", "table_schema"),
        of("triggers", "trigger_schema"),
        of("routines", "routine_schema"),
        of("events", "event_schema"),
    ];
    query_column(
        connection,
        &format!("SELECT definer FROM ({}) AS a GROUP BY definer ORDER BY definer", all.join(" UNION ")),
    )
}

fn query_versioned_tables(connection: &mut Connection, among: &str) -> Result<Vec<String>> {
    let sql = format!(
        "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE table_schema IN ({among}) \
         AND table_type = 'SYSTEM VERSIONED' ORDER BY 1"
    );
    query_column(connection, &sql)
}

/// It writes values of generated columns, which no server takes back, and leaves those of invisible ones out.
fn query_incompatible_columns(connection: &mut Connection, among: &str) -> Result<Vec<String>> {
    let sql = format!(
        "SELECT CONCAT(table_schema, '.', table_name, '.', column_name) FROM information_schema.columns \
         WHERE table_schema IN ({among}) AND (generation_expression <> '' OR extra LIKE '%INVISIBLE%') ORDER BY 1"
    );
    query_column(connection, &sql)
}

fn query_limits(connection: &mut Connection, among: &str) -> Result<Vec<String>> {
    let mut notes = Vec::new();
    let without_snapshot = format!(
        "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables WHERE table_schema IN ({among}) \
         AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND engine NOT IN ('InnoDB', 'RocksDB', 'ROCKSDB', 'TokuDB') ORDER BY 1"
    );
    let tables = query_column(connection, &without_snapshot)?;
    if !tables.is_empty() {
        notes.push(format!(
            "{} without a snapshot (non-transactional engine): rows changed during the dump may be missing \
             or included. Convert them to InnoDB, or back up while nobody writes to them.",
            summarise_names("table", "tables", &tables)
        ));
    }
    let floats = format!(
        "SELECT CONCAT(table_schema, '.', table_name, '.', column_name) FROM information_schema.columns \
         WHERE table_schema IN ({among}) AND data_type = 'float' ORDER BY 1"
    );
    let columns = query_column(connection, &floats)?;
    if !columns.is_empty() {
        notes.push(format!(
            "{} of type FLOAT: dumps contain six digits, so restored values may differ in the seventh. \
             DOUBLE and DECIMAL are exact.",
            summarise_names("column", "columns", &columns)
        ));
    }
    Ok(notes)
}

pub(super) fn summarise_names(one: &str, many: &str, names: &[String]) -> String {
    let shown = names.iter().take(MAX_NAMES).cloned().collect::<Vec<_>>().join(", ");
    match names.len() {
        1 => format!("1 {one} ({shown})"),
        count if count <= MAX_NAMES => format!("{count} {many} ({shown})"),
        count => format!("{count} {many} ({shown} and {} more)", count - MAX_NAMES),
    }
}

/// The first column of an answer.
pub fn query_column(connection: &mut Connection, sql: &str) -> Result<Vec<String>> {
    let rows = connection.query(sql).with_context(|| format!("cannot query the server ({sql})"))?;
    Ok(rows.rows.into_iter().filter_map(|row| row.into_iter().next()?).collect())
}

/// Text in SQL.
pub fn sql_literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
