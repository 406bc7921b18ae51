//! Parser of the kernel's type information (BTF) for tracepoints and structures. Validates all input.
//!
//! Source: the kernel's Documentation/bpf/btf.rst.

use thiserror::Error;

/// Type information that makes no sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BtfError {
    #[error("it does not begin as type information (BTF) of this machine does")]
    NotBtf,
    #[error("it ends before its {0}")]
    Short(&'static str),
    #[error("it holds a type of kind {kind} at byte {at}, which is not known")]
    Kind { kind: u32, at: usize },
}

/// Type information, in memory.
#[derive(Debug, Clone, Copy)]
pub struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
}

const MAGIC: u16 = 0xeb9f;
const HEADER: usize = 24;
/// Name, kind with count and a flag, size or type.
const TYPE: usize = 12;
const KIND_STRUCTURE: u32 = 4;
const KIND_TYPEDEF: u32 = 8;
const KIND_FUNCTION: u32 = 12;
/// Name, type, offset in bits.
const MEMBER: usize = 12;

/// A type, as it is written down.
struct Type<'a> {
    number: u32,
    kind: u32,
    name: u32,
    /// What follows its head.
    rest: &'a [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl<'a> Btf<'a> {
    /// # Errors
    /// It is no BTF, or shorter than it says.
    pub fn new(bytes: &'a [u8]) -> Result<Self, BtfError> {
        let head = bytes.first_chunk::<HEADER>().ok_or(BtfError::NotBtf)?;
        if u16::from_ne_bytes([head[0], head[1]]) != MAGIC {
            return Err(BtfError::NotBtf);
        }
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let after = bytes.get(word(4)..).ok_or(BtfError::Short("header"))?;
        let part = |from: usize, length: usize, name| {
            after.get(from..).and_then(|rest| rest.get(..length)).ok_or(BtfError::Short(name))
        };
        Ok(Self { types: part(word(8), word(12), "types")?, strings: part(word(16), word(20), "strings")? })
    }

    /// The number of a tracepoint's type; `None`: this kernel has no such tracepoint.
    ///
    /// # Errors
    /// The types make no sense before it was found.
    pub fn tracepoint(&self, name: &str) -> Result<Option<u32>, BtfError> {
        let name = format!("btf_trace_{name}");
        Ok(self.find(KIND_TYPEDEF, &name)?.map(|found| found.number))
    }

    /// The number of a function of the kernel; `None`: there is no such one.
    ///
    /// # Errors
    /// The types make no sense before it was found.
    pub fn function(&self, name: &str) -> Result<Option<u32>, BtfError> {
        Ok(self.find(KIND_FUNCTION, name)?.map(|found| found.number))
    }

    /// How many bytes into a structure a member of its own lies; `None`: there is no such one.
    ///
    /// # Errors
    /// The types make no sense before it was found.
    pub fn member(&self, structure: &str, member: &str) -> Result<Option<u32>, BtfError> {
        let Some(found) = self.find(KIND_STRUCTURE, structure)? else { return Ok(None) };
        let mut members = found.rest.chunks_exact(MEMBER);
        let found = members.find(|m| word(m, 0).and_then(|name| self.name(name)) == Some(member.as_bytes()));
        // The upper byte is the width of bit fields, which are not asked for.
        Ok(found.and_then(|m| word(m, 8)).map(|bits| (bits & 0xff_ffff) / 8))
    }

    fn find(&self, kind: u32, name: &str) -> Result<Option<Type<'a>>, BtfError> {
        // Type 0 is void, and is not written down.
        let (mut at, mut number) = (0, 1);
        while at < self.types.len() {
            let found = self.at(at, number)?;
            if found.kind == kind && self.name(found.name) == Some(name.as_bytes()) {
                return Ok(Some(found));
            }
            at += TYPE + found.rest.len();
            number += 1;
        }
        Ok(None)
    }

    fn at(&self, at: usize, number: u32) -> Result<Type<'a>, BtfError> {
        let short = BtfError::Short("types");
        let bytes = self.types.get(at..).ok_or(short)?;
        let (name, info) = (word(bytes, 0).ok_or(short)?, word(bytes, 4).ok_or(short)?);
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let length = after_type(kind, count).ok_or(BtfError::Kind { kind, at })?;
        let rest = bytes.get(TYPE..).and_then(|rest| rest.get(..length)).ok_or(short)?;
        Ok(Type { number, kind, name, rest })
    }

    fn name(&self, offset: u32) -> Option<&'a [u8]> {
        let rest = self.strings.get(offset as usize..)?;
        rest.split(|&byte| byte == 0).next()
    }
}

/// Bytes that follow the head of a type.
fn after_type(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // Pointer, forward, typedef, volatile, const, restrict, function, float, type tag.
        2 | 7..=12 | 16 | 18 => 0,
        // Integer, variable, declaration tag.
        1 | 14 | 17 => 4,
        // Array.
        3 => 12,
        // Enumeration, prototype of a function.
        6 | 13 => 8 * count,
        // Structure, union, section, enumeration of 64 bits.
        4 | 5 | 15 | 19 => 12 * count,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn a_type(name: u32, kind: u32, count: u32, after: usize) -> Vec<u8> {
        let words = [name, kind << 24 | count, 0];
        words.iter().flat_map(|word| word.to_ne_bytes()).chain(std::iter::repeat_n(0xff, after)).collect()
    }

    /// Types of every kind, with two tracepoints and a structure among them.
    fn example() -> Vec<u8> {
        let strings = b"\0btf_trace_sent\0btf_trace_received\0btf_trace_sentinel\0pair\0second\0";
        let mut pair = a_type(54, 4, 2, 0);
        // Its members: no name at 0, `second` after 64 bits.
        for word in [0, 1, 0, 59, 1, 64] {
            pair.extend(u32::to_ne_bytes(word));
        }
        let types = [
            a_type(0, 1, 0, 4),
            a_type(1, 4, 2, 24),
            a_type(0, 13, 3, 24),
            a_type(35, 8, 1, 0),
            a_type(0, 3, 0, 12),
            a_type(0, 6, 1, 8),
            a_type(1, 8, 1, 0),
            a_type(0, 19, 1, 12),
            a_type(0, 17, 0, 4),
            a_type(16, 8, 1, 0),
            a_type(59, 12, 0, 0),
            pair,
        ]
        .concat();
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([1, 0]);
        let [types_len, strings_len] = [types.len() as u32, strings.len() as u32];
        for word in [HEADER as u32, 0, types_len, types_len, strings_len] {
            bytes.extend(word.to_ne_bytes());
        }
        [bytes, types, strings.to_vec()].concat()
    }

    #[test]
    fn tracepoints_and_members_are_found_by_their_whole_names_and_kinds() {
        let bytes = example();
        let btf = Btf::new(&bytes).unwrap();
        let numbers = ["received", "sent", "closed"].map(|name| btf.tracepoint(name).unwrap());
        assert_eq!(numbers, [Some(10), Some(7), None]);
        assert_eq!([btf.function("second").unwrap(), btf.function("pair").unwrap()], [Some(11), None]);
        assert_eq!(btf.member("pair", "second").unwrap(), Some(8));
        assert_eq!(btf.member("pair", "third").unwrap(), None);
        assert_eq!(btf.member("pai", "second").unwrap(), None);
    }

    #[test]
    fn bad_type_information_is_refused_with_a_reason() {
        let whole = example();
        assert_eq!(Btf::new(b"\x7fELF").unwrap_err(), BtfError::NotBtf);
        assert_eq!(Btf::new(&[0; 64]).unwrap_err(), BtfError::NotBtf);
        assert_eq!(Btf::new(&whole[..whole.len() - 1]).unwrap_err(), BtfError::Short("strings"));
        assert_eq!(Btf::new(&whole[..HEADER + 5]).unwrap_err(), BtfError::Short("types"));
        let mut strange = whole.clone();
        strange[HEADER + 7] = 30;
        let error = Btf::new(&strange).unwrap().tracepoint("sent").unwrap_err();
        assert_eq!(error, BtfError::Kind { kind: 30, at: 0 });
        assert_eq!(error.to_string(), "it holds a type of kind 30 at byte 0, which is not known");
    }

    proptest! {
        /// Whatever is read instead, there is an answer: no panic, no endless loop.
        #[test]
        fn damaged_type_information_has_an_answer(
            at in 0usize..400, value in any::<u8>(), keep in 0usize..400, noise in any::<Vec<u8>>()
        ) {
            let mut bytes = example();
            let length = bytes.len();
            bytes[at % length] = value;
            bytes.truncate(keep);
            for bytes in [bytes, noise] {
                if let Ok(btf) = Btf::new(&bytes) {
                    let _ = (btf.tracepoint("received"), btf.member("pair", "second"));
                }
            }
        }
    }

    #[test]
    fn this_kernel_is_read() {
        let Ok(bytes) = std::fs::read("/sys/kernel/btf/vmlinux") else {
            eprintln!("skipped: this kernel gives no type information");
            return;
        };
        let btf = Btf::new(&bytes).unwrap();
        assert!(btf.tracepoint("sys_exit").unwrap().is_some());
        assert_eq!(btf.tracepoint("no_such_tracepoint_of_any_kernel").unwrap(), None);
        assert_eq!(btf.member("list_head", "prev").unwrap(), Some(size_of::<usize>() as u32));
    }
}
