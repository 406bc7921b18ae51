//! How are a server's settings put back when whoever changed them is gone?
//!
//! Connects as the run did: the account and the option file are in the journal, a password never is.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use toll_load::{Address, Connection, Secret, Target};

/// How to find and enter a server again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerRef {
    pub socket: Option<PathBuf>,
    pub host: Option<String>,
    pub port: Option<u16>,
    pub user: String,
    /// Where the password was read from; absent: it comes from MYSQL_PWD.
    #[serde(default)]
    pub defaults_file: Option<PathBuf>,
}

impl ServerRef {
    pub fn of(target: &Target, defaults_file: Option<PathBuf>) -> Self {
        let (socket, host, port) = match &target.address {
            Address::Unix(path) => (Some(path.clone()), None, None),
            Address::Tcp { host, port } => (None, Some(host.clone()), Some(*port)),
        };
        // The directory of whoever cleans up may be another one.
        let defaults_file = defaults_file.and_then(|file| std::path::absolute(file).ok());
        Self { socket, host, port, user: target.user.clone(), defaults_file }
    }

    fn target(&self) -> Result<Target> {
        let mut target = match &self.defaults_file {
            Some(file) => Target::from_defaults_file(file)?,
            None => {
                let password = std::env::var("MYSQL_PWD").unwrap_or_default();
                Target { user: self.user.clone(), password: Secret::new(password), ..Target::default() }
            }
        };
        target.address = match (&self.socket, &self.host, self.port) {
            (Some(path), _, _) => Address::Unix(path.clone()),
            (None, Some(host), Some(port)) => Address::Tcp { host: host.clone(), port },
            _ => target.address,
        };
        target.db = None;
        Ok(target)
    }
}

/// Runs every statement, also after one that failed; fails if any did.
pub(super) fn put_back(server: &ServerRef, statements: &[String]) -> Result<()> {
    let target = server.target()?;
    let mut connection = Connection::connect(&target).with_context(|| {
        format!(
            "cannot log in at {} as {}: give the password in MYSQL_PWD and run `toll clean` again",
            target.address, target.user
        )
    })?;
    let mut failed = None;
    for statement in statements {
        if let Err(error) = connection.exec_drop(statement) {
            failed.get_or_insert(anyhow::Error::new(error).context(format!("`{statement}` was refused")));
        }
    }
    failed.map_or(Ok(()), Err)
}
