//! Which server is measured: a private one of toll's own, or one that is there already?

pub mod background;
mod certificate;
pub mod config;
mod datadir;
mod external;
mod local;
pub mod port;
mod prepared;
pub mod private;
pub mod program;
mod sandbox;

pub use external::{Agreed, External};
pub use local::Local;
pub use prepared::DataSpec;
pub use program::{Flavour, ServerProgram, Version};
pub use sandbox::{LinkEnds, Sandbox, SandboxSpec};
