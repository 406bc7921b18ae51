//! Frames to send, loaded from captures. Reads whole files; never opens a socket.

use crate::pcap::capture_reader::CaptureReader;
use anyhow::{Context, bail, ensure};
use std::path::{Path, PathBuf};
use toll_input::Progress;
use toll_sys::cancel::CancelToken;
use toll_sys::count_format::format_count;
use toll_sys::memory;
use toll_sys::named_choice::NamedChoice;
use toll_taps::{Device, FrameList};
use toll_wire::pcap::{Frame, Link};

/// Kept beside a frame's own bytes: where it ends and when it was captured.
const FRAME_OVERHEAD: usize = 16;
/// Of a frame on Ethernet: addresses and type, and one VLAN tag, which no MTU counts.
const LINK_HEADER: usize = 14;
const VLAN_TAG: usize = 4;

/// Treatment of truncated frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnappedFrames {
    /// Nothing is sent
    Refuse,
    /// At its true length, zeros in the place of what is missing
    Pad,
    /// As short as it was captured
    Send,
    /// The others are sent
    Skip,
}

impl NamedChoice for SnappedFrames {
    const CHOICES: &'static [(&'static str, Self, &'static str)] = &[
        ("refuse", Self::Refuse, "Nothing is sent"),
        ("pad", Self::Pad, "At its true length, zeros in the place of what is missing"),
        ("send", Self::Send, "As short as it was captured"),
        ("skip", Self::Skip, "The others are sent"),
    ];
}

/// How frames are taken that cannot be sent as they are.
#[derive(Debug, Clone, Copy)]
pub struct FramePolicy {
    pub snapped: SnappedFrames,
    /// Frames longer than the device carries are left out, not refused.
    pub skip_oversized: bool,
}

/// Frames loaded from the captures.
#[derive(Debug, Default)]
pub struct LoadedFrames {
    pub packets: FrameList,
    /// Cut by a snap length.
    pub snapped: u64,
    /// Longer than the device carries.
    pub oversized: u64,
    pub skipped: u64,
    /// A line about each file that ends within a record.
    pub cut_short: Vec<String>,
}

/// Reads the captures one after the other; each begins where the one before it ended.
///
/// # Errors
/// A file cannot be read or is no capture of Ethernet; a frame cannot be sent and `choice` does not say what to do;
/// they do not fit into half of the free memory.
pub fn load_frames(
    files: &[PathBuf],
    device: &Device,
    choice: FramePolicy,
    progress: &Progress,
    cancel: &CancelToken,
) -> anyhow::Result<LoadedFrames> {
    let mut loaded = LoadedFrames::default();
    let room = usize::try_from(memory::available_bytes() / 2).unwrap_or(usize::MAX);
    for file in files {
        load_file(file, device, choice, (progress, cancel), room, &mut loaded)
            .with_context(|| format!("cannot replay {}", file.display()))?;
    }
    let held = loaded.packets.len() as u64 + loaded.skipped;
    if choice.snapped == SnappedFrames::Refuse && loaded.snapped > 0 {
        bail!(
            "{} of {} were captured only in part: --snapped pad sends them at their true length with zeros, \
             send as short as they are, skip the others alone",
            loaded.snapped,
            format_count(held, "packet")
        );
    }
    if !choice.skip_oversized && loaded.oversized > 0 {
        bail!(
            "{} of {} are longer than {} carries (MTU {}): --skip-oversized sends the others, or make the MTU \
             larger on both ends",
            loaded.oversized,
            format_count(held, "packet"),
            device.name,
            device.mtu
        );
    }
    ensure!(!loaded.packets.is_empty(), "there is no packet to send in {}", join_names(files));
    Ok(loaded)
}

fn join_names(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

fn load_file(
    file: &Path,
    device: &Device,
    choice: FramePolicy,
    (progress, cancel): (&Progress, &CancelToken),
    room: usize,
    loaded: &mut LoadedFrames,
) -> anyhow::Result<()> {
    let mut source = CaptureReader::open(file, progress)?;
    let mut taker = FrameLoader {
        max_frame: device.mtu as usize + LINK_HEADER,
        choice,
        begins_ns: loaded.packets.round_ns(),
        first_ns: None,
        loaded,
    };
    while source.read_next()?.is_some() {
        cancel.check()?;
        source.take_packet(|frame| taker.add_frame(frame))?;
        let held = &taker.loaded.packets;
        ensure!(
            held.bytes() + held.len() * FRAME_OVERHEAD <= room,
            "its packets do not fit into half of the free memory ({} MB): replay a part of it",
            room >> 20
        );
    }
    if let Some(damage) = source.damage {
        let before = format_count(taker.loaded.packets.len() as u64, "packet");
        bail!("{damage}; {before} before that were read");
    }
    taker.loaded.cut_short.extend(source.truncation_warning());
    Ok(())
}

/// Takes the frames of one file.
struct FrameLoader<'a> {
    max_frame: usize,
    choice: FramePolicy,
    /// Time at which this file begins among all.
    begins_ns: u64,
    first_ns: Option<u64>,
    loaded: &'a mut LoadedFrames,
}

impl FrameLoader<'_> {
    fn add_frame(&mut self, frame: &Frame<'_>) -> anyhow::Result<()> {
        ensure!(
            frame.link == Link::Ethernet,
            "its frames are not Ethernet's but {:?}: capture on one device, not on `any`",
            frame.link
        );
        let first = *self.first_ns.get_or_insert(frame.time_ns);
        let at_ns = self.begins_ns + frame.time_ns.saturating_sub(first);
        let whole = frame.wire_len as usize;
        let is_snapped = frame.bytes.len() < whole;
        let tag =
            if matches!(frame.bytes.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8])) { VLAN_TAG } else { 0 };
        let sent = if self.choice.snapped == SnappedFrames::Pad { whole } else { frame.bytes.len() };
        let is_oversized = sent > self.max_frame + tag;
        self.loaded.snapped += u64::from(is_snapped);
        self.loaded.oversized += u64::from(is_oversized);
        // A frame without a whole link header is none.
        let skips_snapped = is_snapped && self.choice.snapped == SnappedFrames::Skip;
        if skips_snapped || is_oversized || frame.bytes.len() < LINK_HEADER {
            self.loaded.skipped += 1;
            return Ok(());
        }
        if is_snapped && self.choice.snapped == SnappedFrames::Pad {
            let mut padded = frame.bytes.to_vec();
            padded.resize(whole, 0);
            self.loaded.packets.push(&padded, at_ns);
        } else {
            self.loaded.packets.push(frame.bytes, at_ns);
        }
        Ok(())
    }
}
