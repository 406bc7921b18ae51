//! Merge of several captures by time. Never holds more of each than its next packet.

use super::capture_reader::CaptureReader;
use super::capture_writer::{CaptureWriter, FileFormat, Out};
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
pub struct MergeOptions {
    pub files: Vec<PathBuf>,
    pub out: Out,
    pub format: FileFormat,
}

/// Result of a merge.
#[derive(Debug, Default)]
pub struct MergeSummary {
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
const CHECK_EVERY_PACKETS: u64 = 4096;
/// No capture of a host has as many.
const MAX_INTERFACES: usize = 65_536;

/// Merges by time: the earliest of all next packets comes first, of equals the one of the file that was
/// named first. Each file's own order is kept, even where it is not by time.
///
/// # Errors
/// An input cannot be opened or is no pcap or pcapng, or the output cannot be written; then there is none.
pub fn merge_captures(
    request: &MergeOptions,
    progress: &Progress,
    stop: &AtomicBool,
) -> anyhow::Result<MergeSummary> {
    let open = |path: &PathBuf| {
        CaptureReader::open(path, progress).with_context(|| format!("cannot merge {}", path.display()))
    };
    let mut sources: Vec<CaptureReader> = request.files.iter().map(open).collect::<anyhow::Result<_>>()?;
    let mut out = CaptureWriter::create(&request.out, request.format, &request.files)?;
    let mut merged = MergeSummary::default();
    merge_into(&mut sources, &mut out, &mut merged, stop)
        .and_then(|()| out.finish())
        .with_context(|| format!("cannot write {}", request.out))?;
    for source in sources {
        merged.cut.extend(source.truncation_warning());
        merged.damage.extend(source.damage);
    }
    Ok(merged)
}

fn merge_into(
    sources: &mut [CaptureReader],
    out: &mut CaptureWriter,
    merged: &mut MergeSummary,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut next = BinaryHeap::with_capacity(sources.len());
    for (at, source) in sources.iter_mut().enumerate() {
        next.extend(source.read_next()?.map(|time_ns| Reverse((time_ns, at))));
    }
    let mut interfaces: Vec<Interfaces> = sources.iter().map(|_| Interfaces::default()).collect();
    let mut latest_ns = 0;
    while let Some(Reverse((time_ns, at))) = next.pop() {
        if merged.packets.is_multiple_of(CHECK_EVERY_PACKETS) && stop.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let source = &mut sources[at];
        let interface = source.interface().context("a packet of no interface")?;
        let number = interfaces[at].interface_number(&interface, out)?;
        source.take_packet(|frame| out.write_frame(number, frame))?;
        merged.packets += 1;
        // Packets without a time come first, and are in no order.
        if time_ns > 0 && time_ns < latest_ns {
            merged.disordered += 1;
            merged.disorder_ns = merged.disorder_ns.max(latest_ns - time_ns);
        }
        latest_ns = latest_ns.max(time_ns);
        next.extend(source.read_next()?.map(|time_ns| Reverse((time_ns, at))));
    }
    Ok(())
}

/// An interface as its file describes it: number, link type, snap length and name.
type InterfaceKey = (u32, u16, u32, Vec<u8>);

/// Under which numbers the interfaces of one input are written.
#[derive(Default)]
struct Interfaces {
    known: HashMap<InterfaceKey, u32>,
    last: Option<(InterfaceKey, u32)>,
}

impl Interfaces {
    fn interface_number(
        &mut self,
        interface: &Interface<'_>,
        out: &mut CaptureWriter,
    ) -> anyhow::Result<u32> {
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
            None => out.write_interface(interface)?,
        };
        self.known.insert(described.clone(), known);
        self.last = Some((described, known));
        Ok(known)
    }
}

impl MergeSummary {
    /// What there is to say of it, a line each.
    pub fn summary_lines(&self, out: &Out, files: usize) -> Vec<String> {
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
