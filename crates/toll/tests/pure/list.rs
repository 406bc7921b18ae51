//! Tests of `toll list`: it fits a screen, and shows what a scenario needs.

use toll_model::scenario::PRESETS;
use toll_testkit::lab::output_text;

fn list(arguments: &[&str]) -> String {
    let output = crate::lab!().toll(&[&["list"], arguments].concat());
    assert!(output.status.success(), "{}", output_text(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_list_fits_a_screen_and_has_every_scenario_in_a_group() {
    let listed = list(&[]);
    // A line is left for the prompt.
    assert!(listed.lines().count() <= 23, "{listed}");
    assert!(listed.lines().all(|line| line.chars().count() <= 100), "{listed}");
    let mut groups = Vec::new();
    for line in listed.lines().filter(|line| !line.starts_with(' ')) {
        groups.push(line.split_whitespace().next().unwrap());
    }
    assert_eq!(groups, ["GROUP", "capture", "loss", "server", "backup", "self-test", "Next:"]);
    for preset in PRESETS {
        let line = listed.lines().find(|line| line.split_whitespace().any(|word| word == preset.name));
        let line = line.unwrap_or_else(|| panic!("{} is not in {listed}", preset.name));
        let resolved = preset.scenario().unwrap();
        let profile = resolved.default_profile.clone().unwrap_or_default();
        assert!(line.contains(&format!(" {profile} ")), "{line}");
        assert!(line.ends_with(" min") || line.ends_with(" h"), "{line}");
    }
    assert!(!listed.contains("toll run tcpdump-impact"), "{listed}");
}

#[test]
fn a_scenario_is_shown_with_its_profiles_needs_variants_and_command() {
    let shown = list(&["packet-loss"]);
    for expected in [
        "packet-loss: How many packets",
        "Profiles   ",
        "quick ",
        " (default)",
        "Needs      root",
        "tcpdump",
        "Start      sudo toll run packet-loss --profile quick",
        "Judged by  dropped_pct, against http-100",
        "baseline   processes  http at 100 Mb/s",
        "loss_pct",
    ] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let lab = crate::lab!();
    let text = PRESETS.iter().find(|preset| preset.name == "durability").unwrap().text;
    let file = lab.write("mine.toml", &text.replace("name = \"durability\"", "name = \"mine\""));
    let mine = list(&[&file]);
    assert!(mine.contains(&format!("toll run {file} --profile")) && mine.contains("every commit"), "{mine}");
    assert!(mine.contains("Needs      no root"), "{mine}");
}

#[test]
fn workloads_and_metrics_are_listed_by_themselves() {
    let workloads = list(&["workloads"]);
    assert!(workloads.contains("read-only") && !workloads.contains("latency_us_mean"), "{workloads}");
    let metrics = list(&["metrics"]);
    assert!(metrics.contains("latency_us_mean") && !metrics.contains("oltp_"), "{metrics}");
    assert_eq!(list(&["outcomes"]), metrics);
}

#[test]
fn a_scenario_that_is_not_there_is_answered_in_a_short_line() {
    for (name, expected) in
        [("tcpdump-inpact", "Did you mean tcpdump-impact?"), ("nosuch", "`toll list` shows")]
    {
        for arguments in [&["list", name][..], &["run", name]] {
            let output = crate::lab!().toll(arguments);
            let said = output_text(&output);
            assert!(!output.status.success() && said.contains(expected), "{said}");
            assert!(said.trim().lines().count() == 1 && said.trim().chars().count() <= 120, "{said}");
        }
    }
}
