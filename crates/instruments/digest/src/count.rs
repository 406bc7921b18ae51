//! Counter of queries in an artifact that completed within a window. For the lab.
//!
//! No classes and no fingerprints: as fast as the bytes can be read.

use super::accounting::InputAccounting;
use super::decoder::InputDecoder;
use super::input::Input;
use crate::Type;
use anyhow::Context;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use toll_input::{Progress, pump};
use toll_wire::decoder::Config;
use toll_wire::event::{CommandKind, Event, Sink};

/// Part of an artifact to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountWindow {
    /// Captures: completed at or after `since_ns` and before `until_ns`, Unix ns.
    Time { since_ns: u64, until_ns: u64 },
    /// Logs and lines: written between two lengths of the file, bytes. An entry that straddles
    /// a bound counts where it was completed, or at the latest at the window's end.
    Bytes { from: u64, to: u64 },
    /// All of it.
    Whole,
}

/// Result of a count, with its accuracy.
#[derive(Debug, Clone)]
pub struct ArtifactQueryCount {
    /// Queries and executions of prepared statements; neither prepares nor pings nor quits.
    pub queries: u64,
    /// Bytes of the artefact that were read.
    pub bytes_read: u64,
    /// Number of `queries` with lost bytes: they count by their start.
    pub tainted: u64,
    pub accounting: InputAccounting,
}

/// Counts the queries of `path`, of this kind; `None`: each line is one. `ports`: the server's, for captures.
///
/// # Errors
/// The file cannot be read, is of another kind, or its kind holds no queries.
pub fn count_queries(
    path: &Path,
    kind: Option<Type>,
    window: CountWindow,
    ports: &[u16],
) -> anyhow::Result<ArtifactQueryCount> {
    count_input(path, kind, window, ports)
        .with_context(|| format!("cannot count the queries in {}", path.display()))
}

fn count_input(
    path: &Path,
    kind: Option<Type>,
    window: CountWindow,
    ports: &[u16],
) -> anyhow::Result<ArtifactQueryCount> {
    let (reader, kind): (Box<dyn Read + Send>, _) = match window {
        CountWindow::Bytes { from, to } => {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::Start(from))?;
            (Box::new(file.take(to.saturating_sub(from))), kind)
        }
        CountWindow::Time { .. } | CountWindow::Whole => match kind {
            Some(kind) => {
                let input = Input::open(path, Some(kind), &Progress::hidden())?;
                (input.reader, Some(input.kind))
            }
            None => (Box::new(File::open(path)?), None),
        },
    };
    let Some(kind) = kind else { return count_lines(reader) };
    let config = Config { ports: ports.to_vec(), ..Config::default() };
    let mut decode = InputDecoder::new(kind, &config)?;
    let mut counter = CountingSink { window, queries: 0, tainted: 0 };
    let pumped = pump(reader, false, &mut decode.with_sink(&mut counter), &AtomicBool::new(false))?;
    let ledger = decode.accounting();
    Ok(ArtifactQueryCount {
        queries: counter.queries,
        bytes_read: pumped.bytes,
        tainted: counter.tainted,
        accounting: ledger,
    })
}

struct CountingSink {
    window: CountWindow,
    queries: u64,
    tainted: u64,
}

impl Sink for CountingSink {
    fn on_event(&mut self, event: &Event<'_>) {
        if !matches!(event.kind, CommandKind::Query | CommandKind::Execute) {
            return;
        }
        let is_within = match self.window {
            CountWindow::Bytes { .. } | CountWindow::Whole => true,
            CountWindow::Time { since_ns, until_ns } => {
                // Neither: still running when the capture ended.
                let counts_at = event.end_ns.or(event.tainted.then_some(event.start_ns));
                counts_at.is_some_and(|ns| (since_ns..until_ns).contains(&ns))
            }
        };
        self.queries += u64::from(is_within);
        self.tainted += u64::from(is_within && event.tainted);
    }
}

fn count_lines(mut reader: Box<dyn Read + Send>) -> anyhow::Result<ArtifactQueryCount> {
    let mut buffer = vec![0; 256 * 1024];
    let (mut queries, mut bytes_read) = (0, 0);
    loop {
        let read = reader.read(&mut buffer)?;
        if read == 0 {
            return Ok(ArtifactQueryCount {
                queries,
                bytes_read,
                tainted: 0,
                accounting: InputAccounting::default(),
            });
        }
        bytes_read += read as u64;
        queries += memchr::memchr_iter(b'\n', &buffer[..read]).count() as u64;
    }
}
