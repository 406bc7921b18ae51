//! Budgets of toll's own instruments in instructions, which no other program on the host can spend: `bench/exact`.

use crate::exact::optimised;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use toll_testkit::lab::output_text;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Budgets {
    run: Vec<BudgetRun>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BudgetRun {
    name: String,
    words: Vec<String>,
    bounds: Vec<String>,
}

fn bench_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/exact")
}

/// Whether the run keeps its bounds, or these instead, and its report. `None`: it cannot be carried out here.
fn holds(name: &str, bounds: Option<&[&str]>) -> Option<(bool, String)> {
    let lab = optimised()?;
    let text = std::fs::read_to_string(bench_dir().join("budgets.toml")).unwrap();
    let budgets: Budgets = toml::from_str(&text).unwrap();
    let run = budgets.run.into_iter().find(|run| run.name == name).unwrap();
    let words = run.words.into_iter().map(|word| {
        let file = bench_dir().join("../..").join(&word);
        if word.ends_with(".toml") { file.canonicalize().unwrap().display().to_string() } else { word }
    });
    let out = lab.path(name);
    let bounds = bounds.map_or(run.bounds, |own| own.iter().map(|&bound| bound.to_owned()).collect());
    let words: Vec<String> = ["run".to_owned()]
        .into_iter()
        .chain(words)
        .chain(["--exact", "--rounds", "4", "--out", &out].map(str::to_owned))
        .chain(bounds.into_iter().flat_map(|bound| ["--fail-if".to_owned(), bound]))
        .collect();
    let ran = lab.toll(&words.iter().map(String::as_str).collect::<Vec<_>>());
    lab.assert_nothing_left();
    Some((ran.status.success(), output_text(&ran)))
}

#[test]
fn captures_keep_their_budgets() {
    let Some((kept, report)) = holds("captures", None) else { return };
    assert!(kept, "{report}");
}

#[test]
fn the_load_generator_keeps_its_budget() {
    let Some((kept, report)) = holds("load", None) else { return };
    assert!(kept, "{report}");
}

#[test]
fn dumps_keep_their_budgets() {
    let Some((kept, report)) = holds("dumps", None) else { return };
    assert!(kept, "{report}");
}

#[test]
fn the_digest_keeps_its_budget() {
    let Some((kept, report)) = holds("digest", None) else { return };
    assert!(kept, "{report}");
}

#[test]
fn a_budget_that_is_exceeded_fails() {
    let Some((kept, report)) = holds("load", Some(&["toll.driver_cpu_us_per_query>-99%"])) else { return };
    assert!(!kept && report.contains("toll.driver_cpu_us_per_query"), "{report}");
}
