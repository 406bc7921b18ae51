//! Object stores and folders for objects. The only crate with an async runtime; its interface is synchronous.

// Libraries answer; they do not print.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod connector;
mod destination;
mod error;
mod folder;
mod store;

pub use destination::Destination;
pub use error::{Error, Result};
pub use store::{Object, RetryPolicy, Store};
