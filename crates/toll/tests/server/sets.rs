//! Tests that sets of processes run as planned, can be repeated, and are cleaned up after a kill.

use serde_json::Value;
use std::path::Path;
use toll_testkit::lab::{self, arm, output_text, read_result, read_steps};

fn plan_of(run: &str) -> Value {
    serde_json::from_slice(&std::fs::read(Path::new(run).join("plan.json")).unwrap()).unwrap()
}

/// A scenario about the host whose arm `set` has these keys.
fn on_host(rounds: u32, set: &str) -> String {
    format!(
        "name = \"set\"\nquestion = \"?\"\nsubject = \"host\"\nbaseline = \"one\"\nprimary = \"elapsed_s\"\n\
         [profile.quick]\nrounds = {rounds}\nwindow = \"1s\"\nsettle = \"10ms\"\n\
         [[arm]]\nname = \"one\"\ntitle = \"one\"\nrole = \"baseline\"\ncommand = \"sleep 0.1\"\n\
         ends = \"closes-window\"\nat_most = \"20s\"\n\
         [[arm]]\nname = \"set\"\ntitle = \"set\"\nends = \"closes-window\"\nat_most = \"20s\"\n{set}\n"
    )
}

#[test]
fn system_each_process_of_a_set_has_a_begin_an_end_and_what_it_used_of_its_own() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let set = "process = [\n\
        { name = \"pipe\", stages = [\"head -c 40000000 /dev/zero\", \"gzip -c\"], stdout = \"{artefact}\" },\n\
        { name = \"nap\", command = \"sleep 0.{copy}\", copies = 3, after = \"300ms\", stagger = \"200ms\" },\n\
        { name = \"beside\", command = \"sleep 60\", background = true }]\nartefact = \"bytes\"";
    let scenario = lab.write("set.toml", &on_host(2, set));
    let run = lab.toll(&["run", &scenario, "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let of_set: Vec<Value> =
        read_steps(&out, "stopped").into_iter().filter(|line| line["arm"] == "set").collect();
    assert_eq!(of_set.len(), 2);
    for stopped in &of_set {
        let all = stopped["processes"].as_array().unwrap();
        let named = |name: &str| all.iter().find(|process| process["name"] == name).unwrap();
        let at = |name: &str, key: &str| named(name)[key].as_u64().unwrap();
        let names: Vec<_> = all.iter().map(|process| process["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["pipe", "nap", "nap 2", "nap 3", "beside"]);
        let first = at("pipe", "begin_mono_us");
        assert!(at("nap", "begin_mono_us") >= first + 290_000, "{all:#?}");
        assert!(at("nap 3", "begin_mono_us") >= first + 690_000, "{all:#?}");
        assert!(at("nap 3", "end_mono_us") >= at("nap 3", "begin_mono_us") + 300_000, "{all:#?}");
        // 40 MB through gzip take CPU time, sleeping takes none.
        assert!(at("pipe", "cpu_us") > 20_000 && at("nap", "cpu_us") < 20_000, "{all:#?}");
        if lab.has_cgroups() && Path::new("/proc/pressure/cpu").exists() {
            assert!(
                named("pipe")["waited_cpu_us"].is_u64() && named("beside")["waited_io_us"].is_u64(),
                "{all:#?}"
            );
        }
        assert_eq!((&named("pipe")["exit"], &named("beside")["signal"]), (&0.into(), &15.into()));
    }
    let result = read_result(&out);
    let elapsed = arm(&result, "set")["outcomes"]["elapsed_s"]["mean"].as_f64().unwrap();
    assert!((0.9..20.0).contains(&elapsed), "{elapsed}");
    assert!(arm(&result, "set")["outcomes"]["artefact_bytes_per_s"]["mean"].as_f64().unwrap() > 0.0);
    lab.assert_nothing_left();
}

#[test]
fn a_member_that_fails_fails_the_trial_and_ends_the_others() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let set = "process = [{ command = \"sleep 30\" }, { command = \"sh -c 'sleep 0.2; exit 7'\", after = \"100ms\" }]";
    let scenario = lab.write("set.toml", &on_host(3, set));
    let run = lab.toll(&["run", &scenario, "--out", &out]);
    // Tried once beforehand, and refused there.
    assert!(
        !run.status.success() && output_text(&run).contains("sh failed (exit status: 7)"),
        "{}",
        output_text(&run)
    );
    assert!(!Path::new(&out).join("plan.json").exists());
    lab.assert_nothing_left();
}

#[test]
fn system_a_plan_is_repeated_in_the_same_order_with_the_same_jitter_and_statements() {
    let lab = toll_testkit::lab!();
    let text = lab::scenario(
        2,
        "[[arm]]\nname = \"again\"\ntitle = \"again\"\nrole = \"aa\"\n\
         [[arm]]\nname = \"log\"\ntitle = \"general log\"\nartefact = \"general-log\"\n\
         set = { log_output = \"FILE\", general_log_file = \"{artefact}\", general_log = \"1\" }\nfresh_sessions = true\n",
    );
    let scenario = lab.write("plan.toml", &text);
    let first = lab.path("first");
    let run = lab.toll(&["run", &scenario, "--out", &first, "--keep-artefacts"]);
    assert!(run.status.success(), "{}", output_text(&run));
    let plan = format!("{first}/plan.json");
    let twice = ["second", "third"].map(|name| lab.path(name));
    for out in &twice {
        let run = lab.toll(&["run", "--plan", &plan, "--out", out, "--keep-artefacts"]);
        assert!(run.status.success(), "{}", output_text(&run));
    }
    let planned = |run: &str| {
        let mut plan = plan_of(run);
        for key in ["command", "started_wall_us", "server"] {
            plan.as_object_mut().unwrap().remove(key);
        }
        // The server's port and socket are in what a reader is shown, not in what is carried out.
        plan["arms"].as_array_mut().unwrap().iter_mut().for_each(|arm| arm["command"] = Value::Null);
        plan
    };
    let order = |run: &str| -> Vec<Value> {
        read_steps(run, "window-begin").iter().map(|line| line["arm"].clone()).collect()
    };
    // The first statements of the first session that a log of the same round holds.
    let statements = |run: &str| -> Vec<String> {
        let logs = std::fs::read_dir(Path::new(run).join("artefacts")).unwrap().flatten();
        let mut logs: Vec<_> =
            logs.map(|log| log.path()).filter(|path| path.extension().is_some_and(|e| e == "log")).collect();
        logs.sort();
        let text = std::fs::read_to_string(&logs[0]).unwrap();
        let queries =
            text.lines().filter_map(|line| line.split_once("Execute\t").map(|(_, sql)| sql.to_owned()));
        let mut queries: Vec<String> = queries.take(20_000).collect();
        queries.sort();
        queries.dedup();
        queries
    };
    for out in &twice {
        assert_eq!(planned(out), planned(&first));
        assert_eq!(order(out), order(&first));
        // Drawn from the plan's seed: what one run asks for, the other does too.
        let (here, there) = (statements(out), statements(&first));
        let shared = here.iter().filter(|sql| there.binary_search(sql).is_ok()).count();
        // A host that is busy meanwhile gets through fewer of them.
        let fewer = here.len().min(there.len());
        assert!(fewer > 50 && shared * 2 > fewer, "{shared} of {} and {}", here.len(), there.len());
    }
    let refused = lab.toll(&["run", "--plan", &plan, "--rounds", "3"]);
    assert!(output_text(&refused).contains("cannot be used with"), "{}", output_text(&refused));
    lab.assert_nothing_left();
}

#[test]
fn system_a_server_that_is_busy_without_a_load_of_tolls_is_counted_by_its_own_counter() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let out = lab.path("run");
    let text = "name = \"busy\"\nquestion = \"?\"\nbaseline = \"alone\"\nprimary = \"qps\"\n\
        [workload]\ndriver = \"none\"\n\
        [profile.quick]\nrounds = 2\nwindow = \"1s\"\nsettle = \"100ms\"\n\
        [[arm]]\nname = \"alone\"\ntitle = \"alone\"\nrole = \"baseline\"\nmeter = \"server\"\n\
        [[arm]]\nname = \"counted\"\ntitle = \"until 300 statements\"\nmeter = \"server\"\n\
        until = { statements = 300 }\nat_most = \"20s\"\n\
        command = \"sh -c 'while :; do echo \\\"do 1;\\\"; sleep 0.001; done | mariadb --defaults-extra-file={client_defaults} --socket={socket}'\"\n";
    let scenario = lab.write("busy.toml", text);
    let run = lab.toll(&["run", &scenario, "--server", &server.dsn(), "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let result = read_result(&out);
    let qps = |name: &str| arm(&result, name)["outcomes"]["qps"]["mean"].as_f64().unwrap();
    assert!(
        qps("counted") > 50.0 && qps("alone") < qps("counted") / 4.0,
        "{} {}",
        qps("alone"),
        qps("counted")
    );
    let elapsed = arm(&result, "counted")["outcomes"]["elapsed_s"]["mean"].as_f64().unwrap();
    assert!(elapsed < 20.0 && qps("counted") * elapsed > 250.0, "{elapsed} s at {}", qps("counted"));
    assert_eq!(arm(&result, "alone")["outcomes"].get("latency_us_mean"), None);
    lab.assert_nothing_left();
}

#[test]
fn system_what_runs_before_the_last_one_left_counts_and_makes_room() {
    let lab = toll_testkit::lab!();
    for (case, arm) in [
        (
            "file",
            "stdout = \"{artefact}\"\nartefact = \"bytes\"\ncommand = \"sh -c 'head -c 1000000 /dev/zero; sleep 0.2'\"",
        ),
        // As tools that refuse to write where something is.
        (
            "directory",
            "artefact = \"directory\"\n\
             command = \"sh -c 'rmdir {artefact} && mkdir {artefact} && head -c 1000000 /dev/zero >{artefact}/a && sleep 0.2'\"",
        ),
    ] {
        let out = lab.path(case);
        let text = on_host(1, arm).replace("window = \"1s\"", "window = \"3s\"");
        let (one, set) = text.split_once("[[arm]]\nname = \"set\"").unwrap();
        let set = set.replace("ends = \"closes-window\"\nat_most = \"20s\"", "ends = \"again\"");
        let scenario = lab.write(&format!("{case}.toml"), &format!("{one}[[arm]]\nname = \"set\"{set}"));
        let run = lab.toll(&["run", &scenario, "--out", &out]);
        assert!(run.status.success(), "{}", output_text(&run));
        let edge = |step: &str| {
            read_steps(&out, step).into_iter().find(|line| line["arm"] == "set").expect("a window of it")
        };
        let (begin, end) = (edge("window-begin"), edge("window-end"));
        let bytes = |edge: &Value| edge["artefact_bytes"].as_u64().unwrap();
        let runs = end["runs"].as_u64().unwrap();
        assert!(runs >= 2, "{end}");
        let megabytes = (bytes(&end) - bytes(&begin)) as f64 / 1e6;
        // But for the runs in which its edges lie.
        assert!((megabytes - runs as f64).abs() <= 2.0, "{case}: {megabytes} MB in {runs} runs");
        lab.assert_nothing_left();
    }
}

#[test]
fn system_a_run_killed_with_a_set_of_dumps_in_flight_leaves_nothing_and_counts_no_half_dump() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    // Slow enough to be met in flight.
    let set = "process = [{ stages = [\"yes {copy}\", \"sh -c 'head -c 4000000 | while read -r _; do :; done'\"], \
        copies = 3, stagger = \"50ms\", stdout = \"{artefact}\" }]\nartefact = \"bytes\"";
    let scenario = lab.write(
        "set.toml",
        &on_host(40, set).replace("ends = \"closes-window\"", "ends = \"closes-window\"\nenv = [\"PATH\"]"),
    );
    let mut run = lab.spawn(&["run", &scenario, "--out", &out]);
    let trials = Path::new(&out).join("trials.ndjson");
    let in_flight = || {
        let text = std::fs::read_to_string(&trials).unwrap_or_default();
        text.lines().last().is_some_and(|line| line.contains("\"set\"") && line.contains("window-begin"))
    };
    while !in_flight() {
        assert!(run.try_wait().unwrap().is_none(), "the run has ended");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    std::thread::sleep(std::time::Duration::from_millis(200));
    lab.signal(&run, "KILL");
    run.wait().unwrap();
    let clean = lab.toll(&["clean"]);
    assert!(clean.status.success(), "{}", output_text(&clean));
    let left: Vec<_> = std::fs::read_dir(Path::new(&out).join("artefacts"))
        .unwrap()
        .flatten()
        .filter(|entry| entry.path().extension().is_none_or(|e| e != "stderr"))
        .map(|entry| entry.path())
        .collect();
    assert_eq!(left, [""; 0].map(std::path::PathBuf::from));
    let report = lab.toll(&["report", &out, "--format", "json"]);
    let result: Value = serde_json::from_slice(&report.stdout).unwrap();
    let whole = read_steps(&out, "window-end").iter().filter(|line| line["arm"] == "set").count();
    assert_eq!(arm(&result, "set")["windows"], whole);
    assert_eq!(result["complete"], false);
    lab.assert_nothing_left();
}
