//! Where in a library's file does an exported function begin? Reads, believes nothing.
//!
//! Source: elf(5); 64 bits, in this machine's own order.

/// A section's entry of the table, as far as it counts.
struct Section {
    kind: u32,
    offset: usize,
    size: usize,
    link: usize,
    entry: usize,
}

const DYNAMIC_SYMBOLS: u32 = 11;
const SYMBOL: usize = 24;
const LOAD: u32 = 1;

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?)))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?)).ok()
}

/// Offsets of these functions in the file whose bytes these are. `None`: it is no such file, or exports not all of them.
pub fn functions<const N: usize>(bytes: &[u8], names: [&str; N]) -> Option<[u64; N]> {
    const CLASS_64: u8 = 2;
    let order = if cfg!(target_endian = "little") { 1 } else { 2 };
    if !bytes.starts_with(b"\x7fELF") || bytes.get(4) != Some(&CLASS_64) || bytes.get(5) != Some(&order) {
        return None;
    }
    let (table, size, count) = (long(bytes, 40)?, short(bytes, 58)?, short(bytes, 60)?);
    let section = |number: usize| {
        let head = bytes.get(table.checked_add(number.checked_mul(size)?)?..)?;
        Some(Section {
            kind: word(head, 4)?,
            offset: long(head, 24)?,
            size: long(head, 32)?,
            link: word(head, 40)? as usize,
            entry: long(head, 56)?,
        })
    };
    let content = |section: &Section| bytes.get(section.offset..)?.get(..section.size);
    let symbols = (0..count).filter_map(section).find(|section| section.kind == DYNAMIC_SYMBOLS)?;
    let strings = section(symbols.link)?;
    let strings = content(&strings)?;
    let mut found = [None; N];
    for symbol in content(&symbols)?.chunks_exact(symbols.entry.max(SYMBOL)) {
        // Section 0: another library's.
        let (name, defined, value) = (word(symbol, 0)? as usize, short(symbol, 6)? != 0, long(symbol, 8)?);
        let Some(name) = strings.get(name..).and_then(|rest| rest.split(|&byte| byte == 0).next()) else {
            continue;
        };
        if let Some(at) = names.iter().position(|wanted| wanted.as_bytes() == name).filter(|_| defined) {
            found[at] = found[at].or_else(|| in_file(bytes, value));
        }
    }
    let mut offsets = [0; N];
    for (offset, found) in offsets.iter_mut().zip(found) {
        *offset = found?;
    }
    Some(offsets)
}

/// Where in the file lies what is at this address once it is loaded.
fn in_file(bytes: &[u8], address: usize) -> Option<u64> {
    let (table, size, count) = (long(bytes, 32)?, short(bytes, 54)?, short(bytes, 56)?);
    let segments = (0..count).filter_map(|number| {
        let head = bytes.get(table.checked_add(number.checked_mul(size)?)?..)?;
        let (kind, offset, begin, length) =
            (word(head, 0)?, long(head, 8)?, long(head, 16)?, long(head, 32)?);
        let within = address.checked_sub(begin).filter(|within| kind == LOAD && *within < length)?;
        offset.checked_add(within)
    });
    segments.map(|offset| offset as u64).next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        assert_eq!(functions(&example(), ["read", "write"]), Some([0x1040, 0x1020]));
        assert_eq!(functions(&example(), ["read", "wri"]), None);
        assert_eq!(functions(b"#!/bin/sh\n", ["read"]), None);
    }

    proptest! {
        #[test]
        fn damaged_files_have_an_answer(at in 0usize..1024, value in any::<u64>(), keep in 0usize..=1024) {
            let mut bytes = example();
            let end = (at + 8).min(1024);
            bytes[at..end].copy_from_slice(&value.to_le_bytes()[..end - at]);
            bytes.truncate(keep);
            let _ = functions(&bytes, ["read", "write"]);
        }
    }

    #[test]
    fn a_library_of_this_host_is_read() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path =
            maps.lines().filter_map(|line| line.split_once('/')).find(|(_, path)| path.contains("libc.so"));
        let Some((_, path)) = path else {
            return eprintln!("skipped: this test is linked without a shared libc");
        };
        let bytes = std::fs::read(format!("/{path}")).unwrap();
        assert!(functions(&bytes, ["recv", "send"]).is_some(), "/{path}");
    }
}
