//! Redaction of secrets in command lines, scripts and text before they are written to disk.
//!
//! The executed command keeps its secrets. In doubt a word is hidden: behind a shell, `-pWORD` is a password, as behind a
//! client of the server. Within a shell's script the programs are known again.
//!
//! # Invariants
//! Never hides the program or an option's name: a report without them does not say what was measured.

/// Replacement text of a secret.
const REDACTED: &str = "***";
/// Programs whose `-pWORD` is a password; elsewhere (`ssh -p2222`, `mkdir -p`) it is not.
const CLIENT_PROGRAMS: [&str; 9] =
    ["mysql", "mariadb", "mydumper", "myloader", "xtrabackup", "innobackupex", "xbstream", "percona", "pt-"];
/// Shells, whose words may become those of any program: `sh -c 'mysqldump "$@"' x -pWORD`, `bash dump.sh -pWORD`.
const SHELLS: [&str; 7] = ["sh", "bash", "dash", "ash", "ksh", "mksh", "zsh"];
/// Substrings of long option names that mark a secret.
const SECRET_OPTION_PARTS: [&str; 8] =
    ["password", "passwd", "passphrase", "pwd", "secret", "token", "api-key", "apikey"];
/// Substrings of variable names that mark a secret, as in `MYSQL_PWD=...`.
const SECRET_VARIABLE_PARTS: [&str; 5] = ["PASS", "PWD", "SECRET", "TOKEN", "KEY"];
/// SQL text that precedes a password.
const SQL_PASSWORD_PREFIXES: [&str; 4] =
    ["identified by ", "identified by password ", "password(", "set password = "];
/// Maximum depth of scripts nested in scripts.
const MAX_SCRIPT_DEPTH: usize = 4;

/// The words of one command line, with `***` for what is secret.
pub fn redact_words(words: &[String]) -> Vec<String> {
    redact_words_to_depth(words, MAX_SCRIPT_DEPTH)
}

/// A text that quotes commands (a script, a scenario, a tool's last words), with `***` for what is secret.
pub fn redact_text(text: &str) -> String {
    redact_text_to_depth(text, MAX_SCRIPT_DEPTH)
}

/// The secrets themselves: what stood where [`redact_words`] puts `***`.
pub fn find_secrets(words: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (word, hidden) in words.iter().zip(redact_words(words)) {
        let mut rest = word.as_str();
        let mut parts = hidden.split(REDACTED).peekable();
        while let Some(part) = parts.next() {
            rest = rest.strip_prefix(part).unwrap_or(rest);
            let Some(next) = parts.peek() else { break };
            let end = if next.is_empty() { rest.len() } else { rest.find(next).unwrap_or(rest.len()) };
            found.push(rest[..end].to_owned());
            rest = &rest[end..];
        }
    }
    // Anything shorter is in too many other words.
    found.retain(|secret| secret.len() > 2);
    found
}

/// Context of a word, from the words before it.
#[derive(Debug, Clone, Copy, Default)]
struct WordContext {
    /// A client of the server has been named, or a shell: `-pWORD` is a password.
    is_after_client: bool,
    /// An option that takes a secret: `--password X`.
    wants_secret: bool,
    /// `sh -c`: a script follows.
    is_script: bool,
}

fn redact_words_to_depth(words: &[String], depth: usize) -> Vec<String> {
    let mut before = WordContext::default();
    words.iter().map(|word| redact_word(word, &mut before, depth)).collect()
}

fn redact_word(word: &str, before: &mut WordContext, depth: usize) -> String {
    let WordContext { is_after_client: client, wants_secret, is_script: script } = *before;
    before.is_after_client = client || is_client_program(word);
    before.wants_secret = false;
    before.is_script = false;
    if wants_secret && !word.is_empty() && !word.starts_with('-') {
        return REDACTED.to_owned();
    }
    if script && depth > 0 {
        return redact_text_to_depth(word, depth - 1);
    }
    if let Some(option) = word.strip_prefix("--") {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        if takes_secret(name) {
            before.wants_secret = value.is_none();
            return match value {
                Some(value) if !value.is_empty() => format!("--{name}={REDACTED}"),
                _ => word.to_owned(),
            };
        }
    } else if let Some(short) = word.strip_prefix('-') {
        before.is_script = short.ends_with(['c', 'e']) && short.bytes().all(|b| b.is_ascii_lowercase());
        // Flags may stand before it: -vpSECRET.
        let flags = short.trim_start_matches(['v', 'f', 'q', 't', 'B', 'N', 'A', 'C', 's']);
        if client && let Some(secret) = flags.strip_prefix('p').filter(|secret| !secret.is_empty()) {
            return format!("{}{REDACTED}", &word[..word.len() - secret.len()]);
        }
    } else if let Some((name, value)) = split_assignment(word).filter(|(_, value)| !value.is_empty())
        && SECRET_VARIABLE_PARTS.iter().any(|part| name.to_ascii_uppercase().contains(part))
        && (name.bytes().all(|b| !b.is_ascii_lowercase()) || takes_secret(name))
    {
        // `MYSQL_PWD=x mysqldump ...` in one word is a script, unless the value is in quotes.
        let script = value.contains(char::is_whitespace) && depth > 0;
        return if script { redact_text_to_depth(word, depth - 1) } else { format!("{name}={REDACTED}") };
    }
    let hidden = redact_dsn(word, before.is_after_client);
    if hidden == word && word.contains(char::is_whitespace) && depth > 0 {
        return redact_text_to_depth(word, depth - 1);
    }
    redact_sql(&redact_urls(&hidden))
}

/// True for a program that takes `-pPASSWORD`, or a shell that may pass it on, in any directory.
fn is_client_program(word: &str) -> bool {
    let name = word
        .rsplit(['/', '='])
        .next()
        .unwrap_or(word)
        .trim_start_matches(|c: char| !c.is_ascii_alphanumeric());
    CLIENT_PROGRAMS.iter().any(|client| name.starts_with(client)) || SHELLS.contains(&name)
}

fn takes_secret(option: &str) -> bool {
    let option = option.to_ascii_lowercase().replace('_', "-");
    let negated = option.starts_with("no-") || option.starts_with("skip-");
    let is_place = option.ends_with("-file") || option.ends_with("-path") || option.ends_with("-dir");
    !negated && !is_place && SECRET_OPTION_PARTS.iter().any(|part| option.contains(part))
}

fn split_assignment(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    is_name.then_some((name, value))
}

/// `h=host,u=app,p=SECRET`, as Percona's tools take it.
fn redact_dsn(word: &str, client: bool) -> String {
    let parts: Vec<&str> = word.split(',').collect();
    let is_dsn = parts.iter().all(|part| part.as_bytes().get(1) == Some(&b'='));
    if !is_dsn || !(client || parts.len() > 1) {
        return word.to_owned();
    }
    let hide =
        |part: &&str| if part.starts_with("p=") { format!("p={REDACTED}") } else { (*part).to_owned() };
    parts.iter().map(hide).collect::<Vec<_>>().join(",")
}

/// `scheme://user:SECRET@host`.
fn redact_urls(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, from) = rest.split_at(at + 3);
        out.push_str(before);
        let authority = from.split(|c: char| "/?\"'".contains(c) || c.is_whitespace()).next().unwrap_or(from);
        rest = from;
        // A password may hold a slash; the last @ before the next blank ends it.
        let reach = from.split(char::is_whitespace).next().unwrap_or(from);
        let end = authority.rfind('@').or_else(|| reach.rfind('@').filter(|_| authority.contains(':')));
        if let Some(end) = end
            && let Some((user, secret)) = from[..end].split_once(':').filter(|(_, secret)| !secret.is_empty())
        {
            out.push_str(user);
            out.push(':');
            out.push_str(REDACTED);
            rest = &from[user.len() + 1 + secret.len()..];
        }
    }
    out + rest
}

/// `IDENTIFIED BY 'SECRET'` and the like.
fn redact_sql(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    for mark in SQL_PASSWORD_PREFIXES {
        for (at, _) in lower.match_indices(mark) {
            let begin = at + mark.len();
            let rest = &text[begin..];
            let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'));
            let end = match quote {
                Some(quote) => rest[1..].find(quote).map_or(rest.len(), |at| at + 2),
                None => 0,
            };
            cuts.push((begin, begin + end));
        }
    }
    cuts.sort_unstable();
    let mut out = String::with_capacity(text.len());
    let mut from = 0;
    for (begin, end) in cuts.into_iter().filter(|(begin, end)| begin < end) {
        if begin >= from {
            out.push_str(&text[from..begin]);
            out.push_str(REDACTED);
            from = end;
        }
    }
    out + &text[from..]
}

/// Hides in each word of a text, whatever stands between them; a shell's separators begin a new command.
fn redact_text_to_depth(text: &str, depth: usize) -> String {
    let text = redact_sql(text);
    let mut out = String::with_capacity(text.len());
    let mut before = WordContext::default();
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        if c.is_whitespace() || is_separator(c) || c == ',' {
            if c == '\n' || is_separator(c) {
                before = WordContext::default();
            }
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let raw = &rest[..word_length(rest)];
        rest = &rest[raw.len()..];
        // A quote that is not closed, as in prose: the word as it stands.
        let word = match shell_words::split(raw) {
            Ok(words) if words.len() == 1 => words.concat(),
            _ => raw.to_owned(),
        };
        let hidden = redact_word(&word, &mut before, depth);
        if hidden == word {
            out.push_str(raw);
        } else if word == raw {
            out.push_str(&hidden);
        } else {
            out.push_str(&quote_like(raw, &hidden));
        }
    }
    out
}

/// `hidden` in the quotes that enclosed the whole of `raw`, and in a shell's own where that is not so.
fn quote_like(raw: &str, hidden: &str) -> String {
    let quote = raw.chars().next().filter(|c| matches!(c, '\'' | '"') && raw.len() > 1 && raw.ends_with(*c));
    match quote {
        Some(quote) if !hidden.contains(['\'', '"', '\\']) => format!("{quote}{hidden}{quote}"),
        _ if hidden.contains(|c: char| c.is_whitespace() || "'\"\\".contains(c)) => {
            shell_words::quote(hidden).into_owned()
        }
        _ => hidden.to_owned(),
    }
}

fn is_separator(c: char) -> bool {
    matches!(c, '|' | ';' | '(' | ')' | '`' | '[' | ']')
}

/// Bytes of the word that begins here: to the next blank or separator outside quotes. A quote that its line
/// does not close is none, and neither is an apostrophe.
fn word_length(text: &str) -> usize {
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' if is_apostrophe(text, at) => {}
            '\'' | '"' => {
                let mut inside = chars.clone();
                while let Some((_, d)) = inside.next() {
                    match d {
                        '\\' if c == '"' => {
                            inside.next();
                        }
                        d if d == c => {
                            chars = inside;
                            break;
                        }
                        '\n' => break,
                        _ => {}
                    }
                }
            }
            '\\' => {
                chars.next();
            }
            // Between the strings of a list.
            ',' if text.starts_with(['\'', '"']) && text[..at].ends_with(['\'', '"']) => return at,
            c if c.is_whitespace() || is_separator(c) => return at,
            _ => {}
        }
    }
    text.len()
}

/// As in `isn't` or `the server's`: within a word, and one or two letters before its end.
fn is_apostrophe(text: &str, at: usize) -> bool {
    let letters = text[at + 1..].bytes().take_while(u8::is_ascii_lowercase).count();
    let ends = text
        .as_bytes()
        .get(at + 1 + letters)
        .is_none_or(|b| b.is_ascii_whitespace() || b",.;:!?)\"".contains(b));
    let within = at > 0 && text.as_bytes()[at - 1].is_ascii_alphabetic();
    within && (1..=2).contains(&letters) && ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        shell_words::split(line).unwrap()
    }

    #[test]
    fn a_password_is_hidden_wherever_a_tool_takes_it() {
        for (given, shown) in [
            ("mysqldump -uroot -phunter2 db", "mysqldump -uroot -p*** db"),
            ("/usr/bin/mariadb-dump -phunter2", "/usr/bin/mariadb-dump -p***"),
            ("mysqldump -p'hunter2 b' db", "mysqldump -p*** db"),
            ("mysql -vphunter2", "mysql -vp***"),
            ("env nice timeout 5 mydumper -phunter2 -t 4", "env nice timeout 5 mydumper -p*** -t 4"),
            ("mysqldump --password=hunter2 --all", "mysqldump --password=*** --all"),
            ("mysqldump --password='hunter2 b' --all", "mysqldump --password=*** --all"),
            ("xtrabackup --password hunter2 --backup", "xtrabackup --password *** --backup"),
            ("aws --secret_access_key=hunter2 s3", "aws --secret_access_key=*** s3"),
            ("curl --oauth2-token hunter2 x", "curl --oauth2-token *** x"),
            ("env MYSQL_PWD=hunter2 mysql", "env MYSQL_PWD=*** mysql"),
            ("env AWS_SECRET_ACCESS_KEY=hunter2 aws s3 cp", "env AWS_SECRET_ACCESS_KEY=*** aws s3 cp"),
            ("x mysql://u:hunter2@h:3306/db", "x mysql://u:***@h:3306/db"),
            ("x mysql://u:hunter2/x@h:3306/db", "x mysql://u:***@h:3306/db"),
            ("pt-table-checksum h=db1,u=app,p=hunter2", "pt-table-checksum h=db1,u=app,p=***"),
            ("pt-kill p=hunter2", "pt-kill p=***"),
            ("--command=mysqldump -phunter2", "--command=mysqldump -p***"),
            ("toll cost --rounds 6 -- mysqldump -phunter2", "toll cost --rounds 6 -- mysqldump -p***"),
            ("sh -c 'sleep 5' x -phunter2", "sh -c 'sleep 5' x -p***"),
            (
                "toll cost -- sudo /bin/bash -ec 'dump \"$@\"' x -phunter2",
                "toll cost -- sudo /bin/bash -ec 'dump \"$@\"' x -p***",
            ),
            ("bash dump.sh -phunter2", "bash dump.sh -p***"),
        ] {
            assert_eq!(redact_text(given), shown, "as text");
            assert_eq!(redact_words(&words(given)), words(shown), "as words");
            let found = find_secrets(&words(given));
            assert!(found.len() == 1 && found[0].starts_with("hunter2"), "{given}: {found:?}");
        }
    }

    #[test]
    fn scripts_are_looked_into() {
        for (given, shown) in [
            ("sh -c 'mysqldump -phunter2 | gzip'", "sh -c 'mysqldump -p*** | gzip'"),
            ("sh -c 'MYSQL_PWD=hunter2 mysqldump x'", "sh -c 'MYSQL_PWD=*** mysqldump x'"),
            (
                "sh -c 'cd x; exec mysqldump --password=hunter2'",
                "sh -c 'cd x; exec mysqldump --password=***'",
            ),
            ("bash -ec \"mysql -p'hunter2' db\"", "bash -ec 'mysql -p*** db'"),
            (
                "mysql -e \"CREATE USER a IDENTIFIED BY 'hunter2'\"",
                "mysql -e 'CREATE USER a IDENTIFIED BY ***'",
            ),
            ("ssh -p2222 h 'mysqldump -phunter2'", "ssh -p2222 h 'mysqldump -p***'"),
            ("sh -c 'cd x\nmysqldump -phunter2'", "sh -c 'cd x\nmysqldump -p***'"),
        ] {
            assert_eq!(redact_words(&words(given)), words(shown));
            assert!(!redact_text(given).contains("hunter2"), "{}", redact_text(given));
        }
    }

    #[test]
    fn a_scenario_is_hidden_as_it_is_written() {
        let scenario = "# the server's own\ntitle = \"it's a dump\"\ncommand = \"mysqldump -phunter2 {schema}\"\n\
            stages = [\"mariadb-dump --password='hunter2' x\", \"ssh -p2222 h\"]\nports = 'a'\n";
        let shown = "# the server's own\ntitle = \"it's a dump\"\ncommand = \"mysqldump -p*** {schema}\"\n\
            stages = [\"mariadb-dump --password=*** x\", \"ssh -p2222 h\"]\nports = 'a'\n";
        assert_eq!(redact_text(scenario), shown);
    }

    #[test]
    fn prose_hides_nothing_from_the_eye() {
        for text in
            ["it can't: mysqldump -p'hunter2' x", "the 'dump -- mysqldump -phunter2", "mysql's -phunter2"]
        {
            assert!(!redact_text(text).contains("hunter2"), "{}", redact_text(text));
        }
    }

    #[test]
    fn what_is_no_secret_stays() {
        for text in [
            "tcpdump -s 65535 -x -nn -q -tttt -i any 'port 3306'",
            "ssh -p2222 host mkdir -p x",
            "sh -c 'ssh -p2222 host mkdir -p x'",
            "bash -p dump.sh",
            "dash-p2222 x.sh -p2222",
            "timeout -s KILL 300 tcpdump -i any -w - | nc 10.0.0.2 9000",
            "mysqldump --port=3306 -p --all db",
            "mysqldump -hprod -P3306 --protocol=tcp",
            "https://example.org/a@b http://[::1]:80/",
            "mysqld --defaults-file=x --password-file=y",
            "bpftrace -B line -e 'uprobe:/x:*f* { printf(\"%llu %s\\n\", nsecs, str(arg2)); }'",
            "the server's slow log isn't read",
            "innodb_buffer_pool_size=1G key_buffer_size=8M h=db1",
        ] {
            assert_eq!(redact_text(text), text);
            if let Ok(words) = shell_words::split(text) {
                assert_eq!(redact_words(&words), words);
            }
        }
    }

    #[test]
    fn hiding_twice_changes_nothing_more() {
        for text in ["mysqldump -phunter2 --password=x y", "mysql://u:p@h", "MYSQL_PWD=x p=y,h=z", "a 'b"] {
            let once = redact_text(text);
            assert_eq!(redact_text(&once), once);
        }
    }
}
