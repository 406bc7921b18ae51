//! InnoDB history list length during the dump's snapshot.
//!
//! A slow dump holds its snapshot longer, and InnoDB keeps every row version since. The history list grows,
//! and with it the work of every reader and of the later purge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use toll_mysql::{Connection, Target};

const EVERY: Duration = Duration::from_secs(5);
/// A server that hangs is asked again.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
const UNKNOWN: u64 = u64::MAX;

/// Length of the history list at the last poll.
#[derive(Debug, Clone)]
pub struct History(Arc<AtomicU64>);

impl History {
    /// Polls every five seconds until it is dropped.
    pub fn watch(target: &Target) -> std::io::Result<Self> {
        let latest = Arc::new(AtomicU64::new(UNKNOWN));
        let (weak, target) = (Arc::downgrade(&latest), target.clone());
        std::thread::Builder::new().name("history".into()).spawn(move || {
            let mut connection = None;
            while let Some(latest) = weak.upgrade() {
                if let Some(length) = ask(&mut connection, &target) {
                    latest.store(length, Ordering::Relaxed);
                }
                drop(latest);
                std::thread::sleep(EVERY);
            }
        })?;
        Ok(Self(latest))
    }

    /// Transactions whose row versions InnoDB keeps; `None` without the PROCESS privilege.
    pub fn length(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|length| *length != UNKNOWN)
    }
}

/// Polls once now. `None`: the length is not available.
pub fn length_now(target: &Target) -> Option<u64> {
    ask(&mut None, target)
}

fn ask(connection: &mut Option<Connection>, target: &Target) -> Option<u64> {
    let mut asked = match connection.take() {
        Some(asked) => asked,
        None => {
            let mut fresh = Connection::connect(target).ok()?;
            fresh.set_read_timeout(Some(ANSWER_WITHIN)).ok()?;
            fresh
        }
    };
    let metric = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'";
    let length = asked.query(metric).ok().and_then(|rows| rows.scalar()?.parse().ok());
    let length = length.or_else(|| {
        let rows = asked.query("SHOW ENGINE INNODB STATUS").ok()?;
        in_status(rows.rows.first()?.get(2)?.as_deref()?)
    });
    if length.is_some() {
        *connection = Some(asked);
    }
    length
}

/// From the text of SHOW ENGINE INNODB STATUS.
fn in_status(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("History list length ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_found_in_the_servers_own_words() {
        let text = "------------\nTRANSACTIONS\n------------\nTrx id counter 421\n\
                    Purge done for trx's n:o < 421 undo n:o < 0 state: running but idle\nHistory list length 17\n";
        assert_eq!(in_status(text), Some(17));
        assert_eq!(in_status("History list length\n"), None);
    }
}
