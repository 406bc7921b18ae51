//! What may be concluded from paired windows? Never reads a clock, file or socket.
//!
//! The way of a claim: [`rounds`] draws the order in which arms are measured, [`log_ratios`] pairs
//! their windows, [`sign_flip`] gives the interval and p value, [`holm`] corrects for the number
//! of arms, [`verdict`] says which words the numbers allow.
//!
//! Everything works on the log scale unless it says `pct`; [`toll_pct`] is the way across.
//! Where the data is too thin, the answer is a [`NoInterval`] with the reason, never a guess.
//! Every random draw comes from a seed the caller gives, and is the same on every platform.

mod draws;
mod holm;
mod interval;
mod mde;
mod moments;
mod pairs;
mod quantiles;
mod rounds;
mod signflip;
mod stalls;
mod verdict;

pub use draws::Draws;
pub use holm::holm;
pub use interval::{Interval, NoInterval};
pub use mde::{minimal_detectable_effect, rounds_needed};
pub use moments::{mean, median, sd};
pub use pairs::{Missing, PairError, Pairs, Side, Zeros, differences, log_of_toll, log_ratios, toll_pct};
pub use quantiles::{normal_cdf, normal_quantile, student_t_cdf, student_t_quantile};
pub use rounds::{jitters, rounds};
pub use signflip::{SignFlip, rounds_for_interval, sign_flip, smallest_p};
pub use stalls::{
    HARNESS_LATE_US, LoadBin, Stall, StallTotals, ThroughputRule, UnruledStalls, harness_stalls,
    latency_stall_threshold_us, latency_stalls, stall_totals,
};
pub use verdict::{Verdict, verdict};
