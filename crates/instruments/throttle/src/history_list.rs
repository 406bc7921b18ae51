//! InnoDB history list length during the dump's snapshot.
//!
//! A slow dump holds its snapshot longer, and InnoDB keeps every row version since. The history list grows,
//! and with it the work of every reader and of the later purge.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use toll_mysql::{Connection, Target};

const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// A server that hangs is asked again.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
const UNKNOWN: u64 = u64::MAX;

/// Length of the history list at the last poll.
#[derive(Debug, Clone)]
pub struct HistoryListMonitor(Arc<AtomicU64>);

impl HistoryListMonitor {
    /// Polls every five seconds until it is dropped.
    pub fn start(target: &Target) -> std::io::Result<Self> {
        let latest = Arc::new(AtomicU64::new(UNKNOWN));
        let (weak, target) = (Arc::downgrade(&latest), target.clone());
        std::thread::Builder::new().name("history".into()).spawn(move || {
            let mut connection = None;
            while let Some(latest) = weak.upgrade() {
                if let Some(length) = query_length(&mut connection, &target) {
                    latest.store(length, Ordering::Relaxed);
                }
                drop(latest);
                std::thread::sleep(POLL_INTERVAL);
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
pub fn query_length_once(target: &Target) -> Option<u64> {
    query_length(&mut None, target)
}

fn query_length(connection: &mut Option<Connection>, target: &Target) -> Option<u64> {
    let mut opened = match connection.take() {
        Some(asked) => asked,
        None => {
            let mut fresh = Connection::connect(target).ok()?;
            fresh.set_read_timeout(Some(QUERY_TIMEOUT)).ok()?;
            fresh
        }
    };
    let metric = "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'";
    let length = opened.query(metric).ok().and_then(|rows| rows.scalar()?.parse().ok());
    let length = length.or_else(|| {
        let rows = opened.query("SHOW ENGINE INNODB STATUS").ok()?;
        parse_status(rows.rows.first()?.get(2)?.as_deref()?)
    });
    if length.is_some() {
        *connection = Some(opened);
    }
    length
}

/// From the text of SHOW ENGINE INNODB STATUS.
fn parse_status(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("History list length ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_found_in_the_servers_own_words() {
        let text = "------------\nTRANSACTIONS\n------------\nTrx id counter 421\n\
                    Purge done for trx's n:o < 421 undo n:o < 0 state: running but idle\nHistory list length 17\n";
        assert_eq!(parse_status(text), Some(17));
        assert_eq!(parse_status("History list length\n"), None);
    }
}
