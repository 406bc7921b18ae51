//! Cross-check of the counted queries with pt-query-digest.
//!
//! pt-query-digest reads a few megabytes a second, and knows neither sessions nor prepared statements that began
//! before a capture did. So each arm is on once more after the last window, unmeasured: the load connects once the
//! arm is on, and both count the same short stretch of that.

use super::artefact_count::count_file;
use super::bounded_command::{STOP_WITHIN, run_bounded};
use super::environment::Environment;
use super::trial::TrialParams;
use super::{StaysOn, TrialLoop};
use crate::guard::Tripped;
use anyhow::Context;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use toll_digest::count::CountWindow;
use toll_journal::Journal;
use toll_model::artefacts;
use toll_net::pcap;
use toll_record::{Artefact, ArtefactKind, QueryCount, Window};
use toll_sys::cancel::CancelToken;
use toll_sys::child_process;
use toll_sys::program::missing_program_error;

/// Program of the cross-check.
const COUNTER: &str = "pt-query-digest";
/// One bin of sysbench's, which come once a second, and time for the capture to read it.
const WINDOW_S: f64 = 1.3;

impl<E: Environment> TrialLoop<'_, E> {
    /// Has each arm on once more, for as long as it takes to set a stretch of what it writes aside.
    ///
    /// # Errors
    /// A treatment stays on, or the guard trips; any other failure is reported, and the arm has no cross-check.
    pub fn cross_check_artefacts(&mut self) -> anyhow::Result<()> {
        let asked = self.plan.arms.iter().filter(|arm| self.env.wants_cross_check(arm));
        let asked: Vec<_> = asked.cloned().collect();
        if asked.is_empty() {
            return Ok(());
        }
        if let Some(why) = missing_program_error(COUNTER) {
            self.env.print_line(&format!("no cross-check with pt-query-digest: {why}"));
            return Ok(());
        }
        self.env.print_line("each variant whose output pt-query-digest can read is on once more, unmeasured");
        let measured: usize = self.plan.order.iter().map(Vec::len).sum();
        for (nth, mut arm) in asked.into_iter().enumerate() {
            arm.treatment.fresh_sessions = true;
            arm.window = Window::Time { s: WINDOW_S };
            let place = TrialParams { trial: (measured + nth) as u32, ..TrialParams::default() };
            self.env.set_cross_check(true);
            let tried = self.run_trial(&arm, place);
            self.env.set_cross_check(false);
            match tried {
                Ok(Some(_)) => {}
                Ok(None) => return Ok(()),
                Err(error) => {
                    let name = &arm.name;
                    self.env.print_line(&format!("no cross-check of {name}: {error:#}"));
                    if error.is::<StaysOn>() {
                        self.env.restore_settings().with_context(|| format!("arm {name} stays on"))?;
                    }
                    if error.is::<Tripped>() {
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }
}

/// A stretch of an artefact that waits to be counted.
#[derive(Debug)]
pub struct CrossCheckSample {
    file: PathBuf,
    stretch: ArtefactRange,
    line: Artefact,
    /// The server's.
    port: u16,
    /// Statements that the driver completed in the stretch.
    executed: u64,
}

/// What part of an artefact to cut out, and to count.
#[derive(Debug, Clone, Copy)]
pub enum ArtefactRange {
    /// Packets between two moments, Unix time in microseconds. Sessions begin at the first; what is counted ended
    /// at or after `since_us`.
    Time {
        begin_us: u64,
        since_us: u64,
        end_us: u64,
    },
    Bytes {
        begin: u64,
        end: u64,
    },
}

/// About three seconds of pt-query-digest's work.
pub const SAMPLE_BYTES: u64 = 12 << 20;
/// A cut larger than this is left alone: one arm must not hold up the report for minutes.
const MAX_SAMPLE_BYTES: u64 = 64 << 20;

impl CrossCheckSample {
    /// Copies the stretch. `None`: pt-query-digest cannot read this kind, or it is too large or empty.
    pub fn extract(
        artefact: &Path,
        stretch: ArtefactRange,
        executed: u64,
        line: &Artefact,
        port: u16,
        dir: &Path,
    ) -> anyhow::Result<Option<Self>> {
        if artefacts::spec_of(line.kind).pt_type.is_none() {
            return Ok(None);
        }
        let file = dir.join(format!("{}.cut", line.arm));
        let source = || File::open(artefact).with_context(|| format!("cannot read {}", artefact.display()));
        let target = BufWriter::new(File::create(&file)?);
        let whole = match (line.kind, stretch) {
            (ArtefactKind::Pcap, ArtefactRange::Time { begin_us, end_us, .. }) => pcap::copy_time_range(
                artefact,
                target,
                &(begin_us * 1_000..end_us * 1_000),
                MAX_SAMPLE_BYTES,
            )?,
            (ArtefactKind::TcpdumpText, ArtefactRange::Time { begin_us, end_us, .. }) => {
                extract_text(source()?, target, begin_us, end_us)?
            }
            (_, ArtefactRange::Bytes { begin, end }) => extract_bytes(source()?, target, begin, end)?,
            _ => false,
        };
        if !whole {
            std::fs::remove_file(&file)?;
            return Ok(None);
        }
        Ok(Some(Self { file, stretch, line: line.clone(), port, executed }))
    }

    /// Counts; the cut is gone afterwards.
    pub fn count(self, journal: &Journal, cancel: &CancelToken) -> Artefact {
        let bytes_read = std::fs::metadata(&self.file).map_or(0, |m| m.len());
        let counted = run_pt_query_digest(&self, journal, cancel);
        let by_toll = self.count_with_toll();
        // The directory goes after the run; a file left in it goes with it.
        let _ = std::fs::remove_file(&self.file);
        let mut line = self.line;
        match counted {
            Ok(queries) => {
                line.pt_query_digest = Some(QueryCount {
                    queries,
                    by: COUNTER.into(),
                    bytes_read,
                    executed: Some(self.executed),
                    by_toll,
                });
            }
            Err(error) => {
                let note = format!("pt-query-digest: {error:#}");
                line.note = Some(line.note.map_or(note.clone(), |old| format!("{old}; {note}")));
            }
        }
        line
    }

    /// What toll's own digest finds in the same bytes.
    fn count_with_toll(&self) -> Option<u64> {
        let over = match self.stretch {
            ArtefactRange::Time { since_us, end_us, .. } => {
                CountWindow::Time { since_ns: since_us * 1000, until_ns: end_us * 1000 }
            }
            ArtefactRange::Bytes { .. } => CountWindow::Whole,
        };
        count_file(&self.file, artefacts::spec_of(self.line.kind), over, &[self.port])
            .ok()
            .map(|count| count.queries)
    }
}

/// As pt-query-digest writes the time of a packet that tcpdump printed: local, with two digits of the year.
fn format_pt_time(us: u64) -> anyhow::Result<String> {
    let moment = jiff::Timestamp::from_microsecond(us as i64)?.to_zoned(jiff::tz::TimeZone::system());
    Ok(moment.strftime("%y%m%d %H:%M:%S%.6f").to_string())
}

/// Perl that is true of a query that ended in the stretch: no login, and neither the preparing of a statement nor its
/// reset, of which toll's own count and the driver's know nothing either.
fn build_pt_filter(since_us: u64, end_us: u64) -> anyhow::Result<String> {
    let (since, end) = (format_pt_time(since_us)?, format_pt_time(end_us)?);
    Ok(format!(
        "$event->{{cmd}} eq 'Query' && $event->{{ts}} ge '{since}' && $event->{{ts}} lt '{end}' \
         && (!defined $event->{{Statement_id}} || $event->{{arg}} =~ m/^EXECUTE /)"
    ))
}

/// `-tttt` text: a packet begins with its local date and time, its bytes follow indented.
fn extract_text(source: File, mut target: impl Write, begin_us: u64, end_us: u64) -> anyhow::Result<bool> {
    let stamp = |us: u64| -> anyhow::Result<String> {
        let moment = jiff::Timestamp::from_microsecond(us as i64)?;
        Ok(moment.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S%.6f").to_string())
    };
    let (begin, end) = (stamp(begin_us)?, stamp(end_us)?);
    let mut source = BufReader::with_capacity(1 << 20, source);
    let mut line = Vec::new();
    let mut inside = false;
    let mut written = 0u64;
    while source.read_until(b'\n', &mut line)? > 0 {
        if line.first().is_some_and(u8::is_ascii_digit) {
            if line.as_slice() >= end.as_bytes() {
                break;
            }
            inside = line.as_slice() >= begin.as_bytes();
        }
        if inside {
            written += line.len() as u64;
            if written > MAX_SAMPLE_BYTES {
                return Ok(false);
            }
            target.write_all(&line)?;
        }
        line.clear();
    }
    target.flush()?;
    Ok(written > 0)
}

fn extract_bytes(mut source: File, mut target: impl Write, begin: u64, end: u64) -> anyhow::Result<bool> {
    let len = end.saturating_sub(begin);
    if len == 0 || len > MAX_SAMPLE_BYTES {
        return Ok(false);
    }
    source.seek(SeekFrom::Start(begin))?;
    std::io::copy(&mut source.take(len), &mut target)?;
    target.flush()?;
    Ok(true)
}

fn run_pt_query_digest(
    cut: &CrossCheckSample,
    journal: &Journal,
    cancel: &CancelToken,
) -> anyhow::Result<u64> {
    let CrossCheckSample { file, stretch, line: Artefact { kind, .. }, port, .. } = cut;
    let kind = *kind;
    let server = format!("127.0.0.1:{port}");
    let mut command = child_process::clean_env_command(COUNTER);
    // What it cannot decode it copies, queries and all, to a file in /tmp that it leaves there.
    command.env("PERCONA_TOOLKIT_TCP_ERRORS_FILE", "/dev/null");
    command.args(["--output", "json", "--limit", "1", "--no-version-check"]);
    command.args(["--type", artefacts::spec_of(kind).pt_type.context("it cannot read this kind")?]);
    if artefacts::spec_of(kind).is_from_packets {
        command.args(["--watch-server", &server]);
    }
    if let ArtefactRange::Time { since_us, end_us, .. } = stretch {
        command.args(["--filter", &build_pt_filter(*since_us, *end_us)?]);
    }
    let mut decoder = None;
    if kind == ArtefactKind::Pcap {
        let mut tcpdump = child_process::clean_env_command("tcpdump");
        tcpdump.args(["-x", "-nn", "-q", "-tttt", "-r"]).arg(file);
        tcpdump.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let (mut tcpdump, undo) =
            journal.spawn(&mut tcpdump, "tcpdump for pt-query-digest", None, STOP_WITHIN)?;
        command.stdin(tcpdump.stdout.take().context("tcpdump has no output")?);
        decoder = Some((tcpdump, undo));
    } else {
        command.stdin(File::open(file)?);
    }
    let output = run_bounded(&mut command, COUNTER, journal, cancel);
    if let Some((mut decoder, undo)) = decoder {
        // It has ended, or has lost its reader: either way it is reaped here.
        let _ = decoder.kill();
        let _ = decoder.wait();
        journal.mark_done(undo)?;
    }
    // One JSON document, perhaps with lines of complaint before it.
    let (output, status) = output?;
    anyhow::ensure!(status.success(), "it failed ({status})");
    let Some(start) = output.iter().position(|&b| b == b'{') else {
        // It found no query at all, such as where the packets of every login were lost: it then ends well and prints
        // no document.
        return Ok(0);
    };
    let json: serde_json::Value = serde_json::Deserializer::from_slice(&output[start..])
        .into_iter()
        .next()
        .context("it printed no result")?
        .context("its result is not JSON")?;
    json["global"]["query_count"].as_u64().context("its result has no query count")
}
