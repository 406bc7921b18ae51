//! Content-defined chunking of a file at line ends.
//!
//! The lines themselves determine the cuts. An inserted, deleted or changed row moves only the cuts beside
//! it, so a small change of a database leaves most pieces unchanged. Never holds more than one piece.

/// How long pieces are, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSizes {
    /// No cut before.
    pub min: usize,
    /// How many bytes lie between two lines that choose a cut, on average; below 4 GiB.
    pub average: usize,
    /// Cut in any case: at the last line end, or within the line if it has none.
    pub max: usize,
}

impl ChunkSizes {
    /// Objects in a store. Where rows change here and there, small pieces save more than they cost in
    /// requests: with 1% of the rows changed and rows of 3 kB, a third of pieces of 128 KiB changes, and
    /// nearly all of 1 MiB.
    pub const OBJECT: Self = Self { min: 32 << 10, average: 96 << 10, max: 1 << 20 };
    /// Blobs in git, which stores what differs between two of them by itself; far below the 512 MiB
    /// (core.bigFileThreshold) from which it no longer does.
    pub const BLOB: Self = Self { min: 256 << 10, average: 768 << 10, max: 16 << 20 };
}

/// A line chooses by its beginning: there stands the key, and a row that changes elsewhere keeps its cut.
const HEAD: usize = 256;

/// Cuts one file after the other.
#[derive(Debug)]
pub struct Chunker {
    sizes: ChunkSizes,
    piece: Vec<u8>,
    /// Where the last whole line in `piece` ends; 0: nowhere.
    line_end: usize,
    hash: u64,
    /// Of the line that has begun.
    line_bytes: u64,
}

impl Chunker {
    pub fn new(sizes: ChunkSizes) -> Self {
        Self { sizes, piece: Vec::new(), line_end: 0, hash: FNV_OFFSET, line_bytes: 0 }
    }

    /// Takes the next bytes of a line; `ends`: they are its last, with its line end.
    pub fn push<E>(
        &mut self,
        mut bytes: &[u8],
        ends: bool,
        mut out: impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !bytes.is_empty() {
            if self.piece.len() >= self.sizes.max {
                self.cut_at(if self.line_end > 0 { self.line_end } else { self.piece.len() }, &mut out)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.sizes.max - self.piece.len()));
            self.piece.extend_from_slice(now);
            let in_head = HEAD.saturating_sub(self.line_bytes as usize).min(now.len());
            self.hash = now[..in_head].iter().fold(self.hash, |hash, &byte| fnv(hash, byte));
            self.line_bytes += now.len() as u64;
            bytes = later;
        }
        if ends {
            if self.piece.len() >= self.sizes.min && self.is_boundary() {
                self.cut_at(self.piece.len(), &mut out)?;
            } else {
                self.line_end = self.piece.len();
            }
            (self.hash, self.line_bytes) = (FNV_OFFSET, 0);
        }
        Ok(())
    }

    /// Ends the file: what is left is its last piece.
    pub fn finish<E>(&mut self, mut out: impl FnMut(Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        (self.hash, self.line_bytes) = (FNV_OFFSET, 0);
        if self.piece.is_empty() { Ok(()) } else { self.cut_at(self.piece.len(), &mut out) }
    }

    fn cut_at<E>(&mut self, at: usize, out: &mut impl FnMut(Vec<u8>) -> Result<(), E>) -> Result<(), E> {
        let rest = self.piece.split_off(at);
        self.line_end = 0;
        out(std::mem::replace(&mut self.piece, rest))
    }

    /// A long line chooses more often than a short one, so that the mean does not depend on their length.
    fn is_boundary(&self) -> bool {
        // FNV's low bits are its best; one more round mixes them upwards.
        let draw = (self.hash ^ (self.hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        draw * (self.sizes.average as u64) < self.line_bytes.min(u64::from(u32::MAX)) << 32
    }
}

/// FNV-1a, 64 bits: draft-eastlake-fnv.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(hash: u64, byte: u8) -> u64 {
    (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;
    use std::convert::Infallible;

    const SMALL: ChunkSizes = ChunkSizes { min: 40, average: 100, max: 400 };

    /// Pieces of lines that come in parts of at most `step` bytes.
    fn pieces(lines: &[Vec<u8>], sizes: ChunkSizes, step: usize) -> Vec<Vec<u8>> {
        let mut cutter = Chunker::new(sizes);
        let mut pieces = Vec::new();
        let mut out = |piece| {
            pieces.push(piece);
            Ok::<_, Infallible>(())
        };
        for line in lines {
            let count = line.chunks(step).count();
            for (number, part) in line.chunks(step).enumerate() {
                cutter.push(part, number + 1 == count, &mut out).unwrap();
            }
        }
        cutter.finish(&mut out).unwrap();
        pieces
    }

    fn rows(count: u32) -> Vec<Vec<u8>> {
        (0..count)
            .map(|id| format!("INSERT INTO `t` VALUES ({id},'{}');\n", "x".repeat(20)).into_bytes())
            .collect()
    }

    proptest! {
        #[test]
        fn pieces_put_together_are_the_file_and_none_is_too_long(
            lines in proptest::collection::vec("[ab]{0,300}(c{0,900})", 0..60), step in 1usize..700
        ) {
            let lines: Vec<Vec<u8>> = lines.into_iter().map(|line| (line + "\n").into_bytes()).collect();
            let pieces = pieces(&lines, SMALL, step);
            prop_assert_eq!(pieces.concat(), lines.concat());
            prop_assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= SMALL.max));
        }

        #[test]
        fn cuts_do_not_depend_on_how_the_bytes_arrive(
            lines in proptest::collection::vec("[a-z]{0,500}", 0..60), step in 1usize..700
        ) {
            let lines: Vec<Vec<u8>> = lines.into_iter().map(|line| (line + "\n").into_bytes()).collect();
            prop_assert_eq!(pieces(&lines, SMALL, step), pieces(&lines, SMALL, usize::MAX));
        }
    }

    #[test]
    fn a_row_that_comes_or_changes_leaves_nearly_all_pieces_as_they_were() {
        let before = rows(20_000);
        let sizes = ChunkSizes { min: 400, average: 1200, max: 16_000 };
        let old: HashSet<Vec<u8>> = pieces(&before, sizes, usize::MAX).into_iter().collect();
        assert!((400..=1200).contains(&old.len()), "{} pieces of {} bytes", old.len(), before.concat().len());
        let mut inserted = before.clone();
        inserted.insert(7000, b"INSERT INTO `t` VALUES (6999.5,'new');\n".to_vec());
        let mut changed = before.clone();
        changed[12_000] = b"INSERT INTO `t` VALUES (12000,'another text than before');\n".to_vec();
        let removed: Vec<_> =
            before.iter().enumerate().filter(|(n, _)| *n != 333).map(|(_, l)| l.clone()).collect();
        for after in [inserted, changed, removed] {
            let new = pieces(&after, sizes, usize::MAX);
            let others = new.iter().filter(|piece| !old.contains(*piece)).count();
            assert!((1..=4).contains(&others), "{others} pieces are others");
        }
    }

    #[test]
    fn a_piece_ends_at_a_line_end_unless_the_line_is_longer_than_any_piece() {
        let mut lines = rows(100);
        lines.insert(50, [vec![b'z'; 1000], vec![b'\n']].concat());
        let pieces = pieces(&lines, SMALL, 64);
        let within = pieces.iter().filter(|piece| piece.last() != Some(&b'\n')).count();
        assert_eq!(within, 2, "1001 bytes in pieces of 400 at most have two cuts within");
    }

    #[test]
    fn where_no_line_chooses_a_piece_is_as_long_as_whole_lines_allow() {
        let lines = rows(1000);
        let pieces = pieces(&lines, ChunkSizes { average: 1 << 31, ..SMALL }, 17);
        let (last, others) = pieces.split_last().unwrap();
        assert!(others.len() > 100 && last.ends_with(b"\n"));
        assert!(others.iter().all(|piece| piece.ends_with(b"\n") && piece.len() > SMALL.max - 60));
    }

    #[test]
    fn long_rows_and_short_ones_make_pieces_of_like_size() {
        for width in [10, 100, 1000] {
            let lines: Vec<Vec<u8>> =
                (0..2_000_000 / width).map(|id| format!("{id:<width$}\n").into_bytes()).collect();
            let sizes = ChunkSizes { min: 4000, average: 12_000, max: 160_000 };
            let count = pieces(&lines, sizes, usize::MAX).len();
            // 16 kB each on average: 125 of 2 MB.
            assert!((75..=180).contains(&count), "{count} pieces with rows of {width} bytes");
        }
    }
}
