//! Login to a server by DSN or option file: address, user, and source of the password.
//!
//! # Invariants
//! Never reads a password from the command line, where the process list would show it.

use super::console::eprint_line;
use super::target::AddressArgs;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use toll_mysql::{Secret, Target};

/// Login to an existing server.
#[derive(Debug)]
pub struct Login {
    pub target: Target,
    /// The option file that it was read from, if any.
    pub defaults_file: Option<PathBuf>,
}

impl Login {
    /// Parses `text`: a DSN or the path of an option file. Warns if the login would cross a network in the clear.
    pub fn parse(text: &str) -> Result<Self> {
        let login = Self::read(text)?;
        warn_if_exposed(&login.target);
        Ok(login)
    }

    /// The server that `--server` names, or these options one by one; none if neither does.
    pub fn choose(server: Option<&str>, address: &AddressArgs) -> Result<Option<Self>> {
        if let Some(text) = server {
            return Self::parse(text).context("in --server").map(Some);
        }
        if !address.is_set() {
            return Ok(None);
        }
        let mut target = Target::default();
        address.apply(&mut target)?;
        warn_if_exposed(&target);
        Ok(Some(Self { target: address.ask_password(target)?, defaults_file: None }))
    }

    /// As [`Login::parse`], for callers that change the login before they use it: without the warning.
    pub fn read(text: &str) -> Result<Self> {
        if text.contains("://") {
            return Self::read_dsn(text);
        }
        Self::read_file(Path::new(text))
            .with_context(|| format!("{text} is no DSN (mysql://...) and so is taken for an option file"))
    }

    pub fn read_dsn(dsn: &str) -> Result<Self> {
        if Target::dsn_holds_password(dsn) {
            bail!(
                "the DSN holds a password, which other users of this host can see: put it into MYSQL_PWD or an \
                 option file"
            );
        }
        Ok(Self { target: with_env_password(Target::parse_dsn(dsn)?), defaults_file: None })
    }

    pub fn read_file(path: &Path) -> Result<Self> {
        let target = with_env_password(Target::from_defaults_file(path)?);
        Ok(Self { target, defaults_file: Some(path.to_owned()) })
    }
}

pub fn warn_if_exposed(target: &Target) {
    if let Some(warning) = target.exposure_warning() {
        eprint_line!("toll: {warning}");
    }
}

/// Adds the environment's password if there is no other.
pub fn with_env_password(target: Target) -> Target {
    match env_password() {
        Some(password) if target.password.is_empty() => Target { password, ..target },
        _ => target,
    }
}

/// The environment's password, for any server.
pub fn env_password() -> Option<Secret> {
    std::env::var("MYSQL_PWD").ok().map(Secret::new)
}
