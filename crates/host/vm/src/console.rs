//! Lines of a machine's console, and the exit status among them.

/// Longer lines are handed on in pieces of this many bytes.
const MAX_LINE_BYTES: usize = 4096;
/// What the machine writes before the command's exit status. No text begins with a record separator.
pub const STATUS_MARK: &str = "\u{1e}toll-status ";

/// Splitter of a byte stream into lines.
#[derive(Debug, Default)]
pub struct LineSplitter {
    partial: Vec<u8>,
}

impl LineSplitter {
    /// Hands on each line that is complete now, without its end.
    pub fn push(&mut self, bytes: &[u8], mut line: impl FnMut(String)) {
        for &byte in bytes {
            if byte == b'\n' || self.partial.len() == MAX_LINE_BYTES {
                line(self.take());
            }
            if byte != b'\n' {
                self.partial.push(byte);
            }
        }
    }

    /// The last line, where it has no end.
    pub fn finish(&mut self) -> Option<String> {
        (!self.partial.is_empty()).then(|| self.take())
    }

    fn take(&mut self) -> String {
        let line = String::from_utf8_lossy(&self.partial).trim_end_matches('\r').to_owned();
        self.partial.clear();
        line
    }
}

/// A line of the console, parsed.
#[derive(Debug, PartialEq, Eq)]
pub enum ConsoleLine<'a> {
    Text(&'a str),
    /// The command's exit status, and the end of its output where that did not end with a line's end.
    Status(i32, &'a str),
}

impl<'a> ConsoleLine<'a> {
    pub fn parse(line: &'a str) -> Self {
        let status = line.split_once(STATUS_MARK);
        match status.and_then(|(before, status)| Some((status.trim().parse().ok()?, before))) {
            Some((status, before)) => Self::Status(status, before),
            None => Self::Text(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(pieces: &[&[u8]]) -> Vec<String> {
        let (mut splitter, mut lines) = (LineSplitter::default(), Vec::new());
        for piece in pieces {
            splitter.push(piece, |line| lines.push(line));
        }
        lines.extend(splitter.finish());
        lines
    }

    #[test]
    fn lines_are_whole_however_the_bytes_arrive() {
        let whole = split(&[b"one\r\n\ntwo \xff\nthree"]);
        assert_eq!(whole, ["one", "", "two \u{fffd}", "three"]);
        assert_eq!(split(&[b"on", b"e\r", b"\n\ntwo \xff", b"\nthree"]), whole);
    }

    #[test]
    fn a_line_without_end_is_handed_on_in_pieces() {
        let lines = split(&[&vec![b'x'; 2 * MAX_LINE_BYTES + 1], b"\ny\n"]);
        let lengths: Vec<_> = lines.iter().map(String::len).collect();
        assert_eq!(lengths, [MAX_LINE_BYTES, MAX_LINE_BYTES, 1, 1]);
        assert_eq!(split(&[&vec![b'x'; MAX_LINE_BYTES], b"\n"]).len(), 1, "not an empty one besides");
    }

    #[test]
    fn a_status_is_found_behind_output_that_has_no_line_end() {
        assert_eq!(ConsoleLine::parse("\u{1e}toll-status 3"), ConsoleLine::Status(3, ""));
        assert_eq!(ConsoleLine::parse("50%\u{1e}toll-status 137"), ConsoleLine::Status(137, "50%"));
        for text in ["toll-status 3", "\u{1e}toll-status x", ""] {
            assert_eq!(ConsoleLine::parse(text), ConsoleLine::Text(text));
        }
    }
}
