//! MySQL and MariaDB client: connections, logins, TLS, option files. Never generates load and never evaluates
//! a server.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods))]

mod client_options;
pub mod connection;
mod error;
mod login;
mod option_file;
pub mod placeholder;
mod sql_string;
pub mod target;
mod tls;
mod usage;

pub use client_options::{ClientFamily, quote_option_value};
pub use connection::{Connection, Error, Rows, ServerError};
pub use error::TargetError;
pub use login::env_password;
pub use sql_string::sql_string;
pub use target::{Address, Compression, NO_BINLOG, PasswordOptIns, Secret, Target};
pub use tls::{ClientCertificate, Tls, TlsOptions};
pub use usage::Usage;
