//! Which parts of a command must not be mailed to a colleague?
//!
//! A run holds no password of toll's own, but a command to be priced may carry one. Never guesses at
//! anything but passwords: a page that hides the command it priced is worthless.

use std::borrow::Cow;

/// What stands in place of a secret.
const HIDDEN: &str = "[hidden]";

/// `text` with every password that a MySQL tool, a URL or SQL would carry replaced.
pub fn redact(text: &str) -> Cow<'_, str> {
    let lower = text.to_ascii_lowercase();
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    for mark in ["password=", "mysql_pwd=", "passwd=", "secret=", "token="] {
        for (at, _) in lower.match_indices(mark) {
            push(&mut cuts, text, at + mark.len(), |c| c.is_whitespace());
        }
    }
    for mark in ["--password ", "identified by "] {
        for (at, _) in lower.match_indices(mark) {
            push(&mut cuts, text, at + mark.len(), |c| c.is_whitespace() || c == ';');
        }
    }
    for (at, _) in text.match_indices("://") {
        let authority = text[at + 3..].split(['/', '?', ' ', '"', '\'']).next().unwrap_or_default();
        if let Some((user_and_password, _)) = authority.rsplit_once('@')
            && let Some((user, password)) = user_and_password.split_once(':')
        {
            let begin = at + 3 + user.len() + 1;
            cuts.push((begin, begin + password.len()));
        }
    }
    if names_a_client(&lower) {
        for (at, _) in text.match_indices(" -p") {
            push(&mut cuts, text, at + 3, char::is_whitespace);
        }
    }
    if cuts.is_empty() {
        return Cow::Borrowed(text);
    }
    cuts.sort_unstable();
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (begin, end) in cuts {
        if begin >= from && begin < end {
            out.push_str(&text[from..begin]);
            out.push_str(HIDDEN);
            from = end;
        }
    }
    out.push_str(&text[from..]);
    Cow::Owned(out)
}

/// Tools whose `-pWORD` is a password; elsewhere (`ssh -p2222`) it is not.
fn names_a_client(lower: &str) -> bool {
    ["mysql", "mariadb", "mydumper", "myloader", "xtrabackup", "pt-query-digest"]
        .iter()
        .any(|tool| lower.split(|c: char| c.is_whitespace() || c == '/').any(|word| word.starts_with(tool)))
}

/// Marks the word that begins at `begin`, with its quotes where it has them.
fn push(cuts: &mut Vec<(usize, usize)>, text: &str, begin: usize, ends: impl Fn(char) -> bool) {
    let rest = &text[begin..];
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let end = match quote {
        Some(quote) => rest[1..].find(quote).map(|at| at + 2),
        None => rest.find(ends),
    };
    cuts.push((begin, begin + end.unwrap_or(rest.len())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_wherever_a_tool_takes_them() {
        for (given, shown) in [
            ("mysqldump --password=hunter2 --all", "mysqldump --password=[hidden] --all"),
            ("mysqldump --password='a b' --all", "mysqldump --password=[hidden] --all"),
            ("mysqldump -uroot -phunter2 db", "mysqldump -uroot -p[hidden] db"),
            ("/usr/bin/mariadb-dump -phunter2", "/usr/bin/mariadb-dump -p[hidden]"),
            ("MYSQL_PWD=hunter2 mysql", "MYSQL_PWD=[hidden] mysql"),
            (
                "toll run x --server mysql://u:hunter2@h:3306/db",
                "toll run x --server mysql://u:[hidden]@h:3306/db",
            ),
            ("CREATE USER a IDENTIFIED BY 'hunter2';", "CREATE USER a IDENTIFIED BY [hidden];"),
        ] {
            assert_eq!(redact(given), shown);
        }
    }

    #[test]
    fn what_is_no_password_stays() {
        for text in [
            "tcpdump -s 65535 -x -nn -q -tttt -i any port 3306",
            "ssh -p2222 host",
            "timeout -s KILL 300 tcpdump -i any -w - | nc 10.0.0.2 9000",
            "mysqldump --port=3306 -p --all",
            "https://example.org/a@b",
        ] {
            assert_eq!(redact(text), text);
        }
    }
}
