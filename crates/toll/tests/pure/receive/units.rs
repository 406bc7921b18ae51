//! Tests that systemd accepts the systemd units, and that toll accepts their commands.

use crate::lab::output_text;
use std::path::Path;
use std::process::Command;

const UNITS: [&str; 3] = ["toll-backup.service", "toll-capture.service", "toll-receive.service"];
/// Path of toll in the units.
const INSTALLED: &str = "/usr/local/bin/toll";

fn unit(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/systemd").join(name);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn systemd_finds_nothing_wrong_with_them() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        toll_testkit::skip!("no systemd-analyze here");
        return;
    }
    let lab = toll_testkit::lab!();
    for name in UNITS {
        let text = unit(name).replace(INSTALLED, env!("CARGO_BIN_EXE_toll"));
        let path = lab.write(name, &text);
        let verified = Command::new("systemd-analyze").args(["verify", "--man=no", &path]).output().unwrap();
        let about_it = output_text(&verified).lines().any(|line| line.contains(name));
        assert!(verified.status.success() && !about_it, "{name}: {}", output_text(&verified));
    }
}

#[test]
fn their_commands_have_the_options_of_this_toll() {
    let lab = toll_testkit::lab!();
    for name in UNITS {
        let text = unit(name);
        let command = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
        let mut words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words.remove(0), INSTALLED);
        // Every option before it is read, and nothing is done.
        words.push("--help");
        let output = lab.toll(&words);
        assert!(output.status.success(), "{name}: {}", output_text(&output));
        assert!(output_text(&output).contains("Usage: toll "), "{name}: {}", output_text(&output));
    }
}
