//! Tests that toll asks before it puts a load at full speed on a server that it did not start.

use std::process::{Command, Output};
use toll_testkit::lab::{Lab, output_text, scenario};

/// The answer of `toll run` on a server, asked at a terminal.
fn at_terminal(lab: &Lab, arguments: &[&str], answer: &str) -> Output {
    let toll = lab.command(arguments);
    let words = std::iter::once(toll.get_program()).chain(toll.get_args());
    let line = shell_words::join(words.map(|word| word.to_str().unwrap()));
    let typed = lab.write("typed", answer);
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).stdin(std::fs::File::open(typed).unwrap());
    command.envs(toll.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(toll.get_current_dir().unwrap()).output().unwrap()
}

#[test]
fn a_load_at_full_speed_on_a_server_of_others_needs_consent() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let connections = || server.rows("SHOW GLOBAL STATUS LIKE 'Connections'");
    let run = ["run", "tcpdump-impact", "--arms", "none2", "--server", &dsn, "--out", &out];
    let cost = ["cost", "--server", &dsn, "--load", "--threads", "5", "--out", &out, "--", "true"];
    for (arguments, load) in [(&run[..], "8 connections (read-only) at full speed"), (&cost, "5 connections")]
    {
        let before = connections();
        let refused = lab.toll(arguments);
        let text = output_text(&refused);
        assert_eq!(refused.status.code(), Some(1), "{text}");
        for expected in [load, "slows down every other client", "--rate 300", "--yes"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        let counted =
            |status: &str| status.split('"').filter_map(|word| word.parse::<u64>().ok()).next_back();
        assert_eq!(counted(&connections()), counted(&before).map(|n| n + 1), "toll has not asked the server");
        assert!(!std::path::Path::new(&out).exists());
    }
    // Consent in advance and a rate go on to the next question: which tables?
    for (more, load) in [(&["--yes"][..], "at full speed"), (&["--rate", "300"], "at 300 events/s")] {
        let text = output_text(&lab.toll(&[&run[..], more].concat()));
        assert!(text.contains("--allow-schema") && text.contains(load) && !text.contains("--yes"), "{text}");
    }
    let no = output_text(&at_terminal(&lab, &run, "\n"));
    assert!(no.contains("Go on? [y/N]") && no.contains("nothing was done"), "{no}");
    let yes = output_text(&at_terminal(&lab, &run, "y\n"));
    assert!(yes.contains("Go on? [y/N]") && yes.contains("--allow-schema"), "{yes}");
}

#[test]
fn a_plan_at_full_speed_needs_consent_again_and_the_load_is_announced() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let arm = "[[arm]]\nname = \"it\"\ntitle = \"a command\"\ncommand = \"sleep 60\"\n";
    let text = scenario(1, arm).replace("rate = 300.0\n", "");
    let file = lab.write("closed.toml", &text);
    let asked = ["--server", &dsn, "--allow-schema", "toll_asked"];
    let run = lab.toll(&[&["run", &file, "--out", &out, "--yes"], &asked[..]].concat());
    let said = output_text(&run);
    assert!(run.status.success() && said.contains("2 connections (read-only) at full speed"), "{said}");
    let again = ["run", "--plan", &out, "--out", &lab.path("again")];
    let refused = output_text(&lab.toll(&[&again, &asked[..]].concat()));
    assert!(refused.contains("Use --yes"), "{refused}");
    lab.assert_nothing_left();
}

#[test]
fn the_server_of_toll_server_start_is_loaded_without_a_question() {
    let lab = toll_testkit::lab!();
    let started = lab.toll(&["server", "start", "--rows", "0"]);
    let said = output_text(&started);
    assert!(started.status.success(), "{said}");
    let file = said.lines().find_map(|line| line.split("--defaults-extra-file=").nth(1)).unwrap().to_owned();
    let asked = output_text(&lab.toll(&["cost", "--server", &file, "--", "true"]));
    assert!(lab.toll(&["server", "stop"]).status.success());
    assert!(asked.contains("--allow-schema") && !asked.contains("--yes"), "{asked}");
    lab.assert_nothing_left();
}

#[test]
fn a_replica_is_refused_by_its_status() {
    let lab = toll_testkit::lab!();
    let server = lab.start_server();
    // Its threads need not run: somebody may start them meanwhile.
    server.run("CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 1, MASTER_USER = 'nobody'");
    let (dsn, out) = (server.dsn(), lab.path("run"));
    let asked =
        ["cost", "--server", &dsn, "--load", "--rate", "300", "--allow-schema", "toll_load", "--out", &out];
    let refused = lab.toll(&[&asked[..], &["--", "true"]].concat());
    let text = output_text(&refused);
    assert!(!refused.status.success() && text.contains("is a replica"), "{text}");
    assert!(!server.schemas().contains("toll_load"));
    lab.assert_nothing_left();
}
