//! Input file types, and how each is read. Knows types, not their contents.

use super::stored;
use anyhow::bail;
use std::io::Read;
use std::path::Path;
use toll_input::{DecompressedInput, Progress};
use toll_wire::detect::{FileKind, detect_kind};
use toll_wire::pcap::Format;

/// File type, after decompression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Pcap,
    Pcapng,
    Tcpdump,
    Queries,
    Slowlog,
    Genlog,
    Auditlog,
    /// Digests as JSON.
    Digest,
}

impl Type {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::Pcapng => "pcapng",
            Self::Tcpdump => "tcpdump",
            Self::Queries => "queries",
            Self::Slowlog => "slowlog",
            Self::Genlog => "genlog",
            Self::Auditlog => "auditlog",
            Self::Digest => "digest",
        }
    }
}

/// An open input, compression undone.
pub struct Input {
    pub name: String,
    pub kind: Type,
    pub reader: Box<dyn Read + Send>,
    /// Bytes of a plain file, of which parts can be read apart; `None`: reading may wait for
    /// someone else to write, or for decompression.
    pub plain_bytes: Option<u64>,
}

impl Input {
    /// `-` is standard input.
    pub fn open(path: &Path, kind: Option<Type>, progress: &Progress) -> anyhow::Result<Self> {
        let DecompressedInput { name, head, reader, plain_bytes } = DecompressedInput::open(path, progress)?;
        let kind = match kind.map(|kind| refine_type(kind, &head)).or_else(|| detect_type(&head)) {
            Some(kind) => kind,
            // Nothing in it is nothing to tell a type from, and nothing to misread.
            None if head.is_empty() => Type::Slowlog,
            None => bail!(
                "it is neither a capture, nor tcpdump text or query events, nor a slow, general or audit log, nor a \
                 digest as --format json writes it: say what it is with --type"
            ),
        };
        Ok(Self { name, kind, reader, plain_bytes })
    }
}

/// `pcap` is asked for where either format is meant.
fn refine_type(kind: Type, head: &[u8]) -> Type {
    match (kind, Format::detect(head)) {
        (Type::Pcap, Some(Format::PcapNg)) => Type::Pcapng,
        _ => kind,
    }
}

/// By its first bytes.
fn detect_type(head: &[u8]) -> Option<Type> {
    if stored::is_digest(head) { Some(Type::Digest) } else { detect_kind(head).and_then(type_of_kind) }
}

fn type_of_kind(kind: FileKind) -> Option<Type> {
    match kind {
        FileKind::Capture(Format::Pcap) => Some(Type::Pcap),
        FileKind::Capture(Format::PcapNg) => Some(Type::Pcapng),
        FileKind::Capture(Format::TcpdumpText) => Some(Type::Tcpdump),
        FileKind::Queries => Some(Type::Queries),
        FileKind::SlowLog => Some(Type::Slowlog),
        FileKind::GeneralLog => Some(Type::Genlog),
        FileKind::AuditLog => Some(Type::Auditlog),
        FileKind::Gzip | FileKind::Zstd => None,
    }
}
