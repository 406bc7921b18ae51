//! Reader of the server's status counters, once a second.

use crate::treatment::AdminSession;
use std::collections::BTreeMap;
use toll_record::ServerSample;
use toll_sys::clock;

/// Counters, written as rates per second.
const RATES: &[&str] = &[
    "Queries",
    "Questions",
    "Com_select",
    "Com_stmt_execute",
    "Bytes_sent",
    "Bytes_received",
    "Innodb_rows_read",
    "Innodb_buffer_pool_read_requests",
    "Innodb_buffer_pool_reads",
    "Innodb_data_read",
    "Innodb_os_log_written",
    "Created_tmp_disk_tables",
    "Slow_queries",
];
/// Levels, written as they are.
const LEVELS: &[&str] = &[
    "Threads_running",
    "Threads_connected",
    "Innodb_buffer_pool_pages_data",
    "Innodb_buffer_pool_pages_dirty",
    // Of MariaDB.
    "Innodb_checkpoint_age",
    "Innodb_history_list_length",
    "Uptime",
];

/// Reads the counters above over a session of its own.
#[derive(Debug)]
pub struct ServerCounters {
    admin: AdminSession,
    /// Number of the server in the setup.
    number: u32,
    query: String,
    last: Option<(u64, BTreeMap<String, String>)>,
}

impl ServerCounters {
    pub fn new(admin: AdminSession, number: usize) -> Self {
        let names: Vec<_> = RATES.iter().chain(LEVELS).map(|n| format!("'{n}'")).collect();
        let query = format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({})", names.join(","));
        Self { admin, number: number as u32, query, last: None }
    }

    /// The counters. `None` at the first reading, and if the server does not answer.
    pub fn read(&mut self) -> Option<ServerSample> {
        let status = self.admin.query_pairs(&self.query).ok()?;
        let now = clock::mono_us();
        let number = |map: &BTreeMap<String, String>, name: &str| map.get(name)?.parse::<f64>().ok();
        let mut values = BTreeMap::new();
        for name in LEVELS {
            if let Some(level) = number(&status, name) {
                values.insert((*name).to_owned(), level);
            }
        }
        let (then, before) = self.last.replace((now, status.clone()))?;
        let seconds = ((now - then) as f64 / 1e6).max(1e-3);
        for name in RATES {
            // Fewer than before: the server restarted, or somebody flushed its status.
            if let (Some(a), Some(b)) = (number(&before, name), number(&status, name))
                && b >= a
            {
                values.insert(format!("{name}_per_s"), (b - a) / seconds);
            }
        }
        Some(ServerSample { mono_us: now, server: self.number, values })
    }
}
