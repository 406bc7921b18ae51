//! Inspection of the host: its properties, noise, tools and abilities.
//!
//! # Invariants
//! Never changes anything. Never records a host name, user name or address.

mod facts;
pub mod noise;
mod planning;
pub mod readiness;
pub mod tools;

pub use facts::facts;
pub(crate) use planning::{for_planning, missing};
