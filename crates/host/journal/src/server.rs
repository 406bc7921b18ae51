//! Execution of undo statements on a server, possibly by another toll process than the one that changed it.
//!
//! A journal line holds the server's address and user, never a password. The password comes from the option
//! file named there, or from the caller (`toll clean --server`).

use super::undo::quoted_name;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use toll_mysql::{Address, Connection, NO_BINLOG, PasswordOptIns, Secret, Target, Tls, TlsOptions};
use toll_sys::slow_warning::SlowWarning;

/// A server as a journal line names it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ServerRef {
    /// Absent: over `socket`.
    host: Option<String>,
    port: u16,
    socket: Option<PathBuf>,
    user: String,
    /// Option file with the account. Address and security are here, should it say something else by now.
    defaults_file: Option<PathBuf>,
    tls: Tls,
    tls_options: TlsOptions,
    password_opt_ins: PasswordOptIns,
    /// Which server was changed: another one may have its address by now. Absent in journals of before it was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    /// With the password, for as long as this process lives.
    #[serde(skip)]
    live_target: Option<Box<Target>>,
}

impl ServerRef {
    /// `defaults_file` is the option file that `target` was read from, if it was.
    pub fn from_target(target: &Target, defaults_file: Option<PathBuf>) -> Self {
        let target = with_absolute_paths(target);
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
            tls: target.tls.clone(),
            tls_options: target.tls_options.clone(),
            password_opt_ins: target.password_opt_ins.clone(),
            identity: target.identity.clone(),
            live_target: Some(Box::new(target)),
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
        let given = credentials.login.as_ref().filter(|given| given.address == address);
        if let Some(given) = given.filter(|given| given.tls_options.is_stated) {
            return Ok(Target { identity: self.identity.clone(), ..given.clone() });
        }
        let (user, password) = self.account(given, credentials)?;
        Ok(Target {
            address,
            user,
            password,
            tls: self.tls.clone(),
            tls_options: self.tls_options.clone(),
            password_opt_ins: self.password_opt_ins.clone(),
            identity: self.identity.clone(),
            ..Target::default()
        })
    }

    fn account(&self, given: Option<&Target>, credentials: &Credentials) -> Result<(String, Secret)> {
        if let Some(given) = given {
            return Ok((given.user.clone(), given.password.clone()));
        }
        let password = credentials.password.clone().unwrap_or_default();
        let Some(path) = &self.defaults_file else { return Ok((self.user.clone(), password)) };
        let read = Target::from_defaults_file(path)?;
        Ok((read.user, if read.password.is_empty() { password } else { read.password }))
    }
}

/// `toll clean` may run in another directory.
fn with_absolute_paths(target: &Target) -> Target {
    let absolute = |path: &mut PathBuf| {
        if let Ok(whole) = std::path::absolute(&*path) {
            *path = whole;
        }
    };
    let mut target = target.clone();
    match &mut target.tls {
        Tls::VerifiedCa { ca } | Tls::Verified { ca } => absolute(ca),
        Tls::Off | Tls::Required => {}
    }
    if let Some(own) = &mut target.tls_options.client_certificate {
        absolute(&mut own.certificate);
        absolute(&mut own.key);
    }
    if let Some(key) = &mut target.password_opt_ins.server_public_key_path {
        absolute(key);
    }
    target
}

impl std::fmt::Display for ServerRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.address())
    }
}

/// With what `toll clean` logs in where a journal names a server.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    /// Used for the server at this very address. If it says nothing of TLS, that of the journal holds.
    pub login: Option<Target>,
    /// Used for any other whose option file is not known or holds none.
    pub password: Option<Secret>,
}

/// ER_UNKNOWN_SYSTEM_VARIABLE, ER_SP_DOES_NOT_EXIST (also said of a plugin), ER_DB_DROP_EXISTS:
/// what should be put back is not there any more, as after a restart of the server.
const ALREADY_GONE: [u16; 3] = [1193, 1305, 1008];

/// True if what a statement should put back is not there any more.
pub fn is_already_gone(error: &toll_mysql::Error) -> bool {
    ALREADY_GONE.contains(&error.code())
}

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
    let moved = credentials.login.as_ref().filter(|login| login.address != target.address);
    let mut connection = match (Connection::connect(&target), &target.identity, moved) {
        // The login may say where that server is now.
        (Err(toll_mysql::Error::AnotherServer { .. }), Some(_), Some(login)) => {
            let (identity, connect_timeout) = (target.identity.clone(), target.connect_timeout);
            Connection::connect(&Target { identity, connect_timeout, ..login.clone() })
        }
        (connected, ..) => connected,
    }
    .with_context(advice)?;
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
        // Dropped with their schema. Triggers come with tables.
        let objects = format!(
            "SELECT (SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = {literal}) + \
             (SELECT COUNT(*) FROM information_schema.routines WHERE routine_schema = {literal}) + \
             (SELECT COUNT(*) FROM information_schema.events WHERE event_schema = {literal})"
        );
        let marked = format!("SELECT run FROM {}.{OWNER_TABLE}", quoted_name(name));
        let is_ours = scalar(&objects)?.as_deref() == Some("0")
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
            Err(error) if is_already_gone(&error) => {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use toll_mysql::ClientCertificate;

    /// Of a process that ended, as the next one reads it.
    fn reread(server: &ServerRef) -> ServerRef {
        serde_json::from_str(&serde_json::to_string(server).unwrap()).unwrap()
    }

    fn write_options(dir: &Path, lines: &str) -> PathBuf {
        let path = dir.join("client.cnf");
        std::fs::write(&path, format!("[client]\nhost=10.0.0.1\n{lines}\n")).unwrap();
        path
    }

    #[test]
    fn a_change_is_undone_with_the_security_that_it_was_made_with() {
        let dir = tempfile::tempdir().unwrap();
        for lines in [
            "ssl-mode=VERIFY_CA\nssl-ca=/ca.pem",
            "ssl-mode=VERIFY_IDENTITY\nssl-ca=/ca.pem\ntls-version=TLSv1.3",
            "ssl-ca=/ca.pem\nssl-cert=/c.pem\nssl-key=/k.pem",
            "ssl-mode=REQUIRED\nenable-cleartext-plugin",
            "ssl\nget-server-public-key",
            "skip-ssl\nserver-public-key-path=/key.pem",
            "",
        ] {
            let file = write_options(dir.path(), &format!("user=a\npassword=first\n{lines}"));
            let made_with = Target::from_defaults_file(&file).unwrap();
            let from_file = reread(&ServerRef::from_target(&made_with, Some(file.clone())));
            let from_dsn = reread(&ServerRef::from_target(&made_with, None));
            // Somebody has edited it since.
            std::fs::write(&file, "[client]\nhost=elsewhere\nuser=b\npassword=second\n").unwrap();
            let login = Target { address: made_with.address.clone(), ..Target::default() };
            let given = Credentials { login: Some(login), password: None };
            for (server, credentials, user) in [
                (&from_file, &Credentials::default(), "b"),
                (&from_dsn, &Credentials::default(), "a"),
                (&from_dsn, &given, "root"),
            ] {
                let target = server.target(credentials).unwrap();
                assert_eq!((&target.address, target.user.as_str()), (&made_with.address, user), "{lines}");
                assert_eq!(target.tls, made_with.tls, "{lines}");
                let options = TlsOptions { lines: Vec::new(), ..made_with.tls_options.clone() };
                assert_eq!(target.tls_options, options, "{lines}");
                assert_eq!(target.password_opt_ins, made_with.password_opt_ins, "{lines}");
            }
        }
    }

    #[test]
    fn a_login_that_says_what_tls_is_to_be_has_the_last_word() {
        let made_with = Target { tls: Tls::Verified { ca: "/ca.pem".into() }, ..Target::default() };
        let server = reread(&ServerRef::from_target(&made_with, None));
        let login = Target::parse_dsn("mysql://root@127.0.0.1/?tls=off").unwrap();
        let credentials = Credentials { login: Some(login), password: None };
        assert_eq!(server.target(&credentials).unwrap().tls, Tls::Off);
    }

    #[test]
    fn files_of_a_login_are_found_from_another_directory() {
        let certificate = ClientCertificate { certificate: "c.pem".into(), key: "k.pem".into() };
        let target = Target {
            tls: Tls::VerifiedCa { ca: "ca.pem".into() },
            tls_options: TlsOptions { client_certificate: Some(certificate), ..TlsOptions::default() },
            ..Target::default()
        };
        let read = reread(&ServerRef::from_target(&target, None)).target(&Credentials::default()).unwrap();
        let own = read.tls_options.client_certificate.unwrap();
        for path in [read.tls.ca().unwrap(), &own.certificate, &own.key] {
            assert!(path.is_absolute(), "{}", path.display());
        }
    }
}
