//! Tests that every form of a report shows the same analysis, whatever an earlier one stored in the run.

use super::synthetic::{SyntheticArm, SyntheticRun};
use std::path::Path;
use std::process::Command;
use toll_analysis as analyse;
use toll_record::{RunDir, write_json};

fn report(run: &Path, format: &str) -> Vec<u8> {
    let mut toll = Command::new(env!("CARGO_BIN_EXE_toll"));
    let output = toll.arg("report").arg(run).args(["--format", format]).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn a_changed_result_in_a_run_changes_no_report() {
    let dir = tempfile::tempdir().unwrap();
    let run = dir.path().join("run");
    SyntheticRun::with(8, 8, SyntheticArm::usual()).write(&run).unwrap();
    let mut result = analyse::analyse_run_dir(&RunDir::open(&run).unwrap()).unwrap();
    write_json(&run, "result.json", &result).unwrap();
    let formats = ["text", "json", "md", "html"];
    let before = formats.map(|format| report(&run, format));
    result.answer = "The answer of an earlier build.".into();
    result.arms.truncate(2);
    write_json(&run, "result.json", &result).unwrap();
    let changed = formats.map(|format| report(&run, format));
    std::fs::remove_file(run.join("result.json")).unwrap();
    let without = formats.map(|format| report(&run, format));
    for (at, format) in formats.iter().enumerate() {
        assert!(before[at] == changed[at] && before[at] == without[at], "{format} shows what the run holds");
    }
}
