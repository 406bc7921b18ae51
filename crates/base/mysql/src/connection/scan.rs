//! Scanner that finds the end and the error of a response without storing its rows.
//!
//! Accepts pieces of any size. Rows are counted, never decoded. Invalid bytes give [`ScanStatus::Corrupt`], never a
//! panic.

use super::error::ServerError;
use super::rows::{ResultFormat, parse_column_count, parse_error, parse_ok};
use toll_wire::protocol::MAX_PAYLOAD;
use toll_wire::protocol::status::SERVER_MORE_RESULTS_EXISTS;

/// Longest OK, EOF or ERR packet that is believed: their texts are short.
const MAX_STATUS_PACKET: usize = 1 << 16;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanStatus {
    /// The response goes on: read more.
    Incomplete,
    /// All of it has been seen.
    Ok,
    /// The server answered (or ended the rows) with an error.
    Failed(Box<ServerError>),
    Corrupt(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The first packet of a result.
    First,
    /// So many column definitions are still to come.
    Columns(u64),
    /// An EOF packet ends the columns (servers without DEPRECATE_EOF).
    ColumnsEnd,
    Rows,
}

/// Follows one response after the other.
#[derive(Debug, Clone)]
pub struct ResponseScanner {
    phase: Phase,
    /// Bytes of a packet's payload that are still to pass by.
    skip: usize,
    /// The packet before was full: the next one continues it.
    continued: bool,
    result_format: ResultFormat,
}

impl ResponseScanner {
    pub fn new(form: ResultFormat) -> Self {
        Self { phase: Phase::First, skip: 0, continued: false, result_format: form }
    }

    /// Looks at what has come; answers how much of it is done with.
    #[inline]
    pub fn scan(&mut self, bytes: &[u8]) -> (usize, ScanStatus) {
        let mut at = 0;
        loop {
            if self.skip > 0 {
                let n = self.skip.min(bytes.len() - at);
                at += n;
                self.skip -= n;
                if self.skip > 0 {
                    return (at, ScanStatus::Incomplete);
                }
            }
            let Some(&[a, b, c, _]) = bytes[at..].first_chunk::<4>() else {
                return (at, ScanStatus::Incomplete);
            };
            let length = usize::from(a) | usize::from(b) << 8 | usize::from(c) << 16;
            if self.continued {
                self.continued = length == MAX_PAYLOAD;
                self.skip = length;
                at += 4;
                continue;
            }
            if length == 0 {
                return (at, ScanStatus::Corrupt("an empty packet"));
            }
            let Some(&kind) = bytes.get(at + 4) else {
                return (at, ScanStatus::Incomplete);
            };
            if self.is_skippable(kind, length) {
                self.continued = length == MAX_PAYLOAD;
                self.skip = length;
                at += 4;
                continue;
            }
            if length > MAX_STATUS_PACKET {
                return (at, ScanStatus::Corrupt("a status packet larger than 64 KiB"));
            }
            let Some(payload) = bytes.get(at + 4..at + 4 + length) else {
                return (at, ScanStatus::Incomplete);
            };
            at += 4 + length;
            match self.parse_status_packet(kind, payload) {
                ScanStatus::Incomplete => {}
                end => {
                    self.phase = Phase::First;
                    return (at, end);
                }
            }
        }
    }

    /// True for a column definition or a row: the scanner skips it.
    #[inline]
    fn is_skippable(&mut self, kind: u8, length: usize) -> bool {
        match self.phase {
            Phase::Columns(left) if kind != 0xff => {
                self.phase = match left {
                    0 | 1 if self.result_format.deprecate_eof => Phase::Rows,
                    0 | 1 => Phase::ColumnsEnd,
                    _ => Phase::Columns(left - 1),
                };
                true
            }
            Phase::Rows => match kind {
                0xff => false,
                // 0xfe also begins a row whose first value is 16 MiB or more.
                0xfe => length >= if self.result_format.deprecate_eof { MAX_PAYLOAD } else { 9 },
                _ => true,
            },
            _ => false,
        }
    }

    fn parse_status_packet(&mut self, kind: u8, payload: &[u8]) -> ScanStatus {
        if kind == 0xff {
            return ScanStatus::Failed(Box::new(parse_error(payload)));
        }
        match self.phase {
            Phase::First if kind == 0xfb => {
                ScanStatus::Corrupt("a request for a local file, which nobody offered")
            }
            Phase::First if kind != 0x00 => match parse_column_count(payload, self.result_format) {
                Some((columns, described)) if columns > 0 => {
                    self.phase = match (described, self.result_format.deprecate_eof) {
                        (true, _) => Phase::Columns(columns),
                        (false, true) => Phase::Rows,
                        (false, false) => Phase::ColumnsEnd,
                    };
                    ScanStatus::Incomplete
                }
                _ => ScanStatus::Corrupt("no column count"),
            },
            Phase::ColumnsEnd if kind == 0xfe => {
                self.phase = Phase::Rows;
                ScanStatus::Incomplete
            }
            Phase::First | Phase::Rows => {
                // In the first packet an OK is never in the old EOF form.
                let as_ok = self.result_format.deprecate_eof || self.phase == Phase::First;
                match parse_ok(payload, as_ok) {
                    Some(done) if done.status & SERVER_MORE_RESULTS_EXISTS != 0 => {
                        self.phase = Phase::First;
                        ScanStatus::Incomplete
                    }
                    Some(_) => ScanStatus::Ok,
                    None => ScanStatus::Corrupt("a status packet cut short"),
                }
            }
            Phase::Columns(_) | Phase::ColumnsEnd => ScanStatus::Corrupt("a status packet among columns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use toll_wire::protocol::put_packets;

    const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
    const OK_MORE: &[u8] = &[0, 0, 0, 10, 0, 0, 0];

    fn response(packets: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut sequence = 1;
        for packet in packets {
            sequence = put_packets(&mut out, sequence, packet);
        }
        out
    }

    /// Feeds the bytes in pieces of `cut`, as a connection would; returns the end that was found.
    fn fed(bytes: &[u8], cut: usize, deprecate_eof: bool) -> (usize, ScanStatus) {
        fed_in(ResultFormat { deprecate_eof, cached_columns: false }, bytes, cut)
    }

    fn fed_in(form: ResultFormat, bytes: &[u8], cut: usize) -> (usize, ScanStatus) {
        let mut scanner = ResponseScanner::new(form);
        let (mut held, mut done) = (Vec::new(), 0);
        for piece in bytes.chunks(cut) {
            held.extend_from_slice(piece);
            let (n, end) = scanner.scan(&held);
            held.drain(..n);
            done += n;
            if end != ScanStatus::Incomplete {
                return (done, end);
            }
        }
        (done, ScanStatus::Incomplete)
    }

    fn rows(deprecate_eof: bool) -> Vec<u8> {
        let end: &[u8] = if deprecate_eof { &[0xfe, 0, 0, 2, 0, 0, 0] } else { &[0xfe, 0, 0, 2, 0] };
        let mut packets: Vec<&[u8]> = vec![&[2], b"\x03def...", b"\x03def..."];
        if !deprecate_eof {
            packets.push(end);
        }
        packets.extend([b"\x00row one".as_slice(), b"\xfb\xfb", end]);
        response(&packets)
    }

    #[test]
    fn every_kind_of_end_is_found_however_the_bytes_are_cut() {
        let error = b"\xff\x7a\x04#42S02no such table".as_slice();
        let named = |end: ScanStatus| match end {
            ScanStatus::Failed(e) => format!("{} {} {}", e.code, e.state, e.message),
            other => format!("{other:?}"),
        };
        for cut in [1, 2, 3, 7, 1 << 20] {
            for (bytes, deprecate_eof, expected) in [
                (response(&[OK]), true, "Ok"),
                (rows(true), true, "Ok"),
                (rows(false), false, "Ok"),
                (response(&[error]), true, "1146 42S02 no such table"),
                (response(&[&[1], b"\x03def", b"\x00row", error]), true, "1146 42S02 no such table"),
                ([response(&[OK_MORE]), rows(true)].concat().split_off(0), true, "Ok"),
                (response(&[OK_MORE, error]), true, "1146 42S02 no such table"),
            ] {
                let (n, end) = fed(&bytes, cut, deprecate_eof);
                assert_eq!((n, named(end).as_str()), (bytes.len(), expected), "cut {cut}");
            }
        }
    }

    #[test]
    fn columns_that_are_not_described_again_are_not_waited_for() {
        for cut in [1, 5, 1 << 20] {
            for deprecate_eof in [true, false] {
                let form = ResultFormat { deprecate_eof, cached_columns: true };
                let end: &[u8] = if deprecate_eof { &[0xfe, 0, 0, 2, 0, 0, 0] } else { &[0xfe, 0, 0, 2, 0] };
                let between: &[&[u8]] = if deprecate_eof { &[] } else { &[end] };
                for (count, columns) in [([1, 0], None), ([1, 1], Some(b"\x03def".as_slice()))] {
                    let first = [&[count.as_slice()], columns.as_slice(), between].concat();
                    let bytes = response(&[&first[..], &[b"\x00row", end]].concat());
                    assert_eq!(
                        fed_in(form, &bytes, cut),
                        (bytes.len(), ScanStatus::Ok),
                        "{form:?} {count:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_row_larger_than_a_packet_passes_by() {
        let mut huge = vec![0xfe; MAX_PAYLOAD + 100];
        huge[1..9].copy_from_slice(&((MAX_PAYLOAD + 91) as u64).to_le_bytes());
        let bytes = response(&[&[1], b"\x03def", &huge, &[0xfe, 0, 0, 2, 0, 0, 0]]);
        assert_eq!(fed(&bytes, 50_000, true), (bytes.len(), ScanStatus::Ok));
    }

    #[test]
    fn nonsense_is_corrupt() {
        for bad in
            [response(&[&[]]), response(&[&[0xfb, 1]]), response(&[&[0]]), vec![0xff, 0xff, 0xff, 1, 0]]
        {
            assert!(matches!(fed(&bad, 100, true).1, ScanStatus::Corrupt(_)), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_scanned_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 1..50usize, deprecate_eof: bool
        ) {
            fed(&bytes, cut, deprecate_eof);
        }

        #[test]
        fn a_damaged_response_never_panics(at in 0..60usize, to: u8, cut in 1..50usize) {
            let mut bytes = rows(true);
            let at = at % bytes.len();
            bytes[at] = to;
            fed(&bytes, cut, true);
        }
    }
}
