//! Inspection of the host: its properties, noise, tools and abilities.
//!
//! # Invariants
//! Never changes anything. Never records a host name, user name or address.

pub mod noise;
mod planning;
mod properties;
pub mod readiness;
pub mod tools;

pub(crate) use planning::{for_planning, missing};
pub use properties::describe_host;
