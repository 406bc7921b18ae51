//! Input files and streams, decompressed and read in bounded pieces. Never knows what they hold.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod opened;
mod progress;
mod pump;
pub mod scale;
mod zone;

pub use opened::Opened;
pub use progress::{Progress, ProgressDisplay, bytes_of};
pub use pump::{Pumped, Take, pump};
pub use scale::magnitude;
pub use zone::Here;
