//! Tests with buckets of real S3 servers, and with a store that fails.

use super::system_proxy::{Fault, Proxy};
use super::{assert_success, checksums, fill, json, rows_of, target, wait_until};
use crate::lab::{ForeignServer, HANG_TIMEOUT, Lab, output_text};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A server of S3's protocol, ended with the test; it has one bucket.
pub struct S3 {
    child: Child,
    pub port: u16,
}

const KEYS: [(&str, &str); 3] =
    [("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "secretsecret"), ("AWS_REGION", "us-east-1")];

/// Installed by `scripts/stores`.
fn installed(name: &str) -> Option<PathBuf> {
    let stores = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../stores");
    let found = std::fs::read_dir(stores).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = found.into_iter().find(|path| {
        path.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with(&format!("{name}-")))
    });
    if found.is_none() {
        toll_testkit::skip!("no {name} (scripts/stores installs it)");
    }
    found
}

impl S3 {
    pub fn versitygw(lab: &Lab) -> Option<Self> {
        let program = installed("versitygw")?;
        let folder = lab.path("gateway");
        std::fs::create_dir_all(format!("{folder}/bucket")).unwrap();
        let mut command = Command::new(program);
        command.args(["--access", "test", "--secret", "secretsecret", "--region", "us-east-1", "--port"]);
        Some(Self::start(command, |port| vec![format!("127.0.0.1:{port}"), "posix".into(), folder.clone()]))
    }

    fn moto() -> Option<Self> {
        let program = installed("moto")?.join("bin/moto_server");
        let mut command = Command::new(program);
        command.args(["-H", "127.0.0.1", "-p"]);
        let s3 = Self::start(command, |port| vec![port.to_string()]);
        let mut asked = TcpStream::connect(("127.0.0.1", s3.port)).unwrap();
        asked.write_all(b"PUT /bucket HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n").unwrap();
        let mut answer = String::new();
        asked.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(" 200 "), "{answer}");
        Some(s3)
    }

    fn start(mut command: Command, arguments: impl Fn(u16) -> Vec<String>) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child =
            command.args(arguments(port)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let s3 = Self { child, port };
        wait_until("the store answers", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        s3
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn toll_at(lab: &Lab, port: u16, arguments: &[&str]) -> Output {
    let endpoint = format!("http://127.0.0.1:{port}");
    lab.toll_with(&[&KEYS[..], &[("AWS_ENDPOINT_URL", endpoint.as_str())]].concat(), arguments)
}

fn source(rows: u32) -> (Lab, ForeignServer) {
    let lab = toll_testkit::lab!();
    let source = lab.start_server();
    fill(rows, |sql| source.run(sql));
    (lab, source)
}

pub const STORE_URL: &str = "s3://bucket/some/prefix";

fn comes_back_from(s3: &S3, lab: &Lab, source: &ForeignServer) {
    let dsn = source.dsn();
    let take = || {
        json(toll_at(lab, s3.port, &["backup", "--server", &dsn, "--to", STORE_URL, "--keep", "2", "--json"]))
    };
    let first = take();
    assert!(first["stored"]["new_pieces"].as_u64().unwrap() > 10, "{first}");
    source.run("UPDATE shop.orders SET price = 0 WHERE id = 17");
    let second = take();
    assert!((1..=2).contains(&second["stored"]["new_pieces"].as_u64().unwrap()), "{second}");
    let third = take();
    assert_eq!(third["stored"]["new_pieces"], 0, "{third}");
    assert_eq!(third["pruned"]["backups"].as_array().unwrap().len(), 1, "{third}");
    assert!(third["pruned"]["pieces"].as_u64().unwrap() >= 1, "{third}");
    assert_success(toll_at(lab, s3.port, &["backup", "verify", "--stored-only", "--from", STORE_URL]));
    let other = toll_testkit::lab!();
    let restored = other.start_server();
    assert_success(toll_at(
        lab,
        s3.port,
        &["backup", "restore", "--yes", "--from", STORE_URL, "--server", &restored.dsn()],
    ));
    assert_eq!(checksums(rows_of(&target(&restored))), checksums(rows_of(&target(source))));
    lab.assert_nothing_left();
}

#[test]
fn a_server_restored_from_versitygw_equals_its_source() {
    let (lab, source) = source(4000);
    if let Some(s3) = S3::versitygw(&lab) {
        comes_back_from(&s3, &lab, &source);
    }
}

#[test]
fn a_server_restored_from_moto_equals_its_source() {
    let (lab, source) = source(4000);
    if let Some(s3) = S3::moto() {
        comes_back_from(&s3, &lab, &source);
    }
}

#[test]
fn a_store_that_fails_now_and_then_only_takes_longer() {
    let (lab, source) = source(4000);
    let Some(s3) = S3::versitygw(&lab) else { return };
    let proxy = Proxy::before(s3.port, |number| match number % 12 {
        1 => Fault::Status(503),
        2 => Fault::Status(500),
        3 => Fault::CutAnswer,
        4 => Fault::CutRequest,
        5 => Fault::Slow(Duration::from_millis(50)),
        6 => Fault::Status(429),
        _ => Fault::None,
    });
    let dsn = source.dsn();
    let taken = json(toll_at(&lab, proxy.port, &["backup", "--server", &dsn, "--to", STORE_URL, "--json"]));
    assert!(taken["store_retries"].as_u64().unwrap() > 10, "{taken}");
    assert_success(toll_at(&lab, s3.port, &["backup", "verify", "--stored-only", "--from", STORE_URL]));
    assert_success(toll_at(&lab, proxy.port, &["backup", "verify", "--stored-only", "--from", STORE_URL]));
    let (asked, failed) = (&proxy.requests, &proxy.faults);
    let load = |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
    assert!(load(failed) * 3 > load(asked), "more than a third of {} requests failed", load(asked));
    lab.assert_nothing_left();
}

#[test]
fn a_store_that_goes_down_in_the_middle_is_told_and_the_next_backup_puts_what_lacks() {
    let (lab, source) = source(20_000);
    let Some(s3) = S3::versitygw(&lab) else { return };
    let proxy = Proxy::before(s3.port, |number| if number < 60 { Fault::None } else { Fault::Down });
    let dsn = source.dsn();
    let begun = Instant::now();
    let arguments = ["backup", "--server", &dsn, "--to", STORE_URL, "--retry-for", "1s"];
    let down = toll_at(&lab, proxy.port, &arguments);
    assert_eq!(down.status.code(), Some(1), "{}", output_text(&down));
    assert!(
        output_text(&down).contains("The next backup reuses the pieces that were stored"),
        "{}",
        output_text(&down)
    );
    assert!(begun.elapsed() < HANG_TIMEOUT);
    lab.assert_nothing_left();
    let list = json(toll_at(&lab, s3.port, &["backup", "list", "--from", STORE_URL, "--json"]));
    assert_eq!(list, serde_json::json!([]));
    let next = json(toll_at(&lab, s3.port, &["backup", "--server", &dsn, "--to", STORE_URL, "--json"]));
    let [new, all] = ["new_pieces", "pieces"].map(|name| next["stored"][name].as_u64().unwrap());
    assert!(all - new >= 40, "{next}");
    assert_success(toll_at(&lab, s3.port, &["backup", "verify", "--stored-only", "--from", STORE_URL]));
}

#[test]
fn more_pieces_than_a_store_lists_at_once_are_all_found_and_pruned() {
    let (lab, source) = source(10);
    let Some(s3) = S3::versitygw(&lab) else { return };
    let stray = PathBuf::from(lab.path("gateway/bucket/some/prefix/pieces/ab"));
    std::fs::create_dir_all(&stray).unwrap();
    for number in 0..2_500 {
        std::fs::write(stray.join(format!("ab{number:062x}")), b"x").unwrap();
    }
    assert_success(toll_at(&lab, s3.port, &["backup", "--server", &source.dsn(), "--to", STORE_URL]));
    let pruned = json(toll_at(&lab, s3.port, &["backup", "prune", "--from", STORE_URL, "--json"]));
    assert_eq!(pruned["pieces"], 2_500, "{pruned}");
    assert!(!stray.exists() || std::fs::read_dir(&stray).unwrap().count() <= 1);
    assert_success(toll_at(&lab, s3.port, &["backup", "verify", "--stored-only", "--from", STORE_URL]));
}

#[test]
fn a_store_that_is_elsewhere_is_told_at_once_and_one_that_is_down_before_patience_ends() {
    let lab = toll_testkit::lab!();
    let elsewhere = Proxy::before(1, |_| Fault::Status(301));
    let moved = toll_at(&lab, elsewhere.port, &["backup", "list", "--from", STORE_URL, "--retry-for", "20s"]);
    assert!(
        !moved.status.success() && !output_text(&moved).contains("retrying for"),
        "{}",
        output_text(&moved)
    );
    let down = Proxy::before(1, |_| Fault::Status(503));
    let waited = toll_at(&lab, down.port, &["backup", "list", "--from", STORE_URL, "--retry-for", "5s"]);
    assert!(output_text(&waited).contains("retrying for up to 5 s"), "{}", output_text(&waited));
    assert_eq!(waited.status.code(), Some(1));
}

#[test]
fn a_wrong_key_or_bucket_is_told_at_once_and_no_secret_is_shown() {
    let (lab, source) = source(10);
    let Some(s3) = S3::versitygw(&lab) else { return };
    let (dsn, endpoint) = (source.dsn(), format!("http://127.0.0.1:{}", s3.port));
    let wrong = [
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "notthesecret"),
        ("AWS_ENDPOINT_URL", &endpoint),
    ];
    let refused = lab.toll_with(&wrong, &["backup", "--server", &dsn, "--to", STORE_URL]);
    assert!(output_text(&refused).contains("SignatureDoesNotMatch"), "{}", output_text(&refused));
    assert!(!output_text(&refused).contains("notthesecret"), "{}", output_text(&refused));
    let nowhere = toll_at(&lab, s3.port, &["backup", "--server", &dsn, "--to", "s3://another/x"]);
    assert!(output_text(&nowhere).contains("NoSuchBucket"), "{}", output_text(&nowhere));
    for output in [&refused, &nowhere] {
        assert_eq!(output.status.code(), Some(1));
        assert!(output_text(output).len() < 1000, "{}", output_text(output));
    }
    lab.assert_nothing_left();
}
