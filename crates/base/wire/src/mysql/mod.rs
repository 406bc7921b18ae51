//! MySQL session decoder: commands and their responses. Never reorders bytes, never reads a clock.
//!
//! References: <https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html> and
//! <https://mariadb.com/kb/en/clientserver-protocol/>.

mod client;
mod command;
mod compression;
mod ending;
mod handshake;
mod kept;
mod login;
mod packet;
mod reply;
mod server;
mod session;
mod statement;
mod step;
mod value;

use crate::ledger::Ledger;
use crate::room::Room;
use compression::Inflater;
pub(crate) use session::Session;

/// Context of a session beyond its own state.
pub(crate) struct Context<'a, S: ?Sized> {
    pub sink: &'a mut S,
    pub ledger: &'a mut Ledger,
    pub limits: &'a Limits,
    pub workspace: &'a mut Workspace,
}

/// State shared by all sessions of a decoder.
pub(crate) struct Workspace {
    pub room: Room,
    inflater: Inflater,
}

impl Workspace {
    pub(crate) fn new(room: Room) -> Self {
        Workspace { room, inflater: Inflater::default() }
    }
}

/// Bounds of memory, see `decoder::Limits`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub text: usize,
    pub pipeline: usize,
    pub statements: usize,
}
