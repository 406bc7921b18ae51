//! Tests of the processes that a run starts: what they may know, what they used, and that none stays.

use super::{on_host, small};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use toll_testkit::lab::{arm, output_text, read_result, read_steps};

#[test]
fn no_secret_of_tolls_own_environment_reaches_a_treatment() {
    let lab = toll_testkit::lab!();
    let (out, seen) = (lab.path("run"), lab.path("environment"));
    let scenario = lab.write("env.toml", &on_host("sh -c 'env > {seen}; sleep 60'").replace("{seen}", &seen));
    let run = lab.toll_with(
        &[("MYSQL_PWD", "geheim-1"), ("AWS_SECRET_ACCESS_KEY", "geheim-2")],
        &["run", &scenario, "--out", &out],
    );
    assert!(run.status.success(), "{}", output_text(&run));
    let environment = std::fs::read_to_string(&seen).unwrap();
    assert!(environment.contains("PATH=") && !environment.contains("geheim"), "{environment}");
}

#[test]
fn whoever_counts_after_the_last_window_is_in_the_journal_and_bears_the_mark() {
    let lab = toll_testkit::lab!();
    std::fs::create_dir(lab.path("bin")).unwrap();
    let (seen, out) = (lab.path("seen"), lab.path("run"));
    let counter = lab.write(
        "bin/pt-query-digest",
        &format!(
            "#!/bin/sh\ncat >/dev/null\nuntil grep pt-query-digest \"$XDG_STATE_HOME\"/toll/journal/* >{seen}; \
             do sleep 0.05; done\nenv >>{seen}\necho '{{\"global\": {{\"query_count\": 7}}}}'\n"
        ),
    );
    std::fs::set_permissions(&counter, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", lab.path("bin"), std::env::var("PATH").unwrap());
    let asked = [
        "run",
        "tcpdump-impact",
        "--profile",
        "quick",
        "--arms",
        "slowlog-all",
        "--rounds",
        "1",
        "--out",
        &out,
    ];
    let options = ["--window", "300ms", "--rows", "500", "--rate", "300"];
    let run = lab.toll_with(&[("PATH", &path)], &[&asked[..], &options].concat());
    assert!(run.status.success(), "{}", output_text(&run));
    let seen = std::fs::read_to_string(&seen).unwrap_or_default();
    assert!(seen.contains("\"what\":\"pt-query-digest\"") && seen.contains("TOLL_RUN="), "{seen}");
    let result = read_result(&out);
    let arm = arm(&result, "slowlog-all");
    assert_eq!(arm["artefact"]["pt_query_digest"]["queries"], 7, "{arm}");
    lab.assert_nothing_left();
}

#[test]
fn processes_that_went_their_own_way_are_found_and_ended() {
    let lab = toll_testkit::lab!();
    if !lab.has_cgroups() {
        toll_testkit::skip!("control groups (cgroup v2) cannot be made here");
        return;
    }
    let out = lab.path("run");
    let mark = format!("7{}", std::process::id());
    let scenario =
        lab.write("stray.toml", &on_host(&format!("sh -c 'env -i setsid sleep {mark} & exec sleep 60'")));
    let run = lab.toll(&["run", &scenario, "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let alive = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|text| text == format!("sleep\0{mark}\0").as_bytes())
    });
    assert_eq!(alive.count(), 0);
    let trials = std::fs::read_to_string(Path::new(&out).join("trials.ndjson")).unwrap();
    assert!(trials.contains("left 1 processes behind"), "{trials}");
    lab.assert_nothing_left();
}

#[test]
fn system_what_ended_children_used_is_the_treatments_too() {
    let lab = toll_testkit::lab!();
    if !lab.has_cgroups() {
        toll_testkit::skip!("control groups (cgroup v2) cannot be made here");
        return;
    }
    let out = lab.path("run");
    let busy = lab.write("busy.sh", "while :; do timeout 0.05 sh -c 'while :; do :; done'; done\n");
    let scenario = lab.write("busy.toml", &on_host(&format!("sh {busy}")));
    let run = lab.toll(&["run", &scenario, "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let trials = std::fs::read_to_string(Path::new(&out).join("trials.ndjson")).unwrap();
    let lines = trials.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let edges: Vec<_> = lines.filter(|line| line["arm"] == "it" && line["cpu"].is_object()).collect();
    let used = |edge: &serde_json::Value| edge["cpu"]["treatment_us"].as_u64().unwrap();
    // Of 1.2 s, on a host that may be busy with other things; the shell itself uses a thousandth.
    let used_us: u64 = edges.chunks(2).map(|window| used(&window[1]) - used(&window[0])).sum();
    assert!(used_us > 40_000, "{used_us} us in {edges:?}");
}

#[test]
fn an_arm_that_fails_once_is_tried_again_and_one_that_never_works_is_given_up() {
    let lab = toll_testkit::lab!();
    let (out, flag) = (lab.path("run"), lab.path("flag"));
    let first = format!("sh -c 'test -e {flag} && exec sleep 60; touch {flag}; exit 3'");
    let never = "\n[[arm]]\nname = \"never\"\ntitle = \"never works\"\ncommand = \"false\"\n";
    let scenario = lab.write("once.toml", &(on_host(&first) + never));
    let run = lab.toll(&["run", &scenario, "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    // What was done, not what is counted: a window in which other guests took much of the CPU is left out.
    let of =
        |name: &str, step: &str| read_steps(&out, step).iter().filter(|line| line["arm"] == name).count();
    assert_eq!((of("none", "window-end"), of("none", "failed")), (4, 0));
    assert_eq!((of("it", "window-end"), of("it", "failed")), (3, 1));
    assert_eq!((of("never", "window-end"), of("never", "failed")), (0, 2));
}

#[test]
fn system_a_tool_that_ends_only_once_the_load_stands_still_ends_by_its_own_signal() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    // As a packet socket that waits for every CPU to be quiet: here the driver's state tells.
    let script = lab.write(
        "waits.sh",
        "trap 'while ! grep -qs \"^State:.T\" $(grep -lsz \"^load$\" /proc/[0-9]*/cmdline | sed s/cmdline/status/); \
         do sleep 0.01; done; exit 0' TERM\nwhile :; do sleep 0.02; done\n",
    );
    // A load in a closed loop: one at a rate would come to itself with a backlog, and is not stopped.
    let closed = small(&format!("bash {script}")).replace("rate = 300.0\n", "");
    let scenario = lab.write("waits.toml", &closed);
    let run = lab.toll(&["run", &scenario, "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let trials = std::fs::read_to_string(Path::new(&out).join("trials.ndjson")).unwrap();
    assert!(!trials.contains("ignored its signal") && !trials.contains("failed"), "{trials}");
    assert_eq!(read_result(&out)["rounds_done"], 4);
}
