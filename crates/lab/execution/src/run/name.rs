//! Names of a run on disk and in the journal.

use std::path::{Path, PathBuf};

/// `run-SCENARIO-YYYYMMDD-HHMMSS` in the current directory, with a number appended if that exists.
pub fn new_run_dir(scenario: &str) -> PathBuf {
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let base = format!("run-{scenario}-{now}");
    let mut path = PathBuf::from(&base);
    let mut number = 2;
    while path.exists() {
        path = PathBuf::from(format!("{base}-{number}"));
        number += 1;
    }
    path
}

/// Identifier that is unique on this host. Directory names may recur; process id and time do not.
pub fn new_run_id(dir: &Path) -> String {
    let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or("run");
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
    format!("{name}-{}-{}", std::process::id(), toll_sys::clock::wall_us())
}
