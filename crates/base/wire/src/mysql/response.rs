//! Parser of OK, EOF and error packets, and the state that follows each. Stateless.

use crate::protocol::status::SERVER_SESSION_STATE_CHANGED;
use crate::protocol::{FieldReader, command};

/// Position of the server within a response.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResponseState {
    /// OK, error, a column count or a request for a file.
    #[default]
    Start,
    /// So many column definitions.
    Columns(u64),
    /// An EOF, or the first row, or the end.
    AfterColumns,
    Rows,
    /// OK or error, and nothing more.
    OkOrError,
    /// One packet of any kind.
    SinglePacket,
    /// Column definitions up to an EOF.
    FieldList,
    /// The client sends a file.
    LocalInfile,
    /// OK, error, or another step of authentication.
    Authentication,
    /// The answer to a PREPARE.
    Prepare,
    /// Definitions of the parameters and then of the columns of a statement.
    Definitions {
        left: u16,
        then: u16,
    },
    /// An EOF may follow; whether it does depends on capabilities that the client sent before the capture began.
    DefinitionsEnd {
        then: u16,
    },
    /// Events without end.
    Replication,
}

impl ResponseState {
    /// `None`: the server does not answer.
    pub fn expected_for(code: u8) -> Option<ResponseState> {
        Some(match code {
            command::COM_QUERY
            | command::COM_STMT_EXECUTE
            | command::COM_STMT_BULK_EXECUTE
            | command::COM_PROCESS_INFO => ResponseState::Start,
            command::COM_STMT_PREPARE => ResponseState::Prepare,
            command::COM_STMT_FETCH => ResponseState::Rows,
            command::COM_FIELD_LIST => ResponseState::FieldList,
            command::COM_STATISTICS => ResponseState::SinglePacket,
            command::COM_CHANGE_USER => ResponseState::Authentication,
            command::COM_BINLOG_DUMP | command::COM_BINLOG_DUMP_GTID | command::COM_TABLE_DUMP => {
                ResponseState::Replication
            }
            command::COM_QUIT | command::COM_STMT_CLOSE | command::COM_STMT_SEND_LONG_DATA => return None,
            _ => ResponseState::OkOrError,
        })
    }
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct OkPacket<'a> {
    pub affected: u64,
    pub status: u16,
    pub warnings: u16,
    /// The schema that is current from here on.
    pub schema: Option<&'a [u8]>,
}

impl<'a> OkPacket<'a> {
    /// `payload` with its header byte. `tracks`: the client asked for session state changes.
    pub fn parse(payload: &'a [u8], tracks: bool) -> Option<Self> {
        let mut fields = FieldReader(payload.get(1..)?);
        let affected = fields.lenenc()?;
        let _last_insert_id = fields.lenenc()?;
        let status = fields.u16()?;
        let warnings = fields.u16().unwrap_or_default();
        let mut schema = None;
        if tracks && status & SERVER_SESSION_STATE_CHANGED != 0 {
            let _info = fields.lenenc_bytes();
            schema = fields.lenenc_bytes().and_then(tracked_schema);
        }
        Some(OkPacket { affected, status, warnings, schema })
    }
}

fn tracked_schema(changes: &[u8]) -> Option<&[u8]> {
    const SCHEMA: u8 = 1;
    let mut changes = FieldReader(changes);
    let mut schema = None;
    while let Some(kind) = changes.u8() {
        let data = changes.lenenc_bytes()?;
        if kind == SCHEMA {
            schema = FieldReader(data).lenenc_bytes();
        }
    }
    schema
}

/// Warnings and status of an EOF packet of the old form.
pub(super) fn parse_eof(payload: &[u8]) -> Option<(u16, u16)> {
    let mut fields = FieldReader(payload.get(1..)?);
    Some((fields.u16()?, fields.u16()?))
}

#[derive(Debug, Clone, Copy)]
pub(super) struct ErrorPacket<'a> {
    pub number: u16,
    pub state: &'a [u8],
    pub message: &'a [u8],
}

impl<'a> ErrorPacket<'a> {
    /// An error number that marks a progress report of MariaDB.
    pub const PROGRESS: u16 = 0xffff;

    pub fn parse(payload: &'a [u8]) -> Option<Self> {
        let mut fields = FieldReader(payload.get(1..)?);
        let number = fields.u16()?;
        let mut state: &[u8] = &[];
        if let [b'#', rest @ ..] = fields.0
            && let Some((taken, message)) = rest.split_at_checked(5)
        {
            state = taken;
            fields = FieldReader(message);
        }
        Some(ErrorPacket { number, state, message: fields.0 })
    }
}

/// The answer to a PREPARE.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrepareResponse {
    pub id: u32,
    pub columns: u16,
    pub params: u16,
    pub warnings: u16,
    /// MySQL 8 leaves definitions out if the client asked for that.
    pub has_definitions: bool,
}

impl PrepareResponse {
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(payload.get(1..)?);
        let (id, columns, params) = (fields.u32()?, fields.u16()?, fields.u16()?);
        let _filler = fields.u8();
        let warnings = fields.u16().unwrap_or_default();
        let has_definitions = fields.u8().is_none_or(|follows| follows != 0);
        Some(PrepareResponse { id, columns, params, warnings, has_definitions })
    }
}
