//! What does `toll pcap` say and write? Runs the program itself.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs `toll pcap`; whatever it says is the caller's to judge.
pub fn pcap(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_toll")).arg("pcap").args(arguments).output().unwrap()
}

/// The same, which must succeed; gives what it says.
pub fn done(arguments: &[&str]) -> String {
    let output = pcap(arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{arguments:?}: {said}");
    said
}

/// The profile of one capture.
pub fn profile(file: &Path) -> Value {
    let output = pcap(&["profile", "--json", text(file)]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut document: Value = serde_json::from_slice(&output.stdout).unwrap();
    document["profiles"][0].take()
}

/// A synthetic capture.
pub fn made(dir: &Path, set: &str, options: &[&str]) -> PathBuf {
    let out = dir.join(format!("{set}{}.pcap", options.concat()));
    done(&[&["make", set, "-w", text(&out)], options].concat());
    out
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What another program prints, whether it is content or not.
pub fn printed(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Whether all of `tools` are there; says visibly which is not.
pub fn has(tools: &[&str]) -> bool {
    let missing = |tool: &&&str| Command::new(tool).arg("--version").output().is_err();
    match tools.iter().find(missing) {
        Some(tool) => {
            eprintln!("SKIPPED: this test needs {tool}");
            false
        }
        None => true,
    }
}
