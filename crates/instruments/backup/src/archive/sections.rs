//! Splitter of a dump's stream by table.
//!
//! Parses the output of `mariadb-dump` and `mysqldump`: comments outside of quoted text name what follows.
//! Quotes are tracked byte by byte. So nothing in a row, a name or a view's text can pass for such a comment
//! or a line end. Never holds more than the beginning of a line.

use memchr::{memchr, memchr2, memchr3};
use serde::{Deserialize, Serialize};
use toll_store::{Error, Result};

/// Kind of a section of a dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SectionKind {
    /// Settings of the session that everything else relies on.
    Head,
    /// Makes a schema, and goes into it.
    Database,
    Sequence,
    Table,
    /// Stands for a view until all tables are there.
    Placeholder,
    View,
    /// Settings put back, and the line that says that the dump is whole.
    Tail,
    /// Triggers, routines and events: free text, never split.
    Bodies,
}

/// A part of a dump, from its comment to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    pub kind: SectionKind,
    /// Empty in head and tail.
    pub schema: String,
    /// Empty where it is about no single object.
    pub name: String,
}

/// Bytes of one line, whole or in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionPart<'a> {
    pub bytes: &'a [u8],
    /// With these the line is whole: a statement's text may hold line ends, which end nothing.
    pub ends: bool,
    /// The line is a row.
    pub is_row: bool,
}

/// Consumer of the parts, in the order of the dump.
pub trait SectionSink {
    fn begin(&mut self, section: Section) -> Result<()>;
    fn part(&mut self, part: SectionPart<'_>) -> Result<()>;
}

/// As much of a line as decides what it is: the longest name (64 characters of 4 bytes, each newline
/// or backquote of which takes more) and the words before it fit in.
const HEAD: usize = 1024;
/// Comments and blank lines before the statement that they announce.
const HELD_MAX: usize = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LexState {
    /// So many dashes since the line began.
    Begin(u8),
    Plain,
    Text,
    Escape,
    Name,
    Comment,
}

#[derive(Debug, Clone, Copy)]
enum LineKind {
    /// Not enough of it was seen.
    Unknown,
    /// It has begun, and goes on.
    Known { is_row: bool },
}

/// Splits one dump.
#[derive(Debug)]
pub struct SectionSplitter {
    lex_state: LexState,
    line_kind: LineKind,
    /// The line's beginning, while it is unknown.
    head: Vec<u8>,
    /// Whole lines that belong to what follows.
    held: Vec<u8>,
    /// A comment has announced it; its name comes with the first statement.
    announced: Option<SectionKind>,
    schema: String,
    section_open: bool,
    complete: bool,
}

impl Default for SectionSplitter {
    fn default() -> Self {
        Self {
            lex_state: LexState::Begin(0),
            line_kind: LineKind::Unknown,
            head: Vec::new(),
            held: Vec::new(),
            announced: None,
            schema: String::new(),
            section_open: false,
            complete: false,
        }
    }
}

impl SectionSplitter {
    /// Takes the next bytes, however many.
    pub fn feed(&mut self, bytes: &[u8], sink: &mut impl SectionSink) -> Result<()> {
        let mut from = 0;
        while let Some(length) = self.line_end(&bytes[from..]) {
            self.write_part(&bytes[from..from + length], true, sink)?;
            from += length;
        }
        self.write_part(&bytes[from..], false, sink)
    }

    /// To be called at the end of the stream. An error if the dump's last line does not say that it is whole.
    pub fn finish(mut self, sink: &mut impl SectionSink) -> Result<()> {
        if !self.head.is_empty() {
            let line = std::mem::take(&mut self.head);
            self.write_line(&line, false, sink)?;
        }
        if let Some(kind) = self.announced.take() {
            self.begin_section(kind, String::new(), sink)?;
        }
        self.release_held(sink)?;
        if !self.complete {
            return Err(Error::Incomplete("the line \"-- Dump completed\" is missing".into()));
        }
        Ok(())
    }

    /// How far the line goes on in these bytes, if it ends in them.
    fn line_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let (to, lexed) = match self.lex_state {
                LexState::Begin(dashes) => match (rest[0], dashes) {
                    (b'-', 0) => (Some(0), LexState::Begin(1)),
                    (b'-', _) => (Some(0), LexState::Comment),
                    _ => {
                        self.lex_state = LexState::Plain;
                        continue;
                    }
                },
                LexState::Plain => {
                    let to = memchr3(b'\'', b'`', b'\n', rest);
                    (
                        to,
                        match to.map(|to| rest[to]) {
                            Some(b'\'') => LexState::Text,
                            Some(b'`') => LexState::Name,
                            _ => LexState::Begin(0),
                        },
                    )
                }
                LexState::Text => {
                    let to = memchr2(b'\'', b'\\', rest);
                    (
                        to,
                        if to.is_some_and(|to| rest[to] == b'\\') {
                            LexState::Escape
                        } else {
                            LexState::Plain
                        },
                    )
                }
                LexState::Escape => (Some(0), LexState::Text),
                // A doubled one ends the name and begins it anew, which comes to the same.
                LexState::Name => (memchr(b'`', rest), LexState::Plain),
                LexState::Comment => (memchr(b'\n', rest), LexState::Begin(0)),
            };
            let to = to?;
            let line_ends = lexed == LexState::Begin(0);
            self.lex_state = lexed;
            at += to + 1;
            if line_ends {
                return Some(at);
            }
        }
        None
    }

    fn write_part(&mut self, bytes: &[u8], ends: bool, sink: &mut impl SectionSink) -> Result<()> {
        if let LineKind::Known { is_row } = self.line_kind {
            if ends {
                self.line_kind = LineKind::Unknown;
            }
            return if bytes.is_empty() { Ok(()) } else { sink.part(SectionPart { bytes, ends, is_row }) };
        }
        if ends && self.head.is_empty() {
            return self.write_line(bytes, true, sink);
        }
        self.head.extend_from_slice(bytes);
        if ends || self.head.len() >= HEAD {
            let mut line = std::mem::take(&mut self.head);
            self.write_line(&line, ends, sink)?;
            line.clear();
            self.head = line;
        }
        Ok(())
    }

    /// A whole line, or so much of one that it is known what it is.
    fn write_line(&mut self, line: &[u8], ends: bool, sink: &mut impl SectionSink) -> Result<()> {
        if ends && is_comment_or_blank(line) && self.held.len() < HELD_MAX {
            self.complete |= line.starts_with(b"-- Dump completed");
            if let Some(kind) = announced_kind(line) {
                // Two announcements without a statement between them: the first is about nothing.
                self.announced = Some(kind);
            }
            self.held.extend_from_slice(line);
            return Ok(());
        }
        // Whatever comes after the last line says that it was not the last.
        self.complete = false;
        if let Some(kind) = self.announced.take() {
            self.begin_section(kind, first_name(line), sink)?;
        } else if line.starts_with(b"/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE") {
            self.schema.clear();
            self.begin_section(SectionKind::Tail, String::new(), sink)?;
        }
        self.release_held(sink)?;
        let is_row = line.starts_with(b"INSERT INTO ");
        if !ends {
            self.line_kind = LineKind::Known { is_row };
        }
        sink.part(SectionPart { bytes: line, ends, is_row })
    }

    fn begin_section(&mut self, kind: SectionKind, name: String, sink: &mut impl SectionSink) -> Result<()> {
        self.section_open = true;
        if kind == SectionKind::Database {
            self.schema = name;
            return sink.begin(Section { kind, schema: self.schema.clone(), name: String::new() });
        }
        sink.begin(Section { kind, schema: self.schema.clone(), name })
    }

    fn release_held(&mut self, sink: &mut impl SectionSink) -> Result<()> {
        if !self.section_open {
            self.begin_section(SectionKind::Head, String::new(), sink)?;
        }
        for line in self.held.split_inclusive(|&byte| byte == b'\n') {
            sink.part(SectionPart { bytes: line, ends: true, is_row: false })?;
        }
        self.held.clear();
        Ok(())
    }
}

fn is_comment_or_blank(line: &[u8]) -> bool {
    line == b"\n" || line.starts_with(b"--")
}

fn announced_kind(comment: &[u8]) -> Option<SectionKind> {
    // As MariaDB's and MySQL's programs write them, those of MySQL 5.7 and 8 with "view structure".
    const WORDS: [(&[u8], SectionKind); 6] = [
        (b"-- Current Database: ", SectionKind::Database),
        (b"-- Sequence structure for ", SectionKind::Sequence),
        (b"-- Table structure for table ", SectionKind::Table),
        (b"-- Temporary table structure for view ", SectionKind::Placeholder),
        (b"-- Temporary view structure for view ", SectionKind::Placeholder),
        (b"-- Final view structure for view ", SectionKind::View),
    ];
    WORDS.iter().find(|(words, _)| comment.starts_with(words)).map(|(_, kind)| *kind)
}

/// The first name between backquotes, without them; empty where there is none.
fn first_name(line: &[u8]) -> String {
    let Some(from) = memchr(b'`', line) else { return String::new() };
    let mut name = Vec::new();
    let mut rest = &line[from + 1..];
    while let Some(to) = memchr(b'`', rest) {
        name.extend_from_slice(&rest[..to]);
        rest = &rest[to + 1..];
        if rest.first() != Some(&b'`') {
            break;
        }
        name.push(b'`');
        rest = &rest[1..];
    }
    String::from_utf8_lossy(&name).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        sections: Vec<(Section, Vec<u8>)>,
        /// Rows of each section.
        rows: Vec<u64>,
    }

    impl SectionSink for Seen {
        fn begin(&mut self, section: Section) -> Result<()> {
            self.sections.push((section, Vec::new()));
            self.rows.push(0);
            Ok(())
        }

        fn part(&mut self, part: SectionPart<'_>) -> Result<()> {
            self.sections.last_mut().unwrap().1.extend_from_slice(part.bytes);
            *self.rows.last_mut().unwrap() += u64::from(part.is_row && part.ends);
            Ok(())
        }
    }

    fn split(dump: &[u8], step: usize) -> (Seen, Result<()>) {
        let mut seen = Seen::default();
        let mut sections = SectionSplitter::default();
        for chunk in dump.chunks(step) {
            sections.feed(chunk, &mut seen).unwrap();
        }
        let end = sections.finish(&mut seen);
        (seen, end)
    }

    const DUMP: &str = "/*M!999999\\- enable the sandbox mode */ \n-- MariaDB dump 10.19\n--\n-- Host: localhost    Database: it's\n\
        \n/*!40101 SET NAMES utf8mb4 */;\n/*!40103 SET TIME_ZONE='+00:00' */;\n\n--\n-- Current Database: `it's`\n--\n\n\
        CREATE DATABASE /*!32312 IF NOT EXISTS*/ `it's` /*!40100 DEFAULT CHARACTER SET utf8mb4 */;\n\nUSE `it's`;\n\n\
        --\n-- Table structure for table `a``b`\n--\n\nDROP TABLE IF EXISTS `a``b`;\nCREATE TABLE `a``b` (\n  `x` int\n);\n\n\
        --\n-- Dumping data for table `a``b`\n--\n\nINSERT INTO `a``b` VALUES (1,'\\n-- Table structure for table `c`\\'');\n\
        INSERT INTO `a``b` VALUES (2,'`');\n\n\
        --\n-- Table structure for table `n\n-- -- Table structure for table `q`\n--\n\nDROP TABLE IF EXISTS `n\n-- Table structure for table ``q`;\n\
        INSERT INTO `n\n-- Table structure for table ``q` VALUES (1);\n\
        --\n-- Temporary table structure for view `v`\n--\n\nDROP TABLE IF EXISTS `v`;\n\
        --\n-- Current Database: `it's`\n--\n\nUSE `it's`;\n\n--\n-- Final view structure for view `v`\n--\n\n\
        /*!50001 DROP VIEW IF EXISTS `v`*/;\n/*!50001 VIEW `v` AS select '\n-- Table structure for table `z`\n' */;\n\
        /*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;\n\n-- Dump completed\n";

    #[test]
    fn a_dump_is_split_by_what_it_announces_whatever_names_and_rows_hold() {
        let (seen, end) = split(DUMP.as_bytes(), 7);
        end.unwrap();
        let found: Vec<(SectionKind, &str, &str)> =
            seen.sections.iter().map(|(s, _)| (s.kind, s.schema.as_str(), s.name.as_str())).collect();
        assert_eq!(
            found,
            [
                (SectionKind::Head, "", ""),
                (SectionKind::Database, "it's", ""),
                (SectionKind::Table, "it's", "a`b"),
                (SectionKind::Table, "it's", "n\n-- Table structure for table `q"),
                (SectionKind::Placeholder, "it's", "v"),
                (SectionKind::Database, "it's", ""),
                (SectionKind::View, "it's", "v"),
                (SectionKind::Tail, "", ""),
            ]
        );
        assert_eq!(seen.rows, [0, 0, 2, 1, 0, 0, 0, 0]);
        assert!(
            seen.sections[2].1.starts_with(b"--\n-- Table structure")
                || seen.sections[2].1.starts_with(b"\n--\n")
        );
        let together: Vec<u8> = seen.sections.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        assert_eq!(String::from_utf8_lossy(&together), DUMP);
    }

    #[test]
    fn a_table_that_is_last_reads_as_it_does_when_it_is_not() {
        let table = "--\n-- Table structure for table `a`\n--\n\nDROP TABLE IF EXISTS `a`;\n";
        let other = "--\n-- Table structure for table `b`\n--\n\nDROP TABLE IF EXISTS `b`;\n";
        let tail = "/*!40103 SET TIME_ZONE=@OLD_TIME_ZONE */;\n-- Dump completed\n";
        let of_a = |dump: String| split(dump.as_bytes(), 1000).0.sections.swap_remove(0).1;
        assert_eq!(of_a(format!("{table}{other}{tail}")), of_a(format!("{table}{tail}")));
    }

    #[test]
    fn a_dump_that_was_cut_short_is_never_whole() {
        for length in 0..DUMP.len() - 1 {
            // What is cut off the last line's end is not missing from it.
            let is_whole = DUMP[..length].ends_with("-- Dump completed");
            assert!(is_whole || split(&DUMP.as_bytes()[..length], 4096).1.is_err(), "{}", &DUMP[..length]);
        }
        let more = format!("{DUMP}INSERT INTO `t` VALUES (1);\n");
        assert!(split(more.as_bytes(), 4096).1.is_err(), "something follows");
    }

    #[test]
    fn a_row_longer_than_any_buffer_is_one_row() {
        let row = format!("INSERT INTO `t` VALUES ('{}');\n", "a\\'\\\\".repeat(100_000));
        let (seen, _) = split(format!("{row}{row}-- Dump completed\n").as_bytes(), 8191);
        assert_eq!(seen.rows, [2]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_or_moved_whatever_is_fed(
            words in proptest::collection::vec(
                prop_oneof!["['`\\\\\n-]{1,3}", "[a-z ]{1,9}", Just("\n-- Table structure for table `t`\n".to_owned()),
                    Just("\nINSERT INTO `t` VALUES (1);\n".to_owned())], 0..80),
            step in 1usize..50
        ) {
            let dump = words.concat();
            let (seen, _) = split(dump.as_bytes(), step);
            let together: Vec<u8> = seen.sections.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            prop_assert_eq!(together, dump.as_bytes());
            prop_assert_eq!(split(dump.as_bytes(), step).0, split(dump.as_bytes(), usize::MAX).0);
        }

        #[test]
        fn what_a_row_holds_announces_nothing(text in "['`\\\\\n a-z-]{0,60}") {
            let escaped = text.replace('\\', "\\\\").replace('\'', "\\'");
            let dump = format!("INSERT INTO `t` VALUES ('\n-- Table structure for table `x`\n{escaped}');\n\
                --\n-- Table structure for table `t2`\n--\n\nDROP TABLE IF EXISTS `t2`;\n-- Dump completed\n");
            let (seen, end) = split(dump.as_bytes(), 13);
            prop_assert!(end.is_ok());
            let names: Vec<&str> = seen.sections.iter().map(|(s, _)| s.name.as_str()).collect();
            prop_assert_eq!(names, ["", "t2"]);
        }
    }
}
