//! Profiles of files and streams. Opens and feeds; counts nothing itself.

pub mod json;
mod text;

pub use text::{scale, write_text};

use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use toll_input::{ByteConsumer, DecompressedInput, Progress, PumpResult, SystemZone, pump};
use toll_wire::pcap::{Format, Reader};
use toll_wire::profile::Profile;

/// One capture's profile, or that of several taken for one.
#[derive(Debug, Default)]
pub struct InputProfile {
    pub inputs: Vec<Input>,
    pub profile: Profile,
    /// Bytes of records whose ends never came.
    pub unread_tail: u64,
    /// Packets that the capturing programs say they dropped (pcapng only).
    pub dropped_by_capture: Option<u64>,
    /// Why captures could not be read to their ends.
    pub damage: Vec<String>,
    /// It was stopped before the end.
    pub interrupted: bool,
}

/// One file or stream that was read.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Input {
    pub name: String,
    /// `pcap`, `pcapng` or `tcpdump`.
    pub r#type: String,
    /// Bytes read, after decompression.
    pub bytes: u64,
}

/// Result of all requested profiles.
#[derive(Debug, Default)]
pub struct ProfileResults {
    pub profiles: Vec<InputProfile>,
    /// Files that are no captures, or could not be opened.
    pub refused: Vec<anyhow::Error>,
}

/// Profiles each of `files`, or all of them as one. `stop` ends it early with the data read so far.
pub fn read_profiles(
    files: &[PathBuf],
    together: bool,
    progress: &Progress,
    stop: &AtomicBool,
) -> ProfileResults {
    let mut read = ProfileResults::default();
    let mut one = InputProfile::default();
    for path in files {
        match add_file(path, &mut one, progress, stop) {
            Ok(()) if together => {}
            Ok(()) => read.profiles.push(std::mem::take(&mut one)),
            Err(error) => {
                read.refused.push(error.context(format!("cannot profile {}", path.display())));
            }
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    if !one.inputs.is_empty() {
        read.profiles.push(one);
    }
    read
}

/// Adds a file to a profile. An error leaves the profile as it was.
fn add_file(
    path: &Path,
    to: &mut InputProfile,
    progress: &Progress,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let DecompressedInput { name, head, reader, plain_bytes } = DecompressedInput::open(path, progress)?;
    let Some(format) = Format::detect(&head) else {
        if head.is_empty() {
            bail!("it is empty: not even the header of a capture is there");
        }
        bail!("it is no capture: neither pcap nor pcapng nor what tcpdump -x prints");
    };
    let mut counting = ProfilingReader {
        reader: Reader::with_zone(format, Box::new(SystemZone::detect())),
        profile: to,
        damage: None,
        bytes: 0,
    };
    let pumped = pump(reader, plain_bytes.is_none(), &mut counting, stop);
    let ProfilingReader { reader, damage, bytes, .. } = counting;
    let bytes = match pumped {
        Ok(PumpResult { bytes, interrupted }) => {
            to.interrupted |= interrupted;
            bytes
        }
        // A file that is being compressed, or a disk that fails: what was read stands.
        Err(error) if bytes > 0 => {
            to.damage.push(format!("{name}: after {bytes} bytes: {error}"));
            bytes
        }
        Err(error) => return Err(error).context("cannot read it"),
    };
    to.damage.extend(damage.map(|damage| format!("{name}: {damage}")));
    to.unread_tail += reader.unread_tail_bytes();
    if let Some(dropped) = reader.dropped_by_capture() {
        *to.dropped_by_capture.get_or_insert(0) += dropped;
    }
    to.inputs.push(Input { name, r#type: type_name(format).to_owned(), bytes });
    Ok(())
}

fn type_name(format: Format) -> &'static str {
    match format {
        Format::Pcap => "pcap",
        Format::PcapNg => "pcapng",
        Format::TcpdumpText => "tcpdump",
    }
}

struct ProfilingReader<'a> {
    reader: Reader,
    profile: &'a mut InputProfile,
    damage: Option<String>,
    bytes: u64,
}

impl ByteConsumer for ProfilingReader<'_> {
    fn consume(&mut self, bytes: &[u8], end: bool) -> usize {
        let profile = &mut self.profile.profile;
        if let Err(error) = self.reader.feed(bytes, &mut |frame| profile.add_frame(frame)) {
            self.damage = Some(error.to_string());
        }
        if end {
            self.reader.finish(&mut |frame| profile.add_frame(frame));
        }
        self.bytes += bytes.len() as u64;
        bytes.len()
    }

    fn is_done(&self) -> bool {
        self.damage.is_some()
    }
}
