//! Accounting record of a capture in a block: numbered counters.

use super::varint::VarintReader;
use crate::accounting::{ByteCounts, CommandCounts, DecodeAccounting, FrameCounts, SessionCounts};

/// Every line, in an order that later versions only append to.
pub(super) fn accounting_lines(accounting: &DecodeAccounting) -> [u64; 27] {
    let DecodeAccounting { frames, bytes, sessions, commands } = *accounting;
    [
        frames.read,
        frames.parsed,
        frames.duplicate,
        frames.truncated,
        frames.unsupported,
        frames.malformed,
        frames.not_ours,
        bytes.frames,
        bytes.from_client,
        bytes.from_server,
        bytes.lost_from_client,
        bytes.lost_from_server,
        bytes.cut_from_client,
        bytes.cut_from_server,
        sessions.seen,
        sessions.plain,
        sessions.compressed,
        sessions.encrypted,
        sessions.joined_midway,
        sessions.not_understood,
        sessions.silent,
        commands.seen,
        commands.complete,
        commands.tainted,
        commands.unfinished,
        commands.orphaned_responses,
        commands.desynchronised,
    ]
}

/// Reads an accounting record after its first number. Skips unknown counters.
pub(super) fn read_accounting(rest: &mut VarintReader<'_>) -> Option<DecodeAccounting> {
    let mut lines = [0; 27];
    for at in 0..rest.number()? {
        // More than any capture ever saw, and the sum over all that are added up still fits.
        let line = rest.number().filter(|line| *line < 1 << 52)?;
        if let Some(place) = usize::try_from(at).ok().and_then(|at| lines.get_mut(at)) {
            *place = line;
        }
    }
    let [read, parsed, duplicate, truncated, unsupported, malformed, not_ours, rest @ ..] = lines;
    let [frames, from_client, from_server, lost_from_client, lost_from_server, rest @ ..] = rest;
    let [cut_from_client, cut_from_server, rest @ ..] = rest;
    let [seen, plain, compressed, encrypted, joined_midway, not_understood, silent, rest @ ..] = rest;
    let sessions =
        SessionCounts { seen, plain, compressed, encrypted, joined_midway, not_understood, silent };
    let [seen, complete, tainted, unfinished, orphaned_responses, desynchronised] = rest;
    let accounting = DecodeAccounting {
        frames: FrameCounts { read, parsed, duplicate, truncated, unsupported, malformed, not_ours },
        bytes: ByteCounts {
            frames,
            from_client,
            from_server,
            lost_from_client,
            lost_from_server,
            cut_from_client,
            cut_from_server,
        },
        sessions,
        commands: CommandCounts { seen, complete, tainted, unfinished, orphaned_responses, desynchronised },
    };
    accounting.is_consistent().then_some(accounting)
}
