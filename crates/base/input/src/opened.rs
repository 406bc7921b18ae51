//! Opener of files and streams with transparent decompression. Never identifies the content.

use crate::Progress;
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use toll_wire::log::{Kind, detect};

/// Bytes inspected to detect the type.
const HEAD: usize = 64 * 1024;

/// An open input, compression undone.
pub struct Opened {
    pub name: String,
    /// The first bytes: enough to detect the type, or all there are.
    pub head: Vec<u8>,
    /// Begins with the head.
    pub reader: Box<dyn Read + Send>,
    /// Bytes of a plain file, of which parts can be read apart; `None`: reading may wait for
    /// someone else to write, or for decompression.
    pub plain_bytes: Option<u64>,
}

impl Opened {
    /// `-` is standard input.
    pub fn new(path: &Path, progress: &Progress) -> anyhow::Result<Self> {
        let is_stdin = path.as_os_str() == "-";
        let (reader, length): (Box<dyn Read + Send>, Option<u64>) = if is_stdin {
            (progress.metered(io::stdin(), 1), None)
        } else {
            let file = File::open(path).context("check the path and that you may read it")?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                bail!("it is a directory: name the files in it");
            }
            (progress.metered(file, 1), metadata.is_file().then_some(metadata.len()))
        };
        let name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
        let Plain { head, reader, was_compressed } = plain(reader)?;
        Ok(Self { name, head, reader, plain_bytes: length.filter(|_| !was_compressed) })
    }
}

struct Plain {
    head: Vec<u8>,
    reader: Box<dyn Read + Send>,
    was_compressed: bool,
}

/// Undoes compression.
fn plain(mut reader: Box<dyn Read + Send>) -> anyhow::Result<Plain> {
    let mut was_compressed = false;
    loop {
        let head = read_head(&mut reader)?;
        let kind = detect(&head);
        reader = Box::new(Cursor::new(head.clone()).chain(reader));
        // Compressed twice is twice as much as anyone needs.
        reader = match kind.filter(|_| !was_compressed) {
            Some(Kind::Gzip) => Box::new(flate2::read::MultiGzDecoder::new(reader)),
            Some(Kind::Zstd) => Box::new(zstd::stream::read::Decoder::new(reader)?),
            _ => return Ok(Plain { head, reader, was_compressed }),
        };
        was_compressed = true;
    }
}

/// Reads enough to detect the type: a few lines, or everything. Does not wait for more than a stream has to
/// offer.
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
