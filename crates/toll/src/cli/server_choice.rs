//! How does a user name the server that is measured?

use crate::server::Agreed;
use crate::stage::ServerChoice;
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
    /// Schema on a server that is there already whose tables the load uses as they are
    #[arg(long, value_name = "NAME", conflicts_with = "allow_schema")]
    schema: Option<String>,
    /// Schema that toll may make and fill on a server that is there already, past the binary log;
    /// dropped after the run
    #[arg(long, value_name = "NAME")]
    allow_schema: Option<String>,
    /// Measure on a replica or a read-only server, without writing to it
    #[arg(long)]
    allow_replica: bool,
}

impl ServerArgs {
    pub fn resolve(self) -> anyhow::Result<ServerChoice> {
        if self.server == "sandbox" {
            let options = [
                (self.schema.is_some(), "--schema"),
                (self.allow_schema.is_some(), "--allow-schema"),
                (self.allow_replica, "--allow-replica"),
            ];
            if let Some((_, option)) = options.into_iter().find(|(given, _)| *given) {
                bail!("{option} goes with a server that is there already: name it with --server");
            }
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
        let may_make_schema = self.allow_schema.is_some();
        let named = target.db.take();
        let schema = self.allow_schema.or(self.schema).or(named);
        let agreed = Agreed { schema, may_make_schema, replica: self.allow_replica };
        Ok(ServerChoice::External { target: Box::new(target), defaults_file, agreed })
    }
}
