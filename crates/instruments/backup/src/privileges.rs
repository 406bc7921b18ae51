//! Check of the dump account's privileges for objects it cannot see.
//!
//! A server hides objects that an account may not read. Tables, triggers and routines of others are silently
//! missing in a dump, without an error. So the grants are checked beforehand, and missing ones give a
//! warning.

use super::source::{query_column, summarise_names};
use toll_mysql::Connection;
use toll_server::Flavour;

/// In sentences; none where everything is seen, or where the server does not say. `all`: the schemas are all that the
/// account sees, since none was asked for by name.
pub fn missing_privilege_warnings(
    connection: &mut Connection,
    flavour: Flavour,
    schemas: &[String],
    all: bool,
) -> Vec<String> {
    let (Ok(grants), Ok(account)) =
        (query_grants(connection, flavour), query_column(connection, "SELECT CURRENT_USER()"))
    else {
        return Vec::new();
    };
    describe_missing(&grants, flavour, schemas, &account.concat(), all)
}

/// What roles that are on grant is among them: MariaDB says so by itself, MySQL where it is told the roles.
fn query_grants(connection: &mut Connection, flavour: Flavour) -> anyhow::Result<Vec<String>> {
    if flavour != Flavour::Mariadb {
        // Before 8.0 there are none.
        let roles = query_column(connection, "SELECT CURRENT_ROLE()").unwrap_or_default().concat();
        if !roles.is_empty() && roles != "NONE" {
            return query_column(connection, &format!("SHOW GRANTS FOR CURRENT_USER() USING {roles}"));
        }
    }
    query_column(connection, "SHOW GRANTS")
}

fn describe_missing(
    grants: &[String],
    flavour: Flavour,
    schemas: &[String],
    account: &str,
    all: bool,
) -> Vec<String> {
    let read: Vec<Grant> = grants.iter().filter_map(|line| Grant::parse(line, "GRANT ", " TO ")).collect();
    // Of MySQL (partial_revokes): what is granted everywhere is not in these schemas.
    let revoked: Vec<Grant> =
        grants.iter().filter_map(|line| Grant::parse(line, "REVOKE ", " FROM ")).collect();
    let without = |privilege: &str| -> Vec<String> {
        let is_granted = |schema: &str| {
            let is_revoked = revoked.iter().any(|grant| grant.allows(privilege) && grant.covers(schema));
            let counts = |grant: &&Grant| grant.on != "*.*" || !is_revoked;
            read.iter().filter(counts).any(|grant| grant.allows(privilege) && grant.covers(schema))
        };
        schemas.iter().filter(|schema| !is_granted(schema)).cloned().collect()
    };
    let mut warnings = Vec::new();
    let sees_schemas = |grant: &Grant| {
        grant.on == "*.*" && ["SHOW DATABASES", "SELECT"].iter().any(|privilege| grant.allows(privilege))
    };
    if all && !read.iter().any(sees_schemas) {
        warnings.push(format!(
            "{account} sees only schemas it has privileges on: others are not in the backup. GRANT SHOW \
             DATABASES ON *.*, or list schemas with --schema."
        ));
    }
    let tables = without("SELECT");
    if !tables.is_empty() {
        warnings.push(format!(
            "{account} may not read all of {}: tables that it may not read are not in the backup; GRANT SELECT",
            summarise_names("schema", "schemas", &tables)
        ));
    }
    let triggers = without("TRIGGER");
    if !triggers.is_empty() {
        warnings.push(format!(
            "{account} may not see the triggers of {}: none of them is in the backup; GRANT TRIGGER",
            summarise_names("schema", "schemas", &triggers)
        ));
    }
    let sees_routines = read.iter().any(|grant| {
        let everywhere = grant.on == "*.*";
        let of_the_server =
            ["`mysql`.*", "`mysql`.`proc`"].contains(&grant.on.as_str()) && flavour == Flavour::Mariadb;
        grant.allows("SELECT") && (everywhere || of_the_server)
            || everywhere && ["SHOW_ROUTINE", "SHOW CREATE ROUTINE"].iter().any(|p| grant.lists(p))
    });
    if !sees_routines {
        let how = if flavour == Flavour::Mariadb { "SELECT ON mysql.proc" } else { "SHOW_ROUTINE ON *.*" };
        warnings.push(format!(
            "{account} sees only its own procedures and functions: others are not in the backup. GRANT {how}."
        ));
    }
    warnings
}

/// A line of SHOW GRANTS.
struct Grant {
    privileges: Vec<String>,
    /// `*.*`, `` `schema`.* ``, `` `schema`.`table` ``.
    on: String,
}

impl Grant {
    /// None for a role that is granted. `word` begins the line, `before` stands before the account.
    fn parse(line: &str, word: &str, before: &str) -> Option<Self> {
        let (privileges, rest) = line.strip_prefix(word)?.split_once(" ON ")?;
        // An account's name may hold anything, but stands last.
        let end = object_end(rest, before)?;
        let privileges = privileges.split(',').map(|word| word.trim().to_ascii_uppercase()).collect();
        Some(Self { privileges, on: rest[..end].to_owned() })
    }

    fn lists(&self, privilege: &str) -> bool {
        self.privileges.iter().any(|granted| granted == privilege)
    }

    fn allows(&self, privilege: &str) -> bool {
        self.lists(privilege) || self.lists("ALL PRIVILEGES")
    }

    /// All of the schema, not single tables of it.
    fn covers(&self, schema: &str) -> bool {
        if self.on == "*.*" {
            return true;
        }
        let Some(pattern) = self.on.strip_suffix("`.*").and_then(|on| on.strip_prefix('`')) else {
            return false;
        };
        let pattern: Vec<char> = pattern.replace("``", "`").chars().collect();
        matches_pattern(&pattern, &schema.chars().collect::<Vec<_>>())
    }
}

/// Where what a grant is on ends: before ` TO ` or ` FROM `, outside of quoted names.
fn object_end(text: &str, before: &str) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(at, char)| {
        quoted ^= char == '`';
        (!quoted && text[at..].starts_with(before)).then_some(at)
    })
}

/// As grants name schemas: `%` any text, `_` any character, `\` before either makes it itself.
///
/// Only the last `%` is ever tried again: whatever an earlier one could take, it can.
fn matches_pattern(pattern: &[char], name: &[char]) -> bool {
    let (mut at, mut matched) = (0, 0);
    // Behind the last `%`, and how much of the name it and all before it take.
    let mut retry: Option<(usize, usize)> = None;
    loop {
        let (width, fits) = match (&pattern[at..], name.get(matched)) {
            (['%', ..], _) => {
                at += 1;
                retry = Some((at, matched));
                continue;
            }
            ([], None) => return true,
            (['\\', own, ..], Some(first)) => (2, own == first),
            (['_', ..], Some(_)) => (1, true),
            ([own, ..], Some(first)) => (1, own == first),
            ([], Some(_)) => (0, false),
            (_, None) => return false,
        };
        match &mut retry {
            _ if fits => (at, matched) = (at + width, matched + 1),
            Some((behind, taken)) => {
                *taken += 1;
                (at, matched) = (*behind, *taken);
            }
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(grants: &[&str], flavour: Flavour) -> Vec<&'static str> {
        let grants: Vec<String> = grants.iter().map(|line| (*line).to_owned()).collect();
        let schemas = ["shop".to_owned(), "a_b".to_owned()];
        let all = describe_missing(&grants, flavour, &schemas, "b@%", true).join("; ");
        ["only schemas it has", "may not read", "triggers", "procedures"]
            .into_iter()
            .filter(|word| all.contains(word))
            .collect()
    }

    #[test]
    fn what_an_account_does_not_see_is_told() {
        for (grants, expected) in [
            (&["GRANT ALL PRIVILEGES ON *.* TO `b`@`%` WITH GRANT OPTION"][..], &[] as &[&str]),
            (&["GRANT SELECT, TRIGGER ON *.* TO `b`@`%` IDENTIFIED BY PASSWORD '*1'"], &[]),
            (&["GRANT SELECT ON *.* TO `b`@`%`"], &["triggers"]),
            (&["GRANT SELECT ON *.* TO `b`@`%`", "GRANT TRIGGER ON `shop`.* TO `b`@`%`"], &["triggers"]),
            (
                &[
                    "GRANT USAGE ON *.* TO `b`@`%`",
                    "GRANT SELECT, TRIGGER ON `shop`.* TO `b`@`%`",
                    "GRANT SELECT, TRIGGER ON `a\\_b`.* TO `b`@`%`",
                    "GRANT SELECT ON `mysql`.`proc` TO `b`@`%`",
                ],
                &["only schemas it has"],
            ),
            (&["GRANT SHOW DATABASES ON *.* TO `b`@`%`"], &["may not read", "triggers", "procedures"]),
            (&["GRANT SELECT, TRIGGER ON `%`.* TO `b`@`%`"], &["only schemas it has", "procedures"]),
            (
                &["GRANT SELECT ON `shop`.`t TO x` TO `b`@`%`"],
                &["only schemas it has", "may not read", "triggers", "procedures"],
            ),
        ] {
            assert_eq!(words(grants, Flavour::Mariadb), expected, "{grants:?}");
        }
    }

    #[test]
    fn a_granted_role_silences_nothing_and_what_is_revoked_is_not_there() {
        let lacks = ["only schemas it has", "may not read", "triggers", "procedures"];
        let grants = ["GRANT USAGE ON *.* TO `b`@`%`", "GRANT `r`@`%` TO `b`@`%`"];
        assert_eq!(words(&grants, Flavour::Mysql), lacks);
        assert_eq!(words(&grants[..1], Flavour::Mysql), lacks);
        let enough = [
            "GRANT SHOW DATABASES, SHOW_ROUTINE ON *.* TO `b`@`%`",
            "GRANT SELECT, TRIGGER ON `%`.* TO `b`@`%`",
        ];
        assert_eq!(words(&enough, Flavour::Mysql), [""; 0]);
        let partly = ["GRANT SELECT, TRIGGER ON *.* TO `b`@`%`", "REVOKE SELECT ON `shop`.* FROM `b`@`%`"];
        assert_eq!(words(&partly, Flavour::Mysql), ["may not read"]);
    }

    #[test]
    fn patterns_fit_as_grants_have_them() {
        for (pattern, name, expected) in [
            ("shop", "shop", true),
            ("sh%", "shop", true),
            ("%", "", true),
            ("a_b", "axb", true),
            ("a\\_b", "axb", false),
            ("a\\_b", "a_b", true),
            ("shop", "sho", false),
            ("sho", "shop", false),
            ("%p%", "shop", true),
            ("%a%b", "xaxbxab", true),
            ("%a%b", "xaxbxa", false),
            ("a%", "a", true),
            ("%\\%", "100%", true),
            ("%\\%", "100", false),
            ("_%_", "a", false),
            ("", "", true),
            ("", "a", false),
            ("a\\", "a\\", true),
        ] {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            assert_eq!(matches_pattern(&chars(pattern), &chars(name)), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_grant_with_many_wildcards_takes_no_longer_than_one_with_few() {
        // Each wildcard once tried every place for all behind it: more steps than fit into a life.
        let chars = |text: String| text.chars().collect::<Vec<_>>();
        assert!(!matches_pattern(&chars("%a".repeat(32) + "b"), &chars("a".repeat(64))));
        assert!(matches_pattern(&chars("%a".repeat(32) + "b"), &chars("a".repeat(63) + "b")));
    }
}
