//! Tests of the exit codes that every subcommand shares. `docs/reference/exit-codes.md` lists them all.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use toll::cli::exit_code::{BY_COMMAND, MEANINGS};
use toll_testkit::HANG_TIMEOUT;
use toll_testkit::lab::output_text;

#[test]
fn wrong_arguments_are_2_and_what_fails_is_1() {
    let lab = crate::lab!();
    for (arguments, code, expected) in [
        (&[][..], 2, "First time?"),
        (&["--help"], 0, "First time?"),
        (&["--version"], 0, "toll "),
        (&["rum"], 2, "similar subcommand exists: 'run'"),
        (&["digest"], 2, "required"),
        (&["report", "--nosuch", "x"], 2, "--nosuch"),
        (&["pcap", "make", "http", "-w", "x", "--duration", "0"], 2, "above 0"),
        (&["report", "nowhere"], 1, "nowhere"),
        // Before anybody logs in to a server that serves users.
        (&["live", "slow-lgo", "--variants", "a", "--server", "mysql://u@127.0.0.1:1/"], 1, "no scenario"),
        (&["live", "--control", "/tmp", "--server", "mysql://u@127.0.0.1:1/", "--", "true"], 1, "two names"),
        (&["digest", "nowhere.pcap"], 1, "nowhere.pcap"),
        (&["clean"], 0, "nothing to clean"),
        (&["server", "stop"], 0, "no sandbox server is running"),
    ] {
        let output = lab.toll(arguments);
        let said = output_text(&output);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{arguments:?}: {said}");
        // Help that nobody asked for is no result.
        assert_eq!(output.stdout.is_empty(), code != 0, "{arguments:?}: {said}");
    }
}

#[test]
fn what_is_not_there_is_1_where_a_command_asks_for_it() {
    let lab = crate::lab!();
    let status = lab.toll(&["server", "status"]);
    assert_eq!(status.status.code(), Some(1), "{}", output_text(&status));
    assert!(output_text(&status).contains("no sandbox server is running"), "{}", output_text(&status));
    let doctor = lab.toll(&["doctor", "--no-pilot", "--json"]);
    let findings: serde_json::Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let is_ready = findings["ready"].as_bool().unwrap();
    assert_eq!(doctor.status.code(), Some(i32::from(!is_ready)), "{}", output_text(&doctor));
}

/// The exit code after `signal`, of a command that reads what never ends. It says `words` once it reads.
fn interrupted(arguments: &[&str], signal: &str) -> Option<i32> {
    let lab = crate::lab!();
    let mut child = lab.command(arguments);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // More than a pipe holds: once it is written, the command is at work, and its signals are set up.
    let line = b"# Query_time: 1\nSELECT 1;\n".repeat(16_384);
    input.write_all(&line).unwrap();
    let sent = Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        // Whoever waits in a read notices with the next bytes.
        let _ = input.write_all(b"\n").and_then(|()| input.flush());
        assert!(begun.elapsed() < HANG_TIMEOUT, "{arguments:?} goes on after {signal}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_command_that_is_interrupted_ends_with_130() {
    assert_eq!(interrupted(&["digest", "--type", "slowlog", "-"], "INT"), Some(130));
}

#[test]
fn the_table_is_of_commands_and_codes_that_there_are() {
    let toll = toll::cli::command_line();
    let codes: BTreeSet<u8> = MEANINGS.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, BTreeSet::from([0, 1, 2, 3, 130]));
    for (name, code, meaning) in BY_COMMAND {
        let found = name.split(' ').try_fold(&toll, |command, word| command.find_subcommand(word));
        assert!(found.is_some(), "toll {name} is no command: {meaning}");
        assert!(codes.contains(code), "toll {name}: {code}");
    }
}
