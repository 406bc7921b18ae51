//! Load driver: the process that keeps the server busy during measurements.
//!
//! All drivers deliver the same bins. The conductor cannot tell them apart.

mod counter;
mod feed;
mod sysbench;
mod toll_driver;

pub use counter::Counter;
pub use feed::{Feed, Live, WindowLoad};

use crate::recorder::Recorder;
use crate::treatment::{Pausable, cpu_of_process_us};
use anyhow::{Context, bail};
use feed::bins_of;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Child;
use std::time::{Duration, Instant};
use toll_journal::{Journal, UndoId};
use toll_mysql::{Address, Compression, Target, Tls};
use toll_record::Workload;
use toll_sys::cancel::CancelToken;
use toll_sys::process::escalate;

/// Transports that arms can name wherever there is a server. Rig steps add others.
pub const TRANSPORTS: [&str; 6] = ["tcp", "unix", "tls", "compress", "localhost", "ipv6"];

/// Addresses that drivers connect to, by transport.
#[derive(Debug, Clone, Default)]
pub struct Endpoints {
    pub tcp: Option<Target>,
    pub unix: Option<Target>,
    /// Transports of rig steps, each with its address.
    pub through: BTreeMap<String, Address>,
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
        if let Some(address) = self.through.get(transport) {
            return Ok(Target { address: address.clone(), ..tcp });
        }
        let at = |host: &str| match &tcp.address {
            Address::Tcp { port, .. } => Address::Tcp { host: host.into(), port: *port },
            socket => socket.clone(),
        };
        Ok(match transport {
            "tcp" => tcp,
            "tls" => Target { tls: Tls::Required, ..tcp },
            "compress" => Target { compress: Compression::Zlib, ..tcp },
            "localhost" => Target { address: at("localhost"), ..tcp },
            "ipv6" => Target { address: at("::1"), ..tcp },
            other => bail!("no way to the server is called `{other}` here: use {}", TRANSPORTS.join(", ")),
        })
    }
}

/// Context for starting a driver, in addition to the workload.
#[derive(Debug)]
pub struct Ground<'a> {
    pub journal: &'a Journal,
    pub recorder: &'a Recorder,
    pub cancel: &'a CancelToken,
    /// Directory of the driver's output and settings.
    pub dir: PathBuf,
    pub seed: u64,
}

/// A running driver.
#[derive(Debug)]
pub struct Driver {
    child: Child,
    undo: UndoId,
    pub feed: Feed,
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
    pub fn start(workload: &Workload, target: &Target, ground: &Ground<'_>) -> anyhow::Result<Self> {
        let stderr = ground.dir.join("driver.stderr");
        let (mut command, bins) = match workload.driver.as_str() {
            "toll" => toll_driver::command(workload, target, ground)?,
            "sysbench" => sysbench::command(workload, target, ground)?,
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
            ground.journal.spawn(&mut command, &what, Some(Signal::SIGTERM), STOP_WITHIN)?;
        let stdout = child.stdout.take().context("the driver has no standard output")?;
        let feed = Feed::start(bins_of(stdout, bins), workload.threads, ground.recorder.clone());
        let address = target.address.clone();
        let mut driver = Self { child, undo, feed, workload: workload.clone(), address, cpu_us_at_end: 0 };
        let begun = Instant::now();
        while driver.feed.live().is_none() {
            if begun.elapsed() > FIRST_BIN_WITHIN || driver.ended() {
                let said = std::fs::read_to_string(&stderr).unwrap_or_default();
                let said = said.lines().rev().take(4).collect::<Vec<_>>();
                driver.stop(ground.journal)?;
                let said = said.into_iter().rev().collect::<Vec<_>>().join(" / ");
                bail!("the load driver {} delivers nothing; it said: {said}", workload.driver);
            }
            if let Err(interrupted) = ground.cancel.check() {
                driver.stop(ground.journal)?;
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
    pub fn pausable(&self) -> Option<Pausable> {
        self.workload.rate_per_s.is_none().then(|| Pausable(Pid::from_raw(self.child.id() as i32)))
    }

    pub fn ended(&mut self) -> bool {
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
        let pid = Pid::from_raw(self.child.id() as i32);
        if !self.ended() {
            #[allow(clippy::disallowed_methods)] // a child that has not been waited for
            let send = |signal| {
                let _ = kill(pid, signal);
            };
            let steps = [(Signal::SIGTERM, STOP_WITHIN), (Signal::SIGKILL, STOP_WITHIN)];
            escalate(&steps, send, |patience| {
                let begun = Instant::now();
                while !self.ended() && begun.elapsed() < patience {
                    std::thread::sleep(Duration::from_millis(2));
                }
                self.ended()
            });
        }
        if !self.ended() {
            bail!("the load driver cannot be ended: see `toll clean`");
        }
        self.feed.finish();
        journal.mark_done(self.undo)
    }
}
