//! Output of `toll digest` for a capture. Runs the program; [`printed!`](crate::printed!) has its path.

use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn printed(toll: &str, arguments: &[&str], file: &Path, zone: &str) -> String {
    let output = Command::new(toll).arg("digest").args(arguments).arg(file).env("TZ", zone).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The digest of a capture of a server on `port`.
pub fn digest(toll: &str, file: &Path, port: u16) -> Value {
    let port = port.to_string();
    serde_json::from_str(&printed(toll, &["--format", "json", "--port", &port], file, "UTC")).unwrap()
}

/// Every event, read on a host whose zone is `zone`.
pub fn events(toll: &str, file: &Path, zone: &str) -> Vec<Value> {
    let lines = printed(toll, &["--events", "--literals", "--format", "ndjson"], file, zone);
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Text report of a capture of servers on `port`.
pub fn report(toll: &str, file: &Path, port: u16) -> String {
    printed(toll, &["--port", &port.to_string()], file, "UTC")
}

/// Every event with its statement, a line each.
pub fn lines(toll: &str, file: &Path, port: u16) -> String {
    printed(toll, &["--events", "--literals", "--format", "ndjson", "--port", &port.to_string()], file, "UTC")
}

/// These functions for the program that cargo built for this test.
#[macro_export]
macro_rules! printed {
    () => {
        use serde_json::Value;
        use std::path::Path;
        const TOLL: &str = env!("CARGO_BIN_EXE_toll");

        pub fn digest(file: &Path, port: u16) -> Value {
            $crate::printed::digest(TOLL, file, port)
        }

        #[allow(dead_code, reason = "each test program uses its part")]
        pub fn events(file: &Path, zone: &str) -> Vec<Value> {
            $crate::printed::events(TOLL, file, zone)
        }

        #[allow(dead_code, reason = "each test program uses its part")]
        pub fn report(file: &Path, port: u16) -> String {
            $crate::printed::report(TOLL, file, port)
        }

        #[allow(dead_code, reason = "each test program uses its part")]
        pub fn lines(file: &Path, port: u16) -> String {
            $crate::printed::lines(TOLL, file, port)
        }
    };
}
