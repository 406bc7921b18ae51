//! Logins as users name them: a DSN or an option file, and the password of the environment.
//!
//! # Invariants
//! Never reads a password from a DSN, which the process list shows.

use crate::error::TargetError;
use crate::target::{Secret, Target};

impl Target {
    /// Reads a DSN or the path of an option file. `MYSQL_PWD` is the password if there is no other.
    pub fn from_login(text: &str) -> Result<Self, TargetError> {
        if text.contains("://") {
            return Self::from_public_dsn(text);
        }
        let not_a_login = |cause| TargetError::NotALogin { text: text.into(), cause: Box::new(cause) };
        Ok(Self::from_defaults_file(text).map_err(not_a_login)?.with_env_password())
    }

    /// Reads a DSN that may stand on a command line: refused with a password.
    pub fn from_public_dsn(dsn: &str) -> Result<Self, TargetError> {
        if Self::dsn_holds_password(dsn) {
            return Err(TargetError::PublicPassword);
        }
        Ok(Self::parse_dsn(dsn)?.with_env_password())
    }

    /// Adds the environment's password if there is no other.
    #[must_use]
    pub fn with_env_password(self) -> Self {
        match env_password() {
            Some(password) if self.password.is_empty() => Self { password, ..self },
            _ => self,
        }
    }
}

/// The environment's password, for any server.
pub fn env_password() -> Option<Secret> {
    std::env::var("MYSQL_PWD").ok().map(Secret::new)
}
