//! Options that select the measured server.

use super::login::Login;
use super::target::AddressArgs;
use anyhow::bail;
use clap::Args;
use std::path::PathBuf;
use toll_execution::testbed::ServerChoice;
use toll_server::AllowedChanges;

#[derive(Debug, Clone, Args)]
pub struct ServerArgs {
    /// `sandbox` (a throw-away server), or an existing server: an option file with a [client] section, or a DSN
    /// (mysql://user@host:port/schema?socket=/path); the password comes from the file or MYSQL_PWD [default: sandbox]
    #[arg(long, aliases = ["dsn", "defaults-file"], value_name = "sandbox|DSN|FILE", help_heading = "Server")]
    #[arg(conflicts_with = "address")]
    server: Option<String>,
    #[command(flatten)]
    address: AddressArgs,
    /// The mariadbd or mysqld of the sandbox [default: the first found]
    #[arg(long, value_name = "PATH", help_heading = "Server")]
    server_bin: Option<PathBuf>,
    /// Schema on an existing server whose tables the load uses as they are
    #[arg(
        long,
        alias = "database",
        value_name = "NAME",
        conflicts_with = "allow_schema",
        help_heading = "Server"
    )]
    schema: Option<String>,
    /// On an existing server: create this schema for the test load (not binlogged) and drop it afterwards
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    allow_schema: Option<String>,
    /// Measure on a replica or a read-only server, without writing to it
    #[arg(long, help_heading = "Server")]
    allow_replica: bool,
    /// Put a load at full speed on an existing server without asking; at a given rate nothing is asked
    #[arg(long, help_heading = "Server")]
    pub yes: bool,
}

impl ServerArgs {
    /// True if a schema is to be made on an existing server.
    pub fn makes_schema(&self) -> bool {
        self.allow_schema.is_some()
    }

    /// The choice for a scenario about the host alone.
    pub fn resolve_none(self) -> anyhow::Result<ServerChoice> {
        let options = [
            (self.server.is_some(), "--server"),
            (self.address.is_set(), "--host, --port, --socket, --user, --ssl-mode and --ca"),
            (self.server_bin.is_some(), "--server-bin"),
            (self.schema.is_some(), "--schema"),
            (self.allow_schema.is_some(), "--allow-schema"),
            (self.allow_replica, "--allow-replica"),
        ];
        if let Some((_, option)) = options.into_iter().find(|(given, _)| *given) {
            bail!("this scenario is about the host alone and touches no server: leave out {option}");
        }
        Ok(ServerChoice::None)
    }

    pub fn resolve(self) -> anyhow::Result<ServerChoice> {
        let named = self.server.as_deref().filter(|server| *server != "sandbox");
        let login = Login::choose(named, &self.address)?;
        let Some(Login { mut target, defaults_file }) = login else {
            let options = [
                (self.schema.is_some(), "--schema"),
                (self.allow_schema.is_some(), "--allow-schema"),
                (self.allow_replica, "--allow-replica"),
            ];
            if let Some((_, option)) = options.into_iter().find(|(given, _)| *given) {
                bail!("{option} needs an existing server: name it with --server");
            }
            return Ok(ServerChoice::Sandbox { program: self.server_bin });
        };
        if self.server_bin.is_some() {
            bail!("--server-bin goes with --server sandbox: an existing server has its own");
        }
        let may_make_schema = self.allow_schema.is_some();
        let named = target.db.take();
        let schema = self.allow_schema.or(self.schema).or(named);
        let agreed =
            AllowedChanges { schema, may_create_schema: may_make_schema, allows_replica: self.allow_replica };
        Ok(ServerChoice::External { target: Box::new(target), defaults_file, agreed, second: None })
    }
}
