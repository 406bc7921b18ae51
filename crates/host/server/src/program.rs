//! Detection of the server program, its family and version.
//!
//! Runs the program with `--version`; never starts a server.

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use toll_sys::child_process;
use toll_sys::program::find_program;

/// The families that differ in options, variables and how a data directory is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flavour {
    Mariadb,
    Mysql,
    Percona,
}

impl Flavour {
    /// From a version string with its comment, as both `--version` and `@@version` give it.
    pub fn detect(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        if text.contains("mariadb") {
            Self::Mariadb
        } else if text.contains("percona") {
            Self::Percona
        } else {
            Self::Mysql
        }
    }

    /// Name for the plan.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mariadb => "mariadb",
            Self::Mysql => "mysql",
            Self::Percona => "percona",
        }
    }
}

/// Major, minor and patch; ordered as versions are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub u16, pub u16, pub u16);

impl Version {
    /// The first `N.N.N` in `text`.
    pub fn parse_in(text: &str) -> Option<Self> {
        text.split(|c: char| !c.is_ascii_digit() && c != '.').find_map(|word| {
            let mut parts = word.split('.').map(|part| part.parse().ok());
            Some(Self(parts.next()??, parts.next()??, parts.next()??))
        })
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A `mariadbd` or `mysqld` that can be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerProgram {
    /// Absolute, links resolved.
    pub path: PathBuf,
    /// Where `share/`, `lib/` and the like are found.
    pub basedir: PathBuf,
    pub flavour: Flavour,
    pub version: Version,
    /// Output of `--version`.
    pub version_text: String,
}

impl ServerProgram {
    /// The program given, else the first `mariadbd` or `mysqld` on PATH and in the usual places.
    pub fn find(path: Option<&Path>) -> Result<Self> {
        match path {
            Some(path) => Self::inspect(path),
            None => {
                let found = find_program("mariadbd").or_else(|| find_program("mysqld")).context(
                    "no mariadbd or mysqld on PATH or in /usr/sbin: install one \
                     (apt-get install mariadb-server), or name it with --server-bin PATH",
                )?;
                Self::inspect(&found)
            }
        }
    }

    fn inspect(path: &Path) -> Result<Self> {
        let path = path
            .canonicalize()
            .with_context(|| format!("no server program at {}: check --server-bin", path.display()))?;
        let output = child_process::clean_env_command(&path)
            .args(["--no-defaults", "--version"])
            .output()
            .with_context(|| format!("cannot run {}", path.display()))?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let Some(version) = Version::parse_in(&said).filter(|_| output.status.success()) else {
            let complaint = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{} --version does not name a server version (it said: {} {}): is it mariadbd or mysqld?",
                path.display(),
                said,
                complaint.trim()
            );
        };
        let basedir = path.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned();
        Ok(Self { flavour: Flavour::detect(&said), version, basedir, version_text: said, path })
    }

    /// A program that belongs to this server: beside it, below its base directory, then on PATH.
    pub fn companion_program(&self, names: &[&str]) -> Option<PathBuf> {
        let own = ["bin", "scripts", "sbin"].map(|dir| self.basedir.join(dir));
        names
            .iter()
            .flat_map(|name| own.iter().map(move |dir| dir.join(name)))
            .find(|path| path.is_file())
            .or_else(|| names.iter().find_map(|name| find_program(name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flavour_and_version_are_read_from_what_servers_say() {
        for (said, flavour, version) in [
            (
                "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)",
                Flavour::Mariadb,
                Version(10, 11, 19),
            ),
            (
                "/opt/bin/mysqld  Ver 8.0.15 for Linux on x86_64 (MySQL Community Server - GPL)",
                Flavour::Mysql,
                Version(8, 0, 15),
            ),
            (
                "mysqld  Ver 8.0.36-28 for Linux on x86_64 (Percona Server (GPL), Release 28, Revision 47601f19)",
                Flavour::Percona,
                Version(8, 0, 36),
            ),
        ] {
            assert_eq!((Flavour::detect(said), Version::parse_in(said)), (flavour, Some(version)), "{said}");
        }
    }

    #[test]
    fn versions_are_ordered_as_numbers() {
        assert!(Version(8, 0, 30) > Version(8, 0, 4));
        assert_eq!(Version::parse_in("no version 8.0 here"), None);
    }
}
