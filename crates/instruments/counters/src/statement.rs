//! A server's normalised statement (`DIGEST_TEXT`) as people write one, so that its class is that of other sources where it can be.
//!
//! The server writes its tokens with a space between all of them, names in backticks and lists of values as `(...)`:
//! ``SELECT SUM ( `k` ) FROM `t` WHERE `id` IN (...)``.

/// Names of functions that are words of the server's grammar; those of all others stand in backticks.
const FUNCTIONS: &[&str] = &[
    "ADDDATE",
    "ASCII",
    "AVG",
    "BIT_AND",
    "BIT_OR",
    "BIT_XOR",
    "CAST",
    "CHAR",
    "COALESCE",
    "CONVERT",
    "COUNT",
    "CUME_DIST",
    "CURDATE",
    "CURTIME",
    "DATE",
    "DATE_ADD",
    "DATE_SUB",
    "DAY",
    "DENSE_RANK",
    "EXTRACT",
    "FIRST_VALUE",
    "FORMAT",
    "GROUP_CONCAT",
    "HOUR",
    "IF",
    "INSERT",
    "INTERVAL",
    "JSON_ARRAYAGG",
    "JSON_OBJECTAGG",
    "JSON_VALUE",
    "LAG",
    "LAST_VALUE",
    "LEAD",
    "LEFT",
    "MAX",
    "MICROSECOND",
    "MIN",
    "MINUTE",
    "MOD",
    "MONTH",
    "NOW",
    "NTILE",
    "PERCENT_RANK",
    "POSITION",
    "QUARTER",
    "RANK",
    "REPEAT",
    "REPLACE",
    "RIGHT",
    "ROW_NUMBER",
    "SECOND",
    "STD",
    "STDDEV",
    "SUBSTRING",
    "SUM",
    "TRIM",
    "TRUNCATE",
    "VARIANCE",
    "WEEK",
    "YEAR",
];
/// What follows a row of values where more rows do.
const MORE_ROWS: &str = "/* , ... */";
const VALUES_LEFT_OUT: &str = "(...)";
/// Two, since one fingerprint stands for lists of any length.
const SOME_VALUES: &str = "(?, ?)";

/// The statement in the spaces that people put.
pub fn statement_of(digest_text: &str) -> String {
    let text = digest_text.replace(MORE_ROWS, "");
    let mut statement = String::with_capacity(text.len());
    let (mut last, mut before_last) = ("", "");
    for token in tokens(&text) {
        if !has_no_space(before_last, last, token) && !statement.is_empty() {
            statement.push(' ');
        }
        match token {
            VALUES_LEFT_OUT => statement.push_str(SOME_VALUES),
            token => push_name(&mut statement, token),
        }
        (before_last, last) = (last, token);
    }
    statement
}

/// Split at spaces outside of backticks.
fn tokens(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let is_end = move |c: char| {
        is_quoted ^= c == '`';
        c == ' ' && !is_quoted
    };
    text.split(is_end).filter(|token| !token.is_empty())
}

/// Without backticks, where they are not needed.
fn push_name(statement: &mut String, token: &str) {
    let is_plain = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    // A variable's name stands behind two.
    let (sign, name) = token.strip_prefix("@@").map_or(("", token), |name| ("@@", name));
    let bare = name.strip_prefix('`').and_then(|name| name.strip_suffix('`'));
    let bare = bare.filter(|name| !name.is_empty() && name.chars().all(is_plain));
    statement.push_str(sign);
    statement.push_str(bare.unwrap_or(name));
}

/// True where no space stands before `token`, which follows `last`.
fn has_no_space(before_last: &str, last: &str, token: &str) -> bool {
    if last == "(" || last == "." {
        return true;
    }
    match token {
        "," | ")" | ";" | "." => true,
        // Of a function, not of a table's columns.
        "(" | VALUES_LEFT_OUT => {
            FUNCTIONS.contains(&last)
                || last.starts_with('`') && !["INTO", "TABLE", "AS"].contains(&before_last)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_wire::fingerprint::fingerprint;

    /// As MySQL 9.7 wrote them.
    #[test]
    fn a_class_is_that_of_the_statement_as_people_write_it() {
        for (digest_text, statement) in [
            ("SELECT `c` FROM `sbtest1` WHERE `id` = ?", "SELECT c FROM sbtest1 WHERE id = 5"),
            (
                "SELECT SUM ( `k` ) FROM `sbtest1` WHERE `id` BETWEEN ? AND ?",
                "SELECT SUM(k) FROM sbtest1 WHERE id BETWEEN 1 AND 9",
            ),
            ("SELECT COUNT ( * ) FROM `shop` . `orders`", "SELECT COUNT(*) FROM shop.orders"),
            ("SELECT `id` FROM `t` WHERE `id` IN (...)", "select id from t where id in (1, 2, 3)"),
            ("INSERT INTO `t` ( `a` , `b` ) VALUES (...)", "INSERT INTO t (a, b) VALUES (1, 'x')"),
            (
                "INSERT INTO `t` ( `a` , `b` ) VALUES (...) /* , ... */",
                "INSERT INTO t (a, b) VALUES (1, 'x'), (2, 'y')",
            ),
            ("UPDATE `t` SET `k` = `k` + ? WHERE `id` = ?", "UPDATE t SET k = k + 1 WHERE id = 7"),
            ("SELECT `sha2` ( `a` , ? ) FROM `t`", "SELECT sha2(a, 256) FROM t"),
            ("SELECT @@`version_comment` LIMIT ?", "select @@version_comment limit 1"),
            ("SELECT `a b` FROM `t`", "SELECT `a b` FROM t"),
            ("COMMIT", "commit"),
        ] {
            let of = |text: &str| {
                let mut out = Vec::new();
                fingerprint(text.as_bytes(), &mut out);
                String::from_utf8(out).unwrap()
            };
            assert_eq!(of(&statement_of(digest_text)), of(statement), "{digest_text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_that_a_server_writes_is_a_fault(text in ".{0,200}", names in "[`() .,@?a-z]{0,80}") {
            for text in [text, names] {
                let statement = statement_of(&text);
                proptest::prop_assert!(statement.len() <= 3 * text.len());
            }
        }
    }
}
