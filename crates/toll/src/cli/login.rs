//! Login to a server by DSN or option file: address, user, and source of the password.
//!
//! # Invariants
//! Never reads a password from the command line, where the process list would show it.

use super::console::eprint_line;
use super::target::AddressArgs;
use anyhow::{Context, Result};
use std::path::PathBuf;
use toll_mysql::Target;

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
        let defaults_file = (!text.contains("://")).then(|| PathBuf::from(text));
        Ok(Self { target: Target::from_login(text)?, defaults_file })
    }
}

pub fn warn_if_exposed(target: &Target) {
    if let Some(warning) = target.exposure_warning() {
        eprint_line!("toll: {warning}");
    }
}
