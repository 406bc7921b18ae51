//! How is one plain file digested by several threads? In parts whose digests merge exactly.
//!
//! Captures are split by connection: every thread reads all of the file, which the page cache
//! makes cheap, and decodes its share. Slow logs are split where an entry tells its own time.

use super::Request;
use super::decode::Decode;
use super::input::Type;
use super::ledger::Ledger;
use super::pump::{Pumped, pump};
use super::select::Select;
use anyhow::{Context, anyhow};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use toll_wire::decoder::{Config, Shard};
use toll_wire::digest::{Digest, GroupBy};

/// Smaller parts are not worth a thread.
const PART_MIN: u64 = 8 << 20;
/// How far from where a part should begin an entry with a time is looked for.
const LOOK: usize = 4 << 20;

/// One thread's share of a file.
#[derive(Debug, Clone, PartialEq)]
pub enum Part {
    /// All bytes, some connections.
    Connections(Shard),
    /// Some bytes. Unless it is the first, the session's schema is told by the part before.
    Bytes { from: u64, to: u64 },
}

/// What a part came to.
pub struct Done {
    pub digest: Digest,
    pub ledger: Ledger,
    pub pumped: Pumped,
    /// The schema that entries after this part inherit.
    pub db: Vec<u8>,
}

/// The parts of a file; one or none: read it as a whole.
pub fn parts(request: &Request, path: &Path, kind: Type, bytes: u64) -> anyhow::Result<Vec<Part>> {
    let jobs = u64::try_from(request.jobs)?.min(bytes / PART_MIN);
    if jobs < 2 {
        return Ok(Vec::new());
    }
    match kind {
        Type::Pcap | Type::Pcapng => {
            let of = u32::try_from(jobs)?;
            Ok((0..of).map(|index| Part::Connections(Shard { index, of })).collect())
        }
        // A schema may be named only once, at the head of a log; who asks for it reads in order.
        Type::Slowlog if !asks_for_db(request) => byte_parts(path, bytes, jobs),
        Type::Slowlog | Type::Tcpdump | Type::Genlog | Type::Auditlog => Ok(Vec::new()),
    }
}

fn asks_for_db(request: &Request) -> bool {
    matches!(request.settings.group_by, GroupBy::Db | GroupBy::Tables)
        || request.filter.as_ref().is_some_and(|filter| filter.needs_db())
}

fn byte_parts(path: &Path, bytes: u64, jobs: u64) -> anyhow::Result<Vec<Part>> {
    let mut file = File::open(path)?;
    let mut buffer = vec![0; LOOK];
    let mut bounds = vec![0];
    for n in 1..jobs {
        let at = bytes / jobs * n;
        file.seek(SeekFrom::Start(at))?;
        let mut filled = 0;
        while filled < LOOK {
            match file.read(&mut buffer[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        if let Some(found) = memchr::memmem::find(&buffer[..filled], b";\n# Time: ") {
            bounds.push(at + found as u64 + 2);
        }
    }
    bounds.dedup();
    bounds.push(bytes);
    Ok(bounds.windows(2).map(|pair| Part::Bytes { from: pair[0], to: pair[1] }).collect())
}

/// Digests all parts at once, in the order of the parts.
pub fn digest(
    request: &Request,
    path: &Path,
    kind: Type,
    parts: &[Part],
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Done>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            parts.iter().map(|part| scope.spawn(move || one(request, path, kind, part, stop))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread that digests has failed"))?)
            .collect()
    })
}

fn one(request: &Request, path: &Path, kind: Type, part: &Part, stop: &AtomicBool) -> anyhow::Result<Done> {
    let mut file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let (reader, mut decode): (Box<dyn Read + Send>, _) = match part {
        Part::Connections(shard) => {
            let config = Config { shard: *shard, ..request.capture.clone() };
            (Box::new(file), Decode::new(kind, &config))
        }
        Part::Bytes { from, to } => {
            file.seek(SeekFrom::Start(*from))?;
            let decode =
                if *from == 0 { Decode::new(kind, &request.capture) } else { Decode::slow_log_from_middle() };
            (Box::new(file.take(to - from)), decode)
        }
    };
    let mut digest = Digest::new(request.settings);
    let mut sink = Select::new(request, &mut digest);
    let pumped = pump(reader, false, &mut decode, &mut sink, stop)?;
    Ok(Done { digest, ledger: decode.ledger(), pumped, db: decode.db().to_vec() })
}
