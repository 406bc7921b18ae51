//! Units as users write them: durations, percents, sizes.

mod duration;
mod percent;
mod size;

pub use duration::{LONGEST_S, Seconds};
pub use percent::Percent;
pub use size::Bytes;
