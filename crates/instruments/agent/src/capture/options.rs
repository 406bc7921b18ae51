//! Options of a capture: from where, as what, and where to.

use super::otlp::OtlpSettings;
use crate::rotation::Rotate;
use crate::table_options::TableOptions;
use std::path::PathBuf;
use std::time::Duration;
use toll_digest::classes::{GroupBy, Limit};
use toll_sys::named_choice::NamedChoice;

/// Options of a capture.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    pub source: TapKind,
    /// A name, or `any`.
    pub device: String,
    pub ports: Vec<u16>,
    pub server_pid: Option<u32>,
    /// With the socket tap: probe inside TLS even where the kernel may kill the server for it.
    pub force_return_probes: bool,
    pub output: OutputKind,
    /// Bytes kept of each packet that a server answers; absent: what is of use of each kind of answer.
    pub snap_server: Option<u32>,
    pub buffer_bytes: usize,
    pub rotation: Rotate,
    pub keep: Option<usize>,
    pub overwrite: bool,
    /// Of one core.
    pub cpu_share: Option<f64>,
    pub duration: Option<Duration>,
    pub user: Option<String>,
    /// A digest of each stretch of this length.
    pub digest_interval: Option<Duration>,
    /// Of a digest.
    pub group_by: GroupBy,
    pub limit: Limit,
    /// Each digest is a line that [`toll_digest::response_times`] reads.
    pub times_alone: bool,
    /// A stream holds queries, as that of sockets always does.
    pub stream_queries: bool,
    pub key: Option<PathBuf>,
    /// Streams without a key.
    pub plain: bool,
    pub metrics: Option<String>,
    /// Where each digest goes, too.
    pub otlp: Option<OtlpSettings>,
    pub tables: Option<TableOptions>,
    pub status: bool,
    pub json: bool,
}

/// Kind of tap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TapKind {
    /// Packets of a network device
    Packets,
    /// Data that the server reads from its sockets and writes to them, Unix sockets too
    Sockets,
}

impl NamedChoice for TapKind {
    const CHOICES: &'static [(&'static str, Self, &'static str)] = &[
        ("packets", Self::Packets, "Packets of a network device"),
        (
            "sockets",
            Self::Sockets,
            "Data that the server reads from its sockets and writes to them, Unix sockets too",
        ),
    ];
}

/// Kind of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OutputKind {
    Packets(PathBuf),
    Queries(PathBuf),
    Digest,
    Stream(String),
}
