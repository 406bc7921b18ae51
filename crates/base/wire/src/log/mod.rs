//! Server log decoders: slow logs, general logs, audit logs.
//!
//! Never reads a clock or a file: bytes are the input, events the output.

mod accounting;
mod audit;
mod decimal;
mod framing;
mod general;
mod slow;
mod slow_header;
mod time;

pub use accounting::LogAccounting;
pub use audit::AuditLog;
pub(crate) use decimal::{parse_integer, parse_seconds};
pub use general::GeneralLog;
pub(crate) use general::is_entry_start;
pub(crate) use slow::is_server_header;
pub use slow::{INHERITED_DB, SlowLog};
pub(crate) use time::parse_time;
pub use time::{Civil, Utc, Zone};

use crate::event::Sink;

/// Longest entry that is kept whole, in bytes. Of a longer one the rest is counted, not kept.
pub const ENTRY_MAX: usize = 1 << 20;

/// A log read as it comes.
pub trait Log {
    /// Takes what is whole in `bytes` and returns how many bytes it took; the caller brings the
    /// rest again, with more behind it. `end`: nothing will follow.
    ///
    /// Takes at least one byte once `bytes` holds [`ENTRY_MAX`] of them, or at the end.
    fn decode(&mut self, bytes: &[u8], end: bool, sink: &mut dyn Sink) -> usize;

    fn accounting(&self) -> &LogAccounting;
}
