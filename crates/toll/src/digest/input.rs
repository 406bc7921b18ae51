//! What is in a file, and how is it read? Knows compression and types, not their contents.

use anyhow::{Context, bail};
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use toll_wire::log::{Kind, detect};

/// What is looked at to tell the type.
const HEAD: usize = 64 * 1024;

/// What a file holds, compression aside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Type {
    Pcap,
    Tcpdump,
    Slowlog,
    Genlog,
    Auditlog,
}

impl Type {
    pub fn name(self) -> &'static str {
        match self {
            Self::Pcap => "pcap",
            Self::Tcpdump => "tcpdump",
            Self::Slowlog => "slowlog",
            Self::Genlog => "genlog",
            Self::Auditlog => "auditlog",
        }
    }
}

/// An open input, compression undone.
pub struct Input {
    pub name: String,
    pub kind: Type,
    pub reader: Box<dyn Read + Send>,
    /// Reading may wait for someone else to write.
    pub may_wait: bool,
}

impl Input {
    /// `-` is standard input.
    pub fn open(path: &Path, kind: Option<Type>) -> anyhow::Result<Self> {
        let is_stdin = path.as_os_str() == "-";
        let (reader, may_wait): (Box<dyn Read + Send>, bool) = if is_stdin {
            (Box::new(io::stdin()), true)
        } else {
            let file = File::open(path).context("check the path and that you may read it")?;
            let is_regular = file.metadata()?.is_file();
            if file.metadata()?.is_dir() {
                bail!("it is a directory: name the files in it");
            }
            (Box::new(file), !is_regular)
        };
        let name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
        let (head, reader) = plain(reader)?;
        let kind = match kind.or_else(|| detect(&head).and_then(readable)) {
            Some(kind) => kind,
            // Nothing in it is nothing to tell a type from, and nothing to misread.
            None if head.is_empty() => Type::Slowlog,
            None => bail!(
                "it is neither a capture, nor tcpdump text, nor a slow, general or audit log: \
                 say what it is with --type"
            ),
        };
        Ok(Self { name, kind, reader, may_wait })
    }
}

fn readable(kind: Kind) -> Option<Type> {
    match kind {
        Kind::Pcap => Some(Type::Pcap),
        Kind::TcpdumpText => Some(Type::Tcpdump),
        Kind::SlowLog => Some(Type::Slowlog),
        Kind::GeneralLog => Some(Type::Genlog),
        Kind::AuditLog => Some(Type::Auditlog),
        Kind::Gzip | Kind::Zstd => None,
    }
}

/// Undoes compression and returns the first bytes beside a reader that begins with them.
fn plain(mut reader: Box<dyn Read + Send>) -> anyhow::Result<(Vec<u8>, Box<dyn Read + Send>)> {
    // gzip of zstd of gzip is no log: two layers are one more than anyone needs.
    for _ in 0..2 {
        let head = read_head(&mut reader)?;
        let kind = detect(&head);
        reader = Box::new(Cursor::new(head.clone()).chain(reader));
        reader = match kind {
            Some(Kind::Gzip) => Box::new(flate2::read::MultiGzDecoder::new(reader)),
            Some(Kind::Zstd) => Box::new(zstd::stream::read::Decoder::new(reader)?),
            _ => return Ok((head, reader)),
        };
    }
    let head = read_head(&mut reader)?;
    Ok((head.clone(), Box::new(Cursor::new(head).chain(reader))))
}

/// Enough to tell the type: a few lines, or all there is. Does not wait for more than a stream
/// has to tell.
fn read_head(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD];
    let mut filled = 0;
    while filled < HEAD {
        match reader.read(&mut head[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if filled >= 24 && detect(&head[..filled]).is_some() {
            break;
        }
    }
    head.truncate(filled);
    Ok(head)
}
