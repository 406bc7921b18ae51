//! Plans of the top classes of a digest: EXPLAIN of their samples on a named server, by an account that can only read.
//!
//! A server may run parts of a statement to explain it: constant subqueries, derived tables. So an account with
//! further privileges is refused, every EXPLAIN is inside a READ ONLY transaction, and both sides limit its time.
//!
//! # Invariants
//! Never sends a sample but behind EXPLAIN, and never one that is not a plain SELECT.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods))]

mod grants;
mod sample;

use anyhow::Context;
use sample::Explainable;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_digest::classes::{Class, Digest, GroupBy, Limit};
use toll_digest::{ClassPlan, DigestResult, PlanResult};
use toll_mysql::{Connection, Error, Rows, Target};

/// Classes whose samples are explained, at most.
pub const CLASSES_MAX: usize = 100;
/// Beyond the server's own limit, until the client gives up and kills the statement.
const GRACE: Duration = Duration::from_millis(500);
/// Errors of a server that ended a statement: MariaDB's and MySQL's.
const OVER_TIME: [u16; 2] = [1969, 3024];
/// What KILL answers where the statement has ended.
const NO_SUCH_THREAD: u16 = 1094;
/// Seconds that a statement waits for a lock.
const LOCK_WAIT_S: u32 = 1;

/// Logs in and ends: a long input is not read for an account that will be refused.
///
/// # Errors
/// The server cannot be reached, or the account may do more than read.
pub fn check_account(target: &Target, time_limit: Duration) -> anyhow::Result<()> {
    Session::open(target, time_limit).map(drop)
}

/// Adds a plan to each class that `limit` shows, or the reason why there is none. `stop` ends it between two classes.
///
/// # Errors
/// As of [`check_account`], or the connection is lost; plans until then stay.
pub fn explain_classes(
    done: &mut DigestResult,
    limit: Limit,
    target: &Target,
    time_limit: Duration,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut session = Session::open(target, time_limit)?;
    let server = format!("{}, {}", target.address, session.connection.server_version());
    let DigestResult { digest, plans, .. } = done;
    for (n, class) in digest.ranked(limit).0.into_iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let result = if n < CLASSES_MAX {
            explain_class(&mut session, digest, class)?
        } else {
            PlanResult::NotExplained(format!("only the first {CLASSES_MAX} classes are explained"))
        };
        plans.insert(class.id, ClassPlan { server: server.clone(), result });
    }
    Ok(())
}

fn explain_class(session: &mut Session<'_>, digest: &Digest, class: &Class) -> anyhow::Result<PlanResult> {
    if digest.settings().group_by != GroupBy::Fingerprint {
        return Ok(PlanResult::NotExplained("the class is no statement: omit --group-by".to_owned()));
    }
    let Explainable { db, text } = match sample::find_explainable(digest, class) {
        Ok(explainable) => explainable,
        Err(reason) => return Ok(PlanResult::NotExplained(reason.to_owned())),
    };
    let too_long = format!("it took longer than {} s", session.time_limit.as_secs_f64());
    match session.explain(db.as_deref(), &text) {
        Ok(rows) => Ok(PlanResult::Table { columns: rows.columns, rows: rows.rows }),
        Err(Error::Server(error)) if OVER_TIME.contains(&error.code) => {
            Ok(PlanResult::NotExplained(too_long))
        }
        // Its message quotes the statement: the code says enough without literals.
        Err(Error::Server(error)) => Ok(PlanResult::NotExplained(format!(
            "the server answered with error {} ({})",
            error.code, error.state
        ))),
        Err(error) if error.is_timeout() => {
            session.kill_and_reopen()?;
            Ok(PlanResult::NotExplained(too_long))
        }
        Err(error) => Err(error).context("cannot explain a sample"),
    }
}

/// Session that reads only.
struct Session<'a> {
    connection: Connection,
    target: &'a Target,
    time_limit: Duration,
}

impl<'a> Session<'a> {
    fn open(target: &'a Target, time_limit: Duration) -> anyhow::Result<Self> {
        let read_only = Target { multi_statements: false, db: None, ..target.clone() };
        let mut connection = Connection::connect(&read_only)?;
        connection.set_read_timeout(Some(time_limit + GRACE))?;
        let grants = connection.query("SHOW GRANTS").context("cannot read the privileges of the account")?;
        let lines = grants.rows.iter().filter_map(|row| row.first()?.as_deref());
        grants::check_read_only(lines)?;
        // Both families limit statements; MySQL's limit is of SELECT alone, so the client has one of its own.
        let limit = match connection.is_mariadb() {
            true => format!("max_statement_time = {}", time_limit.as_secs_f64()),
            false => format!("max_execution_time = {}", time_limit.as_millis().max(1)),
        };
        for statement in [
            "SET SESSION TRANSACTION READ ONLY".to_owned(),
            // Quotes and backslashes mean what they meant to most clients.
            format!("SET SESSION sql_mode = '', lock_wait_timeout = {LOCK_WAIT_S}, {limit}"),
        ] {
            connection.exec_drop(&statement).with_context(|| format!("cannot run {statement}"))?;
        }
        Ok(Self { connection, target, time_limit })
    }

    fn explain(&mut self, db: Option<&str>, select: &str) -> Result<Rows, Error> {
        if let Some(db) = db {
            self.connection.exec_drop(&format!("USE `{}`", db.replace('`', "``")))?;
        }
        self.connection.exec_drop("START TRANSACTION READ ONLY")?;
        // A server's own format may be a tree, which holds literals.
        let rows = self.connection.query(&format!("EXPLAIN FORMAT=TRADITIONAL {select}"));
        if rows.as_ref().is_err_and(Error::is_fatal) {
            return rows;
        }
        self.connection.exec_drop("ROLLBACK")?;
        rows
    }

    /// Ends a statement on the server, which a closed connection would not.
    fn kill_and_reopen(&mut self) -> anyhow::Result<()> {
        let id = self.connection.connection_id();
        let mut next = Session::open(self.target, self.time_limit)?;
        match next.connection.exec_drop(&format!("KILL {id}")) {
            Ok(()) => {}
            Err(Error::Server(error)) if error.code == NO_SUCH_THREAD => {}
            Err(error) => return Err(error).context("cannot kill an EXPLAIN that takes too long"),
        }
        *self = next;
        Ok(())
    }
}
