//! Execution of a plan: test setup, load, treatments, collectors, recorder, trials. Never judges what it
//! records.

// A closed terminal must not end a run, no child may inherit a secret, and no signal may reach a stranger: the
// workspace's `clippy.toml` names the calls that one place alone may make.
#![deny(clippy::print_stdout, clippy::print_stderr)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

mod capture_survey;
pub mod class_meter;
mod collector;
mod end_child;
mod footprint;
mod guard;
pub mod host;
pub mod live;
mod loss_tracker;
mod recorder;
pub mod run;
pub mod testbed;
mod treatment;
pub mod trial_loop;
mod workload;

pub use workload::LiveLoad;
