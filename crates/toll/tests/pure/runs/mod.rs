//! Tests of analysis and reports, on runs with known effects.

mod analysis;
mod charted;
mod controls;
mod counted;
mod damaged;
mod early_stop;
mod excluded_windows;
mod findings;
mod outcomes;
mod percentiles;
mod reports;
mod self_cost;
mod stored;
mod stored_runs;
mod synthetic;
mod times;
mod windows;

use toll_record::{ArmResult, RunResult};

fn arm<'a>(run: &'a RunResult, name: &str) -> &'a ArmResult {
    run.arms.iter().find(|arm| arm.name == name).expect("the run has this arm")
}

/// Decompresses the series of a run, so that tests can cut and edit them. The reader accepts both forms.
fn expand_series(root: &std::path::Path) {
    for name in ["samples.ndjson", "latency.hlog"] {
        let compressed = root.join(format!("{name}.zst"));
        let bytes = std::fs::read(&compressed).unwrap();
        std::fs::write(root.join(name), zstd::decode_all(bytes.as_slice()).unwrap()).unwrap();
        std::fs::remove_file(compressed).unwrap();
    }
}
