//! Guard that ends a run before it does harm.

/// Asked at least ten times a second while a trial waits for writeback, settles or measures, and in gaps; not while a
/// treatment is being switched.
pub trait Guard {
    /// # Errors
    /// The run must end: what is on is switched off in the ordinary way.
    fn check(&mut self, now_us: u64) -> Result<(), Tripped>;
}

/// Reason why a guard ended the run.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Tripped {
    pub reason: String,
}
