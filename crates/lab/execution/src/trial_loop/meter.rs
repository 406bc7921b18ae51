//! Meter of the work done, in bins that follow each other without a gap.

use crate::workload::{LiveLoad, WindowLoad};
use std::time::Duration;
use toll_record::Bin;

pub trait Meter {
    /// An error once it, or the load behind it, is gone.
    fn check(&mut self) -> anyhow::Result<()>;
    fn live(&self) -> Option<LiveLoad>;
    fn bin_width_us(&self) -> u64;
    /// Bins that began at that moment or later, as far back as they are kept.
    fn bins_since(&self, moment_us: u64) -> Vec<Bin>;
    /// The first edge between bins that is not before that moment.
    fn edge_at_or_after(&self, moment_us: u64) -> u64;
    /// From now on bins that end in (begin, end] are summed.
    fn open_window(&mut self, begin_us: u64, end_us: u64);
    /// Statements (or packets) and events in the open window so far.
    fn window_counts(&self) -> (u64, u64);
    /// Ends the open window sooner, at an edge; the answer is the end that holds.
    fn close_early(&mut self, edge_us: u64) -> u64;
    /// Waits for the window's last bin; `None`: the meter has fallen silent.
    fn close_window(&mut self, within: Duration) -> Option<WindowLoad>;
}
