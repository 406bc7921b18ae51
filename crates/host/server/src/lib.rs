//! Servers under test: private sandbox servers and existing ones.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod background;
mod certificate;
pub mod config;
mod data_cache;
mod datadir;
mod external;
mod local;
pub mod lock;
pub mod port;
pub mod program;
mod sandbox;
mod sandbox_home;
mod unprivileged;

pub use data_cache::{DatasetSpec, prepare_data};
pub use external::{AllowedChanges, ExternalServer};
pub use local::find_local;
pub use program::{Flavour, ServerProgram, Version};
pub use sandbox::{LinkEnds, Sandbox, SandboxSpec};
pub use unprivileged::UnprivilegedUser;
