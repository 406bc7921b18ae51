//! Tests of tables in a bucket of a real S3 server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the program is started as its users start it")]

#[allow(dead_code, reason = "other tests use the rest")]
mod fixtures;

use fixtures::{Draws, rows, write_changed};
use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// versitygw, a gateway over a folder, as `scripts/stores` installs it; ended with the test.
struct Gateway {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

fn installed() -> Option<PathBuf> {
    let stores = std::fs::read_dir("../target/stores").into_iter().flatten().flatten();
    stores.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("versitygw-"))
}

impl Gateway {
    /// `None`: it is not installed.
    fn start() -> Option<Self> {
        let Some(program) = installed() else {
            eprintln!("SKIPPED: no versitygw (scripts/stores installs it)");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("bucket")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let listen = format!("127.0.0.1:{port}");
        let child = Command::new(program)
            .args([
                "--access",
                "test",
                "--secret",
                "secretsecret",
                "--region",
                "us-east-1",
                "--port",
                &listen,
                "posix",
            ])
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while TcpStream::connect(&listen).is_err() {
            assert!(begun.elapsed() < Duration::from_mins(1), "it does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(Self { child, port, folder })
    }

    fn fleet(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toll-fleet"));
        command
            .env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port))
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "secretsecret")
            .env("AWS_REGION", "us-east-1");
        command.args(args);
        command
    }

    fn rows(&self, args: &[&str]) -> Vec<Value> {
        let output = self.fleet(&[args, &["--json", "--tables", TABLES]].concat());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

const TABLES: &str = "s3://bucket/shop/tables";

fn simulate(like: &Path, tables: &str) -> Vec<String> {
    let like = like.to_str().unwrap();
    ["simulate", "--like", like, "--tables", tables, "--hosts", "12", "--seed", "4"].map(str::to_owned).into()
}

#[test]
fn a_bucket_answers_as_a_directory_does_and_compacts_and_prunes_alike() {
    let Some(gateway) = Gateway::start() else { return };
    let (like, local) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write_changed(like.path());
    let directory = local.path().join("tables");
    for tables in [TABLES, directory.to_str().unwrap()] {
        let args = simulate(like.path(), tables);
        let written = gateway.fleet(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(written.status.success(), "{written:?}");
    }
    let top = rows(&["top"], &directory);
    assert_eq!(gateway.rows(&["top"]), top);
    assert_eq!(gateway.rows(&["coverage"]), rows(&["coverage"], &directory));
    let compacted = gateway.fleet(&[
        "compact",
        "--tables",
        TABLES,
        "--grain",
        "day",
        "--older-than",
        "1s",
        "--keep-replaced",
        "0s",
    ]);
    let said = String::from_utf8_lossy(&compacted.stdout).into_owned();
    assert!(compacted.status.success() && !said.starts_with("0 files"), "{compacted:?}");
    assert_eq!(gateway.rows(&["top"]), top);
    let pruned = gateway.fleet(&["prune", "--tables", TABLES, "--older-than", "1s"]);
    assert_eq!(String::from_utf8_lossy(&pruned.stdout), "removed 1 day\n", "{pruned:?}");
    let gone = gateway.fleet(&["top", "--tables", TABLES]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("has no tables"), "{gone:?}");
}

#[test]
fn a_bucket_that_is_not_there_and_keys_that_are_wrong_are_said() {
    let Some(gateway) = Gateway::start() else { return };
    let absent = gateway.fleet(&["top", "--tables", "s3://absent/tables"]);
    let words = String::from_utf8_lossy(&absent.stderr).into_owned();
    assert!(absent.status.code() == Some(1) && words.contains("s3://absent/tables"), "{words}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_toll-fleet"));
    command.args(["top", "--tables", TABLES]).env_remove("AWS_ACCESS_KEY_ID").env("HOME", "/nonexistent");
    let words = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    assert!(words.contains("AWS_ACCESS_KEY_ID"), "{words}");
}

#[test]
fn compactions_that_are_killed_in_a_bucket_leave_each_row_once_and_a_lock_that_is_said() {
    let Some(gateway) = Gateway::start() else { return };
    let like = tempfile::tempdir().unwrap();
    write_changed(like.path());
    let args = simulate(like.path(), TABLES);
    assert!(gateway.fleet(&args.iter().map(String::as_str).collect::<Vec<_>>()).status.success());
    let top = gateway.rows(&["top"]);
    let compact =
        ["compact", "--tables", TABLES, "--grain", "day", "--older-than", "1s", "--keep-replaced", "0s"];
    let lock = gateway.folder.path().join("bucket/shop/tables/compacting");
    let (mut draws, mut locked) = (Draws(5), 0);
    for kill in 0.. {
        // Some come before the lock is taken.
        if kill >= 20 && locked > 0 {
            break;
        }
        assert!(kill < 200, "no kill came while one compacted");
        let mut child =
            gateway.command(&compact).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis((draws.next() * 300.0) as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(gateway.rows(&["top"]), top);
        if lock.exists() {
            let refused = gateway.fleet(&compact);
            let words = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert!(
                refused.status.code() == Some(1) && words.contains("remove the file compacting"),
                "{words}"
            );
            std::fs::remove_file(&lock).unwrap();
            locked += 1;
        }
    }
    assert!(gateway.fleet(&compact).status.success());
    assert_eq!(gateway.rows(&["top"]), top);
    let again = gateway.fleet(&compact);
    assert!(String::from_utf8_lossy(&again.stdout).starts_with("0 files"), "{again:?}");
    assert!(!lock.exists());
}
