//! Tests of connections that were open before the tap began: they are read from their next command on.

use crate::assert_complete;
use crate::watch::{TapResult, TapThread, may_hook, pid_of};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use toll_mysql::{Connection, Target};
use toll_taps::sockets::SocketTapOptions;
use toll_testkit::server::{TestServer, target_as_user};

#[test]
fn connections_come_and_go_and_those_that_were_there_are_joined() {
    if !may_hook() {
        return;
    }
    let Some(server) = TestServer::mariadb(&[]) else { return };
    server.connect_as_root().exec_drop("CREATE USER guest@'%' IDENTIFIED BY 'p'").unwrap();
    let mut before: Vec<Connection> =
        [server.unix_target(), server.tcp_target()].map(|t| Connection::connect(&t).unwrap()).into();
    let watch = TapThread::begin(&SocketTapOptions::for_server(pid_of(&server.socket())));
    for (number, connection) in before.iter_mut().enumerate() {
        connection.exec_drop(&format!("SELECT 'joined {number}'")).unwrap();
    }
    for number in 0..150 {
        let target: Target = if number % 2 == 0 { server.unix_target() } else { server.tcp_target() };
        let mut guest = Connection::connect(&target_as_user(target, "guest", "p")).unwrap();
        guest.exec_drop(&format!("SELECT 'visit {number}'")).unwrap();
    }
    before[0].exec_drop("SELECT 'last'").unwrap();
    watch.wait_until_seen("SELECT 'last'");
    watch.wait_until(150, |seen| seen.user == "guest" && seen.reads("administrator command: Quit"));
    let watched = watch.end();
    for number in 0..150 {
        let seen = watched.only(&format!("SELECT 'visit {number}'"));
        let host = if number % 2 == 0 { "" } else { "127.0.0.1" };
        assert_eq!((seen.user.as_str(), seen.host.as_str(), seen.timed), ("guest", host, true));
    }
    assert!(watched.only("SELECT 'joined 0'").timed);
    assert_eq!(watched.only("SELECT 'joined 1'").host, "127.0.0.1");
    assert_eq!(watched.count("administrator command: Connect"), 150);
    assert_eq!(watched.ledger.sessions.joined_midway, 2, "{:?}", watched.ledger.sessions);
    assert_eq!(watched.ledger.sessions.plain, 150);
    assert_complete(&watched);
}

#[test]
fn connections_that_were_busy_before_are_believed_from_their_next_command_on() {
    if !may_hook() {
        return;
    }
    let Some(server) = TestServer::mariadb(&[]) else { return };
    // An answer of which the tap keeps no more than the head.
    let wide = "SELECT REPEAT('x', 300)";
    let stop = AtomicBool::new(false);
    let taps: Vec<TapResult> = std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut connection = Connection::connect(&server.unix_target()).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    connection.query(wide).unwrap();
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
        }
        let watch_once = |_| {
            let watch = TapThread::begin(&SocketTapOptions::for_server(pid_of(&server.socket())));
            watch.wait_until(500, |seen| seen.reads(wide));
            watch.end()
        };
        let taps = (0..6).map(watch_once).collect();
        stop.store(true, Ordering::Relaxed);
        taps
    });
    for watched in &taps {
        let (commands, counters) = (&watched.ledger.commands, &watched.counters);
        assert!(commands.tainted == 0 || counters.lost > 0, "{commands:?} {counters:?}");
    }
}
