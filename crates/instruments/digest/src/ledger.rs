//! What became of everything that was read? One ledger for all inputs of a digest.

use serde::Serialize;
use std::io::{self, Write};
use toll_wire::ledger::Ledger as Counts;
use toll_wire::log::LogLedger;
use toll_wire::queries::QueriesLedger;

/// The ledger of each kind of input; kinds that were not read are absent.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub log: Option<LogLedger>,
    pub capture: Option<CaptureLedger>,
    pub queries: Option<QueriesLedger>,
}

#[derive(Debug, Clone, Default)]
pub struct CaptureLedger {
    pub counts: Counts,
    /// Bytes of a record whose end never came.
    pub unread_tail: u64,
    /// As the capturing program wrote it (pcapng only).
    pub dropped_by_capture: Option<u64>,
    /// Why captures could not be read to their ends.
    pub damage: Vec<String>,
}

impl Ledger {
    pub fn of_log(log: &LogLedger) -> Self {
        Self { log: Some(*log), ..Self::default() }
    }

    pub fn of_capture(capture: CaptureLedger) -> Self {
        Self { capture: Some(capture), ..Self::default() }
    }

    /// Of packets that were never in a file.
    pub fn of_counts(counts: Counts) -> Self {
        Self::of_capture(CaptureLedger { counts, ..CaptureLedger::default() })
    }

    /// With what the capture that wrote them said of itself at its end.
    pub fn of_queries(queries: &QueriesLedger) -> Self {
        let told = if queries.ended > 0 { Self::of_counts(queries.captured) } else { Self::default() };
        Self { queries: Some(queries.clone()), ..told }
    }

    pub fn merge(&mut self, other: &Self) {
        if let Some(log) = &other.log {
            self.log.get_or_insert_default().merge(log);
        }
        if let Some(from) = &other.capture {
            let capture = self.capture.get_or_insert_default();
            capture.counts += from.counts;
            capture.unread_tail += from.unread_tail;
            if let Some(dropped) = from.dropped_by_capture {
                *capture.dropped_by_capture.get_or_insert_default() += dropped;
            }
            capture.damage.extend(from.damage.iter().cloned());
        }
        if let Some(queries) = &other.queries {
            self.queries.get_or_insert_default().merge(queries);
        }
    }

    /// Adds a thread's share of one capture: what concerns the file itself is told once.
    pub fn merge_share(&mut self, share: &Self, index: u32) {
        let mut share = share.clone();
        if index > 0
            && let Some(capture) = &mut share.capture
        {
            capture.unread_tail = 0;
            capture.dropped_by_capture = None;
            capture.damage.clear();
        }
        self.merge(&share);
    }

    pub fn adds_up(&self) -> bool {
        self.log.is_none_or(|log| log.adds_up())
            && self.capture.as_ref().is_none_or(|capture| capture.counts.adds_up())
            && self.queries.as_ref().is_none_or(QueriesLedger::adds_up)
    }

    pub fn written(&self) -> Written {
        Written {
            log: self.log.as_ref().map(WrittenLog::of),
            capture: self.capture.as_ref().map(WrittenCapture::of),
            queries: self.queries.as_ref().map(WrittenQueries::of),
            adds_up: self.adds_up(),
        }
    }

    /// For people.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.log.is_none() && self.capture.is_none() && self.queries.is_none() {
            return Ok(());
        }
        writeln!(out, "# Ledger")?;
        if let Some(log) = &self.log {
            writeln!(
                out,
                "#   log       {} bytes, {} lines = entries {} + headers {} + malformed {}\n\
                 #   entries   parsed {} (cut {}), malformed {}",
                log.bytes,
                log.lines,
                log.entry_bytes,
                log.header_bytes,
                log.malformed_bytes,
                log.entries_parsed,
                log.entries_cut,
                log.entries_malformed
            )?;
        }
        if let Some(capture) = &self.capture {
            capture.print(out)?;
        }
        if let Some(queries) = &self.queries {
            print_queries(queries, out)?;
        }
        if !self.adds_up() {
            writeln!(out, "#   It does not add up: a fault of toll's. Please report it with the input.")?;
        }
        Ok(())
    }
}

fn print_queries(queries: &QueriesLedger, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "#   queries   {} events in {} blocks, {} bytes",
        queries.events, queries.blocks, queries.block_bytes
    )?;
    let missing = queries.missing();
    if missing > 0 {
        writeln!(out, "#   missing   {missing} events between those: not written in time, or damaged")?;
    }
    if queries.blocks_damaged + queries.skipped_bytes > 0 {
        writeln!(
            out,
            "#   damaged   {} blocks; {} bytes are no block's and were passed by",
            queries.blocks_damaged, queries.skipped_bytes
        )?;
    }
    if queries.blocks_newer > 0 {
        writeln!(out, "#   newer     {} blocks, which only a newer toll can read", queries.blocks_newer)?;
    }
    if queries.unread_tail > 0 {
        writeln!(out, "#   cut       the file ends within a block: {} bytes unread", queries.unread_tail)?;
    }
    if queries.ended == 0 {
        writeln!(
            out,
            "#   open      the capture's own account is not there: it goes on, was killed, or ends in another file"
        )?;
    }
    Ok(())
}

impl CaptureLedger {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let (frames, sessions, commands) =
            (&self.counts.frames, &self.counts.sessions, &self.counts.commands);
        let bytes = &self.counts.bytes;
        writeln!(
            out,
            "#   frames    {} = parsed {} + duplicate {} + truncated {} + unsupported {} + malformed {} + not ours {}",
            frames.read,
            frames.parsed,
            frames.duplicate,
            frames.truncated,
            frames.unsupported,
            frames.malformed,
            frames.not_ours
        )?;
        writeln!(
            out,
            "#   sessions  {} = plain {} + compressed {} + encrypted {} + joined midway {} + not understood {} + silent {}",
            sessions.seen,
            sessions.plain,
            sessions.compressed,
            sessions.encrypted,
            sessions.joined_midway,
            sessions.not_understood,
            sessions.silent
        )?;
        writeln!(
            out,
            "#   commands  {} = complete {} + tainted {} + unfinished {}",
            commands.seen, commands.complete, commands.tainted, commands.unfinished
        )?;
        writeln!(
            out,
            "#   lost      {} bytes from clients, {} from servers; {} responses without a command",
            bytes.lost_from_client, bytes.lost_from_server, commands.orphaned_responses
        )?;
        if let Some(dropped) = self.dropped_by_capture {
            writeln!(out, "#   dropped   {dropped} packets, by the capturing program's own account")?;
        }
        if self.unread_tail > 0 {
            writeln!(
                out,
                "#   cut       the capture ends within a record: {} bytes unread",
                self.unread_tail
            )?;
        }
        self.damage.iter().try_for_each(|why| writeln!(out, "#   damaged   {why}; what follows was not read"))
    }
}

/// As it stands in JSON: a promise.
#[derive(Debug, Serialize)]
pub struct Written {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<WrittenLog>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub capture: Option<WrittenCapture>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queries: Option<WrittenQueries>,
    pub adds_up: bool,
}

#[derive(Debug, Serialize)]
pub struct WrittenQueries {
    pub bytes: u64,
    pub blocks: u64,
    pub blocks_damaged: u64,
    pub blocks_newer: u64,
    pub events: u64,
    /// Between the first and the last block of a capture.
    pub events_missing: u64,
    pub skipped_bytes: u64,
    pub unread_tail_bytes: u64,
    /// Captures whose own account is there.
    pub captures_ended: u64,
}

impl WrittenQueries {
    fn of(queries: &QueriesLedger) -> Self {
        Self {
            bytes: queries.bytes,
            blocks: queries.blocks,
            blocks_damaged: queries.blocks_damaged,
            blocks_newer: queries.blocks_newer,
            events: queries.events,
            events_missing: queries.missing(),
            skipped_bytes: queries.skipped_bytes,
            unread_tail_bytes: queries.unread_tail,
            captures_ended: queries.ended,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct WrittenLog {
    pub bytes: u64,
    pub lines: u64,
    pub entry_bytes: u64,
    pub header_bytes: u64,
    pub malformed_bytes: u64,
    pub entries_parsed: u64,
    pub entries_malformed: u64,
    pub entries_cut: u64,
}

impl WrittenLog {
    fn of(log: &LogLedger) -> Self {
        Self {
            bytes: log.bytes,
            lines: log.lines,
            entry_bytes: log.entry_bytes,
            header_bytes: log.header_bytes,
            malformed_bytes: log.malformed_bytes,
            entries_parsed: log.entries_parsed,
            entries_malformed: log.entries_malformed,
            entries_cut: log.entries_cut,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct WrittenCapture {
    pub frames: WrittenFrames,
    pub sessions: WrittenSessions,
    pub commands: WrittenCommands,
    pub lost: WrittenLoss,
    pub unread_tail_bytes: u64,
    pub dropped_by_capture: Option<u64>,
    pub damage: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct WrittenFrames {
    pub read: u64,
    pub parsed: u64,
    pub duplicate: u64,
    pub truncated: u64,
    pub unsupported: u64,
    pub malformed: u64,
    pub not_ours: u64,
}

#[derive(Debug, Serialize)]
pub struct WrittenSessions {
    pub seen: u64,
    pub plain: u64,
    pub compressed: u64,
    pub encrypted: u64,
    pub joined_midway: u64,
    pub not_understood: u64,
    pub silent: u64,
}

#[derive(Debug, Serialize)]
pub struct WrittenCommands {
    pub seen: u64,
    pub complete: u64,
    pub tainted: u64,
    pub unfinished: u64,
    pub orphaned_responses: u64,
    pub desynchronised: u64,
}

#[derive(Debug, Serialize)]
pub struct WrittenLoss {
    pub bytes_from_client: u64,
    pub bytes_from_server: u64,
    pub cut_bytes_from_client: u64,
    pub cut_bytes_from_server: u64,
}

impl WrittenCapture {
    fn of(capture: &CaptureLedger) -> Self {
        let Counts { frames, bytes, sessions, commands } = capture.counts;
        Self {
            frames: WrittenFrames {
                read: frames.read,
                parsed: frames.parsed,
                duplicate: frames.duplicate,
                truncated: frames.truncated,
                unsupported: frames.unsupported,
                malformed: frames.malformed,
                not_ours: frames.not_ours,
            },
            sessions: WrittenSessions {
                seen: sessions.seen,
                plain: sessions.plain,
                compressed: sessions.compressed,
                encrypted: sessions.encrypted,
                joined_midway: sessions.joined_midway,
                not_understood: sessions.not_understood,
                silent: sessions.silent,
            },
            commands: WrittenCommands {
                seen: commands.seen,
                complete: commands.complete,
                tainted: commands.tainted,
                unfinished: commands.unfinished,
                orphaned_responses: commands.orphaned_responses,
                desynchronised: commands.desynchronised,
            },
            lost: WrittenLoss {
                bytes_from_client: bytes.lost_from_client,
                bytes_from_server: bytes.lost_from_server,
                cut_bytes_from_client: bytes.cut_from_client,
                cut_bytes_from_server: bytes.cut_from_server,
            },
            unread_tail_bytes: capture.unread_tail,
            dropped_by_capture: capture.dropped_by_capture,
            damage: capture.damage.clone(),
        }
    }
}
