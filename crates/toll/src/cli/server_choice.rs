//! How does a user name the server that is measured?

use crate::run::ServerChoice;
use anyhow::{Context, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use toll_load::{Secret, Target};

#[derive(Debug, Args)]
pub struct ServerArgs {
    /// `sandbox` (a private server), a DSN (mysql://user@host:port/schema?socket=/path), or an
    /// option file with a [client] section; the password comes from MYSQL_PWD or the file
    #[arg(long, default_value = "sandbox", value_name = "sandbox|DSN|FILE")]
    server: String,
    /// The mariadbd or mysqld of the sandbox [default: the first found]
    #[arg(long, value_name = "PATH")]
    server_bin: Option<PathBuf>,
    /// Schema that toll may create on a server that is there already
    #[arg(long, default_value = "toll_load")]
    schema: String,
}

impl ServerArgs {
    pub fn resolve(self) -> anyhow::Result<ServerChoice> {
        if self.server == "sandbox" {
            return Ok(ServerChoice::Sandbox { program: self.server_bin });
        }
        if self.server_bin.is_some() {
            bail!("--server-bin goes with --server sandbox: a server that is there already has its own");
        }
        let is_dsn = self.server.contains("://");
        if is_dsn && Target::dsn_holds_password(&self.server) {
            bail!(
                "the DSN holds a password, which other users of this host can see: put it into MYSQL_PWD or an option file"
            );
        }
        let (mut target, defaults_file) = if is_dsn {
            (Target::parse_dsn(&self.server)?, None)
        } else {
            let path = Path::new(&self.server);
            let target = Target::from_defaults_file(path).with_context(|| {
                format!("--server {} is neither `sandbox`, nor a DSN, nor an option file", self.server)
            })?;
            (target, Some(path.to_owned()))
        };
        if target.password.is_empty()
            && let Ok(password) = std::env::var("MYSQL_PWD")
        {
            target.password = Secret::new(password);
        }
        let schema = target.db.take().unwrap_or(self.schema);
        Ok(ServerChoice::External { target, defaults_file, schema })
    }
}
