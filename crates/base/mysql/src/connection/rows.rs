//! Result sets of statements, held as text. For small results only: the hot path scans responses instead.

use super::error::{Error, ServerError};
use super::packet_io::{MAX_RESULT_BYTES, PacketIo};
use toll_wire::protocol::status::SERVER_MORE_RESULTS_EXISTS;
use toll_wire::protocol::{FieldReader, MAX_PAYLOAD};

/// A result set, or what an OK packet says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rows {
    /// Empty for a statement that returns no rows.
    pub columns: Vec<String>,
    /// Text protocol: every value as text, `None` for NULL.
    pub rows: Vec<Vec<Option<String>>>,
    pub affected_rows: u64,
    pub last_insert_id: u64,
    pub warnings: u16,
}

impl Rows {
    /// The first value of the first row.
    pub fn scalar(&self) -> Option<&str> {
        self.rows.first()?.first()?.as_deref()
    }

    /// The first two columns as pairs, as SHOW VARIABLES and SHOW STATUS answer.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rows
            .iter()
            .filter_map(|row| Some((row.first()?.as_deref()?, row.get(1)?.as_deref().unwrap_or(""))))
    }

    /// The first row's value in the column of that name, letter case aside.
    pub fn first(&self, name: &str) -> Option<&str> {
        self.rows.first()?.get(self.column(name)?)?.as_deref()
    }

    /// Position of a column by its name, letter case aside.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|c| c.eq_ignore_ascii_case(name))
    }
}

/// Reads an ERR packet's payload; never fails, since an error about an error helps nobody.
pub fn parse_error(payload: &[u8]) -> ServerError {
    let mut fields = FieldReader(payload.get(1..).unwrap_or_default());
    let code = fields.u16().unwrap_or(0);
    let mut rest = fields.0;
    let mut state = "HY000".to_owned();
    if let Some((marked, tail)) = rest.split_at_checked(6)
        && marked[0] == b'#'
    {
        state = String::from_utf8_lossy(&marked[1..]).into_owned();
        rest = tail;
    }
    ServerError { code, state, message: String::from_utf8_lossy(rest).into_owned() }
}

/// What an OK (or EOF) packet ends: counts and the status flags.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OkPacket {
    pub affected_rows: u64,
    pub last_insert_id: u64,
    pub status: u16,
    pub warnings: u16,
}

/// Reads an OK packet, or an EOF packet as they were before MySQL 5.7.5.
pub fn parse_ok(payload: &[u8], deprecate_eof: bool) -> Option<OkPacket> {
    let mut fields = FieldReader(payload);
    if fields.u8()? == 0xfe && !deprecate_eof {
        let warnings = fields.u16()?;
        return Some(OkPacket { warnings, status: fields.u16()?, ..OkPacket::default() });
    }
    Some(OkPacket {
        affected_rows: fields.lenenc()?,
        last_insert_id: fields.lenenc()?,
        status: fields.u16()?,
        warnings: fields.u16()?,
    })
}

/// No statement returns more: MAX_FIELDS of the servers' sql/unireg.h.
const MAX_COLUMNS: u64 = 4096;
/// Memory of a value besides its bytes, and of a row besides its values.
const VALUE_OVERHEAD: usize = size_of::<Option<String>>();
const ROW_OVERHEAD: usize = size_of::<Vec<Option<String>>>();

/// What was agreed on how results look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultFormat {
    /// Row ends are OK packets rather than EOF packets.
    pub deprecate_eof: bool,
    /// A byte behind the column count says whether the columns are described (MariaDB).
    pub cached_columns: bool,
}

/// A column count, and whether descriptions follow it.
pub fn parse_column_count(payload: &[u8], form: ResultFormat) -> Option<(u64, bool)> {
    let mut fields = FieldReader(payload);
    let count = fields.lenenc()?;
    Some((count, !form.cached_columns || fields.u8()? != 0))
}

/// Reads every result of one command; the first is kept, the others only drained.
pub fn read_results(wire: &mut PacketIo, form: ResultFormat) -> Result<Rows, Error> {
    let mut first = None;
    loop {
        let (rows, status) = read_result(wire, form)?;
        let kept = first.get_or_insert(rows);
        if status & SERVER_MORE_RESULTS_EXISTS == 0 {
            return Ok(std::mem::take(kept));
        }
    }
}

const DOING: &str = "reading a result";

fn read_result(wire: &mut PacketIo, form: ResultFormat) -> Result<(Rows, u16), Error> {
    let bad = |detail: &str| Error::protocol(DOING, detail);
    let mut payload = Vec::new();
    let mut next = |payload: &mut Vec<u8>| {
        wire.read_payload(payload, MAX_RESULT_BYTES)
            .map_err(|cause| Error::ConnectionLost { doing: DOING, cause })
    };
    next(&mut payload)?;
    match payload.first() {
        None => return Err(bad("an empty packet")),
        Some(0xff) => return Err(parse_error(&payload).into()),
        Some(0xfb) => return Err(Error::Unsupported("toll does not support LOAD DATA LOCAL".into())),
        Some(0x00) => {
            let done = parse_ok(&payload, true).ok_or_else(|| bad("an OK packet cut short"))?;
            return Ok((rows_from_ok(done), done.status));
        }
        Some(_) => {}
    }
    let deprecate_eof = form.deprecate_eof;
    let (count, described) = parse_column_count(&payload, form).ok_or_else(|| bad("no column count"))?;
    if count > MAX_COLUMNS {
        return Err(bad("more columns than any statement has"));
    }
    let mut rows = Rows::default();
    let mut held = 0;
    let mut hold = |bytes: usize| {
        held += bytes;
        if held > MAX_RESULT_BYTES {
            return Err(Error::Unsupported("a result is larger than 256 MiB: ask for fewer rows".into()));
        }
        Ok(())
    };
    for _ in 0..if described { count } else { 0 } {
        next(&mut payload)?;
        hold(payload.len() + VALUE_OVERHEAD)?;
        let mut fields = FieldReader(&payload);
        // catalog, schema, table, original table; then the name as it was asked for.
        let name = (0..5)
            .map(|_| fields.lenenc_bytes())
            .last()
            .flatten()
            .ok_or_else(|| bad("a column cut short"))?;
        rows.columns.push(String::from_utf8_lossy(name).into_owned());
    }
    if !deprecate_eof {
        next(&mut payload)?;
    }
    loop {
        next(&mut payload)?;
        match payload.first() {
            Some(0xff) => return Err(parse_error(&payload).into()),
            Some(0xfe) if payload.len() < if deprecate_eof { MAX_PAYLOAD } else { 9 } => {
                let done =
                    parse_ok(&payload, deprecate_eof).ok_or_else(|| bad("an end of rows cut short"))?;
                let status = done.status;
                return Ok((Rows { columns: rows.columns, rows: rows.rows, ..rows_from_ok(done) }, status));
            }
            _ => {}
        }
        hold(payload.len() + ROW_OVERHEAD + count as usize * VALUE_OVERHEAD)?;
        let mut fields = FieldReader(&payload);
        let mut row = Vec::with_capacity(rows.columns.len());
        for _ in 0..count {
            if fields.0.first() == Some(&0xfb) {
                fields.u8();
                row.push(None);
            } else {
                let value = fields.lenenc_bytes().ok_or_else(|| bad("a row cut short"))?;
                row.push(Some(String::from_utf8_lossy(value).into_owned()));
            }
        }
        rows.rows.push(row);
    }
}

/// Reads what PREPARE answers and drops the descriptions of parameters and columns.
pub fn read_prepare_response(wire: &mut PacketIo, form: ResultFormat) -> Result<u32, Error> {
    const DOING: &str = "preparing a statement";
    let mut payload = Vec::new();
    let mut next = |payload: &mut Vec<u8>| {
        wire.read_payload(payload, MAX_RESULT_BYTES)
            .map_err(|cause| Error::ConnectionLost { doing: DOING, cause })
    };
    next(&mut payload)?;
    if payload.first() == Some(&0xff) {
        return Err(parse_error(&payload).into());
    }
    let mut fields = FieldReader(&payload);
    let head = (|| Some((fields.u8()?, fields.u32()?, fields.u16()?, fields.u16()?)))();
    let Some((0, id, columns, params)) = head else {
        return Err(Error::protocol(DOING, "an answer cut short"));
    };
    for count in [params, columns] {
        let ends = u32::from(count > 0 && !form.deprecate_eof);
        for _ in 0..u32::from(count) + ends {
            next(&mut payload)?;
        }
    }
    Ok(id)
}

fn rows_from_ok(done: OkPacket) -> Rows {
    Rows {
        affected_rows: done.affected_rows,
        last_insert_id: done.last_insert_id,
        warnings: done.warnings,
        ..Rows::default()
    }
}
