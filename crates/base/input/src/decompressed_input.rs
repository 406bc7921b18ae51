//! Opener of files and streams with transparent decompression. Never identifies the content.

use crate::Progress;
use anyhow::{Context, bail};
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::Path;
use toll_wire::detect::{FileKind, detect_kind};

/// Bytes inspected to detect the type.
const HEAD_SIZE: usize = 64 * 1024;
/// A file says how much memory its decompression takes. 128 MiB, as zstd's own program grants, and `--ultra -22` needs.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// An open input, compression undone.
pub struct DecompressedInput {
    pub name: String,
    /// The first bytes: enough to detect the type, or all there are.
    pub head: Vec<u8>,
    /// Begins with the head.
    pub reader: Box<dyn Read + Send>,
    /// Bytes of a plain file, of which parts can be read apart; `None`: reading may wait for
    /// someone else to write, or for decompression.
    pub plain_bytes: Option<u64>,
}

impl DecompressedInput {
    /// `-` is standard input.
    pub fn open(path: &Path, progress: &Progress) -> anyhow::Result<Self> {
        let is_stdin = path.as_os_str() == "-";
        let (reader, length): (Box<dyn Read + Send>, Option<u64>) = if is_stdin {
            (progress.meter_reader(io::stdin(), 1), None)
        } else {
            let file = File::open(path).context("check the path and that you may read it")?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                bail!("is a directory: name the files in it");
            }
            (progress.meter_reader(file, 1), metadata.is_file().then_some(metadata.len()))
        };
        let name = if is_stdin { "stdin".to_owned() } else { path.display().to_string() };
        let DecompressedStream { head, reader, was_compressed } = decompress(reader)?;
        Ok(Self { name, head, reader, plain_bytes: length.filter(|_| !was_compressed) })
    }
}

struct DecompressedStream {
    head: Vec<u8>,
    reader: Box<dyn Read + Send>,
    was_compressed: bool,
}

/// Undoes compression.
fn decompress(mut reader: Box<dyn Read + Send>) -> anyhow::Result<DecompressedStream> {
    let mut was_compressed = false;
    loop {
        let head = read_head(&mut reader)?;
        let kind = detect_kind(&head);
        reader = Box::new(Cursor::new(head.clone()).chain(reader));
        // Compressed twice is twice as much as anyone needs.
        reader = match kind.filter(|_| !was_compressed) {
            Some(FileKind::Gzip) => Box::new(flate2::read::MultiGzDecoder::new(reader)),
            Some(FileKind::Zstd) => {
                let mut decoder = zstd::stream::read::Decoder::new(reader)?;
                decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
                Box::new(decoder)
            }
            _ => return Ok(DecompressedStream { head, reader, was_compressed }),
        };
        was_compressed = true;
    }
}

/// Reads enough to detect the type: a few lines, or everything. Does not wait for more than a stream has to
/// offer.
fn read_head(reader: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD_SIZE];
    let mut filled = 0;
    while filled < HEAD_SIZE {
        match reader.read(&mut head[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if filled >= 24 && detect_kind(&head[..filled]).is_some() {
            break;
        }
    }
    head.truncate(filled);
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_does_not_decide_how_much_memory_its_decompression_takes() {
        // A frame with the window that its sixth byte says, and one block of three bytes (RFC 8878).
        let frame = |window_log: u8| {
            let head = [0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
            [&head[..], &[3 << 3 | 1, 0, 0], b"abc"].concat()
        };
        let read = |window_log: u8| {
            let stream = decompress(Box::new(Cursor::new(frame(window_log))))?;
            assert!(stream.was_compressed);
            Ok::<_, anyhow::Error>(stream.head)
        };
        assert_eq!(read(27).unwrap(), b"abc");
        assert!(read(28).is_err());
    }
}
