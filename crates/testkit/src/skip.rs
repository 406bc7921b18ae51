//! Records of tests that cannot run on this host. Never fails a test.

use std::io::Write;

/// Names the file to which each skipped test adds a line; `scripts/test-rust` shows it at the end.
pub const SKIP_FILE_VARIABLE: &str = "TOLL_TEST_SKIPPED";

/// Prints why a test is not carried out and adds a line to [`SKIP_FILE_VARIABLE`]. The caller returns; the test passes.
#[macro_export]
macro_rules! skip {
    ($($reason:tt)+) => {
        $crate::skip::record(module_path!(), &format!($($reason)+))
    };
}

/// The work of [`skip!`].
pub fn record(module: &str, reason: &str) {
    // Where a test has no thread of its own, the runner names it, or else the module has to do.
    let thread = std::thread::current();
    let named = thread.name().filter(|name| *name != "main").map(str::to_owned);
    let test = named.or_else(|| std::env::var("NEXTEST_TEST_NAME").ok()).unwrap_or_else(|| module.to_owned());
    let program = module.split("::").next().unwrap_or(module);
    eprintln!("SKIPPED: {reason}");
    let Some(file) = std::env::var_os(SKIP_FILE_VARIABLE) else { return };
    // One write: programs side by side add to the same file.
    let line = format!("{program} {test}: {reason}\n");
    let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
    file.and_then(|mut file| file.write_all(line.as_bytes())).unwrap();
}
