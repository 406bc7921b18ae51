//! Tests that a run stores profiles of the captures that it sent, and that every form of a report shows them.
//!
//! Between two network namespaces of the run's own; skipped visibly without root.

use serde_json::Value;
use toll_record::RunDir;
use toll_testkit::lab::output_text;

#[test]
fn a_run_over_rates_keeps_what_it_sent_and_draws_loss_by_rate() {
    if !nix::unistd::geteuid().is_root() {
        toll_testkit::skip!("a link between namespaces needs root");
        return;
    }
    let lab = toll_testkit::lab!();
    // As it comes with toll, but for its size.
    let text = include_str!("../../../../scenarios/packet-loss.toml")
        .replace("-c 100000", "-c 2000")
        .replace("kind = \"packets\"", "kind = \"packets\"\nsets = \"http,skype\"\nseconds = \"2\"");
    let scenario = lab.write("loss.toml", &text);
    let out = lab.path("run");
    let arms = "http-100,http-900,skype-100,skype-topspeed";
    let run = lab.toll(&["run", &scenario, "--rounds", "2", "--arms", arms, "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));

    let captures = RunDir::open(&out).unwrap().captures().unwrap().expect("profiles");
    let kept = captures.to_string();
    let names: Vec<&Value> =
        captures["profiles"].as_array().unwrap().iter().map(|one| &one["inputs"][0]["name"]).collect();
    assert_eq!(names, ["http", "skype"]);
    assert!(captures["profiles"][0]["protocols"]["tcp"]["packets_pct"].as_f64().unwrap() > 90.0);
    assert!(!kept.contains(lab.path("").trim_end_matches('/')), "it tells where the run lay");

    let report = lab.toll(&["report", &out]);
    let shown = String::from_utf8(report.stdout).unwrap();
    assert!(shown.contains("\nPackets lost by rate\n"), "{shown}");
    let row = |name: &str| {
        let mut rows = shown.lines().skip_while(|line| *line != "Packets lost by rate");
        let found = rows.find(|line| line.split_whitespace().next() == Some(name));
        found.unwrap_or_else(|| panic!("{shown}")).split_whitespace().skip(1).collect::<Vec<_>>()
    };
    assert_eq!((row("100").len(), row("http").len(), row("skype").len()), (2, 3, 3));
    // At 900 Mb/s only one of them ran, and as fast as it goes the other.
    assert!(row("http")[2] == "-" && row("skype")[1] == "-" && row("http")[0] != "-", "{shown}");

    let page = lab.path("page.html");
    let written = lab.toll(&["report", &out, "--format", "html", "-o", &page]);
    assert!(written.status.success(), "{}", output_text(&written));
    let page = toll_testkit::report_page::page_data(&std::fs::read_to_string(page).unwrap());
    assert!(page.contains("\"capture-lengths-skype\"") && page.contains("\"varied-loss-by-rate\""));
    lab.assert_nothing_left();
}
