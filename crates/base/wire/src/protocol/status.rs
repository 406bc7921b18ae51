//! Server status flags: the bits that end an OK or EOF packet.
//!
//! Names and values are those of MySQL's `include/mysql_com.h`.

/// Another result follows this one.
pub const SERVER_MORE_RESULTS_EXISTS: u16 = 0x0008;
pub const SERVER_QUERY_NO_GOOD_INDEX_USED: u16 = 0x0010;
pub const SERVER_QUERY_NO_INDEX_USED: u16 = 0x0020;
/// A cursor was opened: rows come with FETCH.
pub const SERVER_STATUS_CURSOR_EXISTS: u16 = 0x0040;
/// The sql_mode of the session has NO_BACKSLASH_ESCAPES.
pub const SERVER_STATUS_NO_BACKSLASH_ESCAPES: u16 = 0x0200;
pub const SERVER_SESSION_STATE_CHANGED: u16 = 0x4000;
