//! Capture file operations: profile, merge, generate. Never decodes queries.

mod cut;
pub mod make;
pub mod merge;
pub mod output;
pub mod profile;
pub mod source;

pub use cut::cut;
