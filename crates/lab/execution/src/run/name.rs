//! What is a run called, on disk and in the journal?

use std::path::{Path, PathBuf};

/// `run-SCENARIO-YYYYMMDD-HHMMSS` in the current directory; a number is added if that exists.
pub fn fresh(scenario: &str) -> PathBuf {
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

/// Unique on this host: the directory's name may be used again, the process id and time not.
pub fn run_id(dir: &Path) -> String {
    let name = dir.file_name().and_then(|n| n.to_str()).unwrap_or("run");
    let name: String = name.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(40).collect();
    format!("{name}-{}-{}", std::process::id(), toll_sys::clock::wall_us())
}
