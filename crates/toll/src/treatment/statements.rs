//! How are server settings switched on for an arm and put back afterwards?
//!
//! Old values are read, and written to the undo journal, before anything is set.

use super::Fill;
use crate::journal::{Journal, ServerRef, Undo, UndoId};
use crate::scenario::Arm;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use toll_load::{Connection, Target};

/// toll's own session with the server, for settings and counters; reconnects when it was lost.
#[derive(Debug)]
pub struct Admin {
    target: Target,
    /// How to put settings back after a kill; absent for a sandbox, which goes with the run.
    server: Option<ServerRef>,
    connection: Option<Connection>,
}

/// Settings that are in force for an arm.
#[derive(Debug)]
pub struct Switched {
    back: Vec<String>,
    undo: Option<UndoId>,
}

impl Admin {
    pub fn new(target: Target, server: Option<ServerRef>) -> Self {
        Self { target, server, connection: None }
    }

    /// Another session with the same server, for another thread.
    pub fn sibling(&self) -> Self {
        Self { target: self.target.clone(), server: self.server.clone(), connection: None }
    }

    fn connection(&mut self) -> anyhow::Result<&mut Connection> {
        if self.connection.as_mut().is_none_or(|c| c.ping().is_err()) {
            let fresh = Connection::connect(&self.target)
                .with_context(|| format!("cannot reach the server at {}", self.target.address))?;
            self.connection = Some(fresh);
        }
        self.connection.as_mut().context("no connection")
    }

    pub fn run(&mut self, sql: &str) -> anyhow::Result<()> {
        self.connection()?.exec_drop(sql).with_context(|| format!("the server refused `{sql}`"))
    }

    /// May this account change global variables? Tried with one that is set to what it already is.
    pub fn may_set_global(&mut self) -> bool {
        self.run("SET GLOBAL long_query_time = @@GLOBAL.long_query_time").is_ok()
    }

    /// Global variables whose names match a LIKE pattern.
    pub fn variables(&mut self, like: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let sql = format!("SHOW GLOBAL VARIABLES LIKE {}", quoted(like));
        self.pairs(&sql)
    }

    /// Rows of two columns, as a map.
    pub fn pairs(&mut self, sql: &str) -> anyhow::Result<BTreeMap<String, String>> {
        let rows = self.connection()?.query(sql).with_context(|| format!("the server refused `{sql}`"))?;
        let pairs = rows.rows.into_iter().filter_map(|row| {
            let mut cells = row.into_iter();
            Some((cells.next()??, cells.next()?.unwrap_or_default()))
        });
        Ok(pairs.collect())
    }

    /// The one number that a query answers with.
    pub fn number(&mut self, sql: &str) -> Option<u64> {
        let rows = self.connection().ok()?.query(sql).ok()?;
        let text = rows.rows.first()?.first()?.as_deref()?;
        text.parse().ok()
    }

    /// Puts an arm's settings in force.
    pub fn switch_on(&mut self, arm: &Arm, fill: &Fill, journal: &Journal) -> anyhow::Result<Switched> {
        let mut forward = Vec::new();
        let mut back = Vec::new();
        let wished = arm.set.iter().map(|(n, v)| (n, v, true));
        let optional = arm.set_if_known.iter().map(|(n, v)| (n, v, false));
        for (name, value, needed) in wished.chain(optional) {
            let Some(old) = self.variables(name)?.remove(name.as_str()) else {
                if needed {
                    bail!("the server does not know the variable {name}");
                }
                continue;
            };
            forward.push(format!("SET GLOBAL {name} = {}", literal(&fill.apply(value)?)));
            back.push(format!("SET GLOBAL {name} = {}", literal(&old)));
        }
        // What switches a log on goes last, once its file and filters are in place, and off first.
        let switches = |sql: &String| is_switch(sql);
        let (last, first): (Vec<_>, Vec<_>) = forward.into_iter().partition(switches);
        let (back_first, back_last): (Vec<_>, Vec<_>) = back.into_iter().partition(switches);
        let forward: Vec<_> = first.into_iter().chain(last).chain(arm.on.iter().cloned()).collect();
        let back: Vec<_> = arm.off.iter().cloned().chain(back_first).chain(back_last).collect();
        let undo = match &self.server {
            Some(server) => Some(journal.record(Undo::Settings {
                server: server.clone(),
                statements: back.clone(),
                what: format!("settings that arm {} had changed", arm.name),
            })?),
            None => None,
        };
        let switched = Switched { back, undo };
        for sql in &forward {
            if let Err(error) = self.run(sql) {
                self.switch_off(switched, journal)?;
                return Err(error);
            }
        }
        Ok(switched)
    }

    /// Puts back what was there before; goes on past a failure and reports the first.
    pub fn switch_off(&mut self, switched: Switched, journal: &Journal) -> anyhow::Result<()> {
        let mut first_error = None;
        for sql in &switched.back {
            if let Err(error) = self.run(sql) {
                first_error.get_or_insert(error);
            }
        }
        match first_error {
            Some(error) => Err(error),
            None => switched.undo.map_or(Ok(()), |undo| journal.done(undo)),
        }
    }
}

/// A variable that starts or ends logging by itself.
fn is_switch(sql: &str) -> bool {
    ["slow_query_log =", "general_log =", "_logging ="].iter().any(|s| sql.contains(s))
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Numbers stay bare: the server refuses a quoted one for a numeric variable.
fn literal(value: &str) -> String {
    if value.parse::<f64>().is_ok_and(f64::is_finite) { value.to_owned() } else { quoted(value) }
}

#[cfg(test)]
mod tests {
    use super::{literal, quoted};

    #[test]
    fn values_travel_as_the_server_wants_them() {
        assert_eq!(literal("0.000000"), "0.000000");
        assert_eq!(literal("FILE"), "'FILE'");
        assert_eq!(literal(""), "''");
        assert_eq!(quoted("a'b\\c"), "'a''b\\\\c'");
    }
}
