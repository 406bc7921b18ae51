//! Reconnection of broken connections, without blocking the workers.
//!
//! One thread serves all. Its wait grows after each refusal and is zero after a success.

use super::Shared;
use super::session::Session;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;
use toll_mysql::connection::Error;

const INITIAL_BACKOFF: Duration = Duration::from_millis(10);
const MAX_BACKOFF: Duration = Duration::from_secs(1);

/// A slot without a connection, and where its owner listens.
pub struct ReconnectRequest {
    pub slot: usize,
    pub reply_to: Sender<ReconnectResult>,
}

pub enum ReconnectResult {
    /// An attempt failed; others follow.
    Failed(Error),
    Reconnected {
        slot: usize,
        session: Box<Session>,
    },
}

/// Starts the thread; it ends once the run is stopped or all senders are gone.
pub fn start_reconnector(shared: Arc<Shared>) -> Sender<ReconnectRequest> {
    let (sender, requests) = channel();
    std::thread::spawn(move || run_reconnector(&shared, &requests));
    sender
}

fn run_reconnector(shared: &Shared, requests: &Receiver<ReconnectRequest>) {
    let stop = &*shared.stop;
    let mut wait = Duration::ZERO;
    loop {
        let request = match requests.recv_timeout(Duration::from_millis(100)) {
            Ok(request) => request,
            Err(RecvTimeoutError::Timeout) if !stop.load(Relaxed) => continue,
            Err(_) => return,
        };
        loop {
            sleep_unless_stopped(wait, stop);
            if stop.load(Relaxed) {
                return;
            }
            match shared.access.open_session(|_| {}) {
                Ok(session) => {
                    wait = Duration::ZERO;
                    // The worker may have ended meanwhile; then nobody needs the session.
                    let _ = request.reply_to.send(ReconnectResult::Reconnected {
                        slot: request.slot,
                        session: Box::new(session),
                    });
                    break;
                }
                Err(error) => {
                    wait = (wait * 2).clamp(INITIAL_BACKOFF, MAX_BACKOFF);
                    if request.reply_to.send(ReconnectResult::Failed(error)).is_err() {
                        break;
                    }
                }
            }
        }
    }
}

fn sleep_unless_stopped(wait: Duration, stop: &AtomicBool) {
    let mut left = wait;
    while !left.is_zero() && !stop.load(Relaxed) {
        let piece = left.min(Duration::from_millis(50));
        std::thread::sleep(piece);
        left -= piece;
    }
}
