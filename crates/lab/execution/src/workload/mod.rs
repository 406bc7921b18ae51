//! Load driver: the process that keeps the server busy during measurements.
//!
//! All drivers deliver the same bins. The trial loop does not distinguish them.

mod bin_stream;
mod counter;
mod sysbench;
mod toll_driver;

pub use bin_stream::{BinStream, LiveLoad, WindowLoad};
pub use counter::Counter;
pub use toll_driver::rests_at_edges;

use crate::end_child::end_child;
use crate::recorder::Recorder;
use crate::treatment::{PausableLoad, cpu_of_process_us};
use anyhow::{Context, bail};
use bin_stream::read_bins;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};
use toll_journal::{Journal, UndoId};
use toll_model::rig::TRANSPORTS;
use toll_mysql::{Address, Compression, Target, Tls, TlsOptions};
use toll_record::{Clock, Workload};
use toll_sys::cancel::CancelToken;

/// Addresses that drivers connect to, by transport.
#[derive(Debug, Clone, Default)]
pub struct Endpoints {
    pub tcp: Option<Target>,
    pub unix: Option<Target>,
    /// Transports of rig steps, each with its address.
    pub by_rig_transport: BTreeMap<String, Address>,
}

impl Endpoints {
    /// The target of a transport.
    ///
    /// # Errors
    /// There is no such transport here.
    pub fn target(&self, transport: &str) -> anyhow::Result<Target> {
        if transport == "unix" {
            return self.unix.clone().context("the server's socket is not known: give it in --server");
        }
        let tcp = self.tcp.clone().context("the server's TCP address is not known: give it in --server")?;
        if let Some(address) = self.by_rig_transport.get(transport) {
            return Ok(Target { address: address.clone(), ..tcp });
        }
        let at = |host: &str| match &tcp.address {
            Address::Tcp { port, .. } => Address::Tcp { host: host.into(), port: *port },
            socket => socket.clone(),
        };
        Ok(match transport {
            "tcp" => tcp,
            "tls" if tcp.tls == Tls::Off => {
                Target { tls: Tls::Required, tls_options: TlsOptions::default(), ..tcp }
            }
            "tls" => tcp,
            "compress" => Target { compress: Compression::Zlib, ..tcp },
            "localhost" => Target { address: at("localhost"), ..tcp },
            "ipv6" => Target { address: at("::1"), ..tcp },
            other => bail!("unknown transport `{other}` here: use {}", TRANSPORTS.join(", ")),
        })
    }
}

/// Context for starting a driver, in addition to the workload.
#[derive(Debug)]
pub struct DriverContext<'a> {
    pub journal: &'a Journal,
    pub recorder: &'a Recorder,
    pub cancel: &'a CancelToken,
    /// Directory of the driver's output and settings.
    pub dir: PathBuf,
    pub seed: u64,
    pub clock: Clock,
}

/// A running driver.
#[derive(Debug)]
pub struct Driver {
    child: Child,
    undo: UndoId,
    pub bin_stream: BinStream,
    pub workload: Workload,
    /// Address of the server that it keeps busy.
    pub address: Address,
    cpu_us_at_end: u64,
}

/// Time limit for a driver's first bin.
const FIRST_BIN_WITHIN: Duration = Duration::from_secs(30);
const STOP_WITHIN: Duration = Duration::from_secs(5);

impl Driver {
    /// Starts the driver and waits for its first bin.
    ///
    /// # Errors
    /// The driver ended or delivered no bin in time.
    pub fn start(workload: &Workload, target: &Target, context: &DriverContext<'_>) -> anyhow::Result<Self> {
        let stderr = context.dir.join("driver.stderr");
        let (mut command, bins) = match workload.driver.as_str() {
            "toll" => toll_driver::build_command(workload, target, context)?,
            "sysbench" => sysbench::build_command(workload, target, context)?,
            other => bail!("`{other}` is no driver: use toll or sysbench"),
        };
        let errors = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&stderr)
            .with_context(|| format!("cannot write {}", stderr.display()))?;
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).stderr(errors);
        let what = format!("load driver {}", workload.driver);
        let (mut child, undo) =
            context.journal.spawn(&mut command, &what, Some(Signal::SIGTERM), STOP_WITHIN)?;
        let stdout = child.stdout.take().context("the driver has no standard output")?;
        let feed = BinStream::start(read_bins(stdout, bins), workload.threads, context.recorder.clone());
        let address = target.address.clone();
        let mut driver =
            Self { child, undo, bin_stream: feed, workload: workload.clone(), address, cpu_us_at_end: 0 };
        let begun = Instant::now();
        while driver.bin_stream.live().is_none() {
            if begun.elapsed() > FIRST_BIN_WITHIN || driver.has_ended() {
                let said = std::fs::read_to_string(&stderr).unwrap_or_default();
                let said = said.lines().rev().take(4).collect::<Vec<_>>();
                driver.stop(context.journal)?;
                let said = said.into_iter().rev().collect::<Vec<_>>().join(" / ");
                bail!("the load driver {} reports no bins; its output: {said}", workload.driver);
            }
            if let Err(interrupted) = context.cancel.check() {
                driver.stop(context.journal)?;
                return Err(interrupted);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(driver)
    }

    pub fn cpu_us(&self) -> u64 {
        cpu_of_process_us(self.child.id()).max(self.cpu_us_at_end)
    }

    /// The driver, if a pause does no harm: a closed loop continues where it was.
    ///
    /// An open loop would have to catch up with events that were due meanwhile.
    pub fn pausable(&self, clock: Clock) -> Option<PausableLoad> {
        let driver = Pid::from_raw(self.child.id() as i32);
        self.workload.rate_per_s.is_none().then(|| PausableLoad::new(driver, clock))
    }

    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Fails once the driver has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => {
                bail!("the load driver {} ended by itself ({status})", self.workload.driver)
            }
            Err(error) => Err(error).context("cannot watch the load driver"),
        }
    }

    /// Ends the driver. Its last bins are recorded.
    pub fn stop(mut self, journal: &Journal) -> anyhow::Result<()> {
        self.cpu_us_at_end = self.cpu_us();
        end_child(&mut self.child, STOP_WITHIN)
            .context("the load driver cannot be ended: see `toll clean`")?;
        self.bin_stream.finish();
        journal.mark_done(self.undo)
    }
}
