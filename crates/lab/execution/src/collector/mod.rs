//! Collectors of host, server and toll's own cost, read at a fixed interval during a run.
//!
//! Pressure and dirty pages are read every 100 ms. The host, the server's counters and toll's own cost are
//! read every second. A 25 ms ticker detects delays of the harness itself.

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
use std::time::Duration;
use toll_record::Sample;
use toll_sys::clock;

/// Collectors that run until they are stopped.
#[derive(Debug)]
pub struct Collectors {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

const TICK: Duration = Duration::from_millis(100);
/// Ticks a second. Host, server and own cost are read at every tenth tick.
const TICKS_PER_SECOND: u64 = 10;

impl Collectors {
    pub fn start(recorder: &Recorder, servers: Vec<ServerCounters>, run_dir: &std::path::Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = vec![ticker::start_ticker(recorder.clone(), stop.clone())];
        let (recorder, flag) = (recorder.clone(), stop.clone());
        let disk = host::disk_under(run_dir);
        threads.push(std::thread::spawn(move || collect(&recorder, servers, &disk, &flag)));
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

fn collect(recorder: &Recorder, mut servers: Vec<ServerCounters>, disk: &str, stop: &AtomicBool) {
    let mut host = host::HostReader::new(disk);
    let mut pressure = pressure::PressureReader::new();
    let mut beat = 0u64;
    let mut next = clock::mono_us();
    while !stop.load(Ordering::Relaxed) {
        next += TICK.as_micros() as u64;
        clock::sleep_until(next);
        beat += 1;
        if let Some(sample) = pressure.read() {
            recorder.record_sample(Sample::Pressure(sample));
        }
        if beat.is_multiple_of(TICKS_PER_SECOND) {
            if let Some(sample) = host.read() {
                recorder.record_sample(Sample::Host(sample));
            }
            for sample in servers.iter_mut().filter_map(ServerCounters::read) {
                recorder.record_sample(Sample::Server(sample));
            }
            recorder.record_sample(Sample::Own(own::read_own_usage()));
        }
    }
}
