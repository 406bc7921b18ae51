//! What became of everything that was read? One ledger for all inputs of a digest.

use serde::Serialize;
use toll_wire::log::LogLedger;

/// The ledger of each kind of input; kinds that were not read are absent.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    pub log: Option<LogLedger>,
}

/// As it stands in JSON: a promise.
#[derive(Debug, Serialize)]
pub struct Written {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<WrittenLog>,
    pub adds_up: bool,
}

#[derive(Debug, Serialize)]
pub struct WrittenLog {
    pub bytes: u64,
    pub lines: u64,
    pub entry_bytes: u64,
    pub header_bytes: u64,
    pub malformed_bytes: u64,
    pub entries_parsed: u64,
    pub entries_malformed: u64,
    pub entries_cut: u64,
}

impl Ledger {
    pub fn of_log(log: &LogLedger) -> Self {
        Self { log: Some(*log) }
    }

    pub fn bytes(&self) -> u64 {
        self.log.map_or(0, |log| log.bytes)
    }

    pub fn merge(&mut self, other: &Self) {
        if let Some(log) = &other.log {
            self.log.get_or_insert_default().merge(log);
        }
    }

    pub fn adds_up(&self) -> bool {
        self.log.is_none_or(|log| log.adds_up())
    }

    pub fn written(&self) -> Written {
        Written {
            log: self.log.map(|log| WrittenLog {
                bytes: log.bytes,
                lines: log.lines,
                entry_bytes: log.entry_bytes,
                header_bytes: log.header_bytes,
                malformed_bytes: log.malformed_bytes,
                entries_parsed: log.entries_parsed,
                entries_malformed: log.entries_malformed,
                entries_cut: log.entries_cut,
            }),
            adds_up: self.adds_up(),
        }
    }
}
