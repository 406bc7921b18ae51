//! Tests of the test setup: servers, data, or none at all, as requested.

use serde_json::Value;
use std::path::Path;
use toll_testkit::lab::{output_text, read_result};

fn plan_of(run: &str) -> Value {
    serde_json::from_slice(&std::fs::read(Path::new(run).join("plan.json")).unwrap()).unwrap()
}

/// A scenario of commands alone that are measured until they are done.
fn commands(head: &str, commands: [&str; 2]) -> String {
    let arm = |name: &str, role: &str, command: &str| {
        format!(
            "[[arm]]\nname = \"{name}\"\ntitle = \"{name}\"\nrole = \"{role}\"\n\
             ends = \"closes-window\"\nat_most = \"10s\"\nworkload = {{ driver = \"none\" }}\ncommand = \"\"\"{command}\"\"\"\n"
        )
    };
    format!(
        "name = \"commands\"\nquestion = \"?\"\nbaseline = \"one\"\nprimary = \"elapsed_s\"\n{head}\n\
         [profile.quick]\nrounds = 2\nwindow = \"2s\"\nsettle = \"10ms\"\n{}{}",
        arm("one", "baseline", commands[0]),
        arm("two", "treatment", commands[1])
    )
}

/// A load, and an arm whose server writes no page twice.
fn own_server(command: impl Fn(&str) -> String) -> String {
    let (twice, once) = (command("twice"), command("once"));
    format!(
        r#"
name = "own"
question = "?"
baseline = "none"
primary = "latency_us_mean"
[workload]
threads = 2
tables = 1
[profile.quick]
rounds = 3
window = "300ms"
settle = "500ms"
rows = 500
[[arm]]
name = "none"
title = "load alone"
role = "baseline"
[[arm]]
name = "twice"
title = "as servers come"
command = """{twice}"""
[[arm]]
name = "once"
title = "doublewrite off"
command = """{once}"""
server = {{ options = {{ any = {{ innodb_doublewrite = "OFF" }} }} }}
"#
    )
}

#[test]
fn a_run_about_the_host_alone_touches_no_server() {
    let lab = toll_testkit::lab!();
    let (cache, out) = (lab.path("cache"), lab.path("run"));
    let text = commands("subject = \"host\"", ["gzip -1 -c /bin/sh", "gzip -9 -c /bin/sh"]);
    let scenario = lab.write("host.toml", &text);
    let asked = ["run", &scenario, "--out", &out];
    let run = lab.toll_with(&[("XDG_CACHE_HOME", &cache)], &asked);
    assert!(run.status.success(), "{}", output_text(&run));
    assert!(!Path::new(&cache).exists(), "a sandbox was made");
    let (plan, result) = (plan_of(&out), read_result(&out));
    assert_eq!((plan.get("server"), result.get("server")), (None, None));
    assert_eq!(plan["setup"], serde_json::json!({}));
    assert!(result["arms"].as_array().unwrap().iter().all(|arm| arm["windows"] == 2), "{result}");

    for option in [["--server", "sandbox"], ["--schema", "shop"], ["--driver", "toll"]] {
        let refused = lab.toll(&[&asked[..], &option].concat());
        let text = output_text(&refused);
        assert!(!refused.status.success() && text.contains(&format!("leave out {}", option[0])), "{text}");
    }
    lab.assert_nothing_left();
}

#[test]
fn a_run_without_data_makes_no_schema_on_a_server_that_was_there() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let (before, seen, out) = (server.schemas(), lab.path("seen"), lab.path("run"));
    let client = "mariadb --defaults-extra-file={client_defaults} --socket={socket} -BNe";
    let look = format!("sh -c '{client} \"show databases\" > {seen}'");
    let scenario = lab.write("look.toml", &commands("", [&look, "sleep 0.1"]));
    let run = lab.toll(&["run", &scenario, "--server", &server.dsn(), "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let during = std::fs::read_to_string(seen).unwrap();
    assert!(during.contains("information_schema"), "{during}");
    assert!(during.lines().all(|schema| before.contains(&format!("\"{schema}\""))), "{during}");
    assert_eq!(server.schemas(), before);
    assert_eq!(plan_of(&out)["setup"], serde_json::json!({}));
    lab.assert_nothing_left();
}

#[test]
fn an_arm_with_options_of_its_own_is_measured_on_a_server_that_has_them() {
    let lab = toll_testkit::lab!();
    let (seen, out) = (lab.path("seen"), lab.path("run"));
    // Once the load has been on for a while.
    let script = format!(
        "sleep 0.4\nmariadb --defaults-extra-file=\"$2\" --socket=\"$3\" -BNe \"select @@innodb_doublewrite, \
         variable_value > 50 from information_schema.global_status where variable_name = 'COM_STMT_EXECUTE'\" \
         >> {seen}.$1\nexec sleep 60\n"
    );
    let script = lab.write("look.sh", &script);
    let command = |arm: &str| format!("sh {script} {arm} {{client_defaults}} {{socket}}");
    let scenario = lab.write("own.toml", &own_server(command));
    let run = lab.toll(&["run", &scenario, "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let of = |arm: &str| std::fs::read_to_string(format!("{seen}.{arm}")).unwrap();
    assert_eq!((of("twice").as_str(), of("once").as_str()), ("1\t1\n1\t1\n1\t1\n", "0\t1\n0\t1\n0\t1\n"));
    let plan = plan_of(&out);
    assert_eq!(plan["setup"]["sandbox"]["servers"].as_array().unwrap().len(), 2);
    assert_eq!(plan["arms"][2]["server_options"], serde_json::json!({ "innodb_doublewrite": "OFF" }));
    lab.assert_nothing_left();

    let server = lab.start_server();
    let out = lab.path("there");
    let run = lab.toll(&[
        "run",
        &scenario,
        "--yes",
        "--server",
        &server.dsn(),
        "--allow-schema",
        "toll_own",
        "--out",
        &out,
    ]);
    assert!(run.status.success(), "{}", output_text(&run));
    let why = plan_of(&out)["arms"][2]["unavailable"].to_string();
    assert!(why.contains("options of its own") && why.contains("leave out --server"), "{why}");
}

#[test]
fn system_a_killed_run_with_two_servers_is_put_right_by_clean() {
    let lab = toll_testkit::lab!();
    let (cache, out) = (lab.path("cache"), lab.path("run"));
    let scenario = lab.write("own.toml", &own_server(|_| "sleep 60".into()));
    let mut run = lab.spawn_with(&[("XDG_CACHE_HOME", &cache)], &["run", &scenario, "--out", &out]);
    lab.wait_for_trials(&mut run, &out, 4);
    let sandboxes = || {
        let entries = std::fs::read_dir(Path::new(&cache).join("toll/sandbox")).unwrap();
        entries.count()
    };
    assert_eq!(sandboxes(), 2, "{}", plan_of(&out)["arms"]);
    lab.signal(&run, "KILL");
    run.wait().unwrap();
    let clean = lab.toll_with(&[("XDG_CACHE_HOME", &cache)], &["clean"]);
    let text = output_text(&clean);
    assert!(clean.status.success() && text.matches("sandbox server on port").count() == 2, "{text}");
    assert_eq!(sandboxes(), 0);
    lab.assert_nothing_left();
}

#[test]
fn a_step_of_the_rig_that_cannot_be_made_takes_only_its_arms_along() {
    let lab = toll_testkit::lab!();
    let out = lab.path("run");
    let text = format!(
        "{}workload = {{ driver = \"none\" }}\n",
        commands(
            "subject = \"host\"\n[[rig]]\nkind = \"far-end\"\nrate = \"fast\"",
            ["sleep 0.1", "sleep 0.2"]
        ) + "[[arm]]\nname = \"stream\"\ntitle = \"to the far end\"\nends = \"closes-window\"\n\
             command = \"nc -N {remote_ip} {remote_port}\"\nremote_port = 4711\nartefact = \"bytes\"\n"
    );
    let scenario = lab.write("rig.toml", &text);
    let run = lab.toll(&["run", &scenario, "--out", &out]);
    assert!(run.status.success(), "{}", output_text(&run));
    let plan = plan_of(&out);
    assert_eq!(plan["setup"]["rig"][0]["rate"], "fast");
    let why = plan["arms"][2]["unavailable"].to_string();
    if lab.is_root {
        assert!(why.contains("the rig's step far-end cannot be made here") && why.contains("rate"), "{why}");
    }
    assert_eq!(plan["arms"][1]["unavailable"], Value::Null);
    lab.assert_nothing_left();
}
