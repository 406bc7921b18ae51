//! Check of SHOW GRANTS: the account can only read. Refuses what it does not understand.

use anyhow::bail;

/// Privileges that change nothing, and lock nothing for others.
const READING: [&str; 10] = [
    "USAGE",
    "SELECT",
    "SHOW VIEW",
    "SHOW DATABASES",
    "PROCESS",
    "REPLICATION CLIENT",
    "BINLOG MONITOR",
    "SLAVE MONITOR",
    "REPLICA MONITOR",
    "MONITOR",
];

/// # Errors
/// A privilege beyond reading, or a line of another form, such as a role. The error names privileges, never the line: it
/// may hold a password's hash.
pub fn check_read_only<'a>(lines: impl Iterator<Item = &'a str>) -> anyhow::Result<()> {
    let mut beyond: Vec<String> = Vec::new();
    // MySQL lists partial revokes, too: they only take away.
    for line in lines.filter(|line| !line.starts_with("REVOKE ")) {
        match parse_privileges(line) {
            Some(privileges) => {
                beyond.extend(privileges.into_iter().filter(|one| !READING.contains(&one.as_str())));
            }
            None => beyond.push("a role".to_owned()),
        }
        if line.to_ascii_uppercase().contains(" WITH GRANT OPTION") {
            beyond.push("GRANT OPTION".to_owned());
        }
    }
    if beyond.is_empty() {
        return Ok(());
    }
    beyond.sort();
    beyond.dedup();
    let most = 5;
    let more = if beyond.len() > most { ", ..." } else { "" };
    bail!(
        "the account may do more than read ({}{more}), and a server may run parts of a statement to explain it: \
         make an account for it, as in CREATE USER explain@'%' IDENTIFIED BY '...'; \
         GRANT SELECT, SHOW VIEW ON shop.* TO explain@'%'",
        beyond[..beyond.len().min(most)].join(", ")
    )
}

/// Of `GRANT privilege [(columns)], ... ON object TO account`; `None`: another form.
fn parse_privileges(line: &str) -> Option<Vec<String>> {
    let list = line.strip_prefix("GRANT ")?;
    let mut privileges = vec![String::new()];
    let (mut depth, mut is_quoted) = (0_u32, false);
    for (at, char) in list.char_indices() {
        match char {
            '`' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            _ if depth > 0 => {}
            ',' => privileges.push(String::new()),
            ' ' if list[at..].starts_with(" ON ") => {
                let trimmed = privileges.iter().map(|one| one.trim().to_ascii_uppercase());
                return Some(trimmed.collect());
            }
            _ => privileges.last_mut()?.push(char),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(line: &str) -> String {
        check_read_only([line].into_iter()).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn accounts_that_can_only_read_pass() {
        for line in [
            "GRANT USAGE ON *.* TO `ro`@`%` IDENTIFIED BY PASSWORD '*94BDCEBE19083CE2A1F959FD02F964C7AF4CFC29'",
            "GRANT SELECT, SHOW VIEW ON `shop`.* TO `ro`@`%`",
            "GRANT SELECT (`a`, `b ON c`), SHOW VIEW ON `shop`.`t` TO `ro`@`%`",
            "REVOKE INSERT ON `mysql`.* FROM `ro`@`%`",
            "GRANT PROCESS, SHOW DATABASES, REPLICATION CLIENT ON *.* TO 'ro'@'%'",
        ] {
            assert_eq!(refusal(line), "", "{line}");
        }
    }

    #[test]
    fn any_other_privilege_is_named_and_refused() {
        for (line, named) in [
            (
                "GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION",
                "ALL PRIVILEGES, GRANT OPTION",
            ),
            ("GRANT SELECT, INSERT ON `shop`.* TO `app`@`%`", "(INSERT)"),
            ("GRANT SELECT, UPDATE (`a`) ON `shop`.`t` TO `app`@`%`", "(UPDATE)"),
            ("GRANT FILE, EXECUTE ON *.* TO `app`@`%`", "(EXECUTE, FILE)"),
            ("GRANT `writer` TO `app`@`%`", "(a role)"),
            ("GRANT PROXY ON ''@'%' TO 'root'@'localhost'", "(PROXY)"),
            ("SET DEFAULT ROLE `writer` FOR `app`@`%`", "(a role)"),
            ("GRANT SELECT ON *.* TO `a`@`%` WITH GRANT OPTION", "(GRANT OPTION)"),
        ] {
            let error = refusal(line);
            assert!(error.contains(named) && error.contains("CREATE USER"), "{line}: {error}");
        }
        let hash = "GRANT INSERT ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*94BDCEBE19083CE2A1F9'";
        assert!(!refusal(hash).contains("94BDC"));
    }
}
