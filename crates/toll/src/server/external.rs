//! Which server is there already, and what may toll do to it?
//!
//! Creates one schema if it is told its name, and drops it again if it made it. Never touches
//! another; settings are changed by whoever journals the way back.

use super::program::{Flavour, Version};
use crate::journal::{Journal, ServerRef, Undo, UndoId, quoted_name};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use toll_load::{Address, Connection, Target};

/// A server that toll did not start.
#[derive(Debug)]
pub struct External {
    target: Target,
    server: ServerRef,
    flavour: Flavour,
    version: Version,
    variables: BTreeMap<String, String>,
    pid: Option<i32>,
}

impl External {
    /// Logs in and reads what there is; changes nothing. `defaults_file` is the option file that
    /// `target` was read from, if it was: `toll clean` finds the password there again.
    pub fn connect(target: &Target, defaults_file: Option<PathBuf>) -> Result<Self> {
        let target = Target { db: None, ..target.clone() };
        let mut connection = Connection::connect(&target)
            .with_context(|| format!("cannot use the server at {} as {}", target.address, target.user))?;
        let rows = connection.query("SHOW GLOBAL VARIABLES").context("cannot read the server's variables")?;
        let variables: BTreeMap<String, String> =
            rows.pairs().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let value = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
        let said = format!("{} {}", value("version"), value("version_comment"));
        let Some(version) = Version::find(&said) else {
            bail!("the server at {} calls its version {said:?}: is it MariaDB or MySQL?", target.address);
        };
        Ok(Self {
            server: ServerRef::of(&target, defaults_file),
            flavour: Flavour::of(&said),
            version,
            pid: local_pid(&target, value("datadir"), value("pid_file")),
            variables,
            target,
        })
    }

    /// How to connect, without a schema.
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

    /// Global variables as they were found.
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

    /// Absent for a server on another host, or one whose pid file toll may not read.
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    /// As it stands in a plan.
    pub fn described(&self) -> toll_record::Server {
        toll_record::Server {
            kind: "external".into(),
            flavour: self.flavour.name().into(),
            version: self.version.to_string(),
            address: self.target.address.to_string(),
            config: Vec::new(),
        }
    }

    /// Makes the schema, to be dropped at the end. None: it is there already and is left as it is.
    pub fn create_schema(&self, name: &str, journal: &Journal) -> Result<Option<UndoId>> {
        let mut connection = Connection::connect(&self.target)?;
        let literal = name.replace('\\', "\\\\").replace('\'', "''");
        let there = connection
            .query(&format!(
                "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = '{literal}'"
            ))
            .context("cannot ask which schemas there are")?;
        if there.scalar() != Some("0") {
            return Ok(None);
        }
        let id = journal.record(Undo::Schema { server: self.server.clone(), name: name.to_owned() })?;
        if let Err(error) = connection.exec_drop(&format!("CREATE DATABASE {}", quoted_name(name))) {
            // Somebody else's by now, or not allowed: either way not ours to drop.
            journal.done(id)?;
            return Err(error).with_context(|| {
                format!(
                    "cannot create schema {name}: name one with --schema that {} may create",
                    self.target.user
                )
            });
        }
        Ok(Some(id))
    }

    fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// Only a server on this host can be watched; its pid file says which process it is.
fn local_pid(target: &Target, datadir: &str, pid_file: &str) -> Option<i32> {
    let local = match &target.address {
        Address::Unix(_) => true,
        Address::Tcp { host, .. } => {
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
        }
    };
    if !local {
        return None;
    }
    let path = Path::new(datadir).join(pid_file);
    let pid: i32 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
    // A tunnel to another host also ends on loopback: the pid must be a server's.
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    ["mysqld", "mariadbd"].iter().any(|server| name.trim().starts_with(server)).then_some(pid)
}
