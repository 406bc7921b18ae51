//! Connection options: server and login of every command, TLS and compression of `toll load` and `toll throttle`.

use super::login::{Login, warn_if_exposed};
use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use toll_mysql::{Address, Compression, Secret, Target, Tls};

/// A server option by option, as the clients of MySQL and MariaDB take it.
#[derive(Debug, Clone, Args)]
#[group(id = "address")]
pub struct AddressArgs {
    /// Host name or address [default: 127.0.0.1]
    #[arg(long, value_name = "HOST", conflicts_with = "socket", help_heading = "Address and login")]
    host: Option<String>,
    /// TCP port [default: 3306]
    #[arg(
        long,
        short = 'P',
        value_name = "PORT",
        conflicts_with = "socket",
        help_heading = "Address and login"
    )]
    port: Option<u16>,
    /// Unix socket instead of TCP
    #[arg(long, short = 'S', value_name = "PATH", help_heading = "Address and login")]
    socket: Option<PathBuf>,
    /// User [default: root]
    #[arg(long, short, value_name = "USER", help_heading = "Address and login")]
    user: Option<String>,
    /// Ask for the password
    #[arg(long, short, help_heading = "Address and login")]
    password: bool,
    /// Encryption: DISABLED, REQUIRED, VERIFY_CA or VERIFY_IDENTITY
    #[arg(long, value_name = "MODE", help_heading = "Connection")]
    ssl_mode: Option<String>,
    /// Encrypt, and trust only this authority (PEM)
    #[arg(long, alias = "ssl-ca", value_name = "FILE", help_heading = "Connection")]
    ca: Option<PathBuf>,
}

impl AddressArgs {
    /// True if they name a server: all but the password says which, or how to reach it.
    pub fn is_set(&self) -> bool {
        let Self { host, port, socket, user, password: _, ssl_mode, ca } = self;
        let paths = [socket, ca].iter().any(|path| path.is_some());
        paths || [host, user, ssl_mode].iter().any(|text| text.is_some()) || port.is_some()
    }

    /// True if an address is among them.
    fn has_address(&self) -> bool {
        self.host.is_some() || self.port.is_some() || self.socket.is_some()
    }

    /// Changes what they name in `target`. The password is asked for last, by [`AddressArgs::ask_password`].
    pub fn apply(&self, target: &mut Target) -> Result<()> {
        if self.host.is_some() || self.port.is_some() {
            let (host, port) = match &target.address {
                Address::Tcp { host, port } => (host.clone(), *port),
                Address::Unix(_) => ("127.0.0.1".to_owned(), 3306),
            };
            target.address =
                Address::Tcp { host: self.host.clone().unwrap_or(host), port: self.port.unwrap_or(port) };
        }
        if let Some(path) = &self.socket {
            target.address = Address::Unix(path.clone());
        }
        if let Some(user) = &self.user {
            target.user.clone_from(user);
        }
        let ca = self.ca.as_ref().or(target.tls.ca()).cloned();
        match (&self.ssl_mode, &self.ca) {
            (Some(mode), _) => {
                target.tls = Tls::from_mode(mode, ca).map_err(|why| anyhow!("in --ssl-mode: {why}"))?;
                target.tls_options.is_stated = true;
            }
            (None, Some(ca)) => target.tls = Tls::Verified { ca: ca.clone() },
            (None, None) => {}
        }
        Ok(())
    }

    /// `target` with a password from the terminal, if one is to be asked for, or else from the environment.
    pub fn ask_password(&self, target: Target) -> Result<Target> {
        if !self.password {
            return Ok(target.with_env_password());
        }
        let asked =
            rpassword::prompt_password("Password: ").context("cannot ask for a password: no terminal")?;
        Ok(Target { password: Secret::new(asked), ..target })
    }
}

#[derive(Debug, Args)]
pub struct TargetArgs {
    /// The server: an option file with a [client] section, or a DSN; in place of the options below
    #[arg(long, value_name = "DSN|FILE", help_heading = "Server")]
    #[arg(conflicts_with_all = ["host", "port", "socket", "dsn", "defaults_file"])]
    server: Option<String>,
    #[command(flatten)]
    address: AddressArgs,
    /// mysql://user@host:port/schema?socket=PATH; also from TOLL_DSN, there with a password
    #[arg(long, value_name = "DSN", conflicts_with_all = ["host", "port", "socket"], help_heading = "Server")]
    dsn: Option<String>,
    /// Option file with a [client] section
    #[arg(long, value_name = "FILE", conflicts_with = "dsn", help_heading = "Server")]
    defaults_file: Option<PathBuf>,
    /// Encrypt, as --ssl-mode REQUIRED; the certificate is checked only with --ca
    #[arg(long, alias = "ssl", conflicts_with = "ssl_mode", help_heading = "Connection")]
    tls: bool,
    /// Encrypt the password for whatever public key the server sends, where it asks for that without TLS
    #[arg(long, help_heading = "Connection")]
    get_server_public_key: bool,
    /// Send the password within TLS also to a server whose certificate is not checked, if it asks for that
    #[arg(long, help_heading = "Connection")]
    enable_cleartext_plugin: bool,
    /// Compress the protocol
    #[arg(long, value_name = "ALGORITHM", num_args = 0..=1, require_equals = true, default_missing_value = "zlib")]
    #[arg(help_heading = "Connection")]
    compress: Option<Algorithm>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Algorithm {
    Zlib,
    Zstd,
}

impl TargetArgs {
    pub fn resolve(&self) -> Result<Target> {
        let mut target = self.base_target()?;
        self.address.apply(&mut target)?;
        if self.tls && target.tls == Tls::Off {
            target.tls = Tls::Required;
        }
        target.password_opt_ins.get_server_public_key |= self.get_server_public_key;
        target.password_opt_ins.enable_cleartext_plugin |= self.enable_cleartext_plugin;
        warn_if_exposed(&target);
        match self.compress {
            Some(Algorithm::Zlib) => target.compress = Compression::Zlib,
            Some(Algorithm::Zstd) => target.compress = Compression::Zstd,
            None => {}
        }
        self.address.ask_password(target)
    }

    fn base_target(&self) -> Result<Target> {
        if let Some(server) = &self.server {
            return Ok(Login::read(server).context("in --server")?.target);
        }
        if let Some(dsn) = &self.dsn {
            return Target::from_public_dsn(dsn).context("in --dsn (or give the whole address in TOLL_DSN)");
        }
        if let Some(file) = &self.defaults_file {
            let target = Target::from_defaults_file(file).context("in --defaults-file")?;
            return Ok(target.with_env_password());
        }
        match std::env::var("TOLL_DSN") {
            Ok(dsn) if !self.address.has_address() => Target::parse_dsn(&dsn).context("in TOLL_DSN"),
            _ => Ok(Target::default()),
        }
    }
}
