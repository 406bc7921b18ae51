//! Identity of a server, by which backups of one server are known among others in a store.
//!
//! MySQL has one (`server_uuid`). Another server gets a random one, which toll keeps in its state directory on
//! this host. An address is no identity: two networks may both have a 10.0.0.5, and two hosts a `db1`.

use crate::archive::ContentHash;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use toll_mysql::{Address, Target};
use toll_server::ExternalServer;
use toll_sys::atomic_file::AtomicFile;
use toll_sys::private_file;

/// A server, and whether it is the one of another time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// A UUID.
    pub id: String,
    /// As the server calls its host.
    pub host: String,
    /// True if it was made just now: no backup can be of it yet.
    pub is_new: bool,
}

/// A file of the state directory. All but `id` is for people.
#[derive(Debug, Serialize, Deserialize)]
struct IdentityFile {
    id: String,
    address: String,
    host: String,
    datadir: String,
}

/// Longest name of a source.
const NAME_MAX: usize = 64;

impl ServerIdentity {
    /// The server's identity. One that has none gets one.
    pub fn find_or_create(server: &ExternalServer) -> Result<Self> {
        Self::find_or_create_in(&toll_sys::paths::state_dir()?.join("servers"), server.target(), |name| {
            server.variables().get(name).cloned()
        })
    }

    /// The server's identity, if it has one here.
    pub fn find(server: &ExternalServer) -> Result<Option<Self>> {
        let dir = toll_sys::paths::state_dir()?.join("servers");
        Self::find_in(&dir, server.target(), |name| server.variables().get(name).cloned())
    }

    fn find_or_create_in(
        dir: &Path,
        target: &Target,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self> {
        if let Some(found) = Self::find_in(dir, target, &variable)? {
            return Ok(found);
        }
        private_file::create_dir(dir)?;
        let value = |name: &str| variable(name).unwrap_or_default();
        let identity = IdentityFile {
            id: toll_sys::read_trimmed("/proc/sys/kernel/random/uuid"),
            address: target.address.to_string(),
            host: value("hostname"),
            datadir: value("datadir"),
        };
        if identity.id.is_empty() {
            bail!("cannot make an id for the server: /proc/sys/kernel/random/uuid is not readable");
        }
        let path = identity_path(dir, target, &variable);
        let write = || {
            let mut file = AtomicFile::begin(&path)?;
            file.write_all(&serde_json::to_vec_pretty(&identity)?)?;
            file.create()
        };
        match write() {
            Ok(()) => Ok(Self { id: identity.id, host: identity.host, is_new: true }),
            // Another backup began at the same time: what is there is the server's.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Self::find_in(dir, target, &variable)?
                .with_context(|| format!("{} was removed meanwhile", path.display())),
            Err(error) => Err(error).with_context(|| format!("cannot write {}", path.display())),
        }
    }

    fn find_in(
        dir: &Path,
        target: &Target,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>> {
        let host = variable("hostname").unwrap_or_default();
        if let Some(id) = variable("server_uuid").filter(|id| !id.is_empty()) {
            return Ok(Some(Self { id, host, is_new: false }));
        }
        let path = identity_path(dir, target, &variable);
        let text = match std::fs::read(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let file: IdentityFile = serde_json::from_slice(&text).with_context(|| {
            format!("{} is damaged. Remove it, and name the source with --source.", path.display())
        })?;
        Ok(Some(Self { id: file.id, host, is_new: false }))
    }

    /// What stands for a source in the ids of its backups: the server, and `schemas` if any were asked for. `name`
    /// is the administrator's name for the server.
    pub fn source(&self, name: Option<&str>, schemas: &[String]) -> Result<String> {
        let server = match name {
            Some(name) => check_source_name(name)?.to_owned(),
            None => short_hash(&self.id, 16),
        };
        let mut schemas = schemas.to_vec();
        schemas.sort();
        schemas.dedup();
        if schemas.is_empty() {
            return Ok(server);
        }
        Ok(format!("{server}={}", short_hash(&schemas.join("\0"), 8)))
    }
}

/// It is a part of file names and of keys in buckets.
fn check_source_name(name: &str) -> Result<&str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(fits) {
        bail!(
            "--source {name:?} is no name of a source: use 1 to {NAME_MAX} letters, digits, dots, dashes and underscores"
        );
    }
    Ok(name)
}

/// Where this host keeps the identity of that server. Two servers never share one: what tells them apart are their
/// address as this host sees it, and what they say of themselves. If any of it changes, the server is taken for a new
/// one, whose backups remove none of the old one's.
fn identity_path(dir: &Path, target: &Target, variable: impl Fn(&str) -> Option<String>) -> PathBuf {
    let value = |name: &str| variable(name).unwrap_or_default();
    let own_port = value("port");
    let address = match &target.address {
        // A socket and the server's own port on loopback lead to the same server. Another port may be a tunnel.
        Address::Unix(path) if path.as_os_str() == value("socket").as_str() => "local".to_owned(),
        Address::Tcp { host, port }
            if ["localhost", "127.0.0.1", "::1"].contains(&host.as_str())
                && port.to_string() == own_port
                && value("hostname") == own_hostname() =>
        {
            "local".to_owned()
        }
        other => other.to_string(),
    };
    let facts = [address, value("hostname"), own_port, value("datadir"), value("server_uid")];
    dir.join(format!("{}.json", short_hash(&facts.join("\0"), 32)))
}

fn own_hostname() -> String {
    toll_sys::read_trimmed("/proc/sys/kernel/hostname")
}

fn short_hash(text: &str, digits: usize) -> String {
    let mut hash = ContentHash::hash(text.as_bytes()).to_string();
    hash.truncate(digits);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str) -> Target {
        Target { address: Address::Tcp { host: host.into(), port: 3306 }, ..Target::default() }
    }

    fn variables<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        move |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn a_server_is_known_by_its_uuid_or_by_an_id_of_this_host_and_never_by_its_address() {
        let [here, there] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let identity = |dir: &Path, target: &Target, said: &[(&str, &str)]| {
            ServerIdentity::find_or_create_in(dir, target, variables(said)).unwrap()
        };
        let mysql = [("server_uuid", "a-b-c"), ("hostname", "db1")];
        let known = identity(here.path(), &tcp("10.0.0.5"), &mysql);
        assert_eq!((known.id.as_str(), known.is_new), ("a-b-c", false));
        assert_eq!(known, identity(there.path(), &tcp("db.example"), &mysql));
        // Two networks, each with a 10.0.0.5 that calls itself db1.
        let mariadb = [("hostname", "db1"), ("port", "3306"), ("datadir", "/var/lib/mysql/")];
        assert_eq!(
            ServerIdentity::find_in(here.path(), &tcp("10.0.0.5"), variables(&mariadb)).unwrap(),
            None
        );
        let first = identity(here.path(), &tcp("10.0.0.5"), &mariadb);
        let other = identity(there.path(), &tcp("10.0.0.5"), &mariadb);
        assert!(first.is_new && other.is_new && first.id != other.id, "{first:?} {other:?}");
        let again = identity(here.path(), &tcp("10.0.0.5"), &mariadb);
        assert_eq!((&again.id, again.is_new), (&first.id, false));
        // The same address with another server behind it, and the same server behind a tunnel's other end.
        let moved = [("hostname", "db2"), ("port", "3306"), ("datadir", "/var/lib/mysql/")];
        assert_ne!(identity(here.path(), &tcp("10.0.0.5"), &moved).id, first.id);
        assert_ne!(identity(here.path(), &tcp("127.0.0.1"), &mariadb).id, first.id);
        // However this host's own server is called.
        let host = own_hostname();
        let own = [("hostname", host.as_str()), ("port", "3306"), ("socket", "/run/mysqld.sock")];
        let socket = Target { address: Address::Unix("/run/mysqld.sock".into()), ..Target::default() };
        let local = identity(here.path(), &socket, &own);
        for name in ["localhost", "127.0.0.1", "::1"] {
            assert_eq!(identity(here.path(), &tcp(name), &own).id, local.id, "{name}");
        }
    }

    #[test]
    fn a_source_is_a_server_and_what_was_asked_of_it() {
        let server = |id: &str| ServerIdentity { id: id.into(), ..ServerIdentity::default() };
        let source = |id: &str, name: Option<&str>, schemas: &[&str]| {
            let schemas: Vec<String> = schemas.iter().map(|name| (*name).to_owned()).collect();
            server(id).source(name, &schemas).unwrap()
        };
        assert_eq!(source("a", None, &["x", "y"]), source("a", None, &["y", "x", "y"]));
        assert_eq!(source("a", None, &[]).len(), 16);
        assert_eq!(source("a", Some("prod-1"), &[]), "prod-1");
        assert!(source("a", Some("prod"), &["x"]).starts_with("prod="));
        let all = [source("a", None, &[]), source("b", None, &[]), source("a", None, &["x"])];
        assert_eq!(all.iter().collect::<std::collections::HashSet<_>>().len(), 3, "{all:?}");
        for name in ["", "a/b", "a=b", "..\u{e4}", "a b", &"x".repeat(65)] {
            assert!(server("a").source(Some(name), &[]).is_err(), "{name}");
        }
    }
}
