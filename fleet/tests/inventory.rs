//! Tests of what is known of hosts beside their queries, and of conditions on it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "the program is started as its users start it")]
#![allow(clippy::float_cmp, reason = "whole numbers")]

#[allow(dead_code, reason = "other tests use the rest")]
mod fixtures;

use fixtures::{fleet, number, rows, write_tables};
use serde_json::{Value, json};
use std::path::Path;

fn write_inventory(root: &Path, csv: &str) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hosts.csv");
    std::fs::write(&file, csv).unwrap();
    let output = fleet(&["inventory", file.to_str().unwrap()], root);
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn hosts_are_those_seen_and_those_listed_and_a_list_replaces_the_one_before() {
    let root = tempfile::tempdir().unwrap();
    write_tables(root.path());
    let hosts =
        |columns: &str| rows(&["sql", &format!("SELECT {columns} FROM hosts ORDER BY host")], root.path());
    assert_eq!(
        hosts("host, cluster, first")[1],
        json!({"host": "db1", "cluster": "b", "first": "2025-11-26T14:00:00Z"})
    );
    let (code, said) = write_inventory(
        root.path(),
        "Host, ROLE,cores,sold by\ndb0,primary,8,Hans\ndb2,replica,4,\"Meier, Sons\"\ndb7,replica,2,\n",
    );
    assert_eq!((code, said.as_str()), (Some(0), "3 hosts in the table hosts\n"));
    let found = hosts("host, cluster, last IS NULL AS silent, role, cores, \"sold by\"");
    let host = |host,
                cluster: Option<&str>,
                silent: bool,
                role: Option<&str>,
                cores: Option<i64>,
                sold: Option<&str>| {
        json!({"host": host, "cluster": cluster, "silent": silent, "role": role, "cores": cores, "sold by": sold})
    };
    assert_eq!(
        found,
        [
            host("db0", Some("a"), false, Some("primary"), Some(8), Some("Hans")),
            host("db1", Some("b"), false, None, None, None),
            host("db2", Some("b"), false, Some("replica"), Some(4), Some("Meier, Sons")),
            host("db7", None, true, Some("replica"), Some(2), None),
        ]
    );
    let by_role = "SELECT role, sum(n) AS n FROM digests JOIN hosts ON hosts.host = digests.host GROUP BY role ORDER BY role";
    assert_eq!(rows(&["sql", by_role], root.path()).len(), 3, "a role, another, and none");
    write_inventory(root.path(), "host,cluster,tier\ndb1,b,gold\ndb1,z,lead\n");
    let tiers: Vec<Value> = hosts("host, cluster, tier");
    let tier = |host: &str, cluster: &str, tier: Option<&str>| json!({"host": host, "cluster": cluster, "tier": tier});
    assert_eq!(
        tiers,
        [
            tier("db0", "a", None),
            tier("db1", "b", Some("gold")),
            tier("db1", "z", Some("lead")),
            tier("db2", "b", None)
        ]
    );
}

#[test]
fn a_condition_chooses_hosts_in_every_question() {
    let root = tempfile::tempdir().unwrap();
    write_tables(root.path());
    write_inventory(root.path(), "host,role\ndb0,primary\ndb1,primary\ndb2,replica\n");
    let of_host =
        rows(&["sql", "SELECT host, sum(n) AS n FROM digests GROUP BY host ORDER BY host"], root.path());
    let n = |condition: &str| {
        let of_table = |table: &str| {
            let sql = format!("SELECT coalesce(sum(n), 0) AS n FROM {table}");
            number(&rows(&["sql", &sql, "--where", condition], root.path())[0], "n")
        };
        let ranked = rows(&["top", "--where", condition], root.path());
        let all = [of_table("digests"), of_table("cluster_digests"), of_table("fleet_digests")];
        assert_eq!(all, [ranked.iter().map(|row| number(row, "n")).sum::<f64>(); 3], "{condition}");
        all[0]
    };
    for compacted in [false, true] {
        if compacted {
            fleet(&["compact", "--grain", "day", "--keep-replaced", "0s"], root.path());
        }
        for (condition, hosts) in [
            ("role = 'primary'", &[0, 1][..]),
            ("cluster = 'b'", &[1, 2]),
            ("host IN ('db2')", &[2]),
            ("cluster = 'a' OR role = 'replica'", &[0, 2]),
            ("role IS NOT NULL", &[0, 1, 2]),
        ] {
            let expected: f64 = hosts.iter().map(|at: &usize| number(&of_host[*at], "n")).sum();
            assert_eq!(n(condition), expected, "{condition}");
        }
    }
    let hosts = rows(&["coverage", "--where", "role = 'replica'"], root.path());
    assert_eq!(hosts.iter().map(|row| &row["host"]).collect::<Vec<_>>(), ["db2"]);
    let compared = fleet(&["compare", "--host", "db1", "--where", "role = 'primary'"], root.path());
    assert!(String::from_utf8_lossy(&compared.stderr).contains("of the others"), "db2 is left out");
}

#[test]
fn lists_and_conditions_that_are_wrong_are_said() {
    let root = tempfile::tempdir().unwrap();
    write_tables(root.path());
    for (csv, words) in [
        ("name,role\ndb1,replica\n", "no column host"),
        ("host,first\ndb1,2025\n", "first is a column of the table hosts already"),
        ("host,role\ndb1,replica\ndb1,primary\n", "it has db1 twice"),
        ("host,role\n,replica\n", "a row without a host"),
        ("host,role,Role\ndb1,a,b\n", "no list of hosts"),
        ("host,role\n", "it has no rows"),
        ("host,role\ndb1\n", "no list of hosts"),
        ("", "no list of hosts"),
    ] {
        let (code, said) = write_inventory(root.path(), csv);
        assert!(code == Some(1) && said.contains(words), "{csv:?}: {said}");
    }
    let nowhere = root.path().join("misspelt");
    let (code, said) = write_inventory(&nowhere, "host,role\ndb1,replica\n");
    assert!(code == Some(1) && !nowhere.exists(), "{said}");
    for (condition, words) in [
        ("role = 'x'", "--where role = 'x': "),
        ("cluster = 'x'", "holds for no host"),
        ("cluster = ", "--where cluster = "),
    ] {
        let output = fleet(&["top", "--where", condition], root.path());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(words), "{condition}: {said}");
    }
}
