//! Meter of a host's trials: the load driver's, or a counter's.

use super::meter::Meter;
use crate::workload::{BinStream, Counter, Driver, LiveLoad, WindowLoad};
use std::time::Duration;
use toll_record::Bin;

/// What counts, and perhaps what makes the load that is counted.
pub enum WorkMeter {
    Driver(Box<Driver>),
    Counter(Counter),
}

impl WorkMeter {
    fn bin_stream(&self) -> &BinStream {
        match self {
            Self::Driver(driver) => &driver.bin_stream,
            Self::Counter(counter) => &counter.bin_stream,
        }
    }
}

impl Meter for WorkMeter {
    fn check(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Driver(driver) => driver.check(),
            Self::Counter(counter) => counter.check(),
        }
    }

    fn live(&self) -> Option<LiveLoad> {
        self.bin_stream().live()
    }

    fn bin_width_us(&self) -> u64 {
        self.bin_stream().bin_width_us()
    }

    fn bins_since(&self, moment_us: u64) -> Vec<Bin> {
        self.bin_stream().bins_since(moment_us)
    }

    fn edge_at_or_after(&self, moment_us: u64) -> u64 {
        self.bin_stream().edge_at_or_after(moment_us)
    }

    fn open_window(&mut self, begin_us: u64, end_us: u64) {
        self.bin_stream().open_window(begin_us, end_us);
    }

    fn window_counts(&self) -> (u64, u64) {
        self.bin_stream().window_counts()
    }

    fn close_early(&mut self, edge_us: u64) -> u64 {
        self.bin_stream().close_early(edge_us)
    }

    fn close_window(&mut self, within: Duration) -> Option<WindowLoad> {
        self.bin_stream().close_window(within)
    }
}
