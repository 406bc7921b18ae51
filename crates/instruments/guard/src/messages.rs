//! What toll and its guard say to each other: one line of JSON each, over the guard's standard input and output.
//!
//! Never holds a password: logins are option files of the run's own directory.

use super::breaker::Trip;
use super::control::Vetoes;
use super::limits::Limits;
use super::watch::WatchedFiles;
use anyhow::{Context, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use std::path::PathBuf;
use toll_journal::ServerRef;

/// Longest line that is read, bytes: undo statements are in the journal, not here.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The first line, to the guard.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuardSetup {
    pub run_id: String,
    pub journal_dir: PathBuf,
    pub server: ServerLogin,
    /// Further servers that a method is switched on at, which is switched off there, too.
    pub others: Vec<(ServerRef, ServerLogin)>,
    pub replicas: Vec<(String, ServerLogin)>,
    /// The probe query of the user's choice.
    pub probe_query: Option<String>,
    pub files: WatchedFiles,
    pub vetoes: Vetoes,
    /// Where figures are served for Prometheus: `ADDRESS:PORT`, or a port of 127.0.0.1.
    pub metrics: Option<String>,
    pub limits: Limits,
    pub seed: u64,
}

/// A server to log in to, by an option file that only the run's user can read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerLogin {
    pub defaults_file: PathBuf,
    pub schema: Option<String>,
    /// Any server when absent.
    pub identity: Option<String>,
}

/// From toll.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum ToGuard {
    /// toll lives. `on_us`: for how long a method is on, 0 if none is; `written_bytes`: what the method has written by now;
    /// `statement_us`: age of the statement that switches, if it has no answer yet.
    Beat { on_us: u64, written_bytes: u64, statement_us: u64 },
    /// Trip once, with nothing on, to show that it works.
    Drill,
    /// The run is over, and everything is off.
    End,
}

/// From the guard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum FromGuard {
    /// All connections are open.
    Ready,
    Beat {
        look: Look,
    },
    /// The method must go off; the guard is switching it off.
    Tripped {
        trip: Trip,
    },
    Off {
        report: OffReport,
    },
    /// The server is, or is not, as it was before.
    Recovered {
        after_s: Option<f64>,
    },
}

/// What a person wants to see of a look, which toll hears of five times a second.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Look {
    /// CLOCK_MONOTONIC, microseconds.
    pub at_us: u64,
    /// Probe queries answered since toll last heard of a look, and the sum of ln(their latency in microseconds).
    pub probes: u64,
    pub probe_ln_us_sum: f64,
    pub probe_p50_us: f64,
    pub probe_p99_us: f64,
    pub threads_running: Option<u64>,
    /// A method is on.
    pub is_on: bool,
    /// By the method, in all windows so far.
    pub written_bytes: u64,
    /// That the guard has asked the server so far, and its connections now.
    pub queries: u64,
    pub connections: u64,
}

/// What came of switching off.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OffReport {
    /// From the reading that decided it to the last acknowledgement, microseconds.
    pub took_us: u64,
    pub actions: Vec<String>,
    pub failures: Vec<String>,
}

/// Writes one line, at once.
///
/// # Errors
/// The other side has gone.
pub fn send(out: &mut impl Write, message: &impl Serialize) -> Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    out.write_all(&line).and_then(|()| out.flush()).context("the other side has gone")
}

/// The next line. `None`: the other side has gone.
///
/// # Errors
/// A line that is no message.
pub fn receive<T: DeserializeOwned>(from: &mut impl BufRead) -> Result<Option<T>> {
    let mut line = Vec::new();
    std::io::Read::take(&mut *from, MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        return Ok(None);
    }
    serde_json::from_slice(&line).map(Some).context("a line between toll and its guard cannot be read")
}
