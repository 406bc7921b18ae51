//! What does a program read of a run?
//!
//! One run is its result, byte for byte what `result.json` holds; several are `{"runs": [...]}` with, where they are
//! alike, `"pooled"`, and where they ask the same on different platforms, `"overlay"`.

use serde::Serialize;
use toll_analysis::Together;
use toll_record::{Overlay, Pooled, RunResult};

#[derive(Serialize)]
struct Runs<'a> {
    runs: &'a [RunResult],
    #[serde(skip_serializing_if = "Option::is_none")]
    pooled: Option<&'a Pooled>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overlay: Option<&'a Overlay>,
}

/// Pretty, ending in a line end.
pub fn json(runs: &[RunResult], together: Option<&Together>) -> serde_json::Result<String> {
    let (pooled, overlay) = match together {
        Some(Together::Pooled(pooled)) => (Some(pooled), None),
        Some(Together::Overlaid(overlay)) => (None, Some(overlay)),
        Some(Together::Apart(_)) | None => (None, None),
    };
    let mut text = match runs {
        [run] => serde_json::to_string_pretty(run)?,
        runs => serde_json::to_string_pretty(&Runs { runs, pooled, overlay })?,
    };
    text.push('\n');
    Ok(text)
}
