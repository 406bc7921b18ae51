//! MySQL 8.0.18 or later: what works with MariaDB, and the logins and compression that only MySQL has.

use crate::load::{TABLE, create_tables, plan, run};
use std::path::PathBuf;
use toll_load::engine::LoadPlan;
use toll_load::mix::Profile;
use toll_mysql::{Compression, Connection, PasswordOptIns, Target, Tls};
use toll_testkit::server::{TestServer, target_as_user};

#[test]
fn every_mysql_account_kind_logs_in_over_each_transport() {
    let Some(server) = TestServer::mysql(&[]) else { return };
    let mut root = server.connect_as_root();
    assert!(!root.is_mariadb());
    assert!(root.server_version().starts_with("8."), "{}", root.server_version());
    // Off by default: the hostile server of toll-mysql's tests shows why.
    let password_opt_ins = PasswordOptIns {
        get_server_public_key: true,
        enable_cleartext_plugin: true,
        ..PasswordOptIns::default()
    };
    for (user, plugin) in [
        ("sha2", "caching_sha2_password"),
        ("sha256", "sha256_password"),
        ("native", "mysql_native_password"),
    ] {
        root.exec_drop(&format!("CREATE USER {user}@'%' IDENTIFIED WITH {plugin} BY 'geheim'")).unwrap();
        root.exec_drop(&format!("CREATE USER {user}_empty@'%' IDENTIFIED WITH {plugin} BY ''")).unwrap();
        let transports = [
            // RSA over plain TCP, then whatever the server remembers of it.
            server.tcp_target(),
            server.tcp_target(),
            server.unix_target(),
            Target { compress: Compression::Zlib, ..server.tcp_target() },
            Target { compress: Compression::Zstd, ..server.tcp_target() },
            Target { tls: Tls::Required, ..server.tcp_target() },
        ];
        for (number, target) in transports.into_iter().enumerate() {
            for forget in [true, false] {
                if forget {
                    // Empties the cache of caching_sha2_password: the full exchange follows.
                    root.exec_drop("FLUSH PRIVILEGES").unwrap();
                }
                for (name, password) in [(user.to_owned(), "geheim"), (format!("{user}_empty"), "")] {
                    let login = target_as_user(target.clone(), &name, password);
                    let login = Target { password_opt_ins: password_opt_ins.clone(), ..login };
                    let mut session =
                        Connection::connect(&login).unwrap_or_else(|e| panic!("{name} {number}: {e}"));
                    let who = session.query("SELECT CURRENT_USER()").unwrap();
                    assert_eq!(who.scalar(), Some(format!("{name}@%").as_str()));
                }
            }
            let wrong = target_as_user(target, user, "wrong");
            let wrong = Target { password_opt_ins: password_opt_ins.clone(), ..wrong };
            let error = Connection::connect(&wrong).map(|_| ()).unwrap_err();
            assert_eq!(error.code(), 1045, "{error}");
        }
    }
}

#[test]
fn tls_of_the_servers_own_making_works_and_an_unknown_authority_does_not() {
    let Some(server) = TestServer::mysql(&[]) else { return };
    let encrypted = Target { tls: Tls::Required, ..server.tcp_target() };
    server.connect_as_root().exec_drop("CREATE USER r@'%' IDENTIFIED BY ''").unwrap();
    let mut session = Connection::connect(&target_as_user(encrypted.clone(), "r", "")).unwrap();
    let cipher = session.query("SHOW STATUS LIKE 'Ssl_cipher'").unwrap();
    assert!(!cipher.rows[0][1].as_deref().unwrap().is_empty());
    let stranger: PathBuf = server.socket().parent().unwrap().join("data/client-cert.pem");
    let verified = Target { tls: Tls::Verified { ca: stranger }, ..encrypted };
    let error = Connection::connect(&target_as_user(verified, "r", "")).map(|_| ()).unwrap_err();
    assert_eq!(error.code(), 2026, "{error}");
}

#[test]
fn every_profile_runs_on_mysql() {
    let Some(server) = TestServer::mysql(&[]) else { return };
    create_tables(&server);
    for profile in Profile::ALL {
        for (prepared, connections, target) in [
            (true, 4, server.unix_target()),
            (false, 1, server.tcp_target()),
            (true, 1, Target { compress: Compression::Zlib, ..server.tcp_target() }),
            (true, 1, Target { compress: Compression::Zstd, ..server.tcp_target() }),
            (true, 4, Target { tls: Tls::Required, ..server.unix_target() }),
        ] {
            let plan = LoadPlan { prepared, connections, ..plan(target, profile.build_mix(TABLE).unwrap()) };
            let totals = run(plan).unwrap().totals;
            let other: Vec<_> =
                totals.counts.errors_by_code.keys().filter(|c| ![1205, 1213, 1062].contains(*c)).collect();
            assert!(totals.counts.events > 0 && other.is_empty(), "{profile:?} {:?}", totals.messages);
        }
    }
}
