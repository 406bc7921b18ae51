//! Accounting of all inputs of a digest.

use super::schema::AccountingRow;
use std::io::{self, Write};
use toll_wire::accounting::DecodeAccounting as Counts;
use toll_wire::log::LogAccounting;
use toll_wire::queries::QueriesAccounting;

/// The accounting of each kind of input; kinds that were not read are absent.
#[derive(Debug, Clone, Default)]
pub struct InputAccounting {
    pub log: Option<LogAccounting>,
    pub capture: Option<CaptureAccounting>,
    pub queries: Option<QueriesAccounting>,
}

#[derive(Debug, Clone, Default)]
pub struct CaptureAccounting {
    pub counts: Counts,
    /// Bytes of a record whose end never came.
    pub unread_tail: u64,
    /// As the capturing program wrote it (pcapng only).
    pub dropped_by_capture: Option<u64>,
    /// Why captures could not be read to their ends.
    pub damage: Vec<String>,
}

impl InputAccounting {
    pub fn from_log(log: &LogAccounting) -> Self {
        Self { log: Some(*log), ..Self::default() }
    }

    pub fn from_capture(capture: CaptureAccounting) -> Self {
        Self { capture: Some(capture), ..Self::default() }
    }

    /// Of packets that were never in a file.
    pub fn from_counts(counts: Counts) -> Self {
        Self::from_capture(CaptureAccounting { counts, ..CaptureAccounting::default() })
    }

    /// With what the capture that wrote them said of itself at its end.
    pub fn from_queries(queries: &QueriesAccounting) -> Self {
        let told =
            if queries.captures_ended > 0 { Self::from_counts(queries.captured) } else { Self::default() };
        Self { queries: Some(queries.clone()), ..told }
    }

    pub fn merge(&mut self, other: &Self) {
        if let Some(log) = &other.log {
            self.log.get_or_insert_default().merge(log);
        }
        if let Some(from) = &other.capture {
            let capture = self.capture.get_or_insert_default();
            capture.counts += from.counts;
            capture.unread_tail = capture.unread_tail.saturating_add(from.unread_tail);
            if let Some(dropped) = from.dropped_by_capture {
                let before = capture.dropped_by_capture.unwrap_or(0);
                capture.dropped_by_capture = Some(before.saturating_add(dropped));
            }
            capture.damage.extend(from.damage.iter().cloned());
        }
        if let Some(queries) = &other.queries {
            self.queries.get_or_insert_default().merge(queries);
        }
    }

    /// Adds a thread's share of one capture: what concerns the file itself is told once.
    pub fn merge_shard(&mut self, share: &Self, index: u32) {
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
        self.log.is_none_or(|log| log.is_consistent())
            && self.capture.as_ref().is_none_or(|capture| capture.counts.is_consistent())
            && self.queries.as_ref().is_none_or(QueriesAccounting::is_consistent)
    }

    /// What is known to be missing: packets that the capturing program dropped, events that it could not write, and entries
    /// of a log that cannot be read. A pcap has no such count; there, `tainted` commands tell.
    pub fn lost(&self) -> u64 {
        let dropped = self.capture.as_ref().and_then(|capture| capture.dropped_by_capture).unwrap_or(0);
        let missing = self.queries.as_ref().map_or(0, QueriesAccounting::missing_events);
        let malformed = self.log.as_ref().map_or(0, |log| log.entries_malformed);
        dropped.saturating_add(missing).saturating_add(malformed)
    }

    pub fn row(&self) -> AccountingRow {
        let capture = self.capture.as_ref();
        AccountingRow {
            log: self.log,
            frames: capture.map(|capture| capture.counts.frames),
            sessions: capture.map(|capture| capture.counts.sessions),
            commands: capture.map(|capture| capture.counts.commands),
            lost: capture.map(|capture| capture.counts.bytes),
            unread_tail_bytes: capture.map(|capture| capture.unread_tail),
            dropped_by_capture: capture.map(|capture| capture.dropped_by_capture),
            damage: capture.map(|capture| capture.damage.clone()),
            queries: self.queries.clone(),
            adds_up: self.adds_up(),
        }
    }

    /// Adds the counters of a stored digest.
    pub fn merge_row(&mut self, row: AccountingRow) {
        let capture = row.frames.zip(row.sessions).zip(row.commands).zip(row.lost);
        let capture = capture.map(|(((frames, sessions), commands), bytes)| CaptureAccounting {
            counts: Counts { frames, bytes, sessions, commands },
            unread_tail: row.unread_tail_bytes.unwrap_or(0),
            dropped_by_capture: row.dropped_by_capture.flatten(),
            damage: row.damage.unwrap_or_default(),
        });
        self.merge(&Self { log: row.log, capture, queries: row.queries });
    }

    /// For people.
    pub fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
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
            capture.write_text(out)?;
        }
        if let Some(queries) = &self.queries {
            write_queries_text(queries, out)?;
        }
        if !self.adds_up() {
            writeln!(out, "#   It does not add up: a fault of toll's. Please report it with the input.")?;
        }
        Ok(())
    }
}

fn write_queries_text(queries: &QueriesAccounting, out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "#   queries   {} events in {} blocks, {} bytes",
        queries.events, queries.blocks, queries.block_bytes
    )?;
    let missing = queries.missing_events();
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
    if queries.unread_tail_bytes > 0 {
        writeln!(
            out,
            "#   cut       the file ends within a block: {} bytes unread",
            queries.unread_tail_bytes
        )?;
    }
    if queries.captures_ended == 0 {
        writeln!(
            out,
            "#   open      the capture's own account is not there: it goes on, was killed, or ends in another file"
        )?;
    }
    Ok(())
}

impl CaptureAccounting {
    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_what_each_kind_of_input_says_of_itself() {
        let capture = CaptureAccounting { dropped_by_capture: Some(3), ..CaptureAccounting::default() };
        let log = LogAccounting { entries_malformed: 4, ..LogAccounting::default() };
        let mut all = InputAccounting::from_capture(capture);
        all.merge(&InputAccounting::from_log(&log));
        assert_eq!((InputAccounting::default().lost(), all.lost()), (0, 7));
    }
}
