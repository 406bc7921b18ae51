//! Existing server under test, and the limits of what toll changes on it.
//!
//! Creates one schema if the user agreed, without writing to the binary log, and drops it again if toll
//! created it. Never touches another schema. Callers journal the undo of settings before they change them.

use super::find_local;
use super::program::{Flavour, Version};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::PathBuf;
use toll_journal::{Journal, OWNER_TABLE, ServerRef, Undo, quoted_name};
use toll_mysql::{Connection, NO_BINLOG, Target, sql_string};
use toll_sys::server_process::ServerProcess;

/// A server that toll did not start.
#[derive(Debug)]
pub struct ExternalServer {
    target: Target,
    server: ServerRef,
    flavour: Flavour,
    version: Version,
    variables: BTreeMap<String, String>,
    local: Option<ServerProcess>,
    is_replica: bool,
}

/// Permissions that the user gave.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedChanges {
    /// A schema that is there (`--schema`), or that toll may make (`--allow-schema`).
    pub schema: Option<String>,
    pub may_create_schema: bool,
    /// To measure on a replica, or on a server that is read-only; nothing is written there.
    pub allows_replica: bool,
}

impl ExternalServer {
    /// Logs in and reads the server's state; changes nothing. `defaults_file` is the option file that
    /// `target` was read from, if it was: `toll clean` finds the password there again.
    pub fn connect(target: &Target, defaults_file: Option<PathBuf>) -> Result<Self> {
        let target = Target { db: None, ..target.clone() };
        let mut connection = Connection::connect(&target)
            .with_context(|| format!("cannot use the server at {} as {}", target.address, target.user))?;
        let identity = connection.identity().context("cannot ask the server who it is")?;
        let target = Target { identity: Some(identity), ..target };
        let rows = connection.query("SHOW GLOBAL VARIABLES").context("cannot read the server's variables")?;
        let variables: BTreeMap<String, String> =
            rows.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let value = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
        let said = format!("{} {}", value("version"), value("version_comment"));
        let Some(version) = Version::parse_in(&said) else {
            bail!("the server at {} calls its version {said:?}: is it MariaDB or MySQL?", target.address);
        };
        Ok(Self {
            server: ServerRef::from_target(&target, defaults_file),
            flavour: Flavour::detect(&said),
            version,
            local: find_local(&target, &variables),
            is_replica: is_replica(&mut connection),
            variables,
            target,
        })
    }

    /// How to connect to this very server, without a schema.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// For journal entries about this server.
    pub fn server(&self) -> &ServerRef {
        &self.server
    }

    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    pub fn version(&self) -> Version {
        self.version
    }

    /// Global variables at the time of the connection.
    pub fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    pub fn datadir(&self) -> PathBuf {
        self.variable("datadir").into()
    }

    pub fn socket(&self) -> PathBuf {
        self.variable("socket").into()
    }

    /// The TCP port that it listens on; none with `skip_networking`.
    pub fn port(&self) -> Option<u16> {
        self.variable("port").parse().ok().filter(|&port| port != 0)
    }

    /// `None` for a server on another host, or without access to its process.
    pub fn local(&self) -> Option<ServerProcess> {
        self.local
    }

    pub fn pid(&self) -> Option<i32> {
        self.local.map(|local| local.process.pid)
    }

    /// What a person types to say that this server is meant: the first eight characters of its uuid, or the name of its host.
    pub fn short_id(&self) -> String {
        match self.variable("server_uuid") {
            "" => self.variable("hostname").to_owned(),
            uuid => uuid.chars().take(8).collect(),
        }
    }

    /// Description for the plan.
    pub fn describe(&self) -> toll_record::Server {
        toll_record::Server {
            kind: "external".into(),
            flavour: self.flavour.name().into(),
            version: self.version.to_string(),
            address: self.target.address.to_string(),
            config: Vec::new(),
        }
    }

    /// Refuses a replica or a read-only server, except with the user's permission and without writes
    /// (`writes`: the load changes rows, or a schema is to be made).
    pub fn check_allowed(&self, agreed: &AllowedChanges, writes: bool) -> Result<()> {
        let read_only = ["read_only", "super_read_only"].iter().any(|v| is_enabled(self.variable(v)));
        let what = match (self.is_replica, read_only) {
            (false, false) => return Ok(()),
            (true, _) => "is a replica",
            (false, true) => "is read-only",
        };
        let at = &self.target.address;
        if !agreed.allows_replica {
            bail!(
                "the server at {at} {what}: toll keeps away from it; with --allow-replica it measures there \
                 without writing, on tables that are there (--schema NAME)"
            );
        }
        if writes {
            bail!(
                "the server at {at} {what}, and toll would write to it: use a load that only reads, such as \
                 read-only, on a schema that is there (--schema NAME)"
            );
        }
        Ok(())
    }

    pub fn has_schema(&self, name: &str) -> Result<bool> {
        let sql = format!(
            "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = {}",
            sql_string(name)
        );
        let there =
            Connection::connect(&self.target)?.query(&sql).context("cannot ask which schemas there are")?;
        Ok(there.scalar() != Some("0"))
    }

    /// Creates the schema, to be dropped at the end, and marks it as the run's own. Returns a target whose
    /// writes stay out of the binary log.
    pub fn create_schema(&self, name: &str, journal: &Journal) -> Result<Target> {
        // A cluster passes writes on whatever a session says of the binary log.
        for member in ["wsrep_on", "group_replication_group_name"] {
            if !["", "OFF"].contains(&self.variable(member)) {
                bail!(
                    "the server at {} is a member of a cluster ({member}), which would get toll's tables too: \
                     load a schema by yourself and name it with --schema",
                    self.target.address
                );
            }
        }
        let unlogged = is_enabled(self.variable("log_bin"));
        let session = if unlogged { vec![NO_BINLOG.to_owned()] } else { Vec::new() };
        let target = Target { session, ..self.target.clone() };
        let mut connection = Connection::connect(&target).with_context(|| {
            format!(
                "{} may not keep its writes out of the binary log, and the replicas would get them: \
                 grant BINLOG ADMIN (MariaDB) or SYSTEM_VARIABLES_ADMIN (MySQL), or name a schema that is \
                 there with --schema",
                self.target.user
            )
        })?;
        let id = journal.record(Undo::Schema {
            server: self.server.clone(),
            name: name.to_owned(),
            owner: Some(journal.run_id().to_owned()),
            unlogged,
        })?;
        let quoted = quoted_name(name);
        if let Err(error) = connection.exec_drop(&format!("CREATE DATABASE {quoted}")) {
            // Somebody else's by now, or not allowed: either way not ours to drop.
            journal.mark_done(id)?;
            return Err(error).with_context(|| {
                format!("cannot create schema {name}: name one that {} may create", self.target.user)
            });
        }
        let run = journal.run_id();
        connection
            .exec_drop(&format!(
                "CREATE TABLE {quoted}.{OWNER_TABLE} (run VARCHAR(200) NOT NULL PRIMARY KEY)"
            ))
            .and_then(|()| {
                connection.exec_drop(&format!("INSERT INTO {quoted}.{OWNER_TABLE} VALUES ('{run}')"))
            })
            .with_context(|| format!("cannot write to schema {name}, which toll has just made"))?;
        Ok(target)
    }

    fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// As variables are shown: `ON`, or MySQL's `1`.
fn is_enabled(value: &str) -> bool {
    ["ON", "1"].contains(&value)
}

/// True if the server is a replica. Supports MySQL and MariaDB, old and new statements. False without the
/// privilege to query it.
fn is_replica(connection: &mut Connection) -> bool {
    ["SHOW ALL REPLICAS STATUS", "SHOW REPLICA STATUS", "SHOW ALL SLAVES STATUS", "SHOW SLAVE STATUS"]
        .iter()
        .any(|sql| connection.query(sql).is_ok_and(|rows| !rows.rows.is_empty()))
}
