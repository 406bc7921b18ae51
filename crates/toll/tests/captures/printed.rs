//! What does `toll digest` print of a capture? Runs the program itself.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn printed(arguments: &[&str], file: &Path, zone: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_toll"))
        .arg("digest")
        .args(arguments)
        .arg(file)
        .env("TZ", zone)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The digest of a capture of a server on `port`.
pub fn digest(file: &Path, port: u16) -> Value {
    let port = port.to_string();
    serde_json::from_str(&printed(&["--format", "json", "--port", &port], file, "UTC")).unwrap()
}

/// Every event, read on a host whose zone is `zone`.
pub fn events(file: &Path, zone: &str) -> Vec<Value> {
    let lines = printed(&["--events", "--literals", "--format", "ndjson"], file, zone);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What people read of a capture of servers on `port`.
pub fn report(file: &Path, port: u16) -> String {
    printed(&["--port", &port.to_string()], file, "UTC")
}

/// Every event with its statement, a line each.
pub fn lines(file: &Path, port: u16) -> String {
    printed(&["--events", "--literals", "--format", "ndjson", "--port", &port.to_string()], file, "UTC")
}
