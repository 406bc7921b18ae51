//! Parsers of what users write with a unit: durations, percents, rates, sizes.
//!
//! Each has one grammar, on the command line and in scenarios. Its error names what was written, and an example.

mod duration;
mod percent;
mod rate;
mod size;

pub use duration::{MAX_DURATION_S, Seconds, duration};
pub use percent::Percent;
pub use rate::rate;
pub use size::Bytes;
