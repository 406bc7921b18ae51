//! What is done with captures as such: profiled, merged, made? Never looks for queries in them.

mod cut;
mod held;
mod losses;
pub mod make;
pub mod merge;
pub mod output;
pub mod profile;
pub(crate) mod source;

pub use cut::cut;
pub use held::{Survey, survey};
