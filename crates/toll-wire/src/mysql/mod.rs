//! Which commands did a client send, and how did the server answer? Never reorders bytes, never reads a clock.
//!
//! References: <https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html> and
//! <https://mariadb.com/kb/en/clientserver-protocol/>.

mod client;
mod command;
mod compression;
mod fields;
mod handshake;
mod kept;
mod packet;
mod reply;
mod server;
mod session;
mod statement;
mod step;
mod value;

use crate::decoder::Limits;
use crate::ledger::Ledger;
use crate::stream::Endpoints;
use compression::Inflater;
use kept::Room;
pub(crate) use session::Session;

/// What a session needs besides its own state.
pub(crate) struct Context<'a, S: ?Sized> {
    pub sink: &'a mut S,
    pub ledger: &'a mut Ledger,
    pub limits: &'a Limits,
    pub workspace: &'a mut Workspace,
    pub endpoints: Endpoints,
}

/// What all sessions of a decoder share.
#[derive(Default)]
pub(crate) struct Workspace {
    pub room: Room,
    inflater: Inflater,
}
