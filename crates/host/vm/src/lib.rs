//! Virtual machine whose clock counts instructions: QEMU under `-icount`, on this host's own root.
//!
//! The machine's root is the host's, read-only, below an overlay in the machine's memory: it has the programs that
//! the host has, and changes none of them. It writes to one directory of the host. Its kernel is unpacked from a
//! package, not installed.
//!
//! # Invariants
//! Never needs root. Never installs anything. Knows no run, plan or scenario.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod archive;
mod boot;
mod cache;
mod console;
mod kernel;
mod kit;
mod machine;
mod module_order;
mod step;
mod tools;

pub use kit::Kit;
pub use machine::{Machine, MachineEnd, MachineEvent, MachineSpec};
pub use tools::MissingPart;
