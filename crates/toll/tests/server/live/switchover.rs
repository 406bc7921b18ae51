//! Another server at the address that the plan was for.

use super::{SHORT, only_value, production};
use std::os::unix::fs::symlink;
use toll_testkit::lab::output_text;

#[test]
fn system_a_server_that_takes_the_address_over_is_left_alone_and_the_first_one_is_put_right_by_its_own() {
    let mut at = production();
    let other = at.lab.start_another_server("other");
    other.run("CREATE DATABASE shop; CREATE TABLE shop.items (id INT PRIMARY KEY, name VARCHAR(20)); INSERT INTO shop.items SELECT seq, 'x' FROM shop.seq_1_to_1000");
    let (out, address, own_dsn) = (at.lab.path("run"), at.lab.path("address.sock"), at.server.dsn());
    symlink(&at.server.socket, &address).unwrap();
    at.dsn = format!("mysql://root@localhost/?socket={address}");
    let before = [other.schemas(), other.variables()];
    at.with_users(|| {
        let mut child = at.spawn_for(&SHORT, &out, &[]);
        std::fs::remove_file(&address).unwrap();
        symlink(&other.socket, &address).unwrap();
        at.end_tolls_sessions();
        assert_eq!(child.wait().unwrap().code(), Some(1));
    });
    let said = std::fs::read_to_string(at.lab.path("said")).unwrap();
    assert!(said.contains("another server answers at"), "{said}");
    assert_eq!([other.schemas(), other.variables()], before);
    // Nobody could reach it.
    assert!(at.is_on());
    let cleaned = at.lab.toll(&["clean"]);
    assert!(output_text(&cleaned).contains("another server answers at"), "{}", output_text(&cleaned));
    assert_eq!(only_value(&other.rows("SELECT @@GLOBAL.general_log")), "0");
    let cleaned = at.lab.toll(&["clean", "--server", &own_dsn]);
    assert!(cleaned.status.success(), "{}", output_text(&cleaned));
    assert!(!at.is_on());
    at.lab.assert_nothing_left();
}
