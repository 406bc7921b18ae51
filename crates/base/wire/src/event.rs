//! Query event: everything known about one query, from any source.
//!
//! Packets, tcpdump text and logs are all decoded to it; the digest reads nothing else. Fields borrow from
//! the decoder's buffers: an event lives until its sink returns.

use crate::fingerprint::BackslashMode;

/// Receives events as they are completed. Returning is the only back-pressure there is.
pub trait Sink {
    fn on_event(&mut self, event: &Event<'_>);

    /// Reports that further events come from a share of the connections. Before the first call they come from
    /// all.
    fn on_sample_share(&mut self, _share: &SampleShare) {}
}

/// Share of connections that is decoded: sampled at random, each as a whole.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SampleShare {
    /// Since when, Unix ns.
    pub time_ns: u64,
    /// 1: all of them.
    pub fraction: f64,
    /// `None`: only the share is known.
    pub requests: Option<RequestCounts>,
}

/// Client requests (packets or calls) while only a sample of the connections was decoded, since the capture began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Of all connections.
    pub total: u64,
    /// Of those that were looked at.
    pub sampled: u64,
}

/// One command that a client sent and (where it was seen) the server answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Event<'a> {
    /// Unix time of the first byte of the command, ns; for a slow log the time of its entry.
    /// 0: unknown.
    pub start_ns: u64,
    /// From the command's last byte to the response's first byte, ns.
    pub first_byte_ns: Option<u64>,
    /// Query time: from the command's last byte to the response's last byte, ns. From packets,
    /// `None` with `tainted` unset means that capture or connection ended before the response.
    pub query_ns: Option<u64>,
    /// Unix time of the response's last byte, ns, where `query_ns` comes from packets. Later than
    /// `start_ns + query_ns` by the time that the command itself took to arrive.
    pub end_ns: Option<u64>,
    pub lock_ns: Option<u64>,
    pub kind: CommandKind,
    /// SQL (bare also for Prepare and Execute), or for other commands the words pt-query-digest uses (`administrator command: Ping`).
    pub text: &'a [u8],
    /// How the server read backslashes in it, as far as its replies tell.
    pub backslashes: BackslashMode,
    /// Bytes of the statement (or of its parameters) beyond those kept.
    pub text_cut: u64,
    /// For an EXECUTE: the values bound, rendered as SQL, in the order of the placeholders;
    /// `text` then holds the statement with its `?`. `...` replaces unreadable values: types are sent once, perhaps
    /// before the capture began.
    pub params: &'a [u8],
    pub statement_id: Option<u32>,
    pub user: &'a [u8],
    pub host: &'a [u8],
    pub port: u16,
    /// Schema when the command was sent; empty: none, or not known.
    pub db: &'a [u8],
    pub connection_id: Option<u64>,
    /// Packets with their headers, before compression.
    pub bytes_from_client: u64,
    pub bytes_from_server: u64,
    pub rows_sent: Option<u64>,
    pub rows_examined: Option<u64>,
    pub rows_affected: Option<u64>,
    pub warnings: Option<u32>,
    pub error: Option<ErrorInfo<'a>>,
    pub flags: Flags,
    /// Something of this command was lost, or its response may be another's: its text may be whole,
    /// it has no time.
    pub tainted: bool,
    /// Further attributes of a log entry (`Rows_read`, `InnoDB_IO_r_ops`), as written.
    pub attributes: &'a [(&'a str, &'a [u8])],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErrorInfo<'a> {
    pub number: u16,
    /// Five characters, or empty.
    pub state: &'a [u8],
    pub message: &'a [u8],
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum CommandKind {
    #[default]
    Query,
    Prepare,
    Execute,
    /// `DEALLOCATE PREPARE <id>`, as sent in the binary protocol. The server does not answer.
    Close,
    /// `RESET <id>` of a prepared statement, as sent in the binary protocol.
    Reset,
    /// Anything else: Ping, Quit, Init DB, Statistics, ...
    Admin,
}

/// Execution flags that the server reports. `None`: not reported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags {
    pub no_index_used: Option<bool>,
    pub no_good_index_used: Option<bool>,
    pub full_scan: Option<bool>,
    pub full_join: Option<bool>,
    pub tmp_table: Option<bool>,
    pub tmp_table_on_disk: Option<bool>,
    pub filesort: Option<bool>,
    pub filesort_on_disk: Option<bool>,
    pub qc_hit: Option<bool>,
}
