//! Handshake parser: the properties that client and server negotiate. Never sees or stores a password in
//! clear text.

use crate::protocol::FieldReader;
use crate::protocol::capability::*;

/// Negotiated capabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    common: u32,
    mariadb: u32,
}

impl Capabilities {
    pub fn tracks_session(self) -> bool {
        self.common & CLIENT_SESSION_TRACK != 0
    }

    pub fn deprecates_eof(self) -> bool {
        self.common & CLIENT_DEPRECATE_EOF != 0
    }

    pub fn has_query_attributes(self) -> bool {
        self.common & CLIENT_QUERY_ATTRIBUTES != 0
    }

    /// MySQL: a byte before the column count tells whether definitions follow.
    pub fn optional_metadata(self) -> bool {
        self.common & CLIENT_OPTIONAL_RESULTSET_METADATA != 0
    }

    /// MariaDB: a byte after the column count tells whether definitions follow.
    pub fn caches_metadata(self) -> bool {
        self.mariadb & MARIADB_CLIENT_CACHE_METADATA != 0
    }

    /// zlib or zstd: which of them, each frame shows.
    pub fn compresses(self) -> bool {
        self.common & (CLIENT_COMPRESS | CLIENT_ZSTD_COMPRESSION_ALGORITHM) != 0
    }
}

/// The first packet of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Greeting {
    pub connection_id: u32,
    capabilities: u32,
    mariadb: u32,
}

impl Greeting {
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let mut fields = FieldReader(payload);
        if fields.u8()? != 10 {
            return None;
        }
        let version = fields.until_nul();
        if version.is_empty() || version.len() > 128 || !version.iter().all(u8::is_ascii_graphic_or_space) {
            return None;
        }
        let connection_id = fields.u32()?;
        fields.bytes(8)?;
        fields.u8()?;
        let low = u32::from(fields.u16()?);
        // Servers before 4.1 end here.
        let (mut capabilities, mut mariadb) = (low, 0);
        if let Some(rest) = fields.bytes(16) {
            capabilities |= u32::from(u16::from_le_bytes([rest[3], rest[4]])) << 16;
            if capabilities & CLIENT_LONG_PASSWORD == 0 {
                mariadb = u32::from_le_bytes([rest[12], rest[13], rest[14], rest[15]]);
            }
        }
        Some(Greeting { connection_id, capabilities, mariadb })
    }
}

trait Printable {
    fn is_ascii_graphic_or_space(&self) -> bool;
}

impl Printable for u8 {
    fn is_ascii_graphic_or_space(&self) -> bool {
        matches!(self, b' '..=b'~')
    }
}

/// The first packet of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Response<'a> {
    /// TLS begins with the next byte.
    StartTls,
    Login {
        user: &'a [u8],
        schema: &'a [u8],
        capabilities: Capabilities,
    },
}

impl<'a> Response<'a> {
    pub fn parse(payload: &'a [u8], greeting: &Greeting) -> Option<Self> {
        let mut fields = FieldReader(payload);
        let low = u32::from(fields.u16()?);
        if low & CLIENT_PROTOCOL_41 == 0 {
            return Self::parse_old(low, fields, greeting);
        }
        let client = low | u32::from(fields.u16()?) << 16;
        let _max_packet = fields.u32()?;
        let _collation = fields.u8()?;
        fields.bytes(19)?;
        let mut mariadb = fields.u32()?;
        if client & CLIENT_SSL != 0 && fields.is_empty() {
            return Some(Response::StartTls);
        }
        if greeting.capabilities & CLIENT_LONG_PASSWORD != 0 {
            mariadb = 0;
        }
        let user = fields.until_nul();
        if client & CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA != 0 {
            fields.lenenc_bytes()?;
        } else if client & CLIENT_SECURE_CONNECTION != 0 {
            let length = fields.u8()?;
            fields.bytes(usize::from(length))?;
        } else {
            fields.until_nul();
        }
        let schema = if client & CLIENT_CONNECT_WITH_DB != 0 { fields.until_nul() } else { &[] };
        let capabilities =
            Capabilities { common: client & greeting.capabilities, mariadb: mariadb & greeting.mariadb };
        Some(Response::Login { user, schema, capabilities })
    }

    fn parse_old(client: u32, mut fields: FieldReader<'a>, greeting: &Greeting) -> Option<Self> {
        let _max_packet = fields.u24()?;
        if client & CLIENT_SSL != 0 && fields.is_empty() {
            return Some(Response::StartTls);
        }
        let user = fields.until_nul();
        let _password = fields.until_nul();
        let schema = if client & CLIENT_CONNECT_WITH_DB != 0 { fields.until_nul() } else { &[] };
        let capabilities = Capabilities { common: client & greeting.capabilities, mariadb: 0 };
        Some(Response::Login { user, schema, capabilities })
    }
}

/// User and schema of a CHANGE_USER (payload with its command byte).
pub(super) fn parse_change_user(payload: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = FieldReader(payload.get(1..)?);
    let user = fields.until_nul();
    let length = fields.u8()?;
    fields.bytes(usize::from(length))?;
    Some((user, fields.until_nul()))
}
