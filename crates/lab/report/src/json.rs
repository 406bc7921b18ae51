//! Report of runs as JSON.
//!
//! One run is its result, byte for byte as in `result.json`. Several are `{"runs": [...]}`. Like runs add
//! `"pooled"`; runs with the same question on different platforms add `"overlay"`.

use serde::Serialize;
use toll_analysis::CombinedRuns;
use toll_record::{Overlay, Pooled, RunResult};

#[derive(Serialize)]
struct Runs<'a> {
    runs: &'a [RunResult],
    #[serde(skip_serializing_if = "Option::is_none")]
    pooled: Option<&'a Pooled>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlay: Option<&'a Overlay>,
}

/// Pretty-printed. Ends with a newline.
pub fn json(runs: &[RunResult], together: Option<&CombinedRuns>) -> serde_json::Result<String> {
    let (pooled, overlay) = match together {
        Some(CombinedRuns::Pooled(pooled)) => (Some(pooled), None),
        Some(CombinedRuns::Overlaid(overlay)) => (None, Some(overlay)),
        Some(CombinedRuns::Incompatible(_)) | None => (None, None),
    };
    let mut text = match runs {
        [run] => serde_json::to_string_pretty(run)?,
        runs => serde_json::to_string_pretty(&Runs { runs, pooled, overlay })?,
    };
    text.push('\n');
    Ok(text)
}
