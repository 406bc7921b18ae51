//! Tests of the backup scenarios: a site's database, dumps direct, through SSH and from a far end.

use serde_json::Value;
use std::path::Path;
use std::process::Command;
use toll_testkit::lab::{Lab, arm, output_text, read_result};

fn lines(run: &str, file: &str) -> Vec<Value> {
    let bytes = std::fs::read(Path::new(run).join(file)).unwrap();
    let text = if file.ends_with(".zst") { zstd::decode_all(bytes.as_slice()).unwrap() } else { bytes };
    let text = String::from_utf8(text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A scenario of commands on a site's database, each of them measured until it is done.
fn on_site(scale: f64, rounds: u32, head: &str, arms: &[(&str, &str)]) -> String {
    let mut text = format!(
        "name = \"site\"\nquestion = \"?\"\nbaseline = \"{}\"\nprimary = \"elapsed_s\"\n{head}\n\
         [workload]\ndriver = \"none\"\n[data]\nrecipe = \"website\"\nscale = {scale}\n\
         [profile.quick]\nrounds = {rounds}\nwindow = \"60s\"\nsettle = \"0s\"\n\
         [define]\nlogin = \"--defaults-extra-file={{client_defaults}} --socket={{socket}}\"\n",
        arms[0].0
    );
    for (i, (name, keys)) in arms.iter().enumerate() {
        let role = if i == 0 { "baseline" } else { "treatment" };
        text += &format!(
            "[[arm]]\nname = \"{name}\"\ntitle = \"{name}\"\nrole = \"{role}\"\nends = \"closes-window\"\nat_most = \"60s\"\n{keys}\n"
        );
    }
    text
}

fn run(lab: &Lab, arguments: &[&str]) -> (Value, String) {
    let out = lab.path("run");
    let _ = std::fs::remove_dir_all(&out);
    let run = lab.toll(&[&["run"], arguments, &["--out", &out]].concat());
    assert!(run.status.success(), "{}", output_text(&run));
    lab.assert_nothing_left();
    (read_result(&out), out)
}

#[test]
fn a_site_is_the_same_wherever_it_is_loaded_and_holds_the_rows_of_its_scale() {
    let lab = toll_testkit::lab!();
    let tables = "SELECT GROUP_CONCAT(table_name ORDER BY table_name) FROM information_schema.tables WHERE table_schema";
    let script = lab.write(
        "sums.sh",
        &format!(
            "set -e\nask() {{ mariadb \"$1\" \"$2\" -N -B -e \"$4\" \"$3\"; }}\n\
             all=$(ask \"$1\" \"$2\" \"$3\" \"{tables} = '$3'\")\n\
             for table in $(echo $all | tr , ' '); do\n\
             ask \"$1\" \"$2\" \"$3\" \"SELECT '$table', COUNT(*) FROM $table\" >> \"$4\"\n\
             ask \"$1\" \"$2\" \"$3\" \"CHECKSUM TABLE $table\" >> \"$4\"\ndone\n\
             ask \"$1\" \"$2\" \"$3\" \"SELECT COUNT(*) FROM comments LEFT JOIN posts ON posts.id = post_id WHERE posts.id IS NULL\" >> \"$4\"\n\
             ask \"$1\" \"$2\" \"$3\" \"SELECT HEX(CONVERT(GROUP_CONCAT(body) USING utf8mb4)) REGEXP 'F09F' FROM comments\" >> \"$4\"\n",
        ),
    );
    let sums = |cache: &str, seed: u32| -> Vec<String> {
        let into = lab.path(&format!("{cache}-{seed}.sums"));
        let command = format!("command = \"sh {script} {{login}} {{schema}} {into}\"");
        let text = on_site(0.001, 1, "", &[("sums", &command)])
            .replace("scale = 0.001", &format!("scale = 0.001\nseed = {seed}"));
        let scenario = lab.write("sums.toml", &text);
        let (cache, out) = (lab.path(cache), lab.path(&format!("run-{cache}-{seed}")));
        let run = lab.toll_with(&[("XDG_CACHE_HOME", &cache)], &["run", &scenario, "--out", &out]);
        assert!(run.status.success(), "{}", output_text(&run));
        // The rehearsal before the first trial has asked too.
        let text = std::fs::read_to_string(into).unwrap();
        let all: Vec<String> = text.lines().map(str::to_owned).collect();
        assert_eq!(all[..all.len() / 2], all[all.len() / 2..]);
        all[..all.len() / 2].to_vec()
    };
    let first = sums("one", 1);
    // 21 tables with a count and a checksum each, and two questions.
    assert_eq!(first.len(), 44, "{first:#?}");
    let count = |table: &str| first.iter().find_map(|line| line.strip_prefix(&format!("{table}\t"))).unwrap();
    assert_eq!((count("posts"), count("comments"), count("languages")), ("46", "118", "1"));
    assert_eq!(first[42..], ["0", "1"], "each comment has a post, and some a face");
    assert_eq!(sums("two", 1), first);
    let sum = |all: &[String], table: &str| {
        all.iter().find(|line| line.starts_with(&format!("toll_load.{table}\t"))).unwrap().clone()
    };
    let other = sums("one", 2);
    assert_ne!(sum(&other, "posts"), sum(&first, "posts"));
}

#[test]
fn a_site_that_was_there_is_used_if_it_is_large_enough() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let dump = "command = \"mariadb-dump {login} {schema} posts\"";
    let scenario = lab.write("site.toml", &on_site(0.001, 1, "", &[("dump", dump)]));
    let of = |more: &[&str]| {
        let (dsn, out) = (server.dsn(), lab.path("run"));
        let _ = std::fs::remove_dir_all(&out);
        lab.toll(&[&["run", scenario.as_str(), "--server", &dsn, "--out", &out], more].concat())
    };
    let made = of(&["--allow-schema", "shop"]);
    assert!(made.status.success(), "{}", output_text(&made));
    assert!(!server.schemas().contains("shop"), "what toll makes it drops");
    server.run("CREATE DATABASE small");
    let refused = of(&["--schema", "small"]);
    assert!(!refused.status.success());
    assert!(
        output_text(&refused).contains("the schema small has no table languages of 1 row"),
        "{}",
        output_text(&refused)
    );
}

#[test]
fn scale_is_told_from_the_command_line_to_the_profile_to_the_data() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let dump = "command = \"mariadb-dump {login} {schema} tags\"";
    let text =
        on_site(0.002, 1, "", &[("dump", dump)]).replace("settle = \"0s\"", "settle = \"0s\"\nscale = 0.001");
    let scenario = lab.write("site.toml", &text);
    let (_, first) = run(&lab, &[&scenario]);
    let scale = |run: &str| {
        let plan: Value =
            serde_json::from_slice(&std::fs::read(Path::new(run).join("plan.json")).unwrap()).unwrap();
        plan["setup"]["data"]["scale"].as_f64()
    };
    assert_eq!(scale(&first), Some(0.001));
    let (_, second) = run(&lab, &[&scenario, "--scale", "0.0005"]);
    assert_eq!(scale(&second), Some(0.0005));
    for (asked, expected) in [
        (vec!["run", "durability", "--scale", "0.5"], "data of the recipe sbtest has no scale"),
        (
            vec!["run", scenario.as_str(), "--scale", "0"],
            "scale = 0: it is a share of the recipe's full size",
        ),
    ] {
        let refused = lab.toll(&[asked, vec!["--out", &lab.path("none")]].concat());
        assert!(
            !refused.status.success() && output_text(&refused).contains(expected),
            "{}",
            output_text(&refused)
        );
    }
    assert!(Path::new(&out).exists() && !Path::new(&lab.path("none")).exists());
}

const SHORT: [&str; 10] =
    ["--profile", "quick", "--rounds", "1", "--window", "60s", "--settle", "0s", "--gap", "0s"];

#[test]
fn system_one_and_five_dumps_direct_and_through_ssh_are_priced_and_their_penalty_is_told() {
    let lab = toll_testkit::lab!();
    let (result, out) = run(&lab, &[&["backup-load", "--scale", "0.002"], &SHORT[..]].concat());
    for (name, dumps) in [("direct-1", 1), ("direct-5", 5), ("ssh-1", 1), ("ssh-5", 5)] {
        let arm = arm(&result, name);
        assert_eq!(arm["windows"], 1, "{arm:#}");
        // What a dump of a five-hundredth of the site holds, more or less, and each copy writes all of it.
        let bytes = arm["outcomes"]["output_bytes"]["mean"].as_f64().unwrap();
        assert!((3e6..6e6).contains(&(bytes / f64::from(dumps))), "{name}: {bytes}");
        for outcome in
            ["elapsed_s", "cpu_us", "process_seconds", "first_output_s", "output_pause_s", "output_paused_s"]
        {
            assert!(arm["outcomes"][outcome]["mean"].is_number(), "{name} has no {outcome}");
        }
    }
    let of = |name: &str| arm(&result, name)["outcomes"]["output_bytes"]["mean"].as_f64().unwrap();
    assert!((of("ssh-5") / of("direct-5") - 1.0).abs() < 0.001, "the same dumps");
    let contrasts = result["contrasts"].as_array().unwrap();
    let names: Vec<_> = contrasts.iter().map(|contrast| contrast["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["penalty-direct", "penalty-ssh"]);
    assert!(
        contrasts.iter().all(|contrast| contrast["pairs"] == 1 && contrast["ratio"].is_number()),
        "{contrasts:?}"
    );
    let outputs: Vec<Value> =
        lines(&out, "samples.ndjson.zst").into_iter().filter(|s| s["kind"] == "output").collect();
    let ends = lines(&out, "trials.ndjson").into_iter().filter(|line| line["step"] == "stopped");
    for stopped in ends {
        for process in stopped["processes"].as_array().unwrap() {
            let own =
                outputs.iter().filter(|o| o["trial"] == stopped["trial"] && o["process"] == process["name"]);
            let sum: u64 = own.map(|output| output["output_bytes"].as_u64().unwrap()).sum();
            assert_eq!(process["output_bytes"].as_u64(), Some(sum), "{process:#}");
        }
    }
    let page = std::fs::read_to_string(format!("{out}/report.html")).unwrap();
    assert!(toll_testkit::report_page::page_data(&page).contains("What treatments write"));
}

#[test]
fn system_a_command_that_pauses_is_found_out() {
    let lab = toll_testkit::lab!();
    let pausing = "command = \"sh -c 'seq 100000; sleep 1.5; seq 200000; exec sleep 0.2'\"";
    let text = format!(
        "name = \"pause\"\nquestion = \"?\"\nsubject = \"host\"\nbaseline = \"steady\"\nprimary = \"elapsed_s\"\n\
         [profile.quick]\nrounds = 1\nwindow = \"20s\"\nsettle = \"0s\"\n\
         [[arm]]\nname = \"steady\"\ntitle = \"steady\"\nrole = \"baseline\"\nends = \"closes-window\"\ncommand = \"seq 9000000\"\n\
         [[arm]]\nname = \"pausing\"\ntitle = \"pausing\"\nends = \"closes-window\"\n{pausing}\n"
    );
    let scenario = lab.write("pause.toml", &text);
    let (result, _) = run(&lab, &[&scenario]);
    let pauses = result["pauses"].as_array().unwrap();
    assert!(pauses.iter().all(|pause| pause["arm"] == "pausing") && !pauses.is_empty(), "{pauses:#?}");
    let longest = arm(&result, "pausing")["outcomes"]["output_pause_s"]["mean"].as_f64().unwrap();
    assert!(longest >= 1.2, "{longest}");
    assert_eq!(arm(&result, "steady")["outcomes"]["output_bytes"]["mean"], 70_888_896.0);
}

#[test]
fn system_what_users_feel_of_dumps_and_of_tables_is_told() {
    let lab = toll_testkit::lab!();
    let small =
        ["--scale", "0.002", "--rows", "2000", "--profile", "quick", "--rounds", "1", "--settle", "100ms"];
    let (result, _) =
        run(&lab, &[&["backup-users"], &small[..], &["--window", "2s", "--gap", "2s"]].concat());
    for name in ["users", "row-by-row", "five-dumps", "opt", "locks"] {
        assert_eq!(arm(&result, name)["windows"], 1, "{:#}", arm(&result, name));
    }
    let outcomes = &arm(&result, "row-by-row")["outcomes"];
    for outcome in ["over_100ms_pct", "history_list_peak", "pool_reads_per_s", "recovery_s", "output_bytes"] {
        let of = if outcome.ends_with("_s") || outcome.contains("list") {
            &arm(&result, "users")["outcomes"]
        } else {
            outcomes
        };
        assert!(of[outcome]["mean"].is_number() || outcome == "recovery_s", "no {outcome}: {of:#}");
    }
    let (result, _) = run(&lab, &[&["backup-tables"], &small[..], &["--window", "500ms"]].concat());
    for name in ["users", "posts", "media", "comments", "progress"] {
        assert_eq!(arm(&result, name)["windows"], 1, "{:#}", arm(&result, name));
    }
}

#[test]
fn system_ways_of_dumping_and_compressing_are_compared() {
    let lab = toll_testkit::lab!();
    let (result, _) = run(&lab, &[&["backup-options", "--scale", "0.002"], &SHORT[..]].concat());
    let output = |name: &str| arm(&result, name)["outcomes"]["output_bytes"]["mean"].as_f64().unwrap();
    for name in ["row-by-row", "extended", "opt", "buffered", "ordered", "tab", "tables-4"] {
        assert_eq!(arm(&result, name)["windows"], 1, "{:#}", arm(&result, name));
        assert!((2.5e6..6e6).contains(&output(name)), "{name}: {}", output(name));
    }
    assert!(output("extended") < output("row-by-row") && output("tables-4") > output("row-by-row"));
    assert_eq!(
        result["pareto"]["text"],
        "Nothing is recommended of these variants: an interval needs 6 rounds or more."
    );

    let (result, _) = run(&lab, &[&["backup-compression", "--scale", "0.002"], &SHORT[..]].concat());
    let left = |name: &str| arm(&result, name)["outcomes"]["artefact_bytes"]["mean"].as_f64();
    for name in ["gzip", "gzip-1", "zstd", "zstd-4"] {
        assert!(left(name).unwrap() < 0.6 * left("plain").unwrap(), "{name}: {:?}", left(name));
    }
    for name in ["tcp", "protocol", "ssh", "ssh-c"] {
        assert_eq!((&arm(&result, name)["windows"], left(name)), (&1.into(), None), "{name}");
    }
    let traded = result["pareto"]["arms"].as_array().unwrap();
    assert_eq!(traded.len(), 5, "{traded:#?}");
}

#[test]
fn system_a_dump_is_pulled_from_the_far_end_at_the_rate_of_its_arm() {
    let lab = toll_testkit::lab!();
    if !lab.is_root {
        toll_testkit::skip!("a shaped link needs root");
        return;
    }
    let arms = "gigabit,gigabit-zstd,100mbit,10mbit,10mbit-protocol";
    let (result, out) =
        run(&lab, &[&["backup-network", "--scale", "0.002", "--arms", arms], &SHORT[..]].concat());
    let of = |name: &str, outcome: &str| arm(&result, name)["outcomes"][outcome]["mean"].as_f64().unwrap();
    for name in arms.split(',') {
        assert_eq!(arm(&result, name)["windows"], 1, "{:#}", arm(&result, name));
    }
    // No link carries more than its rate; a bucket's content may go ahead of it.
    for (name, mbit) in [("100mbit", 100.0), ("10mbit", 10.0)] {
        let seconds = of(name, "elapsed_s");
        assert!(of(name, "output_bytes") * 8.0 <= mbit * 1e6 * seconds * 1.1 + 4e6, "{name}: {seconds} s");
    }
    assert!(of("10mbit-protocol", "net_bytes") < 0.75 * of("10mbit", "net_bytes"), "the protocol compresses");
    // What runs there is not this host's.
    let ends = lines(&out, "trials.ndjson").into_iter().filter(|line| line["step"] == "window-end");
    let of_arm: Vec<Value> = ends.filter(|line| line["arm"] == "gigabit").collect();
    assert!(
        of_arm
            .iter()
            .all(|end| end["cpu"]["treatment_us"] == 0 && end["cpu"]["remote_us"].as_u64() > Some(0))
    );
}

#[test]
fn system_a_smaller_host_holds_the_server_and_the_treatments_and_is_gone_afterwards() {
    let lab = toll_testkit::lab!();
    if !lab.is_root
        || !(Path::new("/sys/fs/cgroup/cpu").exists()
            || Path::new("/sys/fs/cgroup/cgroup.controllers").exists())
    {
        toll_testkit::skip!("limits need root and control groups");
        return;
    }
    let seen = lab.path("seen");
    let look = format!("command = \"sh -c 'cat /proc/self/cgroup /proc/{{pid}}/cgroup >> {seen}'\"");
    let text = on_site(0.001, 1, "", &[("look", &look)])
        .replace("settle = \"0s\"", "settle = \"0s\"\nlimits = { cpus = 0.5, memory = \"700M\" }");
    let scenario = lab.write("small.toml", &text);
    let (_, out) = run(&lab, &[&scenario]);
    let groups = std::fs::read_to_string(&seen).unwrap();
    let limited: Vec<&str> = groups.lines().filter(|line| line.contains("-limits")).collect();
    // Of two processes, in a rehearsal and a trial, in one hierarchy or two.
    assert!([4, 8].contains(&limited.len()), "{groups}");
    let plan = std::fs::read_to_string(format!("{out}/plan.json")).unwrap();
    assert!(plan.contains("\"memory_bytes\": 734003200"), "{plan}");
    // Others' runs may have theirs at this moment.
    let name = limited[0].split('/').find(|part| part.ends_with("-limits")).unwrap();
    let found = Command::new("find").args(["/sys/fs/cgroup", "-name", name]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "a group is left");
}
