//! Completeness tests of the socket tap on a real server: every statement, and nothing else. Needs root.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test may panic, and starts what it likes"
)]

mod files;
mod joined;
#[path = "../../../../instruments/agent/src/capture/socket_chunk.rs"]
mod socket_chunk;
mod watch;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use toll_mysql::{Connection, Target, Tls};
use toll_taps::sockets::{HookKind, SocketTap, SocketTapOptions, TapError};
use toll_testkit::server::{TestServer, make_certificates, target_as_user};
use toll_wire::event::CommandKind;
use watch::{TapResult, TapThread, has_perf_events, may_hook, pid_of};

const QUESTIONS: &str = "SHOW GLOBAL STATUS LIKE 'Questions'";

fn questions(connection: &mut Connection) -> u64 {
    connection.query(QUESTIONS).unwrap().rows[0][1].as_ref().unwrap().parse().unwrap()
}

/// Waits until nobody else is at work: only this connection's own question is new.
fn settled(connection: &mut Connection) -> u64 {
    let mut before = questions(connection);
    loop {
        std::thread::sleep(Duration::from_millis(100));
        let now = questions(connection);
        if now == before + 1 {
            return now;
        }
        before = now;
    }
}

/// What a server counts as questions: not preparing, closing or resetting statements, and not pinging.
fn is_question(seen: &watch::SeenEvent) -> bool {
    match seen.kind {
        CommandKind::Query | CommandKind::Execute => true,
        CommandKind::Admin => seen.reads("administrator command: Quit"),
        CommandKind::Prepare | CommandKind::Close | CommandKind::Reset => false,
    }
}

fn sysbench(server: &TestServer, target: &[String], arguments: &[&str]) {
    let output = Command::new("sysbench")
        .args(["oltp_read_write", "--mysql-user=root", "--mysql-db=sbtest", "--tables=2", "--table-size=500"])
        .args(target)
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "port {}: {}", server.port(), String::from_utf8_lossy(&output.stdout));
}

/// As many questions as the server has counted, over a transport and with a kind of hook.
fn assert_counts_agree(transport: &str, hooks: HookKind) {
    let Some(server) = TestServer::mariadb(&[]) else { return };
    if Command::new("sysbench").arg("--version").output().is_err() {
        return toll_testkit::skip!("sysbench is missing: apt-get install sysbench");
    }
    let target = match transport {
        "unix" => vec![format!("--mysql-socket={}", server.socket().display())],
        _ => vec!["--mysql-host=127.0.0.1".to_owned(), format!("--mysql-port={}", server.port())],
    };
    let mut root = server.connect_as_root();
    root.exec_drop("CREATE DATABASE sbtest").unwrap();
    sysbench(&server, &target, &["prepare"]);
    settled(&mut root);
    let watch = TapThread::begin(&SocketTapOptions {
        hooks: Some(hooks),
        ..SocketTapOptions::for_server(pid_of(&server.socket()))
    });
    let before = questions(&mut root);
    for mode in ["auto", "disable"] {
        let mode = format!("--db-ps-mode={mode}");
        sysbench(&server, &target, &["run", "--threads=8", "--events=400", "--time=0", &mode]);
    }
    let asked = settled(&mut root) - before;
    root.exec_drop("SELECT 'all was said'").unwrap();
    watch.wait_until_seen("SELECT 'all was said'");
    let watched = watch.end();
    let first = watched.events.iter().position(|seen| seen.reads(QUESTIONS)).unwrap();
    let last = watched.events.iter().rposition(|seen| seen.reads(QUESTIONS)).unwrap();
    let seen = watched.events[first + 1..=last].iter().filter(|seen| is_question(seen)).count();
    assert!(asked > 10_000, "{asked}");
    assert_eq!(seen as u64, asked, "{:#?}", watched.ledger);
    assert!(watched.events.iter().filter(|seen| seen.kind == CommandKind::Execute).count() > 1_000);
    assert_complete(&watched);
    let host = if transport == "unix" { "" } else { "127.0.0.1" };
    let of_load = watched.events.iter().find(|seen| seen.kind == CommandKind::Execute).unwrap();
    assert_eq!((of_load.user.as_str(), of_load.host.as_str()), ("root", host));
    assert!(of_load.timed, "{of_load:?}");
}

/// Nothing was lost, nothing misunderstood.
fn assert_complete(watched: &TapResult) {
    let (commands, counters) = (&watched.ledger.commands, &watched.counters);
    assert_eq!((counters.lost, counters.missed_runs), (0, 0), "{counters:?}");
    assert_eq!(
        (commands.tainted, commands.desynchronised, commands.orphaned_responses),
        (0, 0, 0),
        "{commands:?}"
    );
    let bytes = &watched.ledger.bytes;
    assert_eq!(
        (bytes.lost_from_client, bytes.lost_from_server, bytes.cut_from_client),
        (0, 0, 0),
        "{bytes:?}"
    );
    assert_eq!(watched.ledger.sessions.not_understood, 0, "{:?}", watched.ledger.sessions);
}

#[test]
fn every_question_over_a_unix_socket_is_seen_at_sockets() {
    if may_hook() {
        assert_counts_agree("unix", HookKind::Sockets);
    }
}

#[test]
fn every_question_over_a_unix_socket_is_seen_at_calls() {
    if may_hook() {
        assert_counts_agree("unix", HookKind::SystemCalls);
    }
}

#[test]
fn every_question_over_tcp_is_seen_at_sockets() {
    if may_hook() {
        assert_counts_agree("tcp", HookKind::Sockets);
    }
}

#[test]
fn every_question_is_seen_at_perf_events() {
    if has_perf_events() {
        assert_counts_agree("unix", HookKind::SocketEvents);
        assert_counts_agree("tcp", HookKind::SocketEvents);
    }
}

#[test]
fn a_statement_of_five_megabytes_is_whole_and_one_that_is_cut_says_by_how_much() {
    if !may_hook() {
        return;
    }
    let Some(server) = TestServer::mariadb(&["--max-allowed-packet=64M"]) else { return };
    let pid = pid_of(&server.socket());
    let large = format!("SELECT LENGTH('{}')", "abcdefghij".repeat(500_000));
    for (target, keep_client) in
        [(server.unix_target(), 8 << 20), (server.tcp_target(), 8 << 20), (server.unix_target(), 32 << 10)]
    {
        let watch = TapThread::begin(&SocketTapOptions { keep_client, ..SocketTapOptions::for_server(pid) });
        let mut connection = Connection::connect(&target).unwrap();
        assert_eq!(connection.query(&large).unwrap().scalar(), Some("5000000"));
        connection.exec_drop("SELECT 'afterwards'").unwrap();
        watch.wait_until_seen("SELECT 'afterwards'");
        let watched = watch.end();
        let seen = watched.events.iter().find(|seen| seen.text.starts_with(b"SELECT LENGTH('abc")).unwrap();
        assert_eq!(seen.text.len() as u64 + seen.text_cut, large.len() as u64, "{keep_client}");
        if keep_client > large.len() {
            assert!(seen.reads(&large) && seen.timed);
            assert_complete(&watched);
        } else {
            assert!(seen.text_cut > 0, "{}", seen.text.len());
        }
        assert!(watched.only("SELECT 'afterwards'").timed);
    }
}

/// A server with a certificate, and an account that takes TLS.
fn tls_server() -> Option<(TestServer, Target)> {
    let certificates = tempfile::tempdir().unwrap();
    if !make_certificates(certificates.path()) {
        toll_testkit::skip!("openssl is missing");
        return None;
    }
    let path = |name: &str| certificates.path().join(name).display().to_string();
    let options = [format!("--ssl-cert={}", path("server.pem")), format!("--ssl-key={}", path("server.key"))];
    let server = TestServer::mariadb(&[&options[0], &options[1]])?;
    server.connect_as_root().exec_drop("CREATE USER guest@'%' IDENTIFIED BY 'p' REQUIRE SSL").unwrap();
    let target = Target { tls: Tls::Required, ..target_as_user(server.tcp_target(), "guest", "p") };
    Some((server, target))
}

#[test]
fn a_server_that_return_probes_may_kill_gets_none_and_the_rest_is_read() {
    if !may_hook() {
        return;
    }
    let Some((server, target)) = tls_server() else { return };
    let options = SocketTapOptions {
        check_return_probes: |pid| Err(format!("process {pid} would die of it")),
        ..SocketTapOptions::for_server(pid_of(&server.socket()))
    };
    let tap = SocketTap::open(&options).unwrap();
    assert_eq!(tap.tls_library().unwrap_err(), format!("process {} would die of it", options.server));
    let watch = TapThread::on(tap);
    Connection::connect(&target).unwrap().exec_drop("SELECT 'inside'").unwrap();
    server.connect_as_root().exec_drop("SELECT 'in the clear'").unwrap();
    watch.wait_until_seen("SELECT 'in the clear'");
    let watched = watch.end();
    assert_eq!((watched.count("SELECT 'inside'"), watched.ledger.sessions.encrypted), (0, 1));
}

#[test]
fn what_is_said_inside_tls_is_read_where_it_was_under_way_before_too() {
    if !may_hook() {
        return;
    }
    let Some((server, target)) = tls_server() else { return };
    let mut before = Connection::connect(&target).unwrap();
    let tap = SocketTap::open(&SocketTapOptions::for_server(pid_of(&server.socket()))).unwrap();
    assert!(tap.tls_library().is_ok_and(|library| library.contains("libssl")), "{:?}", tap.tls_library());
    let watch = TapThread::on(tap);
    before.exec_drop("SELECT 'begun before'").unwrap();
    let large = format!("SELECT LENGTH('{}')", "0123456789".repeat(20_000));
    for number in 0..20 {
        let mut guest = Connection::connect(&target).unwrap();
        guest.exec_drop(&format!("SELECT 'secret {number}'")).unwrap();
        guest.prepare("SELECT ? + 1").unwrap();
        assert_eq!(guest.query(&large).unwrap().scalar(), Some("200000"));
    }
    let plain = Connection::connect(&server.unix_target()).unwrap().query("SELECT 'in the clear'").unwrap();
    assert_eq!(plain.scalar(), Some("in the clear"));
    watch.wait_until_seen("SELECT 'in the clear'");
    watch.wait_until(20, |seen| seen.user == "guest" && seen.reads("administrator command: Quit"));
    let watched = watch.end();
    for number in 0..20 {
        let seen = watched.only(&format!("SELECT 'secret {number}'"));
        assert_eq!((seen.user.as_str(), seen.host.as_str(), seen.timed), ("guest", "127.0.0.1", true));
    }
    assert_eq!((watched.count(&large), watched.count("SELECT ? + 1")), (20, 20));
    assert_eq!(watched.only("SELECT 'begun before'").host, "127.0.0.1");
    let sessions = &watched.ledger.sessions;
    assert_eq!((sessions.plain, sessions.encrypted, sessions.joined_midway), (21, 0, 1), "{sessions:?}");
    assert_complete(&watched);
}

#[test]
fn mysql_is_heard_as_mariadb_is_in_the_clear_and_inside_tls() {
    if !may_hook() {
        return;
    }
    let Some(server) = TestServer::mysql(&[]) else { return };
    server
        .connect_as_root()
        .exec_drop("CREATE USER guest@'%' IDENTIFIED WITH mysql_native_password BY 'p'")
        .unwrap();
    let guest = |target| target_as_user(target, "guest", "p");
    let targets = [
        guest(server.unix_target()),
        guest(server.tcp_target()),
        Target { tls: Tls::Required, ..guest(server.tcp_target()) },
    ];
    let mut before = Connection::connect(&targets[2]).unwrap();
    let watch = TapThread::begin(&SocketTapOptions::for_server(pid_of(&server.socket())));
    before.exec_drop("SELECT 'begun before'").unwrap();
    let large = format!("SELECT LENGTH('{}')", "0123456789".repeat(20_000));
    for (way, target) in targets.iter().enumerate() {
        for visit in 0..20 {
            let mut connection = Connection::connect(target).unwrap();
            connection.exec_drop(&format!("SELECT 'way {way} visit {visit}'")).unwrap();
            connection.prepare("SELECT ? + 1").unwrap();
            assert_eq!(connection.query(&large).unwrap().scalar(), Some("200000"));
        }
    }
    watch.wait_until(60, |seen| seen.user == "guest" && seen.reads("administrator command: Quit"));
    let watched = watch.end();
    for (way, visit) in (0..3).flat_map(|way| (0..20).map(move |visit| (way, visit))) {
        let seen = watched.only(&format!("SELECT 'way {way} visit {visit}'"));
        let host = if way == 0 { "" } else { "127.0.0.1" };
        assert_eq!((seen.user.as_str(), seen.host.as_str(), seen.timed), ("guest", host, true), "{way}");
    }
    assert_eq!((watched.count(&large), watched.count("SELECT ? + 1")), (60, 60));
    assert_eq!(watched.count("SELECT 'begun before'"), 1);
    assert_complete(&watched);
}

#[test]
fn when_the_server_ends_the_tap_does_and_what_was_said_is_there() {
    if !may_hook() {
        return;
    }
    let Some(mut server) = TestServer::mariadb(&[]) else { return };
    let first = pid_of(&server.socket());
    let watch = TapThread::begin(&SocketTapOptions::for_server(first));
    server.connect_as_root().exec_drop("SELECT 'before the end'").unwrap();
    server.restart(Duration::ZERO);
    let watched = watch.end_after_server();
    assert_eq!(watched.count("SELECT 'before the end'"), 1);
    assert_eq!(watched.ended.unwrap().to_string(), format!("process {first} (the server) has ended"));
    // The next one is another process.
    let error = SocketTap::open(&SocketTapOptions::for_server(first)).unwrap_err();
    assert!(matches!(error, TapError::NoProcess(_)), "{error}");
    let watch = TapThread::begin(&SocketTapOptions::for_server(pid_of(&server.socket())));
    server.connect_as_root().exec_drop("SELECT 'begun again'").unwrap();
    watch.wait_until_seen("SELECT 'begun again'");
    assert_complete(&watch.end());
}

#[test]
fn another_server_and_other_ports_are_none_of_ours() {
    if !may_hook() {
        return;
    }
    let (Some(ours), Some(theirs)) = (TestServer::mariadb(&[]), TestServer::mariadb(&[])) else { return };
    let pid = pid_of(&ours.socket());
    let watch = TapThread::begin(&SocketTapOptions {
        ports: vec![theirs.port()],
        ..SocketTapOptions::for_server(pid)
    });
    for target in [theirs.unix_target(), theirs.tcp_target(), ours.tcp_target()] {
        Connection::connect(&target).unwrap().exec_drop("SELECT 'not ours'").unwrap();
    }
    ours.connect_as_root().exec_drop("SELECT 'ours'").unwrap();
    watch.wait_until_seen("SELECT 'ours'");
    let watched = watch.end();
    assert_eq!((watched.count("SELECT 'not ours'"), watched.count("SELECT 'ours'")), (0, 1));
    assert_complete(&watched);
}

#[test]
fn what_the_ring_has_no_room_for_is_counted_and_later_statements_are_read_again() {
    if !may_hook() {
        return;
    }
    let Some(server) = TestServer::mariadb(&[]) else { return };
    let mut connection = server.connect_as_root();
    let tap = SocketTap::open(&SocketTapOptions {
        buffer_bytes: 1,
        ..SocketTapOptions::for_server(pid_of(&server.socket()))
    })
    .unwrap();
    // Three times what the smallest ring holds.
    let long = |number: u32| format!("SELECT 'nobody reads {number} {}'", "x".repeat(6_000));
    for number in 0..500 {
        connection.exec_drop(&long(number)).unwrap();
    }
    let watch = TapThread::on(tap);
    let mut asked = 0;
    while sees_fewer_than(&watch, "SELECT 'read again'", 20) {
        connection.exec_drop("SELECT 'read again'").unwrap();
        asked += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    let watched = watch.end();
    assert!(watched.counters.lost > 300, "{:?}", watched.counters);
    assert!(watched.ledger.bytes.lost_from_client > 1_000_000, "{:?}", watched.ledger.bytes);
    assert!(watched.count("SELECT 'read again'") <= asked);
    // Nobody's answer became another's: each is one row.
    assert!(watched.count(&long(499)) == 0);
}

fn sees_fewer_than(watch: &TapThread, text: &str, count: usize) -> bool {
    watch.count_seen(|seen| seen.reads(text)) < count
}

#[test]
fn without_type_information_it_is_system_calls_and_says_so() {
    if !may_hook() {
        return;
    }
    let Some(server) = TestServer::mariadb(&[]) else { return };
    let options = SocketTapOptions {
        btf: PathBuf::from("/nowhere/vmlinux"),
        ..SocketTapOptions::for_server(pid_of(&server.socket()))
    };
    let error =
        SocketTap::open(&SocketTapOptions { hooks: Some(HookKind::Sockets), ..options.clone() }).unwrap_err();
    assert_eq!(error.to_string(), "this kernel gives no type information: there is no /nowhere/vmlinux");
    let tap = SocketTap::open(&options).unwrap();
    assert_eq!(
        (tap.hook_kind(), tap.fallback_reason()),
        (HookKind::SystemCalls, Some(error.to_string().as_str()))
    );
    // Damaged, it is named.
    let damaged = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(damaged.path(), [0x9f, 0xeb, 1, 0, 24, 0, 0, 0]).unwrap();
    let options = SocketTapOptions { btf: damaged.path().into(), hooks: Some(HookKind::Sockets), ..options };
    let error = SocketTap::open(&options).unwrap_err();
    assert!(matches!(error, TapError::BadBtf { .. }), "{error}");
}

#[test]
fn nothing_of_it_is_left_in_the_kernel() {
    if !may_hook() {
        return;
    }
    let Some(server) = TestServer::mariadb(&[]) else { return };
    let descriptors = || {
        let links = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        links
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .filter(|to| to.to_string_lossy().contains("bpf"))
            .count()
    };
    assert_eq!(descriptors(), 0);
    let mut tap = SocketTap::open(&SocketTapOptions::for_server(pid_of(&server.socket()))).unwrap();
    assert!(descriptors() > 10, "{}", descriptors());
    // Switched off, it sees nothing more, and what it has seen is still there.
    server.connect_as_root().exec_drop("SELECT 'seen'").unwrap();
    tap.close();
    server.connect_as_root().exec_drop("SELECT 'unseen'").unwrap();
    let mut said = Vec::new();
    for _ in 0..3 {
        tap.poll_records(Duration::from_millis(5), |record| {
            said.extend_from_slice(record.bytes);
            Ok::<(), TapError>(())
        })
        .unwrap();
    }
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("'seen'") && !said.contains("'unseen'"), "{said}");
    drop(tap);
    assert_eq!(descriptors(), 0);
}

/// Not a test of its own: what the next one starts as somebody else.
#[test]
fn as_somebody_else() {
    let Ok(pid) = std::env::var("TOLL_TEST_SERVER_PID") else { return };
    println!("<{}>", SocketTap::open(&SocketTapOptions::for_server(pid.parse().unwrap())).unwrap_err());
}

#[test]
fn without_rights_it_says_which_are_missing() {
    if !may_hook() {
        return;
    }
    let Some(server) = TestServer::mariadb(&[]) else { return };
    let pid = pid_of(&server.socket()).to_string();
    let said_by = |rights: &[&str]| {
        let output = Command::new("setpriv")
            .args(rights)
            .arg(std::env::current_exe().unwrap())
            .args(["as_somebody_else", "--exact", "--nocapture"])
            .env("TOLL_TEST_SERVER_PID", &pid)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.split_once('<')
            .and_then(|(_, rest)| rest.split_once('>'))
            .map_or(said.clone(), |(said, _)| said.to_owned())
    };
    let nobody = said_by(&["--reuid=65534", "--regid=65534", "--clear-groups"]);
    assert_eq!(
        nobody,
        "cannot look at the server's descriptors: the kernel does not permit it \
         (cap_bpf, cap_perfmon, cap_sys_ptrace missing): run as root, or give the binary cap_bpf, cap_perfmon, cap_sys_ptrace"
    );
    let root = said_by(&["--bounding-set=-bpf,-perfmon,-sys_admin"]);
    assert_eq!(
        root,
        "cannot make a ring that the kernel fills: the kernel does not permit it \
         (cap_bpf, cap_perfmon missing): run as root, or give the binary cap_bpf, cap_perfmon"
    );
}
