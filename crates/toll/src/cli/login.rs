//! Which server does a DSN or an option file name, as whom, and where does the password come from?
//!
//! Never from the command line: it would stand in the process list.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use toll_mysql::{Secret, Target};

/// How to log in to a server that is there already.
#[derive(Debug)]
pub struct Login {
    pub target: Target,
    /// The option file that it was read from, if it was.
    pub defaults_file: Option<PathBuf>,
}

impl Login {
    /// `text` is a DSN or the path of an option file.
    pub fn named(text: &str) -> Result<Self> {
        if text.contains("://") {
            return Self::of_dsn(text);
        }
        Self::of_file(Path::new(text))
            .with_context(|| format!("{text} is no DSN (mysql://...) and so is taken for an option file"))
    }

    pub fn of_dsn(dsn: &str) -> Result<Self> {
        if Target::dsn_holds_password(dsn) {
            bail!(
                "the DSN holds a password, which other users of this host can see: put it into MYSQL_PWD or an \
                 option file"
            );
        }
        Ok(Self { target: with_password(Target::parse_dsn(dsn)?), defaults_file: None })
    }

    pub fn of_file(path: &Path) -> Result<Self> {
        let target = with_password(Target::from_defaults_file(path)?);
        Ok(Self { target, defaults_file: Some(path.to_owned()) })
    }
}

/// With the password of the environment where none was given otherwise.
pub fn with_password(target: Target) -> Target {
    match password() {
        Some(password) if target.password.is_empty() => Target { password, ..target },
        _ => target,
    }
}

/// The password of the environment, for whichever server.
pub fn password() -> Option<Secret> {
    std::env::var("MYSQL_PWD").ok().map(Secret::new)
}
