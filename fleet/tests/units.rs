//! Tests that `toll-fleet` accepts the commands of its systemd units, and systemd the units.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the program is started as its users start it")]

use std::path::Path;
use std::process::Command;

const UNITS: [&str; 2] = ["toll-fleet-serve.service", "toll-fleet-compact.service"];
/// Path of the program in the units.
const INSTALLED: &str = "/usr/local/bin/toll-fleet";

fn unit(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/systemd").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn their_commands_have_the_options_of_this_program() {
    for name in UNITS {
        let text = unit(name);
        let command = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let mut words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words.remove(0), INSTALLED);
        // Every option before it is read, and nothing is done.
        words.push("--help");
        let output = Command::new(env!("CARGO_BIN_EXE_toll-fleet")).args(words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("Usage: toll-fleet "), "{name}: {output:?}");
    }
}

#[test]
fn systemd_finds_nothing_wrong_with_them() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no systemd-analyze here");
        return;
    }
    let lab = tempfile::tempdir().unwrap();
    for name in UNITS {
        let text = unit(name).replace(INSTALLED, env!("CARGO_BIN_EXE_toll-fleet"));
        let path = lab.path().join(name);
        std::fs::write(&path, text).unwrap();
        let verified =
            Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(path).output().unwrap();
        let said = String::from_utf8_lossy(&verified.stderr);
        let about_it = said.lines().any(|line| line.contains(name));
        assert!(verified.status.success() && !about_it, "{name}: {said}");
    }
}
