//! Capability flags: the bits that server and client announce when they connect.
//!
//! Names and values are those of MySQL's `include/mysql_com.h`.

/// MariaDB calls it CLIENT_MYSQL and leaves it out to announce capabilities beyond 32 bits.
pub const CLIENT_LONG_PASSWORD: u32 = 1;
pub const CLIENT_LONG_FLAG: u32 = 1 << 2;
pub const CLIENT_CONNECT_WITH_DB: u32 = 1 << 3;
pub const CLIENT_COMPRESS: u32 = 1 << 5;
pub const CLIENT_PROTOCOL_41: u32 = 1 << 9;
pub const CLIENT_SSL: u32 = 1 << 11;
pub const CLIENT_TRANSACTIONS: u32 = 1 << 13;
pub const CLIENT_SECURE_CONNECTION: u32 = 1 << 15;
pub const CLIENT_MULTI_STATEMENTS: u32 = 1 << 16;
pub const CLIENT_MULTI_RESULTS: u32 = 1 << 17;
pub const CLIENT_PS_MULTI_RESULTS: u32 = 1 << 18;
pub const CLIENT_PLUGIN_AUTH: u32 = 1 << 19;
pub const CLIENT_CONNECT_ATTRS: u32 = 1 << 20;
pub const CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA: u32 = 1 << 21;
pub const CLIENT_SESSION_TRACK: u32 = 1 << 23;
pub const CLIENT_DEPRECATE_EOF: u32 = 1 << 24;
pub const CLIENT_OPTIONAL_RESULTSET_METADATA: u32 = 1 << 25;
pub const CLIENT_ZSTD_COMPRESSION_ALGORITHM: u32 = 1 << 26;
pub const CLIENT_QUERY_ATTRIBUTES: u32 = 1 << 27;

/// MariaDB's own capabilities begin at bit 32 and travel in a field of their own; this is bit 36. The
/// server leaves out column definitions that the client knows from the last execution.
pub const MARIADB_CLIENT_CACHE_METADATA: u32 = 1 << 4;
