//! Execution of undo statements on a server, possibly by another toll process than the one that changed it.
//!
//! A journal line holds the server's address and user, never a password. The password comes from the option
//! file named there, or from the caller (`toll clean --server`).

use super::undo::quoted_name;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use toll_mysql::{Address, Connection, NO_BINLOG, PasswordOptIns, Secret, Target, Tls};
use toll_sys::slow_warning::SlowWarning;

/// A server as a journal line names it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerRef {
    /// Absent: over `socket`.
    host: Option<String>,
    port: u16,
    socket: Option<PathBuf>,
    user: String,
    /// Option file with the password.
    defaults_file: Option<PathBuf>,
    tls: bool,
    /// Authority that the server's certificate must come from.
    ca: Option<PathBuf>,
    #[serde(default)]
    get_server_public_key: bool,
    #[serde(default)]
    enable_cleartext_plugin: bool,
    /// With the password, for as long as this process lives.
    #[serde(skip)]
    live_target: Option<Box<Target>>,
}

impl ServerRef {
    /// `defaults_file` is the option file that `target` was read from, if it was.
    pub fn from_target(target: &Target, defaults_file: Option<PathBuf>) -> Self {
        let (host, port, socket) = match &target.address {
            Address::Tcp { host, port } => (Some(host.clone()), *port, None),
            Address::Unix(path) => (None, 0, Some(path.clone())),
        };
        Self {
            host,
            port,
            socket,
            user: target.user.clone(),
            defaults_file: defaults_file.and_then(|path| std::path::absolute(path).ok()),
            tls: target.tls != Tls::Off,
            ca: target.tls.ca().cloned(),
            get_server_public_key: target.password_opt_ins.get_server_public_key,
            enable_cleartext_plugin: target.password_opt_ins.enable_cleartext_plugin,
            live_target: Some(Box::new(target.clone())),
        }
    }

    pub fn is_at_same_address(&self, other: &Self) -> bool {
        self.address() == other.address()
    }

    fn address(&self) -> Address {
        match (&self.socket, &self.host) {
            (Some(path), _) => Address::Unix(path.clone()),
            (None, host) => {
                let host = host.clone().unwrap_or_else(|| "127.0.0.1".into());
                Address::Tcp { host, port: self.port }
            }
        }
    }

    fn target(&self, credentials: &Credentials) -> Result<Target> {
        if let Some(live) = &self.live_target {
            return Ok(Target::clone(live));
        }
        let address = self.address();
        if let Some(given) = credentials.login.as_ref().filter(|given| given.address == address) {
            return Ok(given.clone());
        }
        let password = credentials.password.clone().unwrap_or_default();
        if let Some(path) = &self.defaults_file {
            let target = Target::from_defaults_file(path)?;
            let password = if target.password.is_empty() { password } else { target.password };
            return Ok(Target { password, ..target });
        }
        let tls = match (&self.ca, self.tls) {
            (Some(ca), _) => Tls::Verified { ca: ca.clone() },
            (None, true) => Tls::Required,
            (None, false) => Tls::Off,
        };
        let password_opt_ins = PasswordOptIns {
            get_server_public_key: self.get_server_public_key,
            enable_cleartext_plugin: self.enable_cleartext_plugin,
            ..PasswordOptIns::default()
        };
        Ok(Target { address, user: self.user.clone(), password, tls, password_opt_ins, ..Target::default() })
    }
}

impl std::fmt::Display for ServerRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.address())
    }
}

/// With what `toll clean` logs in where a journal names a server.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Used for the server at this very address.
    pub login: Option<Target>,
    /// Used for any other whose option file is not known or holds none.
    pub password: Option<Secret>,
}

/// ER_UNKNOWN_SYSTEM_VARIABLE, ER_SP_DOES_NOT_EXIST (also said of a plugin), ER_DB_DROP_EXISTS:
/// what should be put back is not there any more, as after a restart of the server.
const ALREADY_GONE: [u16; 3] = [1193, 1305, 1008];

/// Silence that a user who waits should know of.
const SLOW_WARNING_AFTER: Duration = Duration::from_secs(1);
/// Dropping a schema of many gigabytes takes its time; a server that hangs is given up after it.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// A server that does not even greet is not waited for as long: there may be several changes.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// A session for putting things back.
fn connect(server: &ServerRef, credentials: &Credentials) -> Result<(Connection, SlowWarning)> {
    let advice = || {
        format!("cannot put the server at {server} back: toll clean --server FILE.cnf (or MYSQL_PWD) logs in")
    };
    let slow = SlowWarning::start(
        SLOW_WARNING_AFTER,
        format!("the server at {server} does not answer; waiting; `toll clean` puts it right later"),
    );
    let target = server.target(credentials).with_context(advice)?;
    let target = Target { connect_timeout: HANDSHAKE_TIMEOUT.min(target.connect_timeout), ..target };
    let mut connection = Connection::connect(&target).with_context(advice)?;
    connection.set_read_timeout(Some(STATEMENT_TIMEOUT)).with_context(advice)?;
    Ok((connection, slow))
}

/// Drops a schema that toll made for the run `owner`. One that is not marked as such, and is not
/// empty either, is somebody else's by now and is left alone. The answer says whether it was there.
pub(super) fn drop_schema(
    server: &ServerRef,
    name: &str,
    owner: Option<&str>,
    unlogged: bool,
    credentials: &Credentials,
) -> Result<bool> {
    let (mut connection, _slow) = connect(server, credentials)?;
    let literal = format!("'{}'", name.replace('\\', "\\\\").replace('\'', "''"));
    let mut scalar =
        |sql: &str| -> Result<Option<String>> { Ok(connection.query(sql)?.scalar().map(str::to_owned)) };
    let there =
        scalar(&format!("SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = {literal}"))?;
    if there.as_deref() == Some("0") {
        return Ok(false);
    }
    if let Some(owner) = owner {
        let tables = format!("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {literal}");
        let marked = format!("SELECT run FROM {}.{OWNER_TABLE}", quoted_name(name));
        let is_ours = scalar(&tables)?.as_deref() == Some("0")
            || connection.query(&marked).is_ok_and(|rows| rows.scalar() == Some(owner));
        if !is_ours {
            bail!(
                "schema {name} at {server} is not the one that this run made: look at it, and drop it by hand"
            );
        }
    }
    if unlogged {
        connection
            .exec_drop(NO_BINLOG)
            .with_context(|| format!("schema {name} must be dropped past the binary log"))?;
    }
    connection.exec_drop(&format!("DROP DATABASE IF EXISTS {}", quoted_name(name)))?;
    Ok(true)
}

/// The table by which a schema is known to be a run's own.
pub const OWNER_TABLE: &str = "made_by_toll";

/// Sends all statements, going on past one that is refused.
pub(super) fn run_statements(
    server: &ServerRef,
    statements: &[String],
    credentials: &Credentials,
) -> Result<()> {
    let (mut connection, _slow) = connect(server, credentials)?;
    let mut refused = Vec::new();
    for sql in statements {
        match connection.exec_drop(sql) {
            Ok(()) => {}
            Err(error) if ALREADY_GONE.contains(&error.code()) => {}
            Err(error @ toll_mysql::Error::ConnectionLost { .. }) => {
                return Err(error).with_context(|| format!("the server at {server} did not do `{sql}`"));
            }
            Err(error) => refused.push(format!("`{sql}`: {error}")),
        }
    }
    if !refused.is_empty() {
        bail!("the server at {server} refused {}", refused.join("; "));
    }
    Ok(())
}
