//! Wire primitives of the MySQL client/server protocol: field cursor, packets, command bytes, flags.
//!
//! The decoder reads with them and the client speaks with them. They hold no state and read no clock.
//! References: <https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html> and
//! <https://mariadb.com/kb/en/clientserver-protocol/>.

pub mod capability;
pub mod command;
mod fields;
mod packet;
pub mod status;

pub use fields::{FieldReader, put_lenenc};
pub use packet::{MAX_PAYLOAD, put_packets};
