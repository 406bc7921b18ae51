//! MySQL session decoder: commands and their responses. Never reorders bytes, never reads a clock.
//!
//! References: <https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html> and
//! <https://mariadb.com/kb/en/clientserver-protocol/>.

mod bounded_buffer;
mod client;
mod command;
mod completion;
mod compression;
mod handshake;
mod login;
mod packet;
mod response;
mod server;
mod session;
mod statement;
mod sync;
mod value;

use crate::accounting::DecodeAccounting;
use crate::memory_budget::MemoryBudget;
use compression::Inflater;
pub(crate) use session::Session;

/// Context of a session beyond its own state.
pub(crate) struct Context<'a, S: ?Sized> {
    pub sink: &'a mut S,
    pub accounting: &'a mut DecodeAccounting,
    pub limits: &'a Limits,
    pub workspace: &'a mut Workspace,
}

/// State shared by all sessions of a decoder.
pub(crate) struct Workspace {
    pub budget: MemoryBudget,
    inflater: Inflater,
}

impl Workspace {
    pub(crate) fn new(budget: MemoryBudget) -> Self {
        Workspace { budget, inflater: Inflater::default() }
    }
}

/// Bounds of memory, see `decoder::Limits`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub text: usize,
    pub pipeline: usize,
    pub statements: usize,
}
