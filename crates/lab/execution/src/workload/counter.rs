//! Counter meter: work done where there is no driver of toll's, read some times a second.
//!
//! It reads the server's own count of statements, or a network device's count of packets. The result is bins
//! like a driver's, without response times.

use super::bin_stream::{BinStream, Bins, ReportedBin};
use crate::class_meter::STRETCH_US;
use crate::recorder::Recorder;
use crate::treatment::AdminSession;
use anyhow::Context;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use toll_record::{Bin, Meter};
use toll_sys::clock;

/// A running counter meter.
#[derive(Debug)]
pub struct Counter {
    pub meter: Meter,
    pub bin_stream: BinStream,
    stop: Arc<AtomicBool>,
}

/// Reads the counter's value. `None` if it cannot be read (any more).
type CounterReader = Box<dyn FnMut() -> Option<u64> + Send>;

/// Each reading of a server is a query to it, and wakes toll twice. A window is a number of these, and then one of whole stretches.
const SERVER_WIDTH_US: u64 = STRETCH_US;
const LINK_WIDTH_US: u64 = 100_000;

impl Counter {
    /// Starts reading.
    ///
    /// # Errors
    /// The counter cannot be read.
    pub fn start(meter: &Meter, admin: Option<AdminSession>, recorder: &Recorder) -> anyhow::Result<Self> {
        let (mut read, width_us) = match meter {
            Meter::Server => {
                let admin = admin.context("the meter `server` needs a server")?;
                (read_statements(admin), SERVER_WIDTH_US)
            }
            Meter::Link(device) => (read_packets(device)?, LINK_WIDTH_US),
            Meter::Driver | Meter::None => anyhow::bail!("this meter is no counter"),
        };
        let first = read().with_context(|| format!("{} cannot be read", describe_meter(meter)))?;
        let stop = Arc::new(AtomicBool::new(false));
        let feed = BinStream::start(count_bins(read, first, width_us, stop.clone()), 0, recorder.clone());
        // The next edge is known once there is a bin.
        while feed.live().is_none() && !feed.has_ended() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(Self { meter: meter.clone(), bin_stream: feed, stop })
    }

    /// Fails once the counter cannot be read any more.
    pub fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.bin_stream.has_ended(),
            "{} cannot be read any more",
            describe_meter(&self.meter)
        );
        Ok(())
    }

    pub fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bin_stream.finish();
    }
}

fn describe_meter(meter: &Meter) -> String {
    match meter {
        Meter::Link(device) => format!("the packet counter of {device}"),
        _ => "the server's count of statements".to_owned(),
    }
}

/// Bins that end where the wall clock shows a multiple of that width; the first is shorter.
fn count_bins(mut read: CounterReader, first: u64, width_us: u64, stop: Arc<AtomicBool>) -> Bins {
    let mut last = first;
    let mut begun_us = clock::mono_us();
    let mut edge_us = clock::next_multiple_us(width_us);
    Box::new(std::iter::from_fn(move || {
        clock::sleep_until(edge_us);
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        let now = read()?;
        // A server or a device that was restarted begins anew.
        let counted = now.checked_sub(last).unwrap_or(now);
        last = now;
        let bin = Bin {
            mono_us: edge_us,
            width_us: edge_us - begun_us,
            statements: counted,
            events: 0,
            errors: 0,
            latency_us_sum: 0,
            latency_us_max: None,
            in_flight: 0,
            oldest_us: 0,
            errors_by_code: BTreeMap::new(),
        };
        (begun_us, edge_us) = (edge_us, edge_us + width_us);
        Some(ReportedBin { bin, histogram: Vec::new(), p99_us: None, bin_interval_us: width_us })
    }))
}

/// `Questions` without the ones that read it.
fn read_statements(mut admin: AdminSession) -> CounterReader {
    let mut own = 0;
    Box::new(move || {
        own += 1;
        let status = admin.query_pairs("SHOW GLOBAL STATUS LIKE 'Questions'").ok()?;
        status.into_values().next()?.parse::<u64>().ok()?.checked_sub(own)
    })
}

/// Packets that a device received. Fails if the device does not exist.
fn read_packets(device: &str) -> anyhow::Result<CounterReader> {
    let path = format!("/sys/class/net/{device}/statistics/rx_packets");
    std::fs::metadata(&path)
        .with_context(|| format!("there is no network device {device}: see `ip link`"))?;
    Ok(Box::new(move || std::fs::read_to_string(&path).ok()?.trim().parse().ok()))
}
