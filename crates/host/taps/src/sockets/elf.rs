//! Parser of exported functions in an ELF file, with bounds on the cost of a hostile file.
//!
//! The file is one that the server maps: whoever controls the server controls its content. `object` parses
//! the structures. Names are compared here, since `object` reads a name to its end, however far away that is.

use object::NativeEndian;
use object::elf::{FileHeader64, PT_LOAD, SHT_DYNSYM, Sym64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, Sym};
use object::read::{ReadCache, ReadRef};
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

type Header = FileHeader64<NativeEndian>;

/// Bytes read of one file at most. mariadbd 10.11 has 1.9 MB of exported symbols with their names, and little more is read.
const MAX_READ: u64 = 64 << 20;

/// Offsets of these functions in a file. `None`: it is no ELF file of this machine, does not export all of them, or would take
/// more than 64 MiB to read.
pub fn function_offsets<const N: usize>(path: &Path, names: [&str; N]) -> Option<[u64; N]> {
    // The file may have been replaced by a pipe, on which a plain open waits for a writer.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let (cache, left) = (ReadCache::new(file), Cell::new(MAX_READ));
    function_offsets_in(BoundedFile { cache: &cache, left: &left }, names)
}

/// Parts of a file, read when they are needed until a number of bytes is used up.
#[derive(Clone, Copy)]
struct BoundedFile<'a> {
    cache: &'a ReadCache<File>,
    left: &'a Cell<u64>,
}

impl BoundedFile<'_> {
    fn spend(self, bytes: u64) -> Result<(), ()> {
        self.left.set(self.left.get().checked_sub(bytes).ok_or(())?);
        Ok(())
    }
}

impl<'a> ReadRef<'a> for BoundedFile<'a> {
    fn len(self) -> Result<u64, ()> {
        self.cache.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.spend(size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.spend(range.end.saturating_sub(range.start))?;
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

fn function_offsets_in<'a, const N: usize>(file: impl ReadRef<'a>, names: [&str; N]) -> Option<[u64; N]> {
    let header = Header::parse(file).ok()?;
    let order = header.endian().ok()?;
    let sections = header.section_headers(order, file).ok()?;
    let symbols = sections.iter().find(|section| section.sh_type(order) == SHT_DYNSYM)?;
    let strings = sections.get(symbols.sh_link(order) as usize)?.data(order, file).ok()?;
    let symbols: &[Sym64<NativeEndian>] = symbols.data_as_array(order, file).ok()?;
    let defined = || symbols.iter().filter(|symbol| !symbol.is_undefined(order));
    let segments = header.program_headers(order, file).ok()?;
    let mut offsets = [0; N];
    for (offset, name) in offsets.iter_mut().zip(names) {
        let symbol = defined().find(|symbol| is_named(strings, symbol.st_name(order), name))?;
        // Where in the file lies what is at this address once it is loaded.
        *offset = segments.iter().filter(|segment| segment.p_type(order) == PT_LOAD).find_map(|segment| {
            let within = symbol.st_value(order).checked_sub(segment.p_vaddr(order))?;
            let within = Some(within).filter(|within| *within < segment.p_filesz(order))?;
            segment.p_offset(order).checked_add(within)
        })?;
    }
    Some(offsets)
}

/// Compares no more bytes than the name has.
fn is_named(strings: &[u8], at: u32, name: &str) -> bool {
    let found = strings.get(at as usize..).and_then(|rest| rest.strip_prefix(name.as_bytes()));
    found.is_some_and(|rest| rest.first() == Some(&0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::fs::FileExt;
    use std::time::{Duration, Instant};

    /// A file with one segment (file 0x1000 at address 0x5000), symbols and their strings.
    fn example() -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        let mut put = |at: usize, value: u64, size: usize| {
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
        };
        for (at, value, size) in [
            (0, 0x464c_457f, 4),
            (4, 2, 1),
            (5, 1, 1),
            (6, 1, 1),
            // Segments at 64, one of 56 bytes; sections at 128, three of 64 bytes.
            (32, 64, 8),
            (40, 128, 8),
            (54, 56, 2),
            (56, 1, 2),
            (58, 64, 2),
            (60, 3, 2),
            (64, 1, 4),
            (72, 0x1000, 8),
            (80, 0x5000, 8),
            (96, 0x800, 8),
            // Section 1: symbols at 400, three of 24 bytes; their strings in section 2, at 500.
            (196, 11, 4),
            (216, 400, 8),
            (224, 72, 8),
            (232, 2, 4),
            (248, 24, 8),
            (260, 3, 4),
            (280, 500, 8),
            (288, 30, 8),
            // Elsewhere's `read`, our `write` and `read`.
            (400, 1, 4),
            (424, 6, 4),
            (430, 1, 2),
            (432, 0x5020, 8),
            (448, 1, 4),
            (454, 1, 2),
            (456, 0x5040, 8),
        ] {
            put(at, value, size);
        }
        bytes[500..512].copy_from_slice(b"\0read\0write\0");
        bytes
    }

    #[test]
    fn exported_functions_are_found_where_they_lie_in_the_file() {
        let found = |bytes: &[u8], names| function_offsets_in(bytes, names);
        assert_eq!(found(&example(), ["read", "write"]), Some([0x1040, 0x1020]));
        assert_eq!(found(&example(), ["read", "wri"]), None);
        assert_eq!(found(b"#!/bin/sh\n", ["read", "write"]), None);
    }

    proptest! {
        #[test]
        fn damaged_files_have_an_answer(at in 0usize..1024, value in any::<u64>(), keep in 0usize..=1024) {
            let mut bytes = example();
            let end = (at + 8).min(1024);
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            bytes.truncate(keep);
            let _ = function_offsets_in(&bytes[..], ["read", "write"]);
        }
    }

    /// A file on disk of `length` bytes, most of them never written, with these changes to the example.
    fn file_of(length: u64, changes: &[(u64, u64, usize)]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().write_all_at(&example(), 0).unwrap();
        for &(at, value, size) in changes {
            file.as_file().write_all_at(&value.to_le_bytes()[..size], at).unwrap();
        }
        file.as_file().set_len(length).unwrap();
        file
    }

    #[test]
    fn a_file_is_read_in_parts_and_one_that_claims_too_much_is_refused() {
        const HUGE: u64 = 1 << 40;
        let found = |changes| function_offsets(file_of(HUGE, changes).path(), ["read", "write"]);
        assert_eq!(found(&[]), Some([0x1040, 0x1020]), "what is not needed is not read");
        assert_eq!(found(&[(224, 24 << 30, 8)]), None, "symbols of 24 GiB");
        assert_eq!(found(&[(288, 1 << 39, 8)]), None, "strings of 512 GiB");
        assert_eq!(
            found(&[(60, 0, 2), (160, 1 << 31, 8)]),
            None,
            "sections of 128 GiB, counted in section 0"
        );
        assert_eq!(found(&[(56, 0xffff, 2), (172, 1 << 31, 4)]), None, "segments of 112 GiB, likewise");
        assert_eq!(found(&[(224, 33 << 20, 8), (288, 33 << 20, 8)]), None, "too much together");
    }

    #[test]
    fn a_file_of_names_without_an_end_takes_no_longer_than_another() {
        // A million symbols at 1 MiB, whose names begin at 32 MiB and would be 30 MiB long.
        let changes = [(216, 1 << 20, 8), (224, 24 << 20, 8), (280, 32 << 20, 8), (288, 30 << 20, 8)];
        let file = file_of(64 << 20, &changes);
        let symbol = [1, 0, 0, 0, 2, 0, 1, 0].into_iter().chain([0; 16]);
        let symbols: Vec<u8> = symbol.cycle().take(24 << 20).collect();
        file.as_file().write_all_at(&symbols, 1 << 20).unwrap();
        file.as_file().write_all_at(&vec![b'r'; 30 << 20], 32 << 20).unwrap();
        let began = Instant::now();
        assert_eq!(function_offsets(file.path(), ["read", "write"]), None);
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    }

    #[test]
    fn a_pipe_or_a_directory_in_place_of_the_file_is_no_library() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("libssl.so.3");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(function_offsets(&pipe, ["read"]), None);
        assert_eq!(function_offsets(dir.path(), ["read"]), None);
    }

    #[test]
    fn a_library_of_this_host_is_read() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path =
            maps.lines().filter_map(|line| line.split_once('/')).find(|(_, path)| path.contains("libc.so"));
        let Some((_, path)) = path else {
            return eprintln!("skipped: this test is linked without a shared libc");
        };
        let path = format!("/{path}");
        assert!(function_offsets(Path::new(&path), ["recv", "send"]).is_some(), "{path}");
    }
}
