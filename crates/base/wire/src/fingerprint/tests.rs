//! Tests of fingerprints.

use super::steps::take_steps;
use super::*;

fn check(text: &str, expected: &str) {
    let mut out = Vec::new();
    fingerprint(text.as_bytes(), &mut out);
    assert_eq!(String::from_utf8_lossy(&out), expected, "of {text:?}");
}

#[test]
fn texts_of_a_few_bytes_are_no_trouble() {
    for text in [
        "",
        "c",
        "ca",
        "call",
        "call ",
        "use",
        "xa",
        "show",
        "load",
        "insert",
        "replace into",
        "/*",
        "'",
        "0x",
        // Longer than what becomes of it.
        "                                  insert \r\r\r",
    ] {
        let mut out = Vec::new();
        fingerprint(text.as_bytes(), &mut out);
        distill(text.as_bytes());
        tables(text.as_bytes());
    }
}

/// Statements of about `n` times the same piece, each of which some rule might search again and again.
fn hostile_statements(n: usize) -> Vec<(&'static str, Vec<u8>)> {
    let spaces = " ".repeat(n);
    let tabs = "\u{b}".repeat(n);
    let many = |piece: &str| piece.repeat(n);
    [
        ("spaces in a definition", format!("drop table{spaces}x")),
        ("spaces in LOCK TABLES", format!("lock tables a{spaces}x")),
        ("vertical tabs after ORDER BY", format!("select 1\\ from t order by a{tabs}x")),
        ("spaces after IF", format!("drop table {}", many("if  "))),
        ("COUNT without an end", format!("show {}", many(" count"))),
        ("version comments without an end", format!("show {}", many("/*!5 "))),
        ("version comments without a number", format!("show {}*/", many("/*!"))),
        ("comments", many("/* ")),
        ("names", format!("select 1 from {}b", many("a, "))),
        ("words before names", format!("select 1 {}", many("from a join "))),
        ("back quotes", format!("select 1 {}", many("from ` "))),
        ("aliases", format!("select 1 from {}", many("a as b "))),
        ("tables", format!("create {}", many("table "))),
        ("rows", format!("insert into t values {}", many("(1) , "))),
        ("values", format!("insert into t {}", many("values "))),
        ("closing parentheses", format!("insert into t values (1{}", many(")  "))),
        ("lists", format!("select 1 where a {}", many("in (1,"))),
        ("quotes", format!("select {}", many("'a\"b', "))),
        ("line comments", many("-- ' ")),
        ("calls", format!("call {}", many("a("))),
        ("load", format!("load data {}", many("into table  "))),
        ("toolkit marks", many("/*a.b:1/")),
        ("verbs", many("insert select ")),
    ]
    .map(|(name, text)| (name, text.into_bytes()))
    .to_vec()
}

#[test]
fn hostile_statements_cost_steps_in_proportion_to_their_length() {
    let steps = |text: &[u8]| {
        take_steps();
        fingerprint(text, &mut Vec::new());
        distill(text);
        tables(text);
        take_steps()
    };
    let pairs = hostile_statements(500).into_iter().zip(hostile_statements(4_000));
    let steep: Vec<String> = pairs
        .map(|((name, short), (_, long))| (name, steps(&short), steps(&long)))
        .filter(|(_, few, many)| *many > 10 * (*few).max(1_000))
        .map(|(name, few, many)| format!("{name}: {few} steps at 500, {many} at 4,000"))
        .collect();
    assert!(steep.is_empty(), "{steep:#?}");
}

#[test]
fn literals_become_marks() {
    check("SELECT * FROM t WHERE a=5 AND b='x' AND c=\"y\"", "select * from t where a=? and b=? and c=?");
    check("select 0x1f, -5.3, 1e5, x'4D', b'01', true, null", "select ?, ?, ?, ?, ?, ?, ?");
    check("select 'it\\'s', 'it''s'", "select ?, ??");
}

#[test]
fn lists_and_repeats_are_folded() {
    check(
        "select a from t where b in (1, 2,3) and c in ('x')",
        "select a from t where b in(?+) and c in(?+)",
    );
    check("select a from t where b in (x'1', .5, b'0')", "select a from t where b in(?+)");
    check("select a from t where b in (.true, .5)", "select a from t where b in(?+)");
    check("insert into t (a) values (1),(2),(3)", "insert into t (a) values(?+)");
    check("select 1 union select 2 union all select 3", "select ? /*repeat union all*/");
    check("select a from t order by a asc, b ASC limit 5, 10", "select a from t order by a, b limit ?");
    check("select a from t limit 5 offset 7", "select a from t limit ?");
}

#[test]
fn known_statements_have_fixed_fingerprints() {
    check("SELECT /*!40001 SQL_NO_CACHE */ * FROM `t`", "mysqldump");
    check("replace /*a.b:1/2*/ into c select 1", "percona-toolkit");
    check("administrator command: Ping", "administrator command: Ping");
    check("CALL Foo(1, 'a')", "call foo");
    check("USE shop", "use ?");
}

#[test]
fn comments_and_spaces_go() {
    check(" select /* c */  1 -- tail\n from\tt # more", "select ? from t ");
}

#[test]
fn no_literal_survives_quotes_that_the_rules_pair_wrongly() {
    check("select 'a\"b', \"secret\"", "select ?, ?");
    check("insert into t values ('secret", "insert into t values (?");
    check("select 'a\\\\', 'secret\\\\'", "select ?, ?");
    check("select 0xDEADBEEF", "select ?");
}

#[test]
fn ids_are_those_of_pt_query_digest() {
    assert_eq!(
        QueryId::from_fingerprint(b"administrator command: Quit").to_string(),
        "EDBC971AEC392917AA353644DE4C4CB4"
    );
}

fn pieces() -> impl proptest::strategy::Strategy<Value = Vec<u8>> {
    use proptest::prelude::*;
    let piece = prop::sample::select(vec![
        "select",
        "SELECT ",
        "insert",
        "into",
        "values",
        "value",
        "in",
        "IN",
        "null",
        "NULL",
        "true",
        "False",
        "union",
        " union all ",
        "limit",
        "order by",
        "asc",
        "x",
        "b",
        "f",
        "a1",
        "0x1F",
        "0xff",
        "12",
        "-",
        "--",
        "+",
        ".",
        ",",
        "(",
        ")",
        "?",
        " ",
        "  ",
        "\n",
        "\t",
        "\r\n",
        "\u{b}",
        "'",
        "''",
        "\"",
        "\\",
        "\\'",
        "\\\"",
        "'a'",
        "'b#c'",
        "'d--e'",
        "\"it's\"",
        "/*",
        "*/",
        "/*!",
        "#",
        "# c\n",
        "-- c\n",
        "`t`",
        "`",
        "é",
        "=",
        "use ",
        "in(",
        "values (",
        ",x'1'",
        ",.5",
        "b'1')",
        "1,2)",
        "null1",
        "inx",
        "e5",
        "1false",
        "call ",
        ";",
        "offset",
        "replace ",
    ]);
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat().into_bytes())
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(20_000))]
    /// The single pass either says the same as the rules, or declines.
    #[test]
    fn one_pass_equals_many(text in pieces()) {
        let mut fast = Vec::new();
        if let Some(seen) = super::fast::fingerprint(&text, &mut fast) {
            super::collapse::collapse(&mut fast, seen);
            let mut exact = Vec::new();
            super::exact::fingerprint(&text, &mut exact);
            super::collapse::collapse(&mut exact, super::collapse::KeywordHints::all());
            proptest::prop_assert_eq!(
                String::from_utf8_lossy(&fast), String::from_utf8_lossy(&exact), "of {:?}", String::from_utf8_lossy(&text)
            );
        }
    }
}
