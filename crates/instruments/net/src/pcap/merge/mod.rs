//! Merge of several captures by time. Never holds more of each than its next packet.

use super::output::{FileFormat, Out, Output};
use super::source::Source;
use anyhow::{Context, bail};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use toll_input::Progress;
use toll_sys::count_format::format_count;
use toll_sys::number_format::format_grouped;
use toll_wire::pcap::Interface;

/// Options of a merge.
#[derive(Debug)]
pub struct Request {
    pub files: Vec<PathBuf>,
    pub out: Out,
    pub format: FileFormat,
}

/// Result of a merge.
#[derive(Debug, Default)]
pub struct Merged {
    pub packets: u64,
    /// Packets that stand behind a later one, because their own file has them so.
    pub disordered: u64,
    /// By how much at most, ns.
    pub disorder_ns: u64,
    /// Lines about inputs that ended within a record.
    pub cut: Vec<String>,
    /// Lines about inputs that could not be read to their ends.
    pub damage: Vec<String>,
}

/// Packets between two looks for an interrupt.
const BEAT: u64 = 4096;
/// No capture of a host has as many.
const MAX_INTERFACES: usize = 65_536;

/// Merges by time: the earliest of all next packets comes first, of equals the one of the file that was
/// named first. Each file's own order is kept, even where it is not by time.
///
/// # Errors
/// An input cannot be opened or is no pcap or pcapng, or the output cannot be written; then there is none.
pub fn merge(request: &Request, progress: &Progress, stop: &AtomicBool) -> anyhow::Result<Merged> {
    let open = |path: &PathBuf| {
        Source::open(path, progress).with_context(|| format!("cannot merge {}", path.display()))
    };
    let mut sources: Vec<Source> = request.files.iter().map(open).collect::<anyhow::Result<_>>()?;
    let mut out = Output::create(&request.out, request.format, &request.files)?;
    let mut merged = Merged::default();
    merge_into(&mut sources, &mut out, &mut merged, stop)
        .and_then(|()| out.finish())
        .with_context(|| format!("cannot write {}", request.out))?;
    for source in sources {
        merged.cut.extend(source.cut());
        merged.damage.extend(source.damage);
    }
    Ok(merged)
}

fn merge_into(
    sources: &mut [Source],
    out: &mut Output,
    merged: &mut Merged,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut next = BinaryHeap::with_capacity(sources.len());
    for (at, source) in sources.iter_mut().enumerate() {
        next.extend(source.advance()?.map(|time_ns| Reverse((time_ns, at))));
    }
    let mut interfaces: Vec<Interfaces> = sources.iter().map(|_| Interfaces::default()).collect();
    let mut latest_ns = 0;
    while let Some(Reverse((time_ns, at))) = next.pop() {
        if merged.packets.is_multiple_of(BEAT) && stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let source = &mut sources[at];
        let interface = source.interface().context("a packet of no interface")?;
        let number = interfaces[at].number(&interface, out)?;
        source.take(|frame| out.frame(number, frame))?;
        merged.packets += 1;
        // Packets without a time come first, and are in no order.
        if time_ns > 0 && time_ns < latest_ns {
            merged.disordered += 1;
            merged.disorder_ns = merged.disorder_ns.max(latest_ns - time_ns);
        }
        latest_ns = latest_ns.max(time_ns);
        next.extend(source.advance()?.map(|time_ns| Reverse((time_ns, at))));
    }
    Ok(())
}

/// An interface as its file describes it: number, link type, snap length and name.
type Described = (u32, u16, u32, Vec<u8>);

/// Under which numbers the interfaces of one input are written.
#[derive(Default)]
struct Interfaces {
    known: HashMap<Described, u32>,
    last: Option<(Described, u32)>,
}

impl Interfaces {
    fn number(&mut self, interface: &Interface<'_>, out: &mut Output) -> anyhow::Result<u32> {
        let Interface { number, link, snap_len, name } = *interface;
        if let Some(((n, l, s, called), known)) = &self.last
            && (*n, *l, *s, called.as_slice()) == (number, link, snap_len, name)
        {
            return Ok(*known);
        }
        let described = (number, link, snap_len, name.to_vec());
        let known = match self.known.get(&described) {
            Some(known) => *known,
            None if self.known.len() >= MAX_INTERFACES => {
                bail!("a file describes more than {MAX_INTERFACES} interfaces")
            }
            None => out.interface(interface)?,
        };
        self.known.insert(described.clone(), known);
        self.last = Some((described, known));
        Ok(known)
    }
}

impl Merged {
    /// What there is to say of it, a line each.
    pub fn lines(&self, out: &Out, files: usize) -> Vec<String> {
        let (packets, files) = (format_count(self.packets, "packet"), format_count(files as u64, "file"));
        let mut lines = vec![format!("{out}: {packets} of {files}")];
        if self.disordered > 0 {
            lines.push(format!(
                "{} stand behind a later one, by {} us at most: a file is not in order by itself, and is \
                 merged as it is (reordercap sorts one)",
                format_count(self.disordered, "packet"),
                format_grouped((self.disorder_ns as f64 / 1e3).ceil())
            ));
        }
        lines.extend(self.cut.iter().chain(&self.damage).cloned());
        lines
    }
}
