//! Tests of `toll server start` killed at moments spread over its work.

use std::process::{Command, Stdio};
use std::time::Duration;

const TOLL: &str = env!("CARGO_BIN_EXE_toll");

fn dir() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("toll-test-").tempdir().expect("a directory")
}

/// `toll server start` killed at moments spread over its work. `toll clean` then leaves neither process nor
/// file.
#[test]
fn sigkill_at_any_moment_of_a_start_is_cleaned_up() {
    if let Err(reason) = toll_server::ServerProgram::find(None) {
        toll_testkit::skip!("{reason:#}");
        return;
    }
    let dir = dir();
    let toll = |arguments: &[&str]| {
        let mut command = Command::new(TOLL);
        command.args(arguments).env("XDG_STATE_HOME", dir.path()).env("XDG_CACHE_HOME", dir.path());
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    for step in 0..10 {
        let mut start = toll(&["server", "start"]).spawn().expect("toll");
        std::thread::sleep(Duration::from_millis(5 + 60 * step));
        start.kill().expect("killed");
        start.wait().expect("reaped");
        // Where it was quick enough, the server now stands on its own.
        assert!(toll(&["server", "stop"]).status().expect("stop").success());
        assert!(toll(&["clean"]).status().expect("clean").success());
        let left = |below: &str| {
            std::fs::read_dir(dir.path().join("toll").join(below)).into_iter().flatten().count()
        };
        assert_eq!((left("journal"), left("sandbox")), (0, 0), "killed at step {step}");
        let home = dir.path().to_string_lossy().into_owned();
        let holders = std::fs::read_dir("/proc").expect("/proc").flatten().filter(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|text| String::from_utf8_lossy(&text).contains(&home))
        });
        assert_eq!(holders.count(), 0, "killed at step {step}");
    }
}
