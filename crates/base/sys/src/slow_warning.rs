//! Warning about work that takes longer than it should.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Warns unless it is dropped in time.
#[derive(Debug)]
pub struct SlowWarning {
    _done: Sender<()>,
}

impl SlowWarning {
    pub fn start(patience: Duration, warning: String) -> Self {
        let (done, wait) = channel::<()>();
        std::thread::spawn(move || {
            if wait.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                tracing::warn!("{warning}");
            }
        });
        Self { _done: done }
    }
}
