//! Server address and credentials. Never opens a connection.

use crate::error::TargetError;
use crate::option_file;
use crate::tls::{Tls, TlsOptions, TlsReader};
use crate::usage::Usage;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A password. Its `Debug` shows `***`, and it has no `Display`.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The only access to the plain text.
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "(none)" } else { "***" })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Compression {
    #[default]
    Off,
    Zlib,
    /// MySQL 8.0.18 and later.
    Zstd,
}

/// Ways to give a password away that a server may ask for, and that the user has allowed. All are off by default,
/// because whoever sits between client and server can ask, too.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordOptIns {
    /// Encrypt the password for the public key that the server itself sends (`get-server-public-key`).
    pub get_server_public_key: bool,
    /// Encrypt it for the public key in this PEM file (`server-public-key-path`).
    pub server_public_key_path: Option<PathBuf>,
    /// Send it within TLS to a server whose certificate is not checked (`enable-cleartext-plugin`).
    pub enable_cleartext_plugin: bool,
}

/// Where to connect and as whom.
#[derive(Debug, Clone)]
pub struct Target {
    pub address: Address,
    pub user: String,
    pub password: Secret,
    /// Schema to start in; none when absent.
    pub db: Option<String>,
    pub tls: Tls,
    pub tls_options: TlsOptions,
    pub password_opt_ins: PasswordOptIns,
    pub compress: Compression,
    /// A text may hold several statements. Off where none needs it: it makes an injected one possible.
    pub multi_statements: bool,
    /// For the connection and for each step of the handshake.
    pub connect_timeout: Duration,
    /// Statements that every session runs right after its login, before anything else.
    pub session: Vec<String>,
    /// Which server must answer at the address (see [`crate::Connection::identity`]); any when absent. An address may lead to
    /// another one from a moment to the next, as after a switchover.
    pub identity: Option<String>,
    /// What all its sessions take.
    pub usage: Usage,
}

/// What a session runs so that nothing it writes reaches the binary log and the replicas. It needs
/// SUPER, BINLOG ADMIN (MariaDB) or SESSION_VARIABLES_ADMIN (MySQL).
pub const NO_BINLOG: &str = "SET SESSION sql_log_bin = 0";

impl Default for Target {
    /// root at 127.0.0.1:3306 without a password, TLS or compression; 10 s to connect.
    fn default() -> Self {
        Self {
            address: Address::Tcp { host: "127.0.0.1".into(), port: 3306 },
            user: "root".into(),
            password: Secret::default(),
            db: None,
            tls: Tls::Off,
            tls_options: TlsOptions::default(),
            password_opt_ins: PasswordOptIns::default(),
            compress: Compression::Off,
            multi_statements: false,
            connect_timeout: Duration::from_secs(10),
            session: Vec::new(),
            identity: None,
            usage: Usage::default(),
        }
    }
}

impl Target {
    /// Reads `mysql://user:password@host:port/schema?socket=/path&tls=required&compress=zlib`.
    ///
    /// Every part after `mysql://` may be missing; percent-encoding is undone; an IPv6 host stands
    /// in brackets; `ca=/file.pem` asks for a verified certificate; `get-server-public-key` and
    /// `enable-cleartext-plugin` are the client's options of these names. The last `@` ends the password,
    /// whatever stands in it; one in a parameter is written `%40`. An error never holds a password.
    pub fn parse_dsn(dsn: &str) -> Result<Self, TargetError> {
        let rest = dsn
            .strip_prefix("mysql://")
            .or_else(|| dsn.strip_prefix("mariadb://"))
            .ok_or_else(|| TargetError::NotADsn(redact_password(dsn)))?;
        let mut target = Self::default();
        let (credentials, rest) = match rest.rsplit_once('@') {
            Some((credentials, rest)) => (Some(credentials), rest),
            None => (None, rest),
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        if let Some(credentials) = credentials {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            if user.contains(['/', '?']) {
                return Err(TargetError::InvalidPart {
                    what: "user (write @ in a parameter as %40)",
                    value: user.into(),
                });
            }
            if !user.is_empty() {
                target.user = percent_decode("user", user)?;
            }
            target.password = Secret::new(
                percent_decode("password", password)
                    .map_err(|_| TargetError::InvalidPart { what: "password", value: "***".into() })?,
            );
        }
        let (host_port, db) = place.split_once('/').unwrap_or((place, ""));
        if !db.is_empty() {
            target.db = Some(percent_decode("schema", db)?);
        }
        let (host, port) = split_host_port(host_port)?;
        let host = if host.is_empty() { "127.0.0.1".into() } else { percent_decode("host", host)? };
        target.address = Address::Tcp { host, port };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode("parameter", value)?;
            target.tls_options.is_stated |= ["ca", "tls"].contains(&key);
            match (key, value.as_str()) {
                ("socket", path) => target.address = Address::Unix(path.into()),
                ("ca", file) => target.tls = Tls::Verified { ca: file.into() },
                ("tls", "off" | "false" | "0") => target.tls = Tls::Off,
                ("tls", "required" | "true" | "1" | "") => {
                    if target.tls == Tls::Off {
                        target.tls = Tls::Required;
                    }
                }
                ("compress", "off" | "false" | "0") => target.compress = Compression::Off,
                ("compress", "zlib" | "true" | "1" | "") => target.compress = Compression::Zlib,
                ("compress", "zstd") => target.compress = Compression::Zstd,
                ("get-server-public-key", "true" | "1" | "") => {
                    target.password_opt_ins.get_server_public_key = true;
                }
                ("enable-cleartext-plugin", "true" | "1" | "") => {
                    target.password_opt_ins.enable_cleartext_plugin = true;
                }
                _ => return Err(TargetError::InvalidPart { what: "known parameter", value: pair.into() }),
            }
        }
        Ok(target)
    }

    /// True if the address contains a password: it must not appear on a command line.
    pub fn dsn_holds_password(dsn: &str) -> bool {
        redact_password(dsn) != dsn
    }

    /// Reads an option file's sections for clients (`[client]`, `[client-server]`, `[client-mariadb]`, `[mysql]`,
    /// `[mariadb-client]`) as the mysql client does: host, port, socket, user, password, database, what a password
    /// may be given to, and TLS. A TLS option that toll does not know is an error.
    pub fn from_defaults_file(path: impl AsRef<Path>) -> Result<Self, TargetError> {
        let mut target = Self::default();
        let (mut host, mut port, mut socket) = (None, 0, None);
        let mut tls = TlsReader::default();
        for entry in option_file::read(path.as_ref())? {
            if tls.read(&entry)? {
                continue;
            }
            let opt_ins = &mut target.password_opt_ins;
            if let Some(on) = entry.switch("get-server-public-key") {
                opt_ins.get_server_public_key = on?;
                continue;
            }
            if let Some(on) = entry.switch("enable-cleartext-plugin") {
                opt_ins.enable_cleartext_plugin = on?;
                continue;
            }
            let given = entry.value.clone().filter(|value| !value.is_empty());
            match (entry.name(), given) {
                ("host", value) => host = value,
                ("port", value) => {
                    let bad = |_| entry.error_at_entry("port is no number below 65536");
                    // 0: the default, as to the client.
                    port = value.map_or(Ok(0), |value| value.parse::<u16>()).map_err(bad)?;
                }
                ("socket", value) => socket = value,
                ("user", Some(value)) => target.user = value,
                ("password", value) => target.password = Secret::new(value.unwrap_or_default()),
                ("database", value) => target.db = value,
                ("server-public-key-path", value) => {
                    opt_ins.server_public_key_path = value.map(PathBuf::from)
                }
                _ => {}
            }
        }
        (target.tls, target.tls_options) = tls.finish()?;
        // As the client does: no host, or `localhost`, means the socket, be there a port or not.
        let local = host.as_deref().is_none_or(|h| h == "localhost");
        target.address = match socket {
            Some(path) if local => Address::Unix(path.into()),
            _ => Address::Tcp {
                host: host.unwrap_or_else(|| "127.0.0.1".into()),
                port: if port == 0 { 3306 } else { port },
            },
        };
        Ok(target)
    }

    /// True if nobody but this host's own kernel carries the connection: a Unix socket or loopback.
    pub fn is_local(&self) -> bool {
        match &self.address {
            Address::Unix(_) => true,
            Address::Tcp { host, .. } => {
                host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
            }
        }
    }

    /// A warning if login and statements cross a network in the clear, unless the user has asked for just that.
    pub fn exposure_warning(&self) -> Option<String> {
        let is_exposed = self.tls == Tls::Off && !self.tls_options.is_stated && !self.is_local();
        is_exposed.then(|| {
            format!(
                "the connection to {} is not encrypted: whoever is on the way can read and change all of it. Add \
                 ssl-ca=FILE.pem or ssl to the option file, or ca=FILE.pem or tls=required to the DSN; skip-ssl or \
                 tls=off says that it is meant so",
                self.address
            )
        })
    }
}

fn split_host_port(text: &str) -> Result<(&str, u16), TargetError> {
    let bad_port = |value: &str| TargetError::InvalidPart { what: "port", value: value.into() };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| TargetError::InvalidPart { what: "IPv6 host", value: text.into() })?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, port.parse().map_err(|_| bad_port(port))?)),
            None => Ok((host, 3306)),
        };
    }
    match text.split_once(':') {
        Some((host, port)) => Ok((host, port.parse().map_err(|_| bad_port(port))?)),
        None => Ok((text, 3306)),
    }
}

fn percent_decode(what: &'static str, text: &str) -> Result<String, TargetError> {
    let bad = || TargetError::InvalidPart { what, value: text.into() };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first != b'%' {
            bytes.push(first);
            rest = tail;
            continue;
        }
        let hex = tail.get(..2).and_then(|h| std::str::from_utf8(h).ok()).ok_or_else(bad)?;
        // The conversion would take a sign.
        if !hex.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(bad());
        }
        bytes.push(u8::from_str_radix(hex, 16).map_err(|_| bad())?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).map_err(|_| bad())
}

/// The same address with its password cut out.
fn redact_password(dsn: &str) -> String {
    let (scheme, rest) = dsn.split_once("://").map_or(("", dsn), |(s, r)| (s, r));
    let Some((credentials, place)) = rest.rsplit_once('@') else { return dsn.to_owned() };
    match credentials.split_once(':') {
        Some((user, password)) if !password.is_empty() => format!("{scheme}://{user}@{place}"),
        _ => dsn.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_address_is_read_and_its_password_never_shown() {
        let t = Target::parse_dsn("mysql://bob:p%40s:s/w@db.example:3307/shop").unwrap();
        assert_eq!(t.address, Address::Tcp { host: "db.example".into(), port: 3307 });
        assert_eq!((t.user.as_str(), t.password.expose(), t.db.as_deref()), ("bob", "p@s:s/w", Some("shop")));
        assert!(!format!("{t:?}").contains("s:s"));
        let odd = Target::parse_dsn("mysql://bob:a?b@c@h/x?socket=/a%40b").unwrap();
        assert_eq!((odd.password.expose(), odd.db.as_deref()), ("a?b@c", Some("x")));
        assert_eq!(odd.address, Address::Unix("/a@b".into()));
    }

    #[test]
    fn a_socket_tls_and_compression_are_parameters() {
        let t = Target::parse_dsn("mysql://root@localhost/x?socket=/run/a.sock&tls=required&compress=zstd")
            .unwrap();
        assert_eq!(t.address, Address::Unix("/run/a.sock".into()));
        assert_eq!((t.tls, t.compress), (Tls::Required, Compression::Zstd));
        let v6 = Target::parse_dsn("mysql://[::1]:3310").unwrap();
        assert_eq!(v6.address.to_string(), "[::1]:3310");
    }

    #[test]
    fn a_bad_address_says_which_part_without_the_password() {
        for bad in [
            "127.0.0.1",
            "mysql://u:geheim@h:port/",
            "mysql://u:%zz@h/",
            "mysql://u:%+5geheim@h/",
            "mysql://u:geheim?x@h:port/",
            "mysql://h/?socket=/a@b",
            "mysql://h/?colour=red",
            "mysql://[::1/",
        ] {
            let error = Target::parse_dsn(bad).unwrap_err().to_string();
            assert!(!error.contains("geheim") && !error.contains("%zz"), "{error}");
        }
        assert!(Target::dsn_holds_password("mysql://u:x@h/"));
        assert!(!Target::dsn_holds_password("mysql://u@h/"));
    }

    #[test]
    fn an_option_file_means_the_server_that_the_client_would_reach() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            let path = dir.path().join("my.cnf");
            std::fs::write(&path, text).unwrap();
            Target::from_defaults_file(&path)
        };
        let text = "[mysqld]\nport=1\n[client]\nuser = app\npassword=\"a#b\"\nport=3306\nsocket=/tmp/s\n";
        let t = read(text).unwrap();
        assert_eq!(t.address, Address::Unix("/tmp/s".into()));
        assert_eq!((t.user.as_str(), t.password.expose()), ("app", "a#b"));
        let tcp = read("[client]\nhost=10.0.0.1\nsocket=/tmp/s\nport=0\n").unwrap();
        assert_eq!(tcp.address.to_string(), "10.0.0.1:3306");
        assert!(read("[client]\nport=x\n").unwrap_err().to_string().contains("line 2"));
    }
}
