//! Capture file operations: profile, merge, generate. Never decodes queries.

pub mod capture_reader;
pub mod capture_writer;
pub mod make;
pub mod merge;
pub mod profile;
mod time_range;

pub use time_range::copy_time_range;
