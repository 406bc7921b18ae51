//! Shapes of statements: texts that differ only in literals, told so without their fingerprints.
//!
//! Comparing with a shape reads a text once and builds nothing, which takes a fraction of the time of a fingerprint.

/// What statements of one fingerprint have in common: all of their text but digits and plain literals in single quotes.
/// Statements that fit it have the same fingerprint, however the server reads backslashes.
#[derive(Debug, Clone, Default)]
pub(super) struct Shape {
    /// The text around the literals.
    fixed: Vec<u8>,
    /// Where in `fixed` the literals stand.
    literals: Vec<(usize, Literal)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Literal {
    /// Digits, one at least: a number, or the part of one, or of a name.
    Digits,
    /// What stands between two single quotes.
    Quoted,
}

/// In quotes these end nothing and begin nothing, by any rule. Rules for rows of an INSERT look for parentheses even there.
const IS_PLAIN_IN_QUOTES: [bool; 256] = {
    let mut is_plain = [true; 256];
    let mut byte = 0;
    while byte < 256 {
        is_plain[byte] = byte >= b' ' as usize
            && !matches!(byte as u8, b'\'' | b'"' | b'`' | b'\\' | b'/' | b'#' | b'(' | b')');
        byte += 1;
    }
    is_plain
};

impl Shape {
    /// `None`: its fingerprint may depend on more than what is fixed.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let begin = text.trim_ascii_start();
        let begins_with = |word: &[u8]| begin.get(..word.len()).is_some_and(|b| b.eq_ignore_ascii_case(word));
        // Their fingerprints keep digits, or depend on spaces.
        if [b"call".as_slice(), b"administrator command", b"use"].into_iter().any(begins_with) {
            return None;
        }
        let mut shape = Self::default();
        let (mut at, mut is_in_name) = (0, false);
        while let Some(&byte) = text.get(at) {
            if byte.is_ascii_digit() {
                shape.add_literal(Literal::Digits);
                at += digits(&text[at..]);
                if matches!(text.get(at), Some(b'x' | b'X')) {
                    return None;
                }
                continue;
            }
            let is_plain = match byte {
                b'`' => {
                    is_in_name = !is_in_name;
                    true
                }
                _ if is_in_name => {
                    byte.is_ascii_alphabetic() || matches!(byte, b'_' | b' ' | b'.' | b'$' | 0x80..)
                }
                b'-' => text.get(at + 1) != Some(&b'-'),
                b'\\' | b'/' | b'#' | b'"' => false,
                b'\t' | b'\n' | b'\r' | b' '.. => true,
                _ => false,
            };
            if !is_plain {
                return None;
            }
            shape.fixed.push(byte);
            at += 1;
            if byte == b'\'' {
                at += quoted(&text[at..]);
                if text.get(at) != Some(&b'\'') {
                    return None;
                }
                shape.add_literal(Literal::Quoted);
                shape.fixed.push(b'\'');
                at += 1;
            }
        }
        (!is_in_name).then_some(shape)
    }

    fn add_literal(&mut self, literal: Literal) {
        self.literals.push((self.fixed.len(), literal));
    }

    /// True if `text` has the same fingerprint for certain.
    pub(super) fn fits(&self, text: &[u8]) -> bool {
        let (mut rest, mut fixed) = (text, 0);
        for &(end, literal) in &self.literals {
            let Some(after) = rest.strip_prefix(&self.fixed[fixed..end]) else { return false };
            fixed = end;
            let length = match literal {
                Literal::Digits => digits(after),
                Literal::Quoted => quoted(after),
            };
            if length == 0 && literal == Literal::Digits {
                return false;
            }
            rest = &after[length..];
        }
        rest == &self.fixed[fixed..]
    }
}

/// How many digits `text` begins with.
fn digits(text: &[u8]) -> usize {
    text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len())
}

/// How many bytes are plain in quotes.
fn quoted(text: &[u8]) -> usize {
    let mut last = 0;
    let is_end = |byte: &u8| {
        let is_comment = *byte == b'-' && last == b'-';
        last = *byte;
        is_comment || !IS_PLAIN_IN_QUOTES[usize::from(*byte)]
    };
    text.iter().position(is_end).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toll_wire::fingerprint::{BackslashMode, fingerprint_in_mode};

    /// What statements are made of, and what could be taken for more than it is.
    fn statement() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop::sample::select(vec![
            "select",
            "SELECT ",
            "insert into t ",
            "replace ",
            "values",
            "values (",
            "in",
            "in(",
            " IN (",
            "null",
            "true",
            "1false",
            "null1",
            "union",
            " union all select ",
            "limit",
            " limit 5",
            "offset 7",
            "order by a",
            "asc",
            "x",
            "b",
            "f",
            "e5",
            "a1",
            "0",
            "12",
            "1.5",
            "-",
            "-3",
            "+",
            ".",
            ",",
            "(",
            ")",
            "), (",
            "1,2)",
            ",x'1'",
            "b'1')",
            ",.5",
            "?",
            " ",
            "  ",
            "\n",
            "\t",
            "''",
            "'a'",
            "'it s'",
            "'values'",
            "'d-e'",
            "'1'",
            "`t`",
            "`a1`",
            "`",
            "é",
            "=",
            "use ",
            "call ",
            ";",
            ":",
            "@v1",
            "update t set ",
            "administrator command: ",
            "--",
            "#",
            "\"",
            "\\",
            "/*",
            "*/",
            "0x1F",
        ]);
        prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat().into_bytes())
    }

    fn literals() -> impl Strategy<Value = Vec<(u32, &'static str)>> {
        let quoted = prop::sample::select(vec![
            "",
            "a",
            "0",
            "null",
            "true",
            "values",
            " values ",
            "in",
            "insert into t values",
            "limit 5",
            "x y",
            "-",
            "a-b",
            "?",
            "?,?",
            "select a union select a",
            "call p",
            "use t",
            "é",
            "it.s;",
            "0x1",
            "b",
            "order by a asc",
        ]);
        prop::collection::vec((0..100_000_u32, quoted), 16)
    }

    /// A statement of that shape with other literals.
    fn fill(shape: &Shape, literals: &[(u32, &str)]) -> Vec<u8> {
        let (mut text, mut fixed) = (Vec::new(), 0);
        for ((end, literal), (number, quoted)) in shape.literals.iter().zip(literals.iter().cycle()) {
            text.extend_from_slice(&shape.fixed[fixed..*end]);
            fixed = *end;
            match literal {
                Literal::Digits => text.extend_from_slice(number.to_string().as_bytes()),
                Literal::Quoted => text.extend_from_slice(quoted.as_bytes()),
            }
        }
        text.extend_from_slice(&shape.fixed[fixed..]);
        text
    }

    fn fingerprints(text: &[u8]) -> Vec<String> {
        let modes = [BackslashMode::Unknown, BackslashMode::Escapes, BackslashMode::Plain];
        let of = |text: &[u8], mode| {
            let mut out = Vec::new();
            fingerprint_in_mode(text, mode, &mut out);
            String::from_utf8_lossy(&out).into_owned()
        };
        let prepared = [b"PREPARE ", text].concat();
        modes.into_iter().flat_map(|mode| [of(text, mode), of(&prepared, mode)]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn statements_of_one_shape_have_one_fingerprint(text in statement(), literals in literals()) {
            if let Some(shape) = Shape::of(&text) {
                prop_assert!(shape.fits(&text));
                let other = fill(&shape, &literals);
                if shape.fits(&other) {
                    prop_assert_eq!(
                        fingerprints(&text), fingerprints(&other),
                        "of {:?} and {:?}", String::from_utf8_lossy(&text), String::from_utf8_lossy(&other)
                    );
                }
            }
        }
    }

    #[test]
    fn ordinary_statements_have_shapes() {
        for (text, others) in [
            (
                "SELECT c FROM sbtest1 WHERE id=501",
                ["SELECT c FROM sbtest1 WHERE id=7", "SELECT c FROM sbtest22 WHERE id=0"],
            ),
            (
                "SELECT `u`.* FROM `u` WHERE `u`.`name` = 'ann' LIMIT 1",
                [
                    "SELECT `u`.* FROM `u` WHERE `u`.`name` = 'Bob B.' LIMIT 1",
                    "SELECT `u`.* FROM `u` WHERE `u`.`name` = '' LIMIT 20",
                ],
            ),
            (
                "INSERT INTO t (a, b) VALUES (1, 'x-y', 1.50, NULL)",
                [
                    "INSERT INTO t (a, b) VALUES (22, '2026-01-01 10:00:00', 0.1, NULL)",
                    "INSERT INTO t (a, b) VALUES (3, 'a=b;c', 12.0, NULL)",
                ],
            ),
        ] {
            let shape = Shape::of(text.as_bytes()).unwrap();
            for other in others {
                assert!(shape.fits(other.as_bytes()), "{other}");
            }
        }
    }

    #[test]
    fn what_differs_in_more_than_literals_does_not_fit() {
        let shape = Shape::of(b"SELECT c FROM t WHERE id = 5 AND s = 'a'").unwrap();
        for other in [
            "SELECT c FROM t WHERE id =  5 AND s = 'a'",
            "SELECT c FROM t WHERE id = x AND s = 'a'",
            "SELECT c FROM t WHERE id = 5 AND s = 'a",
            "SELECT c FROM t WHERE id = 5 AND s = 'a' ",
            "SELECT c FROM t WHERE id = 5 AND s = 'a''b'",
            r"SELECT c FROM t WHERE id = 5 AND s = 'a\'b'",
            "SELECT c FROM t WHERE id = 5 AND s = 'a -- b'",
            "SELECT c FROM t WHERE id = 5",
            "",
        ] {
            assert!(!shape.fits(other.as_bytes()), "{other}");
        }
        for text in [
            "CALL p(5)",
            " call p5()",
            "select 0x1f",
            "select \"a\"",
            "select 'a",
            "select 1 -- a",
            "select `a'b'`",
        ] {
            assert!(Shape::of(text.as_bytes()).is_none(), "{text}");
        }
    }
}
