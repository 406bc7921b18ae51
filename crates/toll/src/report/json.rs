//! What does a program read of a run?
//!
//! One run is its result, byte for byte what `result.json` holds; several are `{"runs": [...], "pooled": {...}}`, the
//! latter where they are alike.

use crate::analyse;
use serde::Serialize;
use toll_record::{Pooled, RunResult};

#[derive(Serialize)]
struct Runs<'a> {
    runs: &'a [RunResult],
    #[serde(skip_serializing_if = "Option::is_none")]
    pooled: Option<Pooled>,
}

/// Pretty, ending in a line end.
pub fn json(runs: &[RunResult]) -> serde_json::Result<String> {
    let mut text = match runs {
        [run] => serde_json::to_string_pretty(run)?,
        runs => serde_json::to_string_pretty(&Runs { runs, pooled: analyse::pool(runs).ok() })?,
    };
    text.push('\n');
    Ok(text)
}
