//! System helpers: processes, signals, clocks, units, host facts. Never knows MySQL, a run or a product.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod atomic_file;
pub mod cancel;
pub mod capability;
pub mod cgroup;
pub mod child_process;
pub mod clock;
pub mod count_format;
pub mod cpu;
pub mod device;
pub mod disk;
pub mod memory;
pub mod named_choice;
pub mod number_format;
pub mod paths;
pub mod private_dir;
pub mod private_file;
pub mod proc_file;
pub mod process;
pub mod program;
pub mod prometheus;
pub mod redact;
pub mod s3_settings;
pub mod server_process;
pub mod signals;
pub mod slow_warning;
pub mod sysctl;
pub mod units;

/// A file's text, trimmed; empty where it cannot be read.
pub fn read_trimmed(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}
