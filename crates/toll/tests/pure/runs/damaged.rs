//! Tests that a run with damaged files ends in an error, or in a report with a warning.

use super::synthetic::{SyntheticArm, SyntheticRun};
use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::path::Path;
use toll_analysis as analyse;
use toll_record::{RunDir, RunResult};
use toll_report::text::{ColourMode, Detail, text};
use toll_report::{html, markdown};
use toll_stats::SeededRng;

/// Files of a run, without those that the analysis writes.
const FILES: [&str; 6] =
    ["plan.json", "host.json", "trials.ndjson", "samples.ndjson.zst", "latency.hlog.zst", "artefacts.ndjson"];

/// Warnings about incomplete files.
const DAMAGE_WARNINGS: [&str; 4] =
    ["incomplete", "samples-missing", "latency-missing", "artefact-not-counted"];

struct Run {
    directory: tempfile::TempDir,
    files: BTreeMap<&'static str, Vec<u8>>,
}

impl Run {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("the run can be written, read and shown");
        let root = directory.path().join("run");
        let mut host = SyntheticRun::with(7, 6, SyntheticArm::usual());
        host.window_s = 1.0;
        host.write(&root).expect("the run can be written, read and shown");
        let files = FILES
            .map(|file| {
                (file, std::fs::read(root.join(file)).expect("the run can be written, read and shown"))
            })
            .into();
        Run { directory, files }
    }

    /// The analysis of the run with one file replaced (`None`: gone), shown in every form.
    fn with(&self, file: &'static str, content: Option<&[u8]>) -> Result<RunResult, String> {
        let root = self.directory.path().join("run");
        match content {
            Some(bytes) => {
                std::fs::write(root.join(file), bytes).expect("the run can be written, read and shown")
            }
            None => std::fs::remove_file(root.join(file)).expect("the run can be written, read and shown"),
        }
        let shown = catch_unwind(|| analyse_and_render(&root));
        std::fs::write(root.join(file), &self.files[file]).expect("the run can be written, read and shown");
        shown.unwrap_or_else(|_| panic!("a panic over {file}: {content:?}"))
    }
}

fn analyse_and_render(root: &Path) -> Result<RunResult, String> {
    let dir = RunDir::open(root).map_err(|e| e.to_string())?;
    let run = analyse::analyse_run_dir(&dir).map_err(|e| e.to_string())?;
    let _ = html::html(std::slice::from_ref(&dir), std::slice::from_ref(&run));
    text(&run, ColourMode::Ansi, Detail::All);
    markdown::markdown(&run);
    Ok(run)
}

fn has_damage_warning(run: &RunResult) -> bool {
    run.warnings.iter().any(|w| DAMAGE_WARNINGS.contains(&w.code.as_str()))
}

fn is_same_result(a: &RunResult, b: &RunResult) -> bool {
    serde_json::to_string(a).expect("the run can be written, read and shown")
        == serde_json::to_string(b).expect("the run can be written, read and shown")
}

#[test]
fn a_run_that_is_cut_short_anywhere_never_passes_for_whole() {
    let run = Run::new();
    let whole = run.with("host.json", Some(&run.files["host.json"])).unwrap();
    assert!(whole.complete && !has_damage_warning(&whole), "{:#?}", whole.warnings);
    let mut draws = SeededRng::new(11, 0);
    for file in FILES {
        let bytes = &run.files[file];
        for _ in 0..24 {
            let keep = (draws.next_fraction() * bytes.len() as f64) as usize;
            let Ok(found) = run.with(file, Some(&bytes[..keep])) else { continue };
            // What lies behind the last window is in no figure but toll's own cost.
            let told = has_damage_warning(&found) || is_same_result(&found, &whole);
            assert!(told, "{file} cut at {keep} of {}: {:#?}", bytes.len(), found.warnings);
        }
        if let Ok(found) = run.with(file, None) {
            assert!(has_damage_warning(&found), "without {file}: {:#?}", found.warnings);
        }
    }
}

#[test]
fn a_run_with_lines_lost_never_passes_for_whole() {
    let run = Run::new();
    let whole = run.with("host.json", Some(&run.files["host.json"])).unwrap();
    let mut draws = SeededRng::new(12, 0);
    for file in ["trials.ndjson", "samples.ndjson.zst", "latency.hlog.zst", "artefacts.ndjson"] {
        let is_compressed = file.ends_with(".zst");
        let bytes = &run.files[file];
        let plain = if is_compressed { zstd::decode_all(bytes.as_slice()).unwrap() } else { bytes.clone() };
        let lines: Vec<&[u8]> = plain.split_inclusive(|&b| b == b'\n').collect();
        for _ in 0..12 {
            let from = (draws.next_fraction() * lines.len() as f64) as usize;
            let content =
                [lines[..from].concat(), lines[from + (lines.len() - from) / 2..].concat()].concat();
            let content =
                if is_compressed { zstd::encode_all(content.as_slice(), 1).unwrap() } else { content };
            let Ok(found) = run.with(file, Some(&content)) else { continue };
            let lost = (lines.len() - from) / 2;
            // A few lines of samples are a tenth of a second or less.
            assert!(
                has_damage_warning(&found)
                    || is_same_result(&found, &whole)
                    || (file == "samples.ndjson.zst" && lost < 12),
                "{file}: {lost} of {} lines lost from {from} on: {:#?}",
                lines.len(),
                found.warnings
            );
        }
    }
}

#[test]
fn bytes_that_flip_end_in_an_error_or_a_report() {
    let run = Run::new();
    let mut draws = SeededRng::new(13, 0);
    let (mut errors, mut reports) = (0, 0);
    for file in FILES {
        for _ in 0..60 {
            let mut bytes = run.files[file].clone();
            let at = (draws.next_fraction() * bytes.len() as f64) as usize;
            bytes[at] ^= 1 << (draws.next_fraction() * 8.0) as u8;
            match run.with(file, Some(&bytes)) {
                Ok(_) => reports += 1,
                Err(_) => errors += 1,
            }
        }
    }
    assert!(errors > 0 && reports > 0, "{errors} errors, {reports} reports");
}
