//! Writer and reader of dumps in a git repository.
//!
//! Writes a stream for `git fast-import`: one directory for each file, with its pieces in order. It contains
//! no dates, so an unchanged database gives the same tree. Another module starts git.

use crate::archive::chunker::{ChunkSizes, Chunker};
use crate::archive::content::{FileName, FileSink, FileSummary};
use crate::archive::{ContentHash, DumpProgram, SignKey, SourceServer};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Write};
use toll_store::{Error, Result};

/// At the root of the tree: what it holds, in the order of the dump.
pub const MANIFEST: &str = "backup.json";
/// Of [`Tree`].
pub const FORMAT: u32 = 1;

/// Content of [`MANIFEST`]: nothing that differs between two dumps of the same data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree {
    pub format: u32,
    pub source: TreeSource,
    pub program: DumpProgram,
    pub schemas: Vec<String>,
    pub files: Vec<TreeFile>,
    /// Accounts that views, triggers, routines and events run as, `user@host`.
    pub definers: Vec<String>,
    pub warnings: Vec<String>,
    /// As a statement; 0: not known.
    #[serde(default)]
    pub longest_row_bytes: u64,
}

/// The server, without its address, which is another from another host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeSource {
    pub flavour: String,
    pub version: String,
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub server_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl TreeSource {
    pub fn from_source(source: &SourceServer) -> Self {
        Self {
            flavour: source.flavour.clone(),
            version: source.version.clone(),
            host: source.host.clone(),
            server_id: source.server_id.clone(),
            name: source.name.clone(),
        }
    }

    /// `None` if the next backup of the same server says `next` of itself. Otherwise what to do if it is the same
    /// nevertheless, as the end of a sentence. A name that was given stands for the server, whatever its id.
    pub fn difference(&self, next: &Self) -> Option<String> {
        let same_id = self.server_id == next.server_id;
        match (&self.name, &next.name) {
            (Some(one), Some(other)) if one == other => None,
            (None, None) if same_id => None,
            (Some(name), _) => Some(format!(", or, if it is the same server, use --source {name}")),
            (None, Some(_)) if same_id => Some(
                ", or, if it is the same server, leave out --source: the branch was begun without a name"
                    .into(),
            ),
            (None, _) => Some(String::new()),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeFile {
    #[serde(flatten)]
    pub summary: FileSummary,
    /// In order.
    pub pieces: Vec<TreePiece>,
}

/// A piece: its name in the file's folder, and the SHA-256 of what it holds. Written as `[name, sha256]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreePiece(pub String, pub ContentHash);

impl TreeFile {
    /// Path of a piece in the tree.
    pub fn path(&self, piece: &TreePiece) -> String {
        format!("{}/{}", self.summary.file.path, piece.0)
    }
}

/// Writes blobs as pieces come, and the commit at the end.
pub struct FastImport<W: Write> {
    output: W,
    chunker: Chunker,
    file: Option<FileName>,
    /// In each file so far.
    pieces: Vec<Vec<TreePiece>>,
    /// Path and mark of each piece.
    entries: Vec<(String, u64)>,
    written: u64,
}

/// Author, time and message of a commit.
#[derive(Debug, Clone)]
pub struct Commit<'a> {
    /// `refs/...`
    pub reference: &'a str,
    /// The commit before, if there is one.
    pub parent: Option<&'a str>,
    /// Seconds since 1970.
    pub unix_s: u64,
    pub message: &'a str,
}

impl<W: Write> FastImport<W> {
    /// `to`: what `git fast-import --done` reads.
    pub fn new(to: W) -> Self {
        Self {
            output: to,
            chunker: Chunker::new(ChunkSizes::BLOB),
            file: None,
            pieces: Vec::new(),
            entries: Vec::new(),
            written: 0,
        }
    }

    /// Bytes of blobs so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Ends the stream. Without it git changes nothing.
    pub fn finish(
        mut self,
        seen: Vec<FileSummary>,
        mut tree: Tree,
        sign_key: Option<&SignKey>,
        commit: &Commit<'_>,
    ) -> Result<Tree> {
        let files = seen.into_iter().zip(std::mem::take(&mut self.pieces));
        tree.files = files.map(|(seen, pieces)| TreeFile { summary: seen, pieces }).collect();
        let mut text = serde_json::to_vec_pretty(&tree).map_err(|cause| write_error(cause.into()))?;
        if let Some(key) = sign_key {
            text = key.sign(text);
        }
        text.push(b'\n');
        self.write_blob(MANIFEST.to_owned(), &text)?;
        let Commit { reference: to, parent, unix_s, message } = commit;
        let mut stream = format!(
            "commit {to}\ncommitter toll <toll@localhost> {unix_s} +0000\ndata {}\n{message}\n",
            message.len()
        );
        if let Some(parent) = parent {
            stream += &format!("from {parent}\n");
        }
        stream += "deleteall\n";
        self.output.write_all(stream.as_bytes()).map_err(write_error)?;
        for (path, mark) in &self.entries {
            let path = path.replace('\\', "\\\\").replace('"', "\\\"");
            writeln!(self.output, "M 100644 :{mark} \"{path}\"").map_err(write_error)?;
        }
        self.output.write_all(b"\ndone\n").and_then(|()| self.output.flush()).map_err(write_error)?;
        Ok(tree)
    }

    fn write_blob(&mut self, path: String, bytes: &[u8]) -> Result<()> {
        let mark = self.entries.len() as u64 + 1;
        write!(self.output, "blob\nmark :{mark}\ndata {}\n", bytes.len()).map_err(write_error)?;
        self.output.write_all(bytes).and_then(|()| self.output.write_all(b"\n")).map_err(write_error)?;
        self.entries.push((path, mark));
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn push_to_chunker(
        &mut self,
        cut: impl FnOnce(&mut Chunker, &mut Vec<Vec<u8>>) -> Result<()>,
    ) -> Result<()> {
        let mut pieces = Vec::new();
        cut(&mut self.chunker, &mut pieces)?;
        for piece in pieces {
            let (Some(file), Some(names)) = (&self.file, self.pieces.last_mut()) else { continue };
            let name = piece_name(&file.path, names.len() + 1, &piece);
            let path = format!("{}/{name}", file.path);
            names.push(TreePiece(name, ContentHash::hash(&piece)));
            self.write_blob(path, &piece)?;
        }
        Ok(())
    }
}

impl<W: Write> FileSink for FastImport<W> {
    fn begin(&mut self, file: &FileName) -> Result<()> {
        self.file = Some(file.clone());
        self.pieces.push(Vec::new());
        Ok(())
    }

    fn part(&mut self, bytes: &[u8], ends: bool) -> Result<()> {
        // A part is a stretch of the dump as it was read, so no more than a piece or two come of it.
        self.push_to_chunker(|cutter, pieces| {
            cutter.push(bytes, ends, |piece| {
                pieces.push(piece);
                Ok(())
            })
        })
    }

    fn end(&mut self) -> Result<()> {
        self.push_to_chunker(|cutter, pieces| {
            cutter.finish(|piece| {
                pieces.push(piece);
                Ok(())
            })
        })
    }
}

/// `000012-0123456789ab.sql`: the number is for whoever puts the pieces together by hand. git looks for what a blob
/// may differ from among those whose names end in the same 16 characters, so these come from the piece's first
/// line, which is the same when other pieces come or go before it.
fn piece_name(path: &str, number: usize, piece: &[u8]) -> String {
    const LINE: usize = 256;
    let line = piece.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = ContentHash::hash(&[path.as_bytes(), &line[..line.len().min(LINE)]].concat()).to_string();
    format!("{number:06}-{}.sql", &line[..12])
}

fn write_error(cause: std::io::Error) -> Error {
    Error::Write { what: "to git fast-import", cause }
}

/// No piece is longer.
pub const PIECE_MAX_BYTES: u64 = ChunkSizes::BLOB.max as u64;

/// Reads one object from `git cat-file --batch`, unless it has more bytes than `max`.
pub fn read_blob(from: &mut impl BufRead, what: &str, max: u64) -> Result<Vec<u8>> {
    let cannot = |cause| Error::Read { what: format!("{what} from git"), cause };
    let mut head = String::new();
    from.read_line(&mut head).map_err(cannot)?;
    // `<object> blob <bytes>`, or `<name> missing`.
    let mut words = head.split_whitespace().skip(1);
    let (Some("blob"), Some(Ok(bytes))) = (words.next(), words.next().map(str::parse::<u64>)) else {
        return Err(cannot(std::io::Error::other(format!("git answers {:?}", head.trim()))));
    };
    if bytes > max {
        return Err(cannot(std::io::Error::other(format!("it has {bytes} bytes; the maximum is {max}"))));
    }
    let mut blob = vec![0; bytes as usize];
    from.read_exact(&mut blob).map_err(cannot)?;
    from.read_exact(&mut [0]).map_err(cannot)?;
    Ok(blob)
}
