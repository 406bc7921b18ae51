//! Tests that no literal gets into a fingerprint, whatever the sql_mode of the server.

use super::{BackslashMode, distill, fingerprint, fingerprint_in_mode, tables};
use proptest::prelude::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SqlMode {
    Default,
    AnsiQuotes,
    NoBackslashEscapes,
}

impl SqlMode {
    fn backslashes(self) -> BackslashMode {
        if self == SqlMode::NoBackslashEscapes { BackslashMode::Plain } else { BackslashMode::Escapes }
    }

    /// A literal as a client of this mode writes it.
    fn quote(self, content: &str, double: bool, by_doubling: bool) -> String {
        let quote = if double && self != SqlMode::AnsiQuotes { '"' } else { '\'' };
        let mut out = String::from(quote);
        for char in content.chars() {
            if char == quote {
                let doubled = by_doubling || self == SqlMode::NoBackslashEscapes;
                out.push(if doubled { quote } else { '\\' });
            } else if char == '\\' && self != SqlMode::NoBackslashEscapes {
                out.push('\\');
            }
            out.push(char);
        }
        out.push(quote);
        out
    }
}

/// What stands in literals; only they hold this word.
fn content() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "zsecretz", " ", "'", "\"", "\\", "`", "--", "-- ", "#", "/*", "*/", "\n", ", ", "(", ")", "from ",
        "=", "?", "0x", "1", "x", "b", "n", "N",
    ]);
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

/// A statement in this mode: `A` of its form is a literal, `T` a name. One form is refused by servers (a backslash
/// outside of quotes, but not `\N`); its quotes still have an end.
fn statement(mode: SqlMode) -> impl Strategy<Value = String> {
    let literal = (content(), any::<bool>(), any::<bool>()).prop_map(move |(c, d, b)| mode.quote(&c, d, b));
    // Under ANSI_QUOTES names may hold anything, too.
    let name = prop::sample::select(match mode {
        SqlMode::AnsiQuotes => vec!["a", "`b`", "\"c\"", "\"d\\\"", "\"it's\"", "`e\\`"],
        _ => vec!["a", "`b`", "`it's`", "`d\"`", "`e\\`"],
    });
    let form = prop::sample::select(vec![
        "select A from T where T = A and T in (A, A) order by T asc limit 1",
        "insert into T (T, T) values (A, A), (A, A)",
        "replace into t values (A, A, A)",
        "update T set T = A, T=A where T like A escape A",
        "select A /* it's zsecretz */ , A from T -- zsecretz's end\n where T = A",
        "select x'4d', N'a', _utf8 A, \\N, A from T",
        "select x'4d', TA, _utf8 A, \\T, A from T",
        "call p(A, A)",
        "select A from T union select A from T union all select A from T",
        "set @a = A, @b = A",
        "create table T as select A, A from T",
        "load data local infile A into table t fields terminated by A",
        "show tables like A",
        "delete from T where T=A or T=A# end\n or T=A",
    ]);
    (form, prop::collection::vec(literal, 8), prop::collection::vec(name, 8)).prop_map(
        |(form, literals, names)| {
            let (mut literals, mut names) = (literals.into_iter().cycle(), names.into_iter().cycle());
            let fill = |char| match char {
                'A' => literals.next().unwrap_or_default(),
                'T' => names.next().unwrap_or_default().to_owned(),
                other => String::from(other),
            };
            form.chars().map(fill).collect()
        },
    )
}

fn check(text: &str, mode: SqlMode) -> Result<(), TestCaseError> {
    let mut unknown = Vec::new();
    fingerprint(text.as_bytes(), &mut unknown);
    let mut known = Vec::new();
    fingerprint_in_mode(text.as_bytes(), mode.backslashes(), &mut known);
    let names = tables(text.as_bytes()).concat();
    for (what, shown) in [
        ("fingerprint", unknown),
        ("fingerprint of its mode", known),
        ("tables", names),
        ("summary", distill(text.as_bytes())),
    ] {
        let shown = String::from_utf8_lossy(&shown).to_lowercase();
        prop_assert!(!shown.contains("zsecretz"), "{what} of {text:?} ({mode:?}) is {shown:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    #[test]
    fn no_literal_of_a_random_statement_is_shown_in_any_mode(
        default in statement(SqlMode::Default),
        ansi in statement(SqlMode::AnsiQuotes),
        plain in statement(SqlMode::NoBackslashEscapes),
    ) {
        check(&default, SqlMode::Default)?;
        check(&ansi, SqlMode::AnsiQuotes)?;
        check(&plain, SqlMode::NoBackslashEscapes)?;
    }
}

#[test]
fn a_backslash_before_the_end_of_a_literal_is_read_as_the_server_reads_it() {
    let shown = |text: &str, mode| {
        let mut out = Vec::new();
        fingerprint_in_mode(text.as_bytes(), mode, &mut out);
        String::from_utf8(out).unwrap()
    };
    let path = r"insert into t values ('C:\', 'secretone', 'x')";
    for mode in [BackslashMode::Plain, BackslashMode::Unknown] {
        assert_eq!(shown(path, mode), "insert into t values(?+)");
    }
    let escaped = r"select a from t where b = 'it\'s' and c = 5";
    for mode in [BackslashMode::Escapes, BackslashMode::Unknown] {
        assert_eq!(shown(escaped, mode), "select a from t where b = ? and c = ?");
    }
    // Both readings are possible: all that may be a literal is hidden.
    let both = r"select 'a\' as one, 'b\' as two";
    assert_eq!(shown(both, BackslashMode::Plain), "select ? as one, ? as two");
    assert!(!shown(both, BackslashMode::Unknown).contains('b'), "{}", shown(both, BackslashMode::Unknown));
    // No server runs this one; what is a literal without escapes is hidden all the same.
    let refused = r"select x'4d', _utf8 '\', \a, '*/secretone-- ' from a";
    assert_eq!(shown(refused, BackslashMode::Unknown), "select ?, _utf? ?");
}
