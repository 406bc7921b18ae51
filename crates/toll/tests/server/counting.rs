//! Tests of variants that say by commands of their own what they recorded, and whether they can run.

use toll_testkit::lab::{arm, output_text, read_result, scenario};

#[test]
fn a_command_of_the_variant_counts_what_its_tool_wrote_inside_the_window() {
    let lab = toll_testkit::lab!();
    // Three lines in ten milliseconds, one of which is a query to it.
    let tool = r#"
[[arm]]
name = "tool"
title = "writes without end"
command = "sh -c 'while :; do echo query; echo; echo; sleep 0.01; done'"
stdout = "{artefact}"
artefact = "lines"
count_with = "grep -c query"
[[arm]]
name = "mute"
title = "its counter fails"
command = "sh -c 'while :; do echo x; sleep 0.01; done'"
stdout = "{artefact}"
artefact = "lines"
count_with = "echo many"
"#;
    let (text, out) = (lab.write("count.toml", &scenario(2, tool)), lab.path("run"));
    let run = lab.toll(&["run", &text, "--seed", "3", "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let result = read_result(&out);
    let counted = &arm(&result, "tool")["artefact"];
    let (queries, bytes) = (counted["queries"].as_u64().unwrap(), counted["bytes"].as_u64().unwrap());
    assert_eq!(counted["counted_by"], "grep");
    // A query has six bytes, and two lines of one byte behind it: an edge may lie between them.
    assert!(queries > 0 && queries.abs_diff(bytes / 8) <= 4, "{queries} in {bytes} bytes");
    let mute = arm(&result, "mute");
    assert!(mute["artefact"]["queries"].is_null(), "{mute}");
    assert!(mute["notes"].to_string().contains("printed no number but \\\"many\\\""), "{mute}");
    lab.assert_nothing_left();
}

#[test]
fn a_variant_whose_check_fails_is_unavailable_with_the_reason_that_the_check_prints() {
    let lab = toll_testkit::lab!();
    let arms = r#"
[[arm]]
name = "refused"
title = "cannot run here"
check = "sh -c 'test -e \"$0.none\" || { echo no probes in \"$0\"; exit 1; }' {server_bin}"
command = "sleep 9"
[[arm]]
name = "allowed"
title = "can"
check = "test -e {server_bin}"
command = "sleep 9"
"#;
    let (text, out) = (lab.write("check.toml", &scenario(1, arms)), lab.path("run"));
    let run = lab.toll(&["run", &text, "--seed", "3", "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let result = read_result(&out);
    let why = arm(&result, "refused")["unavailable"].as_str().unwrap_or_default();
    assert!(why.starts_with("no probes in /") && why.ends_with("mariadbd"), "{why}");
    assert!(arm(&result, "allowed")["unavailable"].is_null(), "{result}");
    assert_eq!(arm(&result, "allowed")["windows"], 1);
    // A preview starts nothing, and so does not know.
    let dry = output_text(&lab.toll(&["run", &text, "--dry-run"]));
    assert!(!dry.contains("no probes"), "{dry}");
    lab.assert_nothing_left();
}
