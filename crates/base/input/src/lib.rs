//! Input files and streams, decompressed and read in bounded pieces. Never knows what they hold.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod decompressed_input;
mod progress;
mod pump;
pub mod short_number;
mod system_zone;

pub use decompressed_input::DecompressedInput;
pub use progress::{Progress, ProgressDisplay, total_file_bytes};
pub use pump::{ByteConsumer, PumpResult, pump};
pub use short_number::format_magnitude;
pub use system_zone::SystemZone;
