//! Logins at, and results of, a server that wants the password or the memory of its client.

use toll_mysql::{Address, Connection, Error, PasswordOptIns, Target, Tls};
use toll_testkit::hostile_server::{HostileServer, Loot, Trick, column_definition};
use toll_testkit::server::make_certificates;
use toll_wire::protocol::put_lenenc;

const PASSWORD: &str = "geheim-geheim";
const PLUGINS: [&str; 4] = ["mysql_clear_password", "dialog", "sha256_password", "caching_sha2_password"];

/// The client's error and what the server has by then.
fn attack(server: &HostileServer, target: &Target) -> (Option<Error>, Loot) {
    let error = Connection::connect(target).map(|_| ()).err();
    (error, server.loot())
}

#[test]
fn no_server_gets_the_password_over_a_connection_in_the_clear_by_asking_for_it() {
    for plugin in PLUGINS {
        for trick in [Trick::SwitchTo(plugin), Trick::GreetWith(plugin), Trick::UnaskedKey(plugin)] {
            let server = HostileServer::start(trick.clone());
            let (error, loot) = attack(&server, &server.target(PASSWORD));
            assert!(!loot.holds(PASSWORD), "{trick:?}: {loot:?}");
            assert_eq!(loot.connections, 1, "{trick:?}: {error:?}");
            if matches!(trick, Trick::SwitchTo(_)) {
                let text = error.expect("a login that gave nothing away").to_string();
                assert!(text.contains(plugin) && text.contains("ssl-ca=FILE.pem"), "{text}");
            }
        }
    }
}

#[test]
fn no_server_with_any_certificate_gets_the_password_by_asking_for_it() {
    let certificates = tempfile::tempdir().unwrap();
    if !make_certificates(certificates.path()) {
        toll_testkit::skip!("openssl is missing");
        return;
    }
    for plugin in PLUGINS {
        for trick in [Trick::SwitchTo(plugin), Trick::GreetWith(plugin), Trick::UnaskedKey(plugin)] {
            let server = HostileServer::start_with_tls(trick.clone(), certificates.path());
            let target = Target { tls: Tls::Required, ..server.target(PASSWORD) };
            let (error, loot) = attack(&server, &target);
            assert!(!loot.holds(PASSWORD), "{trick:?}: {loot:?}");
            assert!(loot.payloads.len() > 1, "a login over TLS was begun: {error:?}");
        }
    }
}

#[test]
fn a_user_may_allow_what_a_plugin_asks_for_and_a_key_still_comes_only_when_asked_for() {
    let password_opt_ins = PasswordOptIns { get_server_public_key: true, ..PasswordOptIns::default() };
    for (trick, is_given) in [
        (Trick::SwitchTo("sha256_password"), true),
        (Trick::SwitchTo("caching_sha2_password"), true),
        (Trick::GreetWith("sha256_password"), true),
        // Its first response asks for no key.
        (Trick::UnaskedKey("caching_sha2_password"), false),
        (Trick::UnaskedKey("mysql_clear_password"), false),
        (Trick::SwitchTo("mysql_clear_password"), false),
        (Trick::SwitchTo("dialog"), false),
    ] {
        let server = HostileServer::start(trick.clone());
        let target = Target { password_opt_ins: password_opt_ins.clone(), ..server.target(PASSWORD) };
        let (error, loot) = attack(&server, &target);
        assert_eq!(loot.holds(PASSWORD), is_given, "{trick:?}: {error:?} {loot:?}");
        assert_eq!(error.is_none(), is_given, "{trick:?}: {error:?}");
    }
}

#[test]
fn a_password_encrypted_for_the_key_of_a_file_is_of_no_use_to_another_server() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("server.pub");
    std::fs::write(&path, toll_testkit::hostile_server::new_public_key()).unwrap();
    let password_opt_ins =
        PasswordOptIns { server_public_key_path: Some(path.clone()), ..PasswordOptIns::default() };
    for plugin in ["sha256_password", "caching_sha2_password"] {
        let server = HostileServer::start(Trick::SwitchTo(plugin));
        let target = Target { password_opt_ins: password_opt_ins.clone(), ..server.target(PASSWORD) };
        let (error, loot) = attack(&server, &target);
        assert!(!loot.holds(PASSWORD), "{plugin}: {loot:?}");
        assert!(loot.payloads.iter().any(|payload| payload.len() == 256), "{plugin}: {error:?} {loot:?}");
    }
    std::fs::remove_file(&path).unwrap();
    let server = HostileServer::start(Trick::SwitchTo("sha256_password"));
    let (error, _) = attack(&server, &Target { password_opt_ins, ..server.target(PASSWORD) });
    assert!(error.unwrap().to_string().contains("check server-public-key-path"));
}

#[test]
fn clear_text_goes_to_a_verified_server_or_where_the_user_allows_it() {
    let certificates = tempfile::tempdir().unwrap();
    if !make_certificates(certificates.path()) {
        toll_testkit::skip!("openssl is missing");
        return;
    }
    let ca = certificates.path().join("ca.pem");
    let password_opt_ins = PasswordOptIns { enable_cleartext_plugin: true, ..PasswordOptIns::default() };
    let at = |server: &HostileServer, host: &str, tls: Tls| {
        let address = Address::Tcp { host: host.into(), port: server.port() };
        Target { tls, address, ..server.target(PASSWORD) }
    };
    for plugin in PLUGINS {
        let server = HostileServer::start_with_tls(Trick::SwitchTo(plugin), certificates.path());
        let (error, loot) = attack(&server, &at(&server, "127.0.0.1", Tls::Verified { ca: ca.clone() }));
        assert!(error.is_none() && loot.holds(PASSWORD), "{plugin}: {error:?}");
        let server = HostileServer::start_with_tls(Trick::SwitchTo(plugin), certificates.path());
        let target =
            Target { password_opt_ins: password_opt_ins.clone(), ..at(&server, "127.0.0.1", Tls::Required) };
        let (error, loot) = attack(&server, &target);
        assert!(error.is_none() && loot.holds(PASSWORD), "{plugin}: {error:?}");
    }
    // This address is loopback, too, but not in the certificate.
    let server = HostileServer::start_with_tls(Trick::SwitchTo("dialog"), certificates.path());
    let (error, loot) = attack(&server, &at(&server, "0.0.0.0", Tls::Verified { ca: ca.clone() }));
    assert!(error.is_some() && !loot.holds(PASSWORD), "{error:?}");
    let (error, _) = attack(&server, &at(&server, "0.0.0.0", Tls::VerifiedCa { ca }));
    assert!(error.is_none(), "{error:?}");
    let stranger = certificates.path().join("server.pem");
    let (error, _) = attack(&server, &at(&server, "127.0.0.1", Tls::VerifiedCa { ca: stranger }));
    assert!(error.is_some());
}

#[test]
fn several_statements_in_one_text_are_not_offered() {
    let server = HostileServer::start(Trick::Answer(Vec::new()));
    drop(Connection::connect(&server.target(PASSWORD)).unwrap());
    let offered = server.loot().capabilities[0];
    assert_eq!(offered & toll_wire::protocol::capability::CLIENT_MULTI_STATEMENTS, 0, "{offered:#x}");
}

fn result_error(trick: Trick) -> String {
    let server = HostileServer::start(trick);
    let mut connection = Connection::connect(&server.target(PASSWORD)).unwrap();
    connection.query("SELECT 1").unwrap_err().to_string()
}

#[test]
fn more_columns_than_a_statement_can_have_are_refused_before_they_are_read() {
    let mut count = Vec::new();
    put_lenenc(&mut count, 1 << 40);
    let answer = [vec![count], vec![column_definition(b"c"); 100]].concat();
    let error = result_error(Trick::Answer(answer));
    assert!(error.contains("more columns than any statement has"), "{error}");
}

#[test]
fn names_and_nulls_count_towards_the_size_of_a_result() {
    let mut count = Vec::new();
    put_lenenc(&mut count, 40);
    let name = column_definition(&vec![b'x'; 8 << 20]);
    let error = result_error(Trick::Answer([vec![count], vec![name; 40]].concat()));
    assert!(error.contains("a result is larger than 256 MiB"), "{error}");
    // 24 bytes of memory for one on the wire: 512 MiB of these would have been 12 GiB.
    let error = result_error(Trick::EndlessNulls(4096));
    assert!(error.contains("a result is larger than 256 MiB"), "{error}");
}

#[test]
fn a_packet_of_a_login_is_small_or_an_error() {
    let server = HostileServer::start(Trick::LongGreeting(100 << 10));
    let (error, _) = attack(&server, &server.target(PASSWORD));
    let text = error.unwrap().to_string();
    assert!(text.contains("a packet is larger than 64 KiB"), "{text}");
}
