//! Login and query tests for each authentication plugin and transport.

use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use toll_mysql::{Address, Compression, Connection, Error, Target, Tls};
use toll_testkit::server::{TestServer, make_certificates, target_as_user};
use toll_wire::protocol::capability::*;
use toll_wire::protocol::put_packets;

fn logged_in_as(target: &Target) -> String {
    let mut connection = Connection::connect(target).unwrap();
    connection.query("SELECT CURRENT_USER()").unwrap().scalar().unwrap().to_owned()
}

fn refused(target: &Target) -> Error {
    Connection::connect(target).map(|_| ()).unwrap_err()
}

#[test]
fn every_mariadb_account_kind_logs_in_over_tcp_and_socket() {
    let Some(server) = TestServer::mariadb(&[]) else { return };
    let mut root = server.connect_as_root();
    assert!(root.is_mariadb(), "{}", root.server_version());
    assert!(root.server_version().starts_with(|c: char| c.is_ascii_digit()));
    root.exec_drop("INSTALL SONAME 'auth_ed25519'").unwrap();
    for (user, how) in [
        ("native", "VIA mysql_native_password USING PASSWORD('geheim')"),
        ("ed", "VIA ed25519 USING PASSWORD('geheim')"),
        ("either", "VIA ed25519 USING PASSWORD('else') OR mysql_native_password USING PASSWORD('geheim')"),
    ] {
        root.exec_drop(&format!("CREATE USER {user}@'%' IDENTIFIED {how}")).unwrap();
        for target in [server.tcp_target(), server.unix_target()] {
            assert_eq!(logged_in_as(&target_as_user(target.clone(), user, "geheim")), format!("{user}@%"));
            let error = refused(&target_as_user(target, user, "wrong"));
            assert_eq!(error.code(), 1045, "{error}");
        }
    }
    root.exec_drop("CREATE USER nobody@'%'").unwrap();
    assert_eq!(logged_in_as(&target_as_user(server.tcp_target(), "nobody", "")), "nobody@%");
    assert_eq!(refused(&target_as_user(server.tcp_target(), "nobody", "x")).code(), 1045);
}

#[test]
fn tls_encrypts_and_a_given_authority_is_held_to() {
    let certificates = tempfile::tempdir().unwrap();
    if !make_certificates(certificates.path()) {
        toll_testkit::skip!("openssl is missing");
        return;
    }
    let path = |name: &str| certificates.path().join(name).display().to_string();
    let options = [format!("--ssl-cert={}", path("server.pem")), format!("--ssl-key={}", path("server.key"))];
    let Some(server) = TestServer::mariadb(&[&options[0], &options[1]]) else { return };
    let cipher = |target: &Target| {
        let mut connection = Connection::connect(target).unwrap();
        connection.query("SHOW STATUS LIKE 'Ssl_cipher'").unwrap().rows[0][1].clone().unwrap()
    };
    server.connect_as_root().exec_drop("CREATE USER u@'%' IDENTIFIED BY 'p'").unwrap();
    let plain = target_as_user(server.tcp_target(), "u", "p");
    assert_eq!(cipher(&plain), "");
    assert_ne!(cipher(&Target { tls: Tls::Required, ..plain.clone() }), "");
    let verified = |ca: &Path| Target { tls: Tls::Verified { ca: ca.into() }, ..plain.clone() };
    assert_ne!(cipher(&verified(&certificates.path().join("ca.pem"))), "");
    let stranger = refused(&verified(&certificates.path().join("server.pem")));
    assert_eq!(stranger.code(), 2026, "{stranger}");
    let both = Target { tls: Tls::Required, compress: Compression::Zlib, ..plain };
    assert_eq!(logged_in_as(&both), "u@%");
}

#[test]
fn a_server_without_tls_is_refused_in_words() {
    let Some(server) = TestServer::mariadb(&["--skip-ssl"]) else { return };
    let error = refused(&Target { tls: Tls::Required, ..server.tcp_target() });
    assert!(error.to_string().contains("without --tls"), "{error}");
    let error = refused(&Target { compress: Compression::Zstd, ..server.tcp_target() });
    assert!(error.to_string().contains("--compress=zlib"), "{error}");
}

/// A server of which nothing is there but its greeting and its answer to a TLS client.
fn server_that_refuses_tls(answer: &'static [u8]) -> (Target, std::thread::JoinHandle<()>) {
    let mut greeting = b"\x0a8.0.15\0\x01\0\0\0abcdefgh\0".to_vec();
    let capabilities = CLIENT_PROTOCOL_41
        | CLIENT_SSL
        | CLIENT_SECURE_CONNECTION
        | CLIENT_PLUGIN_AUTH
        | CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA;
    let [a, b, c, d] = (capabilities | CLIENT_LONG_PASSWORD).to_le_bytes();
    greeting.extend([a, b, 45, 2, 0, c, d, 21]);
    greeting.extend([0; 10]);
    greeting.extend(b"123456789012\0mysql_native_password\0");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let mut peer = listener.accept().unwrap().0;
        let mut packet = Vec::new();
        put_packets(&mut packet, 0, &greeting);
        peer.write_all(&packet).unwrap();
        let mut request = [0; 36];
        peer.read_exact(&mut request).unwrap();
        let mut head = [0; 5];
        peer.read_exact(&mut head).unwrap();
        let mut hello = vec![0; usize::from(u16::from_be_bytes([head[3], head[4]]))];
        peer.read_exact(&mut hello).unwrap();
        peer.write_all(answer).unwrap();
    });
    (Target { address: Address::Tcp { host: "127.0.0.1".into(), port }, ..Target::default() }, server)
}

#[test]
fn an_old_server_that_shares_no_tls_with_toll_is_an_error_that_says_what_to_do() {
    // TLS records: alert, version 1.2, 2 bytes; fatal, and which.
    const HANDSHAKE_FAILURE: &[u8] = &[21, 3, 3, 0, 2, 2, 40];
    const PROTOCOL_VERSION: &[u8] = &[21, 3, 3, 0, 2, 2, 70];
    for (answer, lacks, needs) in [
        (HANDSHAKE_FAILURE, "server 8.0.15 offers no TLS cipher suite", "MySQL 8.0.16"),
        (PROTOCOL_VERSION, "server 8.0.15 offers no TLS version", "TLS 1.2"),
        (&[], "server 8.0.15 ended the handshake", "TLS 1.2"),
    ] {
        let (target, server) = server_that_refuses_tls(answer);
        let error = refused(&Target { tls: Tls::Required, ..target });
        server.join().unwrap();
        assert_eq!(error.code(), 2026, "{error}");
        let text = error.to_string();
        for words in [lacks, needs, "Update the server", "without TLS over loopback or a Unix socket"] {
            assert!(text.contains(words), "{words:?} is not in {text:?}");
        }
    }
}

#[test]
fn results_come_back_whole_whatever_their_size() {
    let Some(server) = TestServer::mariadb(&["--max-allowed-packet=64M"]) else { return };
    for compress in [Compression::Off, Compression::Zlib] {
        let mut connection = Connection::connect(&Target { compress, ..server.tcp_target() }).unwrap();
        let rows = connection
            .query("SELECT 1 AS one, NULL AS none, 'ä' AS `letter` UNION SELECT 2, 'x', ''")
            .unwrap();
        assert_eq!(rows.columns, ["one", "none", "letter"]);
        let text = |s: &str| Some(s.to_owned());
        assert_eq!(rows.rows, [[text("1"), None, text("ä")], [text("2"), text("x"), text("")]]);
        // Below, at and above the packet limit, both ways.
        for length in [(1 << 24) - 100, (1 << 24) - 1 - 9, 1 << 24, 34_000_000] {
            let long = "x".repeat(length);
            let sent = connection.query(&format!("SELECT LENGTH('{long}')")).unwrap();
            assert_eq!(sent.scalar(), Some(length.to_string().as_str()));
            let received = connection.query(&format!("SELECT REPEAT('y', {length})")).unwrap();
            assert_eq!(received.scalar().map(str::len), Some(length));
        }
        let many = connection.query("SELECT seq FROM mysql.seq_1_to_50000").unwrap();
        assert_eq!(many.rows.len(), 50_000);
        assert_eq!(many.rows[49_999][0].as_deref(), Some("50000"));
    }
}

#[test]
fn an_error_leaves_the_session_usable_and_several_results_are_drained() {
    let Some(server) = TestServer::mariadb(&[]) else { return };
    let mut connection = server.connect_as_root();
    assert_eq!(connection.query("SELECT 1; SELECT 2").unwrap_err().code(), 1064);
    let several = Target { multi_statements: true, ..server.unix_target() };
    let mut connection = Connection::connect(&several).unwrap();
    let error = connection.query("SELECT * FROM mysql.no_such_table").unwrap_err();
    assert_eq!((error.code(), error.is_fatal()), (1146, false));
    assert_eq!(connection.query("SELECT 1; SELECT 2; DO 3").unwrap().scalar(), Some("1"));
    assert_eq!(
        connection.query("SELECT CONNECTION_ID()").unwrap().scalar().unwrap(),
        connection.connection_id().to_string()
    );
    let error = connection.query("SELECT 1; SELECT * FROM mysql.no_such_table").unwrap_err();
    assert_eq!(error.code(), 1146);
    connection.ping().unwrap();
    let updated = connection
        .query("CREATE TABLE mysql.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
        .and_then(|_| connection.query("INSERT INTO mysql.t (v) VALUES (1), (2), (3)"))
        .unwrap();
    assert_eq!((updated.affected_rows, updated.last_insert_id), (3, 1));
    connection.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let late = connection.query("SELECT SLEEP(10)").unwrap_err();
    assert_eq!((late.code(), late.is_fatal()), (2013, true), "{late}");
}

#[test]
fn what_is_no_mysql_server_is_an_error_in_words() {
    let Some(mut server) = TestServer::mariadb(&["--max-connections=10"]) else { return };
    let mut held = Vec::new();
    let full = loop {
        match Connection::connect(&server.tcp_target()) {
            Ok(connection) => held.push(connection),
            Err(error) => break error,
        }
        assert!(held.len() < 20);
    };
    assert_eq!(full.code(), 1040, "{full}");
    server.stop();
    assert_eq!(refused(&server.tcp_target()).code(), 2003);
    assert_eq!(refused(&server.unix_target()).code(), 2002);
    let listener = std::net::TcpListener::bind(("127.0.0.1", server.port())).unwrap();
    let talker = std::thread::spawn(move || {
        let mut peer = listener.accept().unwrap().0;
        peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let error = refused(&server.tcp_target());
    talker.join().unwrap();
    assert!(matches!(error, Error::ConnectionLost { .. } | Error::Protocol { .. }), "{error}");
}

#[test]
fn system_a_server_that_hangs_holds_a_statement_no_longer_than_its_timeout_and_no_goodbye() {
    let Some(server) = TestServer::mariadb(&["--max-allowed-packet=64M"]) else { return };
    const LIMIT: Duration = Duration::from_millis(300);
    // Far above the limit, far below for ever: this host may be busy.
    const BOUNDED: Duration = Duration::from_secs(15);
    // The second is more than any socket's buffers hold.
    let statements = ["SELECT 1".to_owned(), format!("SELECT '{}'", "x".repeat(32 << 20))];
    for target in [
        server.unix_target(),
        server.tcp_target(),
        Target { compress: Compression::Zlib, ..server.tcp_target() },
    ] {
        for statement in &statements {
            let mut connection = Connection::connect(&target).unwrap();
            connection.set_read_timeout(Some(LIMIT)).unwrap();
            server.signal("STOP");
            let begin = Instant::now();
            let outcome = connection.query(statement);
            let waited = begin.elapsed();
            drop(connection);
            let until_gone = begin.elapsed();
            let greeting = Connection::connect(&Target { connect_timeout: LIMIT, ..target.clone() });
            let all = begin.elapsed();
            server.signal("CONT");
            let error = outcome.unwrap_err();
            assert!(matches!(error, Error::ConnectionLost { .. }), "{error}");
            assert!(error.to_string().contains("no answer in time"), "{error}");
            assert!(waited >= LIMIT && until_gone < BOUNDED && all < BOUNDED, "{waited:?} {until_gone:?}");
            assert!(matches!(greeting, Err(Error::ConnectionLost { .. })), "{target:?}");
        }
    }
}
