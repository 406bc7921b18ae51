//! Atomic writer of capture files.
//!
//! The file is written beside its destination, readable by its owner only, and renamed at the end. So a file
//! with the final name is complete, and an existing file stays until then.

use anyhow::{Context, bail};
use std::fmt::{self, Display, Formatter};
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use toll_sys::atomic_file::AtomicFile;
use toll_sys::named_choice::NamedChoice;
use toll_wire::pcap::{Frame, Interface, write};

/// Bytes that are gathered before they are written.
const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// Output format of a capture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileFormat {
    /// One link type, times in nanoseconds
    Pcap,
    /// As many interfaces as there are
    Pcapng,
}

impl NamedChoice for FileFormat {
    const CHOICES: &'static [(&'static str, Self, &'static str)] = &[
        ("pcap", Self::Pcap, "One link type, times in nanoseconds"),
        ("pcapng", Self::Pcapng, "As many interfaces as there are"),
    ];
}

impl FileFormat {
    /// By the name's end; `otherwise` where that says nothing.
    pub fn from_path(path: &Path, otherwise: Self) -> Self {
        match path.extension().and_then(|end| end.to_str()) {
            Some("pcap" | "cap" | "dmp") => Self::Pcap,
            Some("pcapng" | "ntar") => Self::Pcapng,
            _ => otherwise,
        }
    }
}

/// Where a capture is written.
#[derive(Debug)]
pub enum Out {
    File(PathBuf),
    /// Open already, such as standard output.
    Stream(File),
}

impl Display for Out {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => path.display().fmt(f),
            Self::Stream(_) => f.write_str("-"),
        }
    }
}

/// A capture that is being written. Dropped before it is finished, it leaves nothing.
pub struct CaptureWriter {
    file: BufWriter<Destination>,
    format: FileFormat,
    /// Of the pcap whose header was written.
    link: Option<u16>,
    interfaces: u32,
    record: Vec<u8>,
}

enum Destination {
    /// A pipe, or another place that has its name already.
    Stream(Box<dyn Write>),
    File(AtomicFile),
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stream(stream) => stream.write(bytes),
            Self::File(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::File(file) => file.flush(),
        }
    }
}

impl CaptureWriter {
    /// A path that leads to no file (a pipe, `/dev/null`) is written to as it is.
    ///
    /// # Errors
    /// `out` is a terminal or one of `inputs`, or nothing can be written there.
    pub fn create(out: &Out, format: FileFormat, inputs: &[PathBuf]) -> anyhow::Result<Self> {
        let mut output = Self::open(out, format, inputs).with_context(|| format!("cannot write {out}"))?;
        if format == FileFormat::Pcapng {
            write::append_ng_section(&mut output.record);
            output.flush_record()?;
        }
        Ok(output)
    }

    fn open(out: &Out, format: FileFormat, inputs: &[PathBuf]) -> anyhow::Result<Self> {
        let file = match out {
            Out::Stream(stream) if stream.is_terminal() => {
                bail!("a terminal cannot show a capture: name a file, or pipe it on")
            }
            Out::Stream(stream) => Destination::Stream(Box::new(stream.try_clone()?)),
            Out::File(path) => match std::fs::metadata(path) {
                Ok(there) if there.is_dir() => bail!("it is a directory: name a file in it"),
                Ok(there) if !there.is_file() => {
                    Destination::Stream(Box::new(OpenOptions::new().write(true).open(path)?))
                }
                Ok(there) => {
                    for input in inputs {
                        let same = |found: std::fs::Metadata| {
                            (found.dev(), found.ino()) == (there.dev(), there.ino())
                        };
                        if std::fs::metadata(input).is_ok_and(same) {
                            bail!("{} is read: name another file", input.display());
                        }
                    }
                    // A link keeps its place, and what it leads to gets the bytes.
                    Destination::File(AtomicFile::begin(&path.canonicalize()?)?)
                }
                Err(_) => Destination::File(AtomicFile::begin(path)?),
            },
        };
        let file = BufWriter::with_capacity(WRITE_BUFFER_BYTES, file);
        Ok(Self { file, format, link: None, interfaces: 0, record: Vec::new() })
    }

    /// Describes an interface and returns its number.
    ///
    /// # Errors
    /// A pcap cannot hold a second link type.
    pub fn write_interface(&mut self, interface: &Interface<'_>) -> anyhow::Result<u32> {
        match (self.format, self.link) {
            (FileFormat::Pcapng, _) => {
                write::append_ng_interface(&mut self.record, interface);
                self.flush_record()?;
            }
            (FileFormat::Pcap, None) => {
                self.link = Some(interface.link);
                self.file.write_all(&write::encode_pcap_header(interface.link))?;
            }
            (FileFormat::Pcap, Some(link)) if link == interface.link => {}
            (FileFormat::Pcap, Some(link)) => bail!(
                "link types {link} and {} cannot be in one pcap: write a pcapng (--format pcapng)",
                interface.link
            ),
        }
        self.interfaces += 1;
        Ok(self.interfaces - 1)
    }

    /// Writes a frame of an interface.
    pub fn write_frame(&mut self, interface: u32, frame: &Frame<'_>) -> anyhow::Result<()> {
        match self.format {
            FileFormat::Pcap => write::append_pcap_record(&mut self.record, frame)?,
            FileFormat::Pcapng => write::append_ng_packet(&mut self.record, interface, frame),
        }
        self.flush_record()
    }

    fn flush_record(&mut self) -> anyhow::Result<()> {
        self.file.write_all(&self.record)?;
        self.record.clear();
        Ok(())
    }

    /// All is written: the file gets its name.
    pub fn finish(mut self) -> anyhow::Result<()> {
        if self.format == FileFormat::Pcap && self.link.is_none() {
            // Without a packet there is no link type either; Ethernet says the least.
            self.file.write_all(&write::encode_pcap_header(1))?;
        }
        match self.file.into_inner().map_err(io::IntoInnerError::into_error)? {
            Destination::Stream(mut stream) => stream.flush()?,
            Destination::File(file) => file.replace()?,
        }
        Ok(())
    }
}
