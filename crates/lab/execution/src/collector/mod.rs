//! Collectors of host, server and toll's own cost, read at a fixed interval during a run.
//!
//! Pressure and dirty pages are read every 100 ms, on a server that serves users every 500 ms. The host, the server's counters and toll's own cost are
//! read every second, the last of these on a server that serves users every 10 s. A ticker detects delays of the harness itself.

mod host;
mod own;
mod pressure;
mod server;
mod ticker;

pub use host::busy_and_steal_us;
pub use server::ServerCounters;

use crate::recorder::Recorder;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use toll_record::Sample;
use toll_sys::clock;

/// Collectors that run until they are stopped.
#[derive(Debug)]
pub struct Collectors {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Host, server and own cost are read once in so many ticks of pressure.
const TICKS_PER_SECOND: u64 = 10;
const LIVE_TICKS_PER_SECOND: u64 = 2;
/// Seconds between two readings of toll's own cost, which opens a file of each thread.
const OWN_EVERY_S: u64 = 1;
const LIVE_OWN_EVERY_S: u64 = 10;

impl Collectors {
    /// `is_live`: on a server that serves users, under no load of toll's.
    pub fn start(
        recorder: &Recorder,
        servers: Vec<ServerCounters>,
        run_dir: &std::path::Path,
        is_live: bool,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = vec![ticker::start_ticker(recorder.clone(), is_live, stop.clone())];
        let (recorder, flag) = (recorder.clone(), stop.clone());
        let disk = host::disk_under(run_dir);
        let pace = match is_live {
            true => (LIVE_TICKS_PER_SECOND, LIVE_OWN_EVERY_S),
            false => (TICKS_PER_SECOND, OWN_EVERY_S),
        };
        threads.push(std::thread::spawn(move || collect(&recorder, servers, &disk, pace, &flag)));
        Self { stop, threads }
    }

    pub fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A collector that panicked has already said so on standard error.
            let _ = thread.join();
        }
    }
}

fn collect(
    recorder: &Recorder,
    mut servers: Vec<ServerCounters>,
    disk: &str,
    (ticks_per_second, own_every_s): (u64, u64),
    stop: &AtomicBool,
) {
    let mut host = host::HostReader::new(disk);
    let mut pressure = pressure::PressureReader::new();
    let mut beat = 0u64;
    let mut next = clock::mono_us();
    while !stop.load(Ordering::Relaxed) {
        next += 1_000_000 / ticks_per_second;
        clock::sleep_until(next);
        beat += 1;
        if let Some(sample) = pressure.read() {
            recorder.record_sample(Sample::Pressure(sample));
        }
        if beat.is_multiple_of(ticks_per_second) {
            if let Some(sample) = host.read() {
                recorder.record_sample(Sample::Host(sample));
            }
            for sample in servers.iter_mut().filter_map(ServerCounters::read) {
                recorder.record_sample(Sample::Server(sample));
            }
            // The first time after a second.
            if (beat / ticks_per_second) % own_every_s == 1 % own_every_s {
                recorder.record_sample(Sample::Own(own::read_own_usage()));
            }
        }
    }
}
