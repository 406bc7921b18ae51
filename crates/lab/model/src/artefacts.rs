//! What kinds of artefact are there, and how is each of them treated?
//!
//! A row a kind: which files it is, who writes them, how a window is found in them, who counts what they
//! hold. A new kind of artefact is a row here.

use toll_digest::Type;
use toll_record::ArtefactKind;

/// How artefacts of a kind are treated.
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
    /// Holds packets, or what was decoded of them: of a session under TLS no query can be read from it.
    pub is_of_the_wire: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    Tool,
    Server,
}

/// Which files an artefact is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// None: the server holds it.
    None,
    /// One that grows, and what a tool that rotates writes beside it.
    Files,
    Directory,
}

/// How a window is found in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// By the time that each entry bears.
    ByTime,
    /// By its length at both edges.
    ByBytes,
}

/// Who counts the queries in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Digest(Type),
    /// A line is a query.
    Lines,
    /// The server, asked at both edges.
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

/// Every kind.
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

/// What scenarios may say, in a list.
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
