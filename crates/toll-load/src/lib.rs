//! How is a MySQL server kept busy, and what did each request take?
//!
//! The rooms: [`target`] says where to, [`connection`] speaks the protocol, [`mix`] says what is sent
//! and [`schedule`] when, [`engine`] does it, [`bins`] and [`summary`] are what it reports.
//! Nothing here interprets a result: it counts, times and reports.

pub mod bins;
pub mod clock;
pub mod connection;
pub mod engine;
mod error;
pub mod mix;
mod option_file;
pub mod schedule;
pub mod summary;
pub mod tables;
pub mod target;

pub use connection::{Connection, Error, Rows, ServerError};
pub use error::TargetError;
pub use target::{Address, Compression, NO_BINLOG, Secret, Target, Tls};
