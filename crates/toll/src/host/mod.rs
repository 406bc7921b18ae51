//! On what is measured, and what can be measured there?
//!
//! Reads and asks; changes nothing. Takes down no host name, user name or address.

pub mod capability;
pub mod cpu;
mod device;
pub mod disk;
mod facts;
pub mod memory;
pub mod noise;
pub mod readiness;
pub mod tools;

pub use facts::facts;

/// CPUs that programs may use here.
pub fn cpus() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64)
}
