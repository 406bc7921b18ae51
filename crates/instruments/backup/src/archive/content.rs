//! Content of a dump, file by file.
//!
//! Gives each section a file name, counts its bytes and rows, hashes it, and passes the bytes on to storage.
//! Never stores any itself.

use crate::archive::ContentHash;
use crate::archive::sections::{Section, SectionKind, SectionPart, SectionSink, SectionSplitter};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use toll_store::Result;

/// One file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileName {
    /// Unique in its backup, and fit to be a path: `shop/table/orders.sql`.
    pub path: String,
    pub kind: SectionKind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub schema: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// A file that is whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSummary {
    #[serde(flatten)]
    pub file: FileName,
    pub bytes: u64,
    pub rows: u64,
    /// Of the lines that are rows, one after the other: the same for the same rows, whatever version
    /// of the server writes the definition around them.
    pub rows_sha256: ContentHash,
    /// Of all other lines.
    pub definition_sha256: ContentHash,
}

/// Storage for files, written in order, one after the other.
pub trait FileSink {
    fn begin(&mut self, file: &FileName) -> Result<()>;
    /// The next bytes of a line; `ends`: with its line end.
    fn part(&mut self, bytes: &[u8], ends: bool) -> Result<()>;
    fn end(&mut self) -> Result<()>;
}

/// Splitter and counter of a backup's content while it streams through.
pub struct ContentSplitter<'a> {
    sinks: Vec<&'a mut dyn FileSink>,
    files: Vec<FileSummary>,
    open: Option<OpenFile>,
    path_counts: HashMap<String, u32>,
    sections: SectionSplitter,
    tail: StreamTail,
    /// Of the row that has begun, and of the longest.
    row_bytes: u64,
    longest_row_bytes: u64,
}

struct OpenFile {
    file: FileName,
    bytes: u64,
    rows: u64,
    rows_hash: Sha256,
    definition_hash: Sha256,
}

impl<'a> ContentSplitter<'a> {
    pub fn new(sinks: Vec<&'a mut dyn FileSink>) -> Self {
        Self {
            sinks,
            files: Vec::new(),
            open: None,
            path_counts: HashMap::new(),
            sections: SectionSplitter::default(),
            tail: StreamTail::default(),
            row_bytes: 0,
            longest_row_bytes: 0,
        }
    }

    /// Of the rows so far, as statements: a server takes one back only if its max_allowed_packet is no smaller.
    pub fn longest_row_bytes(&self) -> u64 {
        self.longest_row_bytes
    }

    /// Reads a dump to its end, and splits it. `seen` is called with the length of each chunk before it is
    /// processed.
    pub fn read(&mut self, dump: impl std::io::Read, seen: impl FnMut(usize) -> Result<()>) -> Result<()> {
        for_each_chunk(dump, seen, |chunk| self.feed(chunk))?;
        self.end_dump()
    }

    /// Reads triggers, routines and events to their end, into a file of their own.
    pub fn read_bodies(
        &mut self,
        dump: impl std::io::Read,
        seen: impl FnMut(usize) -> Result<()>,
    ) -> Result<()> {
        self.begin_bodies()?;
        for_each_chunk(dump, seen, |chunk| self.feed_bodies(chunk))?;
        self.end_bodies()
    }

    pub(crate) fn feed(&mut self, chunk: &[u8]) -> Result<()> {
        let mut sections = std::mem::take(&mut self.sections);
        let fed = sections.feed(chunk, self);
        self.sections = sections;
        fed
    }

    pub(crate) fn end_dump(&mut self) -> Result<()> {
        std::mem::take(&mut self.sections).finish(self)
    }

    pub(crate) fn begin_bodies(&mut self) -> Result<()> {
        self.tail = StreamTail::default();
        self.begin(Section { kind: SectionKind::Bodies, schema: String::new(), name: String::new() })
    }

    pub(crate) fn feed_bodies(&mut self, chunk: &[u8]) -> Result<()> {
        self.tail.push(chunk);
        for line in chunk.split_inclusive(|&byte| byte == b'\n') {
            self.part(SectionPart { bytes: line, ends: line.ends_with(b"\n"), is_row: false })?;
        }
        Ok(())
    }

    pub(crate) fn end_bodies(&mut self) -> Result<()> {
        self.tail.check_complete()
    }

    /// The files, once the last is whole.
    pub fn finish(mut self) -> Result<Vec<FileSummary>> {
        self.close()?;
        Ok(self.files)
    }

    fn close(&mut self) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        self.files.push(FileSummary {
            file: open.file,
            bytes: open.bytes,
            rows: open.rows,
            rows_sha256: ContentHash(open.rows_hash.finalize().into()),
            definition_sha256: ContentHash(open.definition_hash.finalize().into()),
        });
        self.sinks.iter_mut().try_for_each(|keep| keep.end())
    }

    /// The same section may come twice: a schema is gone into for its tables, and again for its views.
    fn assign_path(&mut self, section: &Section) -> String {
        let [schema, name] = [&section.schema, &section.name].map(|name| escape_path(name));
        let (stem, ending) = match section.kind {
            SectionKind::Head => ("head".to_owned(), ".sql"),
            SectionKind::Tail => ("tail".to_owned(), ".sql"),
            SectionKind::Bodies => ("bodies".to_owned(), ".sql"),
            SectionKind::Database => (format!("{schema}/schema"), ".sql"),
            SectionKind::Sequence => (format!("{schema}/sequence/{name}"), ".sql"),
            SectionKind::Table => (format!("{schema}/table/{name}"), ".sql"),
            SectionKind::Placeholder => (format!("{schema}/placeholder/{name}"), ".sql"),
            SectionKind::View => (format!("{schema}/view/{name}"), ".sql"),
        };
        let times = self.path_counts.entry(stem.clone()).or_default();
        *times += 1;
        // `=` stands in no name that `escape_path` made, so no second one of this is the first of another.
        if *times == 1 { stem + ending } else { format!("{stem}={times}{ending}") }
    }
}

impl SectionSink for ContentSplitter<'_> {
    fn begin(&mut self, section: Section) -> Result<()> {
        self.close()?;
        let path = self.assign_path(&section);
        let file = FileName { path, kind: section.kind, schema: section.schema, name: section.name };
        self.sinks.iter_mut().try_for_each(|keep| keep.begin(&file))?;
        self.open = Some(OpenFile {
            file,
            bytes: 0,
            rows: 0,
            rows_hash: Sha256::new(),
            definition_hash: Sha256::new(),
        });
        Ok(())
    }

    fn part(&mut self, part: SectionPart<'_>) -> Result<()> {
        if let Some(open) = &mut self.open {
            open.bytes += part.bytes.len() as u64;
            open.rows += u64::from(part.is_row && part.ends);
            let digest = if part.is_row { &mut open.rows_hash } else { &mut open.definition_hash };
            digest.update(part.bytes);
        }
        if part.is_row {
            self.row_bytes += part.bytes.len() as u64;
            self.longest_row_bytes = self.longest_row_bytes.max(self.row_bytes);
            if part.ends {
                self.row_bytes = 0;
            }
        }
        self.sinks.iter_mut().try_for_each(|keep| keep.part(part.bytes, part.ends))
    }
}

/// As much as a pipe holds where it may be widened.
const CHUNK: usize = 1 << 20;

fn for_each_chunk(
    mut dump: impl std::io::Read,
    mut seen: impl FnMut(usize) -> Result<()>,
    mut take: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let read = match dump.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(cause) => return Err(toll_store::Error::Read { what: "the dump".into(), cause }),
        };
        seen(read)?;
        take(&chunk[..read])?;
    }
}

/// The end of a stream that is not looked into.
#[derive(Default)]
struct StreamTail(Vec<u8>);

impl StreamTail {
    const MAX_BYTES: usize = 256;

    fn push(&mut self, chunk: &[u8]) {
        self.0.extend_from_slice(&chunk[chunk.len().saturating_sub(Self::MAX_BYTES)..]);
        let surplus = self.0.len().saturating_sub(Self::MAX_BYTES);
        self.0.drain(..surplus);
    }

    fn check_complete(&self) -> Result<()> {
        let last = self.0.trim_ascii_end().rsplit(|&byte| byte == b'\n').next().unwrap_or_default();
        if last.starts_with(b"-- Dump completed") {
            return Ok(());
        }
        Err(toll_store::Error::Incomplete("triggers, routines and events end in the middle".into()))
    }
}

/// A name as part of a path: letters, digits and what is harmless as they are, all else as `%2F`.
fn escape_path(name: &str) -> String {
    let mut path = String::new();
    for (at, char) in name.char_indices() {
        let harmless = char.is_alphanumeric() || matches!(char, '_' | '-' | '$') || (char == '.' && at > 0);
        if harmless {
            path.push(char);
        } else {
            let mut bytes = [0; 4];
            char.encode_utf8(&mut bytes).bytes().for_each(|byte| path += &format!("%{byte:02X}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_leaves_its_folder_and_no_two_names_share_a_path() {
        let names = ["a", "A", "a/b", "../../etc/passwd", ".git", "a=2", "a%3D2", "käse", "a b\n", "-"];
        let paths: std::collections::HashSet<String> = names.iter().map(|name| escape_path(name)).collect();
        assert_eq!(paths.len(), names.len());
        assert!(
            paths.iter().all(|path| !path.contains(['/', '=', '\n']) && !path.starts_with('.')),
            "{paths:?}"
        );
        assert!(paths.contains("käse") && paths.contains("a%2Fb"));
    }

    #[test]
    fn the_longest_row_is_told_however_it_arrives() {
        let long = format!("INSERT INTO `t` VALUES ('{}');\n", "x".repeat(5000));
        let dump =
            format!("INSERT INTO `t` VALUES (1);\n{long}INSERT INTO `t` VALUES (2);\n-- Dump completed\n");
        for step in [1, 7, 100_000] {
            let mut content = ContentSplitter::new(Vec::new());
            dump.as_bytes().chunks(step).for_each(|chunk| content.feed(chunk).unwrap());
            content.end_dump().unwrap();
            assert_eq!(content.longest_row_bytes(), long.len() as u64, "{step}");
        }
    }

    #[test]
    fn what_has_bodies_is_whole_only_with_its_last_line() {
        let check = |text: &[u8]| {
            let mut content = ContentSplitter::new(Vec::new());
            let read = content.read_bodies(text, |_| Ok(()));
            read.and_then(|()| content.finish())
        };
        let body = b"CREATE TRIGGER t BEGIN\n-- Dump completed\nEND ;;\n";
        assert!(check(body).is_err());
        let whole = [&body[..], b"\n-- Dump completed\n"].concat();
        let files = check(&whole).unwrap();
        assert_eq!((files[0].file.path.as_str(), files[0].bytes), ("bodies.sql", whole.len() as u64));
    }
}
