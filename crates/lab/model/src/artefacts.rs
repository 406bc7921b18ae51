//! Table of artefact kinds: one row says how a kind is treated.
//!
//! A row names the kind's files, their writer, how a window is found in them, and who counts their queries. A
//! new kind of artefact is a row here.

use toll_digest::Type;
use toll_record::ArtefactKind;

/// One row of the table: the properties of an artefact kind.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    pub kind: ArtefactKind,
    pub extension: &'static str,
    pub writer: Writer,
    pub shape: Shape,
    pub found: Found,
    pub counted: Counted,
    /// pt-query-digest's `--type` for it; `tcpdump` reads a capture through tcpdump.
    pub pt_type: Option<&'static str>,
    /// Holds packets, or what was decoded from them. No query can be read from it if a session used TLS.
    pub is_of_the_wire: bool,
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
pub enum Found {
    /// By the timestamp of each entry.
    ByTime,
    /// By its length in bytes at the window's begin and end.
    ByBytes,
}

/// Counter of the queries in an artefact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Digest(Type),
    /// One line is one query.
    Lines,
    /// A query to the server at the window's begin and end.
    Server,
    Nobody,
}

const FILE: Row = Row {
    kind: ArtefactKind::Bytes,
    extension: "bin",
    writer: Writer::Tool,
    shape: Shape::Files,
    found: Found::ByBytes,
    counted: Counted::Nobody,
    pt_type: None,
    is_of_the_wire: false,
};
const LOG: Row = Row { extension: "log", writer: Writer::Server, ..FILE };

/// All kinds, one row each.
pub const TABLE: [Row; 10] = [
    Row {
        kind: ArtefactKind::Pcap,
        extension: "pcap",
        found: Found::ByTime,
        counted: Counted::Digest(Type::Pcap),
        pt_type: Some("tcpdump"),
        is_of_the_wire: true,
        ..FILE
    },
    Row {
        kind: ArtefactKind::TcpdumpText,
        extension: "txt",
        found: Found::ByTime,
        counted: Counted::Digest(Type::Tcpdump),
        pt_type: Some("tcpdump"),
        is_of_the_wire: true,
        ..FILE
    },
    Row {
        kind: ArtefactKind::Queries,
        extension: "queries",
        found: Found::ByTime,
        counted: Counted::Digest(Type::Queries),
        is_of_the_wire: true,
        ..FILE
    },
    Row {
        kind: ArtefactKind::SlowLog,
        counted: Counted::Digest(Type::Slowlog),
        pt_type: Some("slowlog"),
        ..LOG
    },
    Row {
        kind: ArtefactKind::GeneralLog,
        counted: Counted::Digest(Type::Genlog),
        pt_type: Some("genlog"),
        ..LOG
    },
    Row { kind: ArtefactKind::AuditLog, counted: Counted::Digest(Type::Auditlog), ..LOG },
    Row { kind: ArtefactKind::Lines, extension: "lines", counted: Counted::Lines, ..FILE },
    Row { kind: ArtefactKind::Server, shape: Shape::None, counted: Counted::Server, ..FILE },
    FILE,
    Row { kind: ArtefactKind::Directory, extension: "d", shape: Shape::Directory, ..FILE },
];

/// Names of the kinds as scenarios write them, joined into a list for an error.
pub fn names() -> String {
    let name = |row: &Row| serde_json::to_value(row.kind).ok()?.as_str().map(str::to_owned);
    TABLE.iter().filter_map(name).collect::<Vec<_>>().join(", ")
}

/// The row of a kind.
pub fn of(kind: ArtefactKind) -> &'static Row {
    // Of a kind without a row, such as one that a newer toll wrote, only the size is known.
    TABLE.iter().find(|row| row.kind == kind).unwrap_or(&FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_one_row() {
        for (i, row) in TABLE.iter().enumerate() {
            assert_eq!(TABLE.iter().position(|other| other.kind == row.kind), Some(i), "{:?}", row.kind);
        }
        // As the format names them.
        let kinds = "pcap tcpdump-text queries slow-log general-log audit-log lines server bytes directory";
        for kind in kinds.split_whitespace() {
            let kind: ArtefactKind = serde_json::from_value(kind.into()).unwrap();
            assert_eq!(of(kind).kind, kind);
        }
        assert_eq!(TABLE.len(), kinds.split_whitespace().count());
    }
}
