//! Tests that a capture reads inside the TLS of servers whose paths are their own: in a chroot, and as in a container.

use crate::ends::wait_until;
use crate::lab::{Jail, Lab, output_text};
use toll_mysql::{Connection, Target, Tls};

/// Captures what one session says over TLS to a server in such a place. False, with a message: it cannot be made here.
fn reads_inside_tls(lab: &Lab, jail: Jail) -> bool {
    let Some(server) = lab.start_jailed_server(jail) else {
        toll_testkit::skip!("cannot mount here");
        return false;
    };
    server.run("CREATE USER guest@'%' IDENTIFIED BY 'p' REQUIRE SSL");
    let (port, file, words) = (server.port.to_string(), lab.path("q.queries"), lab.path("words"));
    let arguments = ["capture", "--tap", "sockets", "--port", &port, "--queries", &file];
    let mut capture = lab.spawn_with_stderr(&arguments, &words);
    let said = || std::fs::read_to_string(&words).unwrap();
    wait_until("it captures", || {
        assert!(capture.try_wait().unwrap().is_none(), "{}", said());
        said().contains("listening on")
    });
    let target = Target::parse_dsn(&format!("mysql://guest:p@127.0.0.1:{port}/")).unwrap();
    let target = Target { tls: Tls::Required, ..target };
    for number in 0..50 {
        Connection::connect(&target).unwrap().exec_drop(&format!("SELECT 'inside {number}'")).unwrap();
    }
    lab.signal(&capture, "INT");
    assert_eq!(capture.wait().unwrap().code(), Some(0), "{}", said());
    let digest = lab.toll(&["digest", "--events", "--literals", "--format", "ndjson", &file]);
    assert!(digest.status.success(), "{}", output_text(&digest));
    let seen = String::from_utf8(digest.stdout).unwrap().matches("SELECT 'inside ").count();
    assert_eq!(seen, 50, "{jail:?}: {}", said());
    assert!(!said().contains("nothing inside TLS"), "{jail:?}: {}", said());
    true
}

#[test]
fn a_capture_reads_inside_the_tls_of_a_server_in_a_chroot_and_in_a_container() {
    for jail in [Jail::Chroot, Jail::Container] {
        let lab = toll_testkit::lab!();
        if !lab.is_root {
            toll_testkit::skip!("captures and mounts need root");
            return;
        }
        if !reads_inside_tls(&lab, jail) {
            return;
        }
        lab.assert_nothing_left();
    }
}
