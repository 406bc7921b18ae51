//! Rights that a live run needs on the server, and the GRANT that gives those that are missing.

use toll_execution::live::AccountFacts;
use toll_record::Arm;

/// A right and what it is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Right {
    pub what_for: &'static str,
    /// Suffices for an account that lacks it.
    pub grant: String,
    pub is_there: bool,
}

/// All rights, those of the arms' statements among them.
#[must_use]
pub fn rights_needed(arms: &[Arm], account: &AccountFacts, is_mariadb: bool) -> Vec<Right> {
    let has =
        |privilege: &str| account.grants.iter().any(|grant| gives(grant, privilege, "PERFORMANCE_SCHEMA"));
    let mut rights = vec![Right {
        what_for: "the probe query reads a row of your largest tables",
        grant: format!("GRANT SELECT ON your_schema.* TO {}", account.name),
        is_there: account.can_probe_tables,
    }];
    if arms.iter().any(|arm| !arm.treatment.settings.is_empty()) {
        let privilege = if is_mariadb { "SUPER" } else { "SYSTEM_VARIABLES_ADMIN" };
        rights.push(Right {
            what_for: "settings of the variants",
            grant: format!("GRANT {privilege} ON *.* TO {}", account.name),
            is_there: account.can_set_global,
        });
    }
    if arms.iter().any(|arm| !arm.treatment.updates.is_empty()) {
        rights.push(Right {
            what_for: "consumers and instruments of performance_schema",
            grant: format!("GRANT SELECT, UPDATE ON performance_schema.* TO {}", account.name),
            is_there: has("SELECT") && has("UPDATE"),
        });
    }
    rights
}

/// True if a line of SHOW GRANTS gives a privilege on tables of a schema. MySQL lists each privilege of an account that has all,
/// MariaDB says so. Names in upper case.
fn gives(grant: &str, privilege: &str, schema: &str) -> bool {
    let grant = grant.to_ascii_uppercase();
    let Some((given, place)) = grant.strip_prefix("GRANT ").and_then(|rest| rest.split_once(" ON ")) else {
        return false;
    };
    let place = place.split(" TO ").next().unwrap_or_default().replace(['`', '\'', '"'], "");
    let is_there = place == "*.*" || place.split_once('.').is_some_and(|(of, _)| of == schema);
    is_there && given.split(',').any(|given| [privilege, "ALL", "ALL PRIVILEGES"].contains(&given.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_read_as_servers_write_them() {
        for grant in [
            "GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` WITH GRANT OPTION",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON *.* TO `root`@`localhost` WITH GRANT OPTION",
            "GRANT SELECT, UPDATE ON `performance_schema`.* TO 'toll'@'%'",
            "GRANT SELECT, UPDATE ON `performance_schema`.`setup_consumers` TO `toll`@`%`",
        ] {
            assert!(gives(grant, "UPDATE", "PERFORMANCE_SCHEMA"), "{grant}");
        }
        for grant in [
            "GRANT SELECT ON `performance_schema`.* TO `toll`@`%`",
            "GRANT UPDATE ON `shop`.* TO `toll`@`%`",
            "GRANT SYSTEM_VARIABLES_ADMIN ON *.* TO `toll`@`%`",
            "GRANT `update`@`%` TO `toll`@`%`",
            "GRANT PROXY ON ``@`` TO `root`@`localhost` WITH GRANT OPTION",
        ] {
            assert!(!gives(grant, "UPDATE", "PERFORMANCE_SCHEMA"), "{grant}");
        }
    }

    #[test]
    fn a_missing_right_comes_with_its_grant() {
        let account = AccountFacts {
            name: "'toll'@'localhost'".to_owned(),
            can_set_global: false,
            can_probe_tables: false,
            grants: Vec::new(),
        };
        let rights = rights_needed(&[], &account, false);
        assert_eq!(rights.len(), 1);
        assert_eq!(rights[0].grant, "GRANT SELECT ON your_schema.* TO 'toll'@'localhost'");
        assert!(!rights[0].is_there);
    }
}
