//! Tests that a server can be restored from its backup under failures of server, dump, store and toll.

mod failures;
mod round_trip;
mod scratch_server;
mod signatures;
mod silent_failures;
mod sources;
mod system_kills;
mod system_mysql;
mod system_proxy;
mod system_s3;

use crate::lab::{ForeignServer, HANG_TIMEOUT, Lab, output_text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Instant;

/// Creates tables of every kind that a dump treats differently, of about `rows` times 500 bytes.
pub fn fill(rows: u32, mut run: impl FnMut(&str)) {
    run("CREATE DATABASE shop");
    run("CREATE DATABASE `a/b ``c``\n-- d`");
    run("CREATE TABLE shop.orders (id INT PRIMARY KEY AUTO_INCREMENT, customer VARCHAR(80), note TEXT, \
         pic BLOB, price DECIMAL(10,2), ratio DOUBLE, at TIMESTAMP(3) NULL, j JSON, \
         length INT AS (CHAR_LENGTH(customer)) STORED, KEY (customer)) DEFAULT CHARSET utf8mb4");
    run("INSERT INTO shop.orders (id) VALUES (1)");
    run("UPDATE shop.orders SET customer = 'it''s \\\\ a `quote`\\n-- Table structure for table `x`\\n', \
         note = REPEAT(MD5(1), 10), pic = UNHEX(MD5(2)), price = 1.25, ratio = 1/3, at = '2020-01-01 00:00:00.123', \
         j = '{\"a\": [1, 2]}'");
    let mut have = 1;
    while have < rows {
        let more = have.min(rows - have);
        run(&format!(
            "INSERT INTO shop.orders (id, customer, note, pic, price, ratio, at, j) \
             SELECT id + {have}, CONCAT(LEFT(customer, 50), id + {have}), REPEAT(MD5(id + {have}), 10), UNHEX(MD5(id + {have})), \
             id / 7, id / 3, at, j FROM shop.orders WHERE id <= {more}"
        ));
        have += more;
    }
    run(
        "CREATE TABLE shop.lines (id INT PRIMARY KEY, `order` INT, FOREIGN KEY (`order`) REFERENCES shop.orders (id))",
    );
    run("INSERT INTO shop.lines VALUES (1, 1), (2, 2)");
    run("CREATE TABLE shop.empty (id INT)");
    run(
        "CREATE TABLE `a/b ``c``\n-- d`.`näme`` with\nline; -- end` (`k'ey` INT PRIMARY KEY, t LONGTEXT) DEFAULT CHARSET utf8mb4",
    );
    run(
        "INSERT INTO `a/b ``c``\n-- d`.`näme`` with\nline; -- end` VALUES (1, 'x'), (2, NULL), (3, '\u{1f40c}')",
    );
    run("CREATE VIEW shop.v AS SELECT id, '\n-- Table structure for table `q`\n' AS t FROM shop.orders");
    run("CREATE TRIGGER shop.trg BEFORE INSERT ON shop.lines FOR EACH ROW BEGIN\n\
         -- Table structure for table `fake`\nSET NEW.id = NEW.id + 0; END");
    run("CREATE PROCEDURE shop.p() BEGIN SELECT '\n-- Dump completed\n'; END");
    run("CREATE EVENT shop.e ON SCHEDULE EVERY 1 YEAR DO SET @x = 1");
}

/// Checksums of all base tables, and the definitions of all other objects, as the server reports them.
pub fn checksums(mut rows: impl FnMut(&str) -> Vec<Vec<Option<String>>>) -> Vec<String> {
    let own = "table_schema NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')";
    let tables = rows(&format!(
        "SELECT table_schema, table_name FROM information_schema.tables \
         WHERE table_type = 'BASE TABLE' AND {own} ORDER BY 1, 2"
    ));
    let quoted = |name: &Option<String>| format!("`{}`", name.clone().unwrap().replace('`', "``"));
    let mut told = Vec::new();
    for table in &tables {
        let name = format!("{}.{}", quoted(&table[0]), quoted(&table[1]));
        told.push(format!("{:?}", rows(&format!("CHECKSUM TABLE {name}"))));
        told.push(format!("{:?}", rows(&format!("SHOW CREATE TABLE {name}"))));
    }
    told.push(format!("{:?}", rows("SELECT COUNT(*), MIN(t) FROM shop.v")));
    for what in ["VIEW shop.v", "PROCEDURE shop.p", "TRIGGER shop.trg", "EVENT shop.e"] {
        // Name, mode and text: what follows says when it was made.
        let text = rows(&format!("SHOW CREATE {what}"));
        told.push(format!("{:?}", text[0].iter().take(4).collect::<Vec<_>>()));
    }
    assert!(tables.len() >= 4, "{tables:?}");
    told
}

pub fn rows_of(target: &toll_mysql::Target) -> impl FnMut(&str) -> Vec<Vec<Option<String>>> {
    let mut connection = toll_mysql::Connection::connect(target).unwrap();
    move |sql| connection.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).rows
}

pub fn target(server: &ForeignServer) -> toll_mysql::Target {
    toll_mysql::Target::parse_dsn(&server.dsn()).unwrap()
}

pub fn assert_success(output: Output) -> String {
    assert!(output.status.success(), "{}", output_text(&output));
    output_text(&output)
}

/// The `--json` output of a subcommand.
pub fn json(output: Output) -> Value {
    assert!(output.status.success(), "{}", output_text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The same of a backup that lacks something.
pub fn json_of_incomplete(output: Output) -> Value {
    assert_eq!(output.status.code(), Some(3), "{}", output_text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

pub fn files(below: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(below).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < HANG_TIMEOUT, "never: {what}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// Number of complete backups in a folder, each of which is read and checked.
pub fn whole_backups(lab: &Lab, store: &str) -> usize {
    if !Path::new(store).exists() {
        return 0;
    }
    let list = json(lab.toll(&["backup", "list", "--from", store, "--json"]));
    let list = list.as_array().unwrap();
    for line in list {
        let id = line["id"].as_str().unwrap();
        assert_success(lab.toll(&["backup", "verify", id, "--from", store, "--stored-only"]));
    }
    list.len()
}
