//! Test that every session starts with its target's session statements.

use crate::load::{TABLE, create_tables, plan, run};
use std::sync::atomic::AtomicBool;
use toll_load::mix::{Profile, TableSet};
use toll_load::tables::{self, TableLayout};
use toll_mysql::{Connection, NO_BINLOG, Target};
use toll_testkit::server::{TestServer, target_as_user};

fn binlog_position(root: &mut Connection) -> (String, u64) {
    let rows = root.query("SHOW MASTER STATUS").unwrap().rows;
    (rows[0][0].clone().unwrap(), rows[0][1].as_deref().unwrap().parse().unwrap())
}

/// Makes two tables, writes into them over lone, shared and short connections, and drops them.
fn write_in_every_way(target: &Target) {
    let target = Target { db: Some("quiet".into()), ..target.clone() };
    let table = TableSet { rows: 500, ..TABLE };
    let layout = TableLayout { table, seed: 1, threads: 2 };
    tables::prepare_tables(&target, &layout, &AtomicBool::new(false), |_| {}).unwrap();
    for (connections, workers, reconnect_every) in [(1, 1, 0), (4, 2, 0), (2, 2, 1)] {
        let mut plan = plan(target.clone(), Profile::ReadWrite.build_mix(table).unwrap());
        plan.target.clone_from(&target);
        (plan.connections, plan.workers, plan.reconnect_every) = (connections, workers, reconnect_every);
        assert!(run(plan).unwrap().totals.counts.events > 0);
    }
    tables::drop_tables(&target, 2).unwrap();
}

#[test]
fn system_nothing_written_reaches_the_binary_log_where_sessions_keep_out_of_it() {
    for server in [
        TestServer::mariadb(&["--log-bin=binlog", "--binlog-format=ROW"]),
        TestServer::mysql(&["--log-bin=binlog", "--server-id=1"]),
    ] {
        let Some(server) = server else { continue };
        let mut root = server.connect_as_root();
        let before = binlog_position(&mut root);
        let quiet = Target { session: vec![NO_BINLOG.into()], ..server.tcp_target() };
        write_in_every_way(&quiet);
        assert_eq!(binlog_position(&mut root), before, "{}", root.server_version());
        root.exec_drop("DROP DATABASE IF EXISTS quiet").unwrap();
        let before = binlog_position(&mut root);
        write_in_every_way(&server.tcp_target());
        assert!(binlog_position(&mut root) > before, "the test can see a write");
    }
}

#[test]
fn a_session_statement_that_fails_refuses_the_login_and_is_named() {
    let Some(server) = TestServer::mariadb(&[]) else { return };
    create_tables(&server);
    let mut root = server.connect_as_root();
    root.exec_drop("CREATE USER u@'%' IDENTIFIED BY 'p'").unwrap();
    root.exec_drop("GRANT SELECT ON sbtest.* TO u@'%'").unwrap();
    let target = Target { session: vec![NO_BINLOG.into()], ..target_as_user(server.tcp_target(), "u", "p") };
    let error = Connection::connect(&target).map(|_| ()).unwrap_err();
    assert!(error.code() == 1227 && error.to_string().contains("sql_log_bin = 0"), "{error}");
    let of_a_load =
        run(plan(target, Profile::PointSelect.build_mix(TABLE).unwrap())).map(|_| ()).unwrap_err();
    assert!(of_a_load.to_string().contains("sql_log_bin = 0"), "{of_a_load}");
}

#[test]
fn system_a_session_that_the_server_has_ended_is_not_used_again() {
    for server in [TestServer::mariadb(&[]), TestServer::mysql(&[])] {
        let Some(server) = server else { continue };
        // Over TCP the farewell of MySQL is read as the answer; over a socket the statement cannot be sent any more.
        for target in [server.tcp_target(), server.unix_target()] {
            let mut idle = Connection::connect(&target).unwrap();
            idle.exec_drop("SET SESSION wait_timeout = 1").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(3_500));
            let error = idle.exec_drop("DO 1").unwrap_err();
            assert!(error.is_fatal(), "{error}");
            let mut killed = Connection::connect(&target).unwrap();
            server.connect_as_root().exec_drop(&format!("KILL {}", killed.connection_id())).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(500));
            let error = killed.exec_drop("DO 1").unwrap_err();
            assert!(error.is_fatal(), "{error}");
        }
    }
}

#[test]
fn a_target_of_one_server_reaches_no_other_at_its_address() {
    let (Some(one), Some(other)) = (TestServer::mariadb(&[]), TestServer::mariadb(&[])) else { return };
    let identity = one.connect_as_root().identity().unwrap();
    let this_one = |target| Target { identity: Some(identity.clone()), ..target };
    assert_eq!(Connection::connect(&this_one(one.tcp_target())).unwrap().identity().unwrap(), identity);
    let error = Connection::connect(&this_one(other.tcp_target())).map(|_| ()).unwrap_err();
    assert!(matches!(error, toll_mysql::Error::AnotherServer { .. }), "{error}");
    assert!(error.is_fatal() && error.to_string().contains("another server answers at"), "{error}");
}
