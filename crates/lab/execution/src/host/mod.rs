//! On what is measured, and what can be measured there?
//!
//! Reads and asks; changes nothing. Takes down no host name, user name or address.

mod facts;
pub mod noise;
pub mod readiness;
pub mod tools;

pub use facts::facts;
