//! Test of capture-league: each tool that can run here starts, records and ends, and any other says why it cannot.

use toll_testkit::lab::{arm, output_text, read_result};
use toll_testkit::pages::repository;

#[test]
fn every_tool_of_the_league_runs_or_says_why_it_cannot() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("captures need root");
        return;
    }
    // What `scripts/setup --league` has built, where it was run.
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", repository().join("target/league/bin").display());
    let out = lab.path("run");
    let words =
        ["run", "capture-league", "--profile", "text", "--rounds", "1", "--window", "1s", "--rows", "500"];
    let run = lab.toll_with(&[("PATH", &path)], &[&words[..], &["--seed", "3", "--out", &out]].concat());
    assert!(run.status.success(), "{}", output_text(&run));
    let result = read_result(&out);
    for found in result["arms"].as_array().unwrap() {
        let ran = found["windows"] == 1;
        assert!(ran == found["unavailable"].is_null(), "{found}");
    }
    for name in ["tcpdump-file", "slowlog-all", "toll-queries"] {
        let ratio = arm(&result, name)["captured_ratio"].as_f64();
        assert!(ratio.is_some_and(|ratio| ratio > 0.3), "{name} recorded {ratio:?}");
    }
    lab.assert_nothing_left();
}
