//! Multi-threaded digest of one plain file, in parts whose digests merge exactly.
//!
//! Captures are split by connection: every thread reads the whole file, which the page cache makes cheap, and
//! decodes its share. Slow logs are split where an entry has its own time, query-event files between blocks.

use super::Request;
use super::accounting::InputAccounting;
use super::decoder::InputDecoder;
use super::input::Type;
use super::sample_estimator::{SampleEstimator, SamplingSink};
use super::select::SelectingSink;
use crate::classes::{Digest, GroupBy};
use anyhow::{Context, anyhow};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use toll_input::{Progress, PumpResult, pump};
use toll_wire::decoder::{Config, Shard};
use toll_wire::queries::BlockHeader;

/// Smaller parts are not worth a thread.
const PART_MIN_BYTES: u64 = 8 << 20;
/// What ends an entry that one with a time follows, and how much of it is that end.
const ENTRY_START: &[u8] = b";\n# Time: ";
const ENTRY_END: u64 = 2;
/// Bytes that such an entry is looked for in at once.
const PIECE: usize = 1 << 20;

/// One thread's share of a file.
#[derive(Debug, Clone, PartialEq)]
pub enum InputPart {
    /// All bytes, some connections.
    Connections(Shard),
    /// Some bytes. Unless it is the first of a slow log, the session's schema is told by the part before.
    Bytes { from: u64, to: u64 },
}

/// Result of a part.
pub struct PartResult {
    pub digest: Digest,
    pub sampled: SampleEstimator,
    pub accounting: InputAccounting,
    pub pumped: PumpResult,
    /// The schema that entries after this part inherit.
    pub db: Vec<u8>,
}

/// The parts of a file; one or none: read it as a whole.
pub fn split_input(request: &Request, path: &Path, kind: Type, bytes: u64) -> anyhow::Result<Vec<InputPart>> {
    let jobs = u64::try_from(request.jobs)?.min(bytes / PART_MIN_BYTES);
    if jobs < 2 {
        return Ok(Vec::new());
    }
    match kind {
        Type::Pcap | Type::Pcapng => {
            let of = u32::try_from(jobs)?;
            Ok(Shard::split(of).map(InputPart::Connections).collect())
        }
        // A schema may be named only once, at the head of a log; who asks for it reads in order.
        Type::Slowlog if !needs_db(request) => byte_parts(path, bytes, jobs),
        Type::Queries => block_parts(path, bytes, jobs),
        Type::Slowlog | Type::Tcpdump | Type::Genlog | Type::Auditlog | Type::Digest => Ok(Vec::new()),
    }
}

fn needs_db(request: &Request) -> bool {
    matches!(request.settings.group_by, GroupBy::Db | GroupBy::Tables)
        || request.filter.as_ref().is_some_and(|filter| filter.needs_db())
}

fn byte_parts(path: &Path, bytes: u64, jobs: u64) -> anyhow::Result<Vec<InputPart>> {
    let mut file = File::open(path)?;
    let mut bounds = vec![0];
    for n in 1..jobs {
        // Beyond the next part's begin, that one's bound is found.
        bounds.extend(timed_entry(&mut file, bytes / jobs * n, bytes / jobs)?);
    }
    bounds.push(bytes);
    Ok(bounds.windows(2).map(|pair| InputPart::Bytes { from: pair[0], to: pair[1] }).collect())
}

/// Parts of whole blocks; none where a block's head is damaged: whoever reads on finds the next.
fn block_parts(path: &Path, bytes: u64, jobs: u64) -> anyhow::Result<Vec<InputPart>> {
    let file = File::open(path)?;
    let mut bounds = vec![0];
    let mut at = 0;
    while at < bytes {
        let mut head = [0; BlockHeader::LEN];
        if bytes - at < head.len() as u64 {
            break;
        }
        file.read_exact_at(&mut head, at)?;
        let Some(head) = BlockHeader::read(&head) else { return Ok(Vec::new()) };
        at += (BlockHeader::LEN + head.compressed_len) as u64;
        if at < bytes && at >= bytes / jobs * bounds.len() as u64 {
            bounds.push(at);
        }
    }
    bounds.push(bytes);
    Ok(bounds.windows(2).map(|pair| InputPart::Bytes { from: pair[0], to: pair[1] }).collect())
}

/// Where, from `at` on and within `length` bytes, an entry begins that tells its own time. A server
/// tells it once a second, however much it writes in that.
fn timed_entry(file: &mut File, at: u64, length: u64) -> anyhow::Result<Option<u64>> {
    let finder = memchr::memmem::Finder::new(ENTRY_START);
    file.seek(SeekFrom::Start(at))?;
    let mut rest = file.take(length);
    let mut buffer = Vec::with_capacity(PIECE);
    let mut passed = at;
    loop {
        let kept = buffer.len();
        if rest.by_ref().take((PIECE - kept) as u64).read_to_end(&mut buffer)? == 0 {
            return Ok(None);
        }
        if let Some(found) = finder.find(&buffer) {
            return Ok(Some(passed + found as u64 + ENTRY_END));
        }
        // The last bytes may be the first of what is looked for.
        let done = buffer.len().saturating_sub(ENTRY_START.len() - 1);
        passed += done as u64;
        buffer.drain(..done);
    }
}

/// Digests all parts at once, in the order of the parts.
pub fn digest_parts(
    request: &Request,
    path: &Path,
    kind: Type,
    parts: &[InputPart],
    progress: &Progress,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<PartResult>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter()
            .map(|part| scope.spawn(move || digest_part(request, path, kind, part, progress, stop)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread that digests has failed"))?)
            .collect()
    })
}

fn digest_part(
    request: &Request,
    path: &Path,
    kind: Type,
    part: &InputPart,
    progress: &Progress,
    stop: &AtomicBool,
) -> anyhow::Result<PartResult> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let (reader, mut decode): (Box<dyn Read + Send>, _) = match part {
        InputPart::Connections(shard) => {
            let config = Config { shard: *shard, ..request.capture.clone() };
            (progress.meter_reader(file, shard.of.into()), InputDecoder::new(kind, &config)?)
        }
        InputPart::Bytes { from, to } => {
            file.seek(SeekFrom::Start(*from))?;
            let decode = match kind {
                Type::Slowlog if *from > 0 => InputDecoder::slow_log_from_middle(),
                _ => InputDecoder::new(kind, &request.capture)?,
            };
            (progress.meter_reader(file.take(to - from), 1), decode)
        }
    };
    let mut digest = Digest::new(request.settings);
    let mut sampled = SampleEstimator::default();
    let mut sampling = SamplingSink { digest: &mut digest, sampled: &mut sampled };
    let mut sink = SelectingSink::new(request, &mut sampling);
    let pumped = pump(reader, false, &mut decode.with_sink(&mut sink), stop)?;
    Ok(PartResult { digest, sampled, accounting: decode.accounting(), pumped, db: decode.db().to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bounds of the parts of a log whose entries are a byte long, but for those with a time.
    fn bounds(length: usize, timed: &[usize], jobs: u64) -> Vec<(u64, u64)> {
        let mut log = b";".repeat(length);
        for &at in timed {
            log[at..at + ENTRY_START.len()].copy_from_slice(ENTRY_START);
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), log).unwrap();
        let parts = byte_parts(file.path(), length as u64, jobs).unwrap();
        let bytes = |part: &InputPart| match part {
            InputPart::Bytes { from, to } => (*from, *to),
            InputPart::Connections(_) => panic!("{part:?}"),
        };
        parts.iter().map(bytes).collect()
    }

    #[test]
    fn a_log_is_split_at_the_next_entry_with_a_time_however_far_it_is() {
        let mib = 1 << 20;
        let at = |n: usize| (n + 2) as u64;
        let end = 12 * mib as u64;
        assert_eq!(bounds(12 * mib, &[11 * mib], 2), [(0, at(11 * mib)), (at(11 * mib), end)]);
        // Where one piece that is read ends and the next begins.
        for seam in 7 * mib - 12..7 * mib + 2 {
            assert_eq!(bounds(12 * mib, &[seam], 2), [(0, at(seam)), (at(seam), end)], "{seam}");
        }
        // The first half has none from its middle on, and ends with the second's.
        assert_eq!(bounds(12 * mib, &[100, 10 * mib], 4), [(0, at(10 * mib)), (at(10 * mib), end)]);
        assert_eq!(bounds(12 * mib, &[100], 3), [(0, end)]);
    }
}
