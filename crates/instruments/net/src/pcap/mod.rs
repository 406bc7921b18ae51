//! What is done with captures as such: profiled, merged, made? Never looks for queries in them.

mod cut;
pub mod make;
pub mod merge;
pub mod output;
pub mod profile;
pub mod source;

pub use cut::cut;
