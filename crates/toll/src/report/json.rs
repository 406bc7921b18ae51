//! What does a program read of a run?
//!
//! One run is its result, byte for byte what `result.json` holds; several are `{"runs": [...]}`.

use serde::Serialize;
use toll_record::RunResult;

#[derive(Serialize)]
struct Runs<'a> {
    runs: &'a [RunResult],
}

/// Pretty, ending in a line end.
pub fn json(runs: &[RunResult]) -> serde_json::Result<String> {
    let mut text = match runs {
        [run] => serde_json::to_string_pretty(run)?,
        runs => serde_json::to_string_pretty(&Runs { runs })?,
    };
    text.push('\n');
    Ok(text)
}
