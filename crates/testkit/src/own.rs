//! Output of `toll pcap` and of comparable tools. Runs the program; [`own!`](crate::own!) has its path.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs `toll pcap`; whatever it says is the caller's to judge.
pub fn pcap(toll: &str, arguments: &[&str]) -> Output {
    Command::new(toll).arg("pcap").args(arguments).output().unwrap()
}

/// The same, which must succeed; gives what it says.
pub fn done(toll: &str, arguments: &[&str]) -> String {
    let output = pcap(toll, arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// The profile of one capture.
pub fn profile(toll: &str, file: &Path) -> Value {
    let output = pcap(toll, &["profile", "--json", text(file)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["profiles"][0].take()
}

/// A synthetic capture.
pub fn made(toll: &str, dir: &Path, set: &str, options: &[&str]) -> PathBuf {
    let out = dir.join(format!("{set}{}.pcap", options.concat()));
    done(toll, &[&["make", set, "-w", text(&out)], options].concat());
    out
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Output of another program, with any exit code.
pub fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// True if all `tools` are installed; prints the missing one.
pub fn has(tools: &[&str]) -> bool {
    let missing = |tool: &&&str| Command::new(tool).arg("--version").output().is_err();
    match tools.iter().find(missing) {
        Some(tool) => {
            crate::skip!("this test needs {tool}");
            false
        }
        None => true,
    }
}

/// These functions for the program that cargo built for this test.
#[macro_export]
macro_rules! own {
    () => {
        use serde_json::Value;
        use std::path::{Path, PathBuf};
        use std::process::Output;
        #[allow(unused_imports, reason = "each test program uses its part")]
        pub use $crate::own::{has, printed, text};
        const TOLL: &str = env!("CARGO_BIN_EXE_toll");

        #[allow(dead_code, reason = "each test program uses its part")]
        pub fn pcap(arguments: &[&str]) -> Output {
            $crate::own::pcap(TOLL, arguments)
        }

        #[allow(dead_code, reason = "each test program uses its part")]
        pub fn done(arguments: &[&str]) -> String {
            $crate::own::done(TOLL, arguments)
        }

        pub fn profile(file: &Path) -> Value {
            $crate::own::profile(TOLL, file)
        }

        pub fn made(dir: &Path, set: &str, options: &[&str]) -> PathBuf {
            $crate::own::made(TOLL, dir, set, options)
        }
    };
}
