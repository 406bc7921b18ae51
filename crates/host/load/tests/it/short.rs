//! Tests of short connections: one for each event, and no leftovers.

use crate::load::{TABLE, plan, run, run_with_callback, server_with_tables};
use toll_load::engine::{LoadPlan, RunError};
use toll_load::mix::Profile;
use toll_mysql::{Connection, Target};
use toll_testkit::server::TestServer;

const THREADS: u64 = 4;

fn short(target: Target, reconnect_every: u64) -> LoadPlan {
    let threads = THREADS as usize;
    let plan = plan(target, Profile::PointSelect.build_mix(TABLE).unwrap());
    LoadPlan { connections: threads, workers: threads, reconnect_every, ..plan }
}

/// Connections that the server has counted since it started.
fn connections(root: &mut Connection) -> u64 {
    let rows = root.query("SHOW GLOBAL STATUS LIKE 'Connections'").unwrap();
    rows.rows[0][1].as_deref().unwrap().parse().unwrap()
}

#[test]
fn the_server_counts_a_connection_for_every_so_many_events() {
    let Some(server) = server_with_tables() else { return };
    let mut root = server.connect_as_root();
    for (target, prepared) in [(server.unix_target(), false), (server.tcp_target(), true)] {
        for every in [1, 3] {
            let before = connections(&mut root);
            let totals = run(LoadPlan { prepared, ..short(target.clone(), every) }).unwrap().totals;
            let counts = &totals.counts;
            assert_eq!((counts.errors, counts.reconnects), (0, 0), "{:?}", totals.messages);
            // Each thread begins with a connection, which is not made anew.
            assert_eq!(connections(&mut root) - before, THREADS + counts.reconnects_asked);
            let events = counts.events / every;
            assert!(
                (events.saturating_sub(THREADS)..=events).contains(&counts.reconnects_asked),
                "{counts:?}"
            );
            assert_eq!(counts.statements, counts.events);
        }
    }
}

/// Connections in TIME_WAIT whose waiting end is the server's, and those whose end is a client's.
fn waiting_ends(server: &TestServer) -> (usize, usize) {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{:04X}", server.port());
    let waiting: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(3) == Some(&"06"))
        .collect();
    let at = |field: usize| waiting.iter().filter(|fields| fields[field].ends_with(&port)).count();
    (at(1), at(2))
}

#[test]
fn it_is_the_server_that_keeps_the_ports_of_connections_that_ended() {
    let Some(server) = server_with_tables() else { return };
    let totals = run(short(server.tcp_target(), 1)).unwrap().totals;
    assert!(totals.counts.reconnects_asked > 2 * THREADS, "{:?}", totals.counts);
    let (servers, clients) = waiting_ends(&server);
    // At the end of the run each thread leaves without waiting.
    assert!(clients as u64 <= THREADS && servers > clients, "server {servers}, client {clients}");
}

#[test]
fn a_server_that_hangs_does_not_hold_up_those_who_log_in() {
    let Some(server) = server_with_tables() else { return };
    for target in [server.unix_target(), server.tcp_target()] {
        let mut bins = 0;
        let outcome = run_with_callback(short(target, 1), |bin| {
            bins += 1;
            if bins == 4 {
                server.signal("STOP");
            }
            bins > 4 && bin.tally.counts.events == 0
        });
        server.signal("CONT");
        let counts = outcome.unwrap().totals.counts;
        assert_eq!(counts.errors, 0, "{:?}", counts.errors_by_code);
        assert!(counts.in_flight <= THREADS, "{counts:?}");
    }
}

#[test]
fn connections_that_share_a_thread_are_not_made_anew() {
    let Some(server) = server_with_tables() else { return };
    match run(LoadPlan { workers: 1, ..short(server.unix_target(), 1) }).map(|_| ()).unwrap_err() {
        RunError::Plan(said) => assert!(said.contains("--workers"), "{said}"),
        other => panic!("{other}"),
    }
}
