//! How is a MySQL server kept busy, and what did each request take?
//!
//! The rooms: [`connection`] speaks the protocol and [`target`] says where to.
//! Nothing here interprets a result: it counts, times and reports.

pub mod connection;
pub mod target;

pub use connection::{Connection, Error, Rows, ServerError};
pub use target::{Address, Compression, Secret, Target, TargetError, Tls};
