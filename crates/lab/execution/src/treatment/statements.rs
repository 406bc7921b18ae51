//! Server settings of an arm: set and restored.
//!
//! # Invariants
//! Old values are read and written to the undo journal before anything is set.

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use toll_journal::{Journal, ServerRef, Undo, UndoId, quoted_name};
use toll_model::placeholders::PlaceholderValues;
use toll_mysql::{Connection, Error, Target, sql_string};
use toll_record::{Arm, RowUpdate};
use toll_server::lock::take_server_lock;
use toll_sys::clock;
use toll_sys::slow_warning::SlowWarning;

/// toll's own session with the server, for settings and counters. Reconnects if the session was lost.
#[derive(Debug)]
pub struct AdminSession {
    target: Target,
    /// Server reference for restoring settings after a kill. Absent for a sandbox, which ends with the run.
    server: Option<ServerRef>,
    connection: Arc<SharedConnection>,
    /// Of all its siblings.
    siblings: Arc<SharedConnection>,
    open_since_us: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct SharedConnection {
    /// `None`: not connected yet, or lost.
    kept: Mutex<Option<Connection>>,
    /// Whatever connects has the lock against a second run, too.
    holds_lock: bool,
}

/// Settings that are in force for an arm.
#[derive(Debug)]
pub struct AppliedSettings {
    restore_sql: Vec<String>,
    undo: Option<UndoId>,
}

/// Error: settings could not be restored.
#[derive(Debug, thiserror::Error)]
#[error("could not restore the server's settings: {cause:#}")]
pub struct RestoreError {
    pub applied: AppliedSettings,
    cause: anyhow::Error,
}

/// Time limit of a statement. A hung server must not block toll; changes stay in the journal.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of the server's greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence after which the waiting user is informed.
const SILENCE: Duration = Duration::from_secs(1);
/// ER_OPTION_PREVENTS_STATEMENT: with skip_grant_tables there are no grants, and everybody may do anything.
const ER_OPTION_PREVENTS_STATEMENT: u16 = 1290;
const ER_UNKNOWN_SYSTEM_VARIABLE: u16 = 1193;

impl AdminSession {
    pub fn new(target: Target, server: Option<ServerRef>) -> Self {
        Self {
            target,
            server,
            connection: Arc::default(),
            siblings: Arc::default(),
            open_since_us: Arc::default(),
        }
    }

    /// Another session with the same server, for other threads. All siblings share one connection: a server that serves users
    /// has few to spare.
    pub fn sibling(&self) -> Self {
        Self {
            connection: Arc::clone(&self.siblings),
            siblings: Arc::clone(&self.siblings),
            ..Self::new(self.target.clone(), self.server.clone())
        }
    }

    /// A sibling that takes the lock against a second run on this server. So do all later siblings: whichever connects again
    /// after a loss has it again.
    ///
    /// # Errors
    /// Another run holds it, or the server does not answer.
    pub fn lock_server(&mut self) -> anyhow::Result<Self> {
        self.siblings = Arc::new(SharedConnection { holds_lock: true, ..SharedConnection::default() });
        let mut holder = self.sibling();
        holder.keep_alive()?;
        Ok(holder)
    }

    /// Connects again, where the connection is lost.
    ///
    /// # Errors
    /// The server does not answer, or another run has taken the lock meanwhile.
    pub fn keep_alive(&mut self) -> anyhow::Result<()> {
        self.with_connection(|_| Ok(()))
    }

    /// Since when (CLOCK_MONOTONIC, microseconds) this session waits for the server; 0: it does not.
    pub fn open_since_us(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.open_since_us)
    }

    /// Runs `work` in the session. A session that timed out is not used again.
    ///
    /// Its late answer would be mistaken for the next statement's.
    fn with_connection<T>(
        &mut self,
        work: impl FnOnce(&mut Connection) -> Result<T, Error>,
    ) -> anyhow::Result<T> {
        self.open_since_us.store(clock::mono_us(), Ordering::Relaxed);
        let done = self.work_in_connection(work);
        self.open_since_us.store(0, Ordering::Relaxed);
        done
    }

    fn work_in_connection<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Error>,
    ) -> anyhow::Result<T> {
        let mut shared = self.kept();
        let mut connection = match shared.take() {
            Some(mut kept) => {
                kept.set_read_timeout(Some(GREETING_TIMEOUT))?;
                // Closed by the server or a restart; one that hangs would not answer another session either.
                match kept.ping() {
                    Ok(()) => kept,
                    Err(error) if error.is_timeout() => return Err(error.into()),
                    Err(_) => self.connect()?,
                }
            }
            None => self.connect()?,
        };
        connection.set_read_timeout(Some(STATEMENT_TIMEOUT))?;
        let done = work(&mut connection);
        if !matches!(done, Err(Error::ConnectionLost { .. })) {
            *shared = Some(connection);
        }
        Ok(done?)
    }

    /// One that a panic elsewhere left taken out is opened anew.
    fn kept(&self) -> MutexGuard<'_, Option<Connection>> {
        self.connection.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn connect(&self) -> anyhow::Result<Connection> {
        let target = Target {
            connect_timeout: GREETING_TIMEOUT.min(self.target.connect_timeout),
            ..self.target.clone()
        };
        let mut connection = Connection::connect(&target)
            .with_context(|| format!("cannot reach the server at {}", self.target.address))?;
        if self.connection.holds_lock {
            take_server_lock(&mut connection, &self.target)?;
        }
        Ok(connection)
    }

    pub fn execute(&mut self, sql: &str) -> anyhow::Result<()> {
        self.with_connection(|c| c.exec_drop(sql)).with_context(|| format!("the server did not do `{sql}`"))
    }

    /// True if this account may change global variables, according to its grants.
    ///
    /// A trial change would not be in any journal.
    pub fn can_set_global(&mut self) -> bool {
        let mut grants = match self.query_rows("SHOW GRANTS") {
            Ok(grants) => grants,
            Err(error) => {
                let code = error.downcast_ref::<Error>().map(Error::code);
                return code == Some(ER_OPTION_PREVENTS_STATEMENT);
            }
        };
        // MariaDB has reported the current role already; MySQL only does when its roles are named.
        let role = self
            .query_rows("SELECT CURRENT_ROLE()")
            .ok()
            .and_then(|rows| rows.into_iter().flatten().next()?);
        if let Some(roles) = role {
            grants.extend(
                self.query_rows(&format!("SHOW GRANTS FOR CURRENT_USER() USING {roles}")).unwrap_or_default(),
            );
        }
        grants.iter().flatten().flatten().any(|grant| allows_set_global(grant))
    }

    /// Global variables whose names match a LIKE pattern.
    pub fn query_variables(&mut self, like: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let sql = format!("SHOW GLOBAL VARIABLES LIKE {}", sql_string(like));
        self.query_pairs(&sql)
    }

    /// Rows of two columns, as a map.
    pub fn query_pairs(&mut self, sql: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let pairs = self.query_rows(sql)?.into_iter().filter_map(|row| {
            let mut cells = row.into_iter();
            Some((cells.next()??, cells.next()?.unwrap_or_default()))
        });
        Ok(pairs.collect())
    }

    fn query_rows(&mut self, sql: &str) -> anyhow::Result<Vec<Vec<Option<String>>>> {
        let rows = self
            .with_connection(|c| c.query(sql))
            .with_context(|| format!("the server did not do `{sql}`"))?;
        Ok(rows.rows)
    }

    /// The single number that a query returns. `None` if it fails.
    pub fn query_number(&mut self, sql: &str) -> Option<u64> {
        self.query_rows(sql).ok()?.first()?.first()?.as_deref()?.parse().ok()
    }

    /// Applies an arm's settings.
    ///
    /// # Errors
    /// The server refuses a setting or a statement.
    pub fn switch_on(
        &mut self,
        arm: &Arm,
        placeholders: &PlaceholderValues,
        journal: &Journal,
    ) -> anyhow::Result<AppliedSettings> {
        let treatment = &arm.treatment;
        let settings = self.read_settings(&treatment.settings, placeholders)?;
        let updates = treatment.updates.iter().map(|update| self.read_row_changes(update));
        let updates = updates.collect::<Result<Vec<_>, _>>()?;
        let forward: Vec<String> = (settings.iter().map(|s| s.apply_sql.clone()))
            .chain(updates.iter().map(|u| u.apply_sql.clone()))
            .chain(treatment.on.iter().cloned())
            .collect();
        let back: Vec<String> = (treatment.off.iter().cloned())
            .chain(updates.into_iter().rev().flat_map(|u| u.restore_sql))
            .chain(settings.into_iter().rev().map(|s| s.restore_sql))
            .collect();
        let undo = match &self.server {
            Some(server) => Some(journal.record(Undo::Settings {
                server: server.clone(),
                statements: back.clone(),
                what: format!("settings that arm {} had changed", arm.name),
            })?),
            None => None,
        };
        let switched = AppliedSettings { restore_sql: back, undo };
        for sql in &forward {
            if let Err(error) = self.execute(sql) {
                self.switch_off(switched, journal)?;
                return Err(error);
            }
        }
        Ok(switched)
    }

    /// The variables that an arm sets, with their old values.
    fn read_settings(
        &mut self,
        wished: &[toll_record::Setting],
        placeholders: &PlaceholderValues,
    ) -> anyhow::Result<Vec<Setting>> {
        let mut settings = Vec::new();
        for toll_record::Setting { name, value, if_known } in wished {
            let Some(old) = self.read_variable(name)? else {
                if !if_known {
                    bail!("the server does not know the variable {name}");
                }
                continue;
            };
            let old = old.as_deref().map_or_else(|| "NULL".into(), literal);
            settings.push(Setting {
                apply_sql: format!("SET GLOBAL {name} = {}", literal(&placeholders.fill_in(value)?)),
                restore_sql: format!("SET GLOBAL {name} = {old}"),
            });
        }
        Ok(settings)
    }

    /// The whole value of a global variable, which may be NULL. `None`: the server does not know it.
    ///
    /// SHOW VARIABLES cuts long values, at 1024 or 2048 characters.
    fn read_variable(&mut self, name: &str) -> anyhow::Result<Option<Option<String>>> {
        let sql = format!("SELECT @@GLOBAL.{name}");
        match self.with_connection(|c| c.query(&sql)) {
            Ok(answer) => Ok(answer.rows.into_iter().flatten().next()),
            Err(error) if is_unknown_variable(&error) => Ok(None),
            Err(error) => Err(error.context(format!("the server did not do `{sql}`"))),
        }
    }

    /// One statement that changes the rows, and statements that restore each changed row.
    fn read_row_changes(&mut self, update: &RowUpdate) -> anyhow::Result<RowChanges> {
        let table = update.table.split('.').map(quoted_name).collect::<Vec<_>>().join(".");
        let columns: Vec<String> =
            update.key.iter().chain(update.set.keys()).map(|c| quoted_name(c)).collect();
        let which = update.which.as_deref().map_or_else(String::new, |which| format!(" WHERE {which}"));
        let rows = self.query_rows(&format!("SELECT {} FROM {table}{which}", columns.join(", ")))?;
        let mut keys_by_old: BTreeMap<Vec<Option<String>>, Vec<String>> = BTreeMap::new();
        for mut row in rows {
            let old = row.split_off(update.key.len());
            if old.iter().zip(update.set.values()).any(|(old, new)| old.as_ref() != Some(new)) {
                let key: Vec<String> = row.iter().map(|cell| literal_or_null(cell.as_deref())).collect();
                keys_by_old.entry(old).or_default().push(format!("({})", key.join(", ")));
            }
        }
        let assign = |values: &mut dyn Iterator<Item = String>| {
            let pairs = update.set.keys().zip(values).map(|(c, v)| format!("{} = {v}", quoted_name(c)));
            pairs.collect::<Vec<_>>().join(", ")
        };
        let keys = columns[..update.key.len()].join(", ");
        let back = keys_by_old.into_iter().map(|(old, rows)| {
            let old = assign(&mut old.iter().map(|value| literal_or_null(value.as_deref())));
            format!("UPDATE {table} SET {old} WHERE ({keys}) IN ({})", rows.join(", "))
        });
        let new = assign(&mut update.set.values().map(|value| sql_string(value)));
        Ok(RowChanges { apply_sql: format!("UPDATE {table} SET {new}{which}"), restore_sql: back.collect() })
    }

    /// Restores the old values. Continues after a failure and returns the first.
    pub fn switch_off(&mut self, switched: AppliedSettings, journal: &Journal) -> Result<(), RestoreError> {
        let _slow = SlowWarning::start(
            SILENCE,
            format!(
                "the server at {} does not answer; waiting; `toll clean` puts its settings right \
                 if it does not come back",
                self.target.address
            ),
        );
        let mut first_error = None;
        for sql in &switched.restore_sql {
            if let Err(error) = self.execute(sql) {
                let lost = self.kept().is_none();
                first_error.get_or_insert(error);
                if lost {
                    // It would say the same of every statement, each after its own time.
                    break;
                }
            }
        }
        let put_back = match first_error {
            Some(error) => Err(error),
            None => switched.undo.map_or(Ok(()), |undo| journal.mark_done(undo)),
        };
        put_back.map_err(|cause| RestoreError { applied: switched, cause })
    }
}

struct Setting {
    apply_sql: String,
    restore_sql: String,
}

struct RowChanges {
    apply_sql: String,
    restore_sql: Vec<String>,
}

fn is_unknown_variable(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().map(Error::code) == Some(ER_UNKNOWN_SYSTEM_VARIABLE)
}

/// True if a line of SHOW GRANTS allows it.
fn allows_set_global(grant: &str) -> bool {
    let privileges = grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON *.* TO "));
    privileges.is_some_and(|(privileges, _)| {
        privileges
            .split(", ")
            .any(|name| ["ALL PRIVILEGES", "SUPER", "SYSTEM_VARIABLES_ADMIN"].contains(&name))
    })
}

fn literal_or_null(value: Option<&str>) -> String {
    value.map_or_else(|| "NULL".into(), sql_string)
}

/// Numbers stay bare: the server refuses a quoted one for a numeric variable.
fn literal(value: &str) -> String {
    if value.parse::<f64>().is_ok_and(f64::is_finite) { value.to_owned() } else { sql_string(value) }
}

#[cfg(test)]
mod tests {
    use super::{allows_set_global, literal};

    #[test]
    fn only_a_grant_for_the_whole_server_allows_to_set_its_variables() {
        for (grant, allows) in [
            ("GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION", true),
            ("GRANT PROCESS, SUPER ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*X'", true),
            ("GRANT SYSTEM_VARIABLES_ADMIN ON *.* TO `a`@`%`", true),
            ("GRANT SELECT, PROCESS ON *.* TO `SUPER`@`%`", false),
            ("GRANT ALL PRIVILEGES ON `shop`.* TO `a`@`%`", false),
            ("GRANT `SUPER`@`%` TO `a`@`%`", false),
        ] {
            assert_eq!(allows_set_global(grant), allows, "{grant}");
        }
    }

    #[test]
    fn values_travel_as_the_server_wants_them() {
        assert_eq!(literal("0.000000"), "0.000000");
        assert_eq!(literal("FILE"), "'FILE'");
        assert_eq!(literal(""), "''");
        assert_eq!(literal("C:\\"), "_utf8mb4 X'433A5C'");
    }
}
