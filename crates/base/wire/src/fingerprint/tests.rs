//! Tests of fingerprints.

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
