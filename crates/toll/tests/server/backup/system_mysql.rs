//! Backup tests with MySQL, if its `mysqld` is installed (`scripts/mysqld`).

use super::system_s3::{S3, STORE_URL, toll_at};
use super::{assert_success, checksums, fill, json, rows_of};
use crate::lab::{Lab, output_text};

/// A private server of toll's own, with the option file that leads to it.
fn start(lab: &Lab, mysqld: &str) -> String {
    assert_success(lab.toll(&["server", "start", "--server-bin", mysqld]));
    let running = json(lab.toll(&["server", "status", "--json"]));
    running["defaults_file"].as_str().unwrap().to_owned()
}

/// Debian's is MariaDB's under another name.
fn is_of_mysql(program: &str) -> bool {
    let output = std::process::Command::new(program).arg("--version").output();
    output.is_ok_and(|output| !output_text(&output).contains("MariaDB"))
}

#[test]
fn a_mysql_server_restored_from_a_folder_from_git_or_from_a_bucket_equals_its_source() {
    let Ok(mysqld) = std::env::var("TOLL_TEST_MYSQLD") else {
        toll_testkit::skip!("TOLL_TEST_MYSQLD does not name a mysqld (scripts/mysqld does)");
        return;
    };
    let lab = toll_testkit::lab!();
    let source = start(&lab, &mysqld);
    let target = toll_mysql::Target::from_defaults_file(&source).unwrap();
    let mut rows = rows_of(&target);
    fill(3000, |sql| drop(rows(sql)));
    if !is_of_mysql("mysqldump") {
        let refused = lab.toll(&["backup", "--server", &source, "--to", &lab.path("never")]);
        assert!(output_text(&refused).contains("shop.orders.length"), "{}", output_text(&refused));
        assert!(!std::path::Path::new(&lab.path("never")).exists());
        rows("ALTER TABLE shop.orders DROP COLUMN length");
    }
    let expected = checksums(&mut rows);
    let (store, git) = (lab.path("store"), lab.path("repo.git"));
    let take = || json(lab.toll(&["backup", "--server", &source, "--to", &store, "--git", &git, "--json"]));
    let taken = take();
    assert_eq!((&taken["rows"], &taken["server"]["flavour"]), (&3005.into(), &"mysql".into()), "{taken}");
    assert_eq!(take()["git"]["unchanged"], true);
    let s3 = S3::versitygw(&lab);
    let toll = |arguments: &[&str]| match &s3 {
        Some(s3) => toll_at(&lab, s3.port, arguments),
        None => lab.toll(arguments),
    };
    let mut places = vec![["--from", &store], ["--git", &git]];
    if s3.is_some() {
        assert_success(toll(&["backup", "--server", &source, "--to", STORE_URL]));
        places.push(["--from", STORE_URL]);
    }
    for from in places {
        let other = toll_testkit::lab!();
        let onto = start(&other, &mysqld);
        assert_success(toll(&[&["backup", "restore", "--yes", "--server", &onto], &from[..]].concat()));
        let restored = toll_mysql::Target::from_defaults_file(&onto).unwrap();
        assert_eq!(checksums(rows_of(&restored)), expected, "{from:?}");
        assert_success(other.toll(&["server", "stop"]));
    }
    let verified = json(lab.toll(&["backup", "verify", "--from", &store, "--server-bin", &mysqld, "--json"]));
    assert_eq!(
        (&verified["differences"], &verified["definitions_compared"]),
        (&serde_json::json!([]), &true.into()),
        "{verified}"
    );
    assert_success(lab.toll(&["server", "stop"]));
    lab.assert_nothing_left();
}
