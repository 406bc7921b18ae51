//! Table of artefact kinds: one row says how a kind is treated.
//!
//! A row names the kind's files, their writer, how a window is found in them, and who counts their queries. A
//! new kind of artefact is a row here.

use toll_digest::Type;
use toll_record::ArtefactKind;

/// One row of the table: the properties of an artefact kind.
#[derive(Debug, Clone, Copy)]
pub struct ArtefactSpec {
    pub kind: ArtefactKind,
    pub extension: &'static str,
    pub writer: Writer,
    pub shape: Shape,
    pub window_lookup: WindowLookup,
    pub query_counter: QueryCounter,
    /// pt-query-digest's `--type` for it; `tcpdump` reads a capture through tcpdump.
    pub pt_type: Option<&'static str>,
    /// Holds packets, or their text. No query can be read from it if a session used TLS.
    pub is_from_packets: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    Tool,
    Server,
}

/// Files that make up an artefact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// No file: the server holds it.
    None,
    /// One file that grows, and the files that a rotating tool writes beside it.
    Files,
    Directory,
}

/// Method of finding a window in an artefact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowLookup {
    /// By the timestamp of each entry.
    ByTime,
    /// By its length in bytes at the window's begin and end.
    ByBytes,
}

/// Counter of the queries in an artefact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryCounter {
    Digest(Type),
    /// One line is one query.
    Lines,
    /// A query to the server at the window's begin and end.
    Server,
    Uncounted,
}

const FILE: ArtefactSpec = ArtefactSpec {
    kind: ArtefactKind::Bytes,
    extension: "bin",
    writer: Writer::Tool,
    shape: Shape::Files,
    window_lookup: WindowLookup::ByBytes,
    query_counter: QueryCounter::Uncounted,
    pt_type: None,
    is_from_packets: false,
};
const LOG: ArtefactSpec = ArtefactSpec { extension: "log", writer: Writer::Server, ..FILE };

/// All kinds, one row each.
pub const ARTEFACT_SPECS: [ArtefactSpec; 10] = [
    ArtefactSpec {
        kind: ArtefactKind::Pcap,
        extension: "pcap",
        window_lookup: WindowLookup::ByTime,
        query_counter: QueryCounter::Digest(Type::Pcap),
        pt_type: Some("tcpdump"),
        is_from_packets: true,
        ..FILE
    },
    ArtefactSpec {
        kind: ArtefactKind::TcpdumpText,
        extension: "txt",
        window_lookup: WindowLookup::ByTime,
        query_counter: QueryCounter::Digest(Type::Tcpdump),
        pt_type: Some("tcpdump"),
        is_from_packets: true,
        ..FILE
    },
    ArtefactSpec {
        kind: ArtefactKind::Queries,
        extension: "queries",
        window_lookup: WindowLookup::ByTime,
        query_counter: QueryCounter::Digest(Type::Queries),
        ..FILE
    },
    ArtefactSpec {
        kind: ArtefactKind::SlowLog,
        query_counter: QueryCounter::Digest(Type::Slowlog),
        pt_type: Some("slowlog"),
        ..LOG
    },
    ArtefactSpec {
        kind: ArtefactKind::GeneralLog,
        query_counter: QueryCounter::Digest(Type::Genlog),
        pt_type: Some("genlog"),
        ..LOG
    },
    ArtefactSpec { kind: ArtefactKind::AuditLog, query_counter: QueryCounter::Digest(Type::Auditlog), ..LOG },
    ArtefactSpec {
        kind: ArtefactKind::Lines,
        extension: "lines",
        query_counter: QueryCounter::Lines,
        ..FILE
    },
    ArtefactSpec {
        kind: ArtefactKind::Server,
        shape: Shape::None,
        query_counter: QueryCounter::Server,
        ..FILE
    },
    FILE,
    ArtefactSpec { kind: ArtefactKind::Directory, extension: "d", shape: Shape::Directory, ..FILE },
];

/// Names of the kinds as scenarios write them, joined into a list for an error.
pub fn list_kind_names() -> String {
    let name = |row: &ArtefactSpec| serde_json::to_value(row.kind).ok()?.as_str().map(str::to_owned);
    ARTEFACT_SPECS.iter().filter_map(name).collect::<Vec<_>>().join(", ")
}

/// The row of a kind.
pub fn spec_of(kind: ArtefactKind) -> &'static ArtefactSpec {
    // Of a kind without a row, such as one that a newer toll wrote, only the size is known.
    ARTEFACT_SPECS.iter().find(|row| row.kind == kind).unwrap_or(&FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_row() {
        for (i, row) in ARTEFACT_SPECS.iter().enumerate() {
            assert_eq!(
                ARTEFACT_SPECS.iter().position(|other| other.kind == row.kind),
                Some(i),
                "{:?}",
                row.kind
            );
        }
        // As the format names them.
        let kinds = "pcap tcpdump-text queries slow-log general-log audit-log lines server bytes directory";
        for kind in kinds.split_whitespace() {
            let kind: ArtefactKind = serde_json::from_value(kind.into()).unwrap();
            assert_eq!(spec_of(kind).kind, kind);
        }
        assert_eq!(ARTEFACT_SPECS.len(), kinds.split_whitespace().count());
    }
}
