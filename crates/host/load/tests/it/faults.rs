//! Fault tests: the server restarts, refuses, kills connections or has no tables.

use crate::load::{TABLE, plan, run, run_with_callback, server_with_tables};
use std::time::Duration;
use toll_load::engine::{LoadPlan, RunError};
use toll_load::mix::Profile;
use toll_stats::schedule::{ArrivalProcess, Pacing};
use toll_sys::clock::mono_ns;
use toll_testkit::server::target_as_user;

#[test]
fn killed_connections_are_counted_and_come_back() {
    let Some(server) = server_with_tables() else { return };
    for connections in [1, 4] {
        let plan = LoadPlan {
            connections,
            ..plan(server.unix_target(), Profile::ReadWrite.build_mix(TABLE).unwrap())
        };
        let (mut bins, mut back, mut after) = (0, 0, 0);
        let outcome = run_with_callback(plan, |bin| {
            bins += 1;
            if bins == 10 {
                let mut root = server.connect_as_root();
                let own = root.connection_id().to_string();
                let list = root.query("SHOW PROCESSLIST").unwrap();
                let users = list.rows.iter().filter(|row| row[3].as_deref() == Some("sbtest"));
                for id in users.filter_map(|row| row[0].clone()).filter(|id| *id != own) {
                    root.exec_drop(&format!("KILL {id}")).unwrap();
                }
            }
            after += if back == connections as u64 { bin.tally.counts.events } else { 0 };
            back += bin.tally.counts.reconnects;
            after >= 10
        });
        let outcome = outcome.unwrap();
        let counts = &outcome.totals.counts;
        assert_eq!(counts.reconnects, connections as u64, "{:?}", outcome.totals.messages);
        let lost: u64 = [1927, 2013].iter().filter_map(|code| counts.errors_by_code.get(code)).sum();
        assert_eq!(lost, connections as u64, "{:?}", counts.errors_by_code);
        assert!(counts.events > 10);
    }
}

#[test]
fn a_restart_in_the_middle_costs_events_but_not_the_run() {
    let poisson = Pacing::Open { rate_per_s: 300.0, arrivals: ArrivalProcess::Poisson };
    for (pace, workers, reconnect_every) in
        [(Pacing::Closed, 2, 0), (poisson.clone(), 2, 0), (Pacing::Closed, 4, 1), (poisson, 4, 1)]
    {
        let Some(mut server) = server_with_tables() else { return };
        let open = pace != Pacing::Closed;
        let target = server.tcp_target();
        let plan = LoadPlan {
            pace,
            workers,
            reconnect_every,
            ..plan(target, Profile::PointSelect.build_mix(TABLE).unwrap())
        };
        let (mut bins, mut back, mut after) = (0, 0, 0);
        let outcome = run_with_callback(plan, |bin| {
            bins += 1;
            if bins == 10 {
                // Longer than the longest wait between two attempts: one of them finds the port closed.
                server.restart(Duration::from_millis(1500));
            }
            after += if back == 4 { bin.tally.counts.events } else { 0 };
            back += bin.tally.counts.reconnects;
            after >= 10
        });
        let totals = outcome.unwrap().totals;
        assert_eq!(totals.counts.reconnects, 4, "{:?}", totals.counts.errors_by_code);
        assert!(totals.counts.errors_by_code.contains_key(&2003), "refused meanwhile: {:?}", totals.messages);
        if open {
            let accounted = totals.counts.events + totals.counts.errors + totals.counts.in_flight;
            assert_eq!(totals.due, Some(accounted), "every event that was due is accounted for");
        }
    }
}

#[test]
fn what_cannot_begin_ends_at_once_and_in_words() {
    let Some(server) = server_with_tables() else { return };
    let mix = || Profile::PointSelect.build_mix(TABLE).unwrap();
    let code = |plan: LoadPlan| match run(plan).map(|_| ()).unwrap_err() {
        RunError::Server(e) => e.code(),
        other => panic!("{other}"),
    };
    // One connection for all of it: of those that the server refuses, some may hold its last places a while longer.
    let mut root = server.connect_as_root();
    root.exec_drop("CREATE USER u@'%' IDENTIFIED BY 'p'").unwrap();
    assert_eq!(code(plan(target_as_user(server.tcp_target(), "u", "wrong"), mix())), 1045);
    root.exec_drop("SET GLOBAL max_connections = 10").unwrap();
    assert_eq!(code(LoadPlan { connections: 30, ..plan(server.tcp_target(), mix()) }), 1040);
    root.exec_drop("SET GLOBAL max_connections = 100").unwrap();
    root.exec_drop("DROP TABLE sbtest.sbtest2").unwrap();
    assert_eq!(code(plan(server.tcp_target(), mix())), 1146);
    let text = LoadPlan {
        prepared: false,
        time: None,
        ..plan(server.tcp_target(), Profile::Delete.build_mix(TABLE).unwrap())
    };
    root.exec_drop("DROP TABLE sbtest.sbtest1").unwrap();
    match run(text).map(|_| ()).unwrap_err() {
        error @ RunError::NothingSucceeds { .. } => {
            let said = error.to_string();
            assert!(said.contains("1146 (") && said.contains("sbtest.sbtest"), "{said}");
            assert!(!said.contains("since"), "none ever had: {said}");
        }
        other => panic!("{other}"),
    }
}

#[test]
fn system_a_server_that_stays_away_ends_the_run_after_the_time_given() {
    let Some(mut server) = server_with_tables() else { return };
    let plan = LoadPlan {
        time: None,
        give_up: Duration::from_secs(1),
        ..plan(server.unix_target(), Profile::PointSelect.build_mix(TABLE).unwrap())
    };
    let mut bins = 0;
    let outcome = run_with_callback(plan, |_| {
        bins += 1;
        if bins == 5 {
            server.stop();
        }
        false
    });
    match outcome.map(|_| ()).unwrap_err() {
        RunError::NothingSucceeds { silence, message, totals } => {
            assert!(silence.since.as_ref().is_some_and(|(_, after_s)| *after_s > 0.0), "{silence:?}");
            // How many have tried to connect again by then is the host's affair.
            let gone = |code: u16| code == 2002 || code == 2013;
            assert!(silence.lasted_s >= 1.0 && silence.most_common_error().is_some_and(gone), "{silence:?}");
            assert!(totals.counts.events > 0, "what was measured before is not lost");
            let said = silence.to_string();
            assert!(said.contains("since") && (said.contains("2002 (") || said.contains("2013 (")), "{said}");
            assert!(!message.is_empty());
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_server_that_hangs_does_not_hold_the_end() {
    let Some(server) = server_with_tables() else { return };
    for (connections, target) in
        [(1, server.unix_target()), (1, server.tcp_target()), (4, server.tcp_target())]
    {
        let plan = LoadPlan { connections, ..plan(target, Profile::PointSelect.build_mix(TABLE).unwrap()) };
        let (mut bins, mut hung_ns) = (0, u64::MAX);
        let outcome = run_with_callback(plan, |bin| {
            bins += 1;
            if bins == 4 {
                server.signal("STOP");
                // By then all have read what was answered before, and asked again.
                hung_ns = mono_ns() + 500_000_000;
            }
            bin.begin_ns > hung_ns && bin.tally.counts.in_flight == connections as u64
        });
        server.signal("CONT");
        let counts = outcome.unwrap().totals.counts;
        assert_eq!((counts.in_flight, counts.errors), (connections as u64, 0));
    }
}
