//! Accounts of a scratch server into which a backup is loaded.
//!
//! A backup is a list of statements, and whoever may write to its store writes some. So they run as an account that may
//! use the backup's schemas, and nothing of the server's: no files, no settings, no plugins, no accounts. Views and
//! routines run as accounts that the backup names, so no account of the server may have more.

use super::source::{SYSTEM_SCHEMAS, query_column, sql_literal};
use anyhow::{Context, Result, bail};
use toll_journal::quoted_name;
use toll_mysql::{Connection, Target};
use toll_server::{Flavour, Sandbox, Version};

/// As whom the backup is loaded.
const LOADER: &str = "toll_loader";
/// The server's own: locked, and either without rights or not to be named by an account without SYSTEM_USER.
const RESERVED: [&str; 4] = ["mariadb.sys", "mysql.sys", "mysql.session", "mysql.infoschema"];
/// Of these none is to be left.
const DANGEROUS: [&str; 9] = [
    "SUPER",
    "FILE",
    "SYSTEM_VARIABLES_ADMIN",
    "SYSTEM_USER",
    "CREATE USER",
    "SHUTDOWN",
    "RELOAD",
    "PROCESS",
    "INSERT",
];

/// Makes the account that loads a backup, and those that its views and routines run as. Takes all rights from all
/// others, toll's own included. The answer logs in as the first.
pub fn restrict_accounts(sandbox: &Sandbox, schemas: &[String], definers: &[String]) -> Result<Target> {
    let privilege = definer_privilege(sandbox.flavour(), sandbox.version())?;
    if let Some(system) = schemas.iter().find(|name| is_system_schema(name)) {
        bail!(
            "the backup holds the schema {system}, which is the server's own: loading it would change the scratch \
             server's accounts. Use --stored-only to check what is stored."
        );
    }
    let own = sandbox.target();
    let mut connection = Connection::connect(&own)?;
    let mut run = |sql: String| {
        connection
            .exec_drop(&sql)
            .with_context(|| format!("cannot set up the scratch server's accounts ({sql})"))
    };
    let loader = format!("'{LOADER}'@'127.0.0.1'");
    run(format!("CREATE USER {loader} {}", sandbox.identified_clause()))?;
    let definers: Vec<String> = definers.iter().map(|definer| account(definer)).collect();
    for definer in &definers {
        run(format!("CREATE USER IF NOT EXISTS {definer} ACCOUNT LOCK"))?;
    }
    let reserved = RESERVED.map(sql_literal).join(",");
    let others = query_column(
        &mut Connection::connect(&own)?,
        &format!(
            "SELECT CONCAT(user, '@', host) FROM mysql.user \
             WHERE host <> '' AND user NOT IN ({reserved}, '{LOADER}', '{}')",
            own.user
        ),
    )?;
    for other in others {
        run(format!("REVOKE ALL PRIVILEGES, GRANT OPTION FROM {}", account(&other)))?;
    }
    run(format!("GRANT {privilege} ON *.* TO {loader}"))?;
    for account in definers.iter().chain([&loader]) {
        // To read and to call, everywhere: views may show what the server shows of itself.
        run(format!("GRANT SELECT, EXECUTE, SHOW VIEW ON *.* TO {account}"))?;
        for schema in schemas {
            run(format!("GRANT ALL PRIVILEGES ON {}.* TO {account}", grant_pattern(schema)))?;
        }
    }
    // The one that this connection is, last.
    for host in ["localhost", "::1", "127.0.0.1"] {
        run(format!("REVOKE ALL PRIVILEGES, GRANT OPTION FROM '{}'@'{host}'", own.user))?;
    }
    let target = Target { user: LOADER.to_owned(), ..own };
    check_restricted(&mut Connection::connect(&target)?, &reserved)?;
    Ok(target)
}

/// Whatever version this server is: the backup is loaded only if it gives no account a right that it must not have.
fn check_restricted(connection: &mut Connection, reserved: &str) -> Result<()> {
    let dangerous = DANGEROUS.map(sql_literal).join(",");
    let left = query_column(
        connection,
        &format!(
            "SELECT CONCAT(grantee, ' ', privilege_type) FROM information_schema.user_privileges \
             WHERE privilege_type IN ({dangerous}) \
             AND TRIM(BOTH '''' FROM SUBSTRING_INDEX(grantee, '@', 1)) NOT IN ({reserved})"
        ),
    )?;
    if !left.is_empty() {
        bail!("the scratch server left rights that a backup must not have: {}", left.join(", "));
    }
    Ok(())
}

/// What lets an account make views and routines that run as another one. Before these versions that was SUPER.
fn definer_privilege(flavour: Flavour, version: Version) -> Result<&'static str> {
    match flavour {
        Flavour::Mariadb if version >= Version(10, 5, 2) => Ok("SET USER"),
        Flavour::Mysql | Flavour::Percona if version >= Version(8, 2, 0) => {
            Ok("SET_ANY_DEFINER, ALLOW_NONEXISTENT_DEFINER")
        }
        Flavour::Mysql | Flavour::Percona if version >= Version(8, 0, 16) => Ok("SET_USER_ID"),
        _ => bail!(
            "a backup would have to be loaded into {} {version} with all rights, so its statements could write files. \
             Name another server with --server-bin (MariaDB from 10.5.2 on, MySQL from 8.0.16 on), or use --stored-only.",
            flavour.name()
        ),
    }
}

fn is_system_schema(name: &str) -> bool {
    SYSTEM_SCHEMAS.contains(&name.to_ascii_lowercase().as_str())
}

/// `user@host` in SQL.
fn account(name: &str) -> String {
    let (user, host) = name.rsplit_once('@').unwrap_or((name, "%"));
    format!("{}@{}", sql_literal(user), sql_literal(host))
}

/// A schema, as grants name it: there `_` and `%` stand for others.
fn grant_pattern(schema: &str) -> String {
    let escape = |c: char| if "\\_%".contains(c) { format!("\\{c}") } else { c.to_string() };
    quoted_name(&schema.chars().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_on_the_schema_of_that_name_alone() {
        assert_eq!(grant_pattern("a_b%`"), "`a\\_b\\%```");
        assert!(is_system_schema("MySQL") && !is_system_schema("shop"));
        assert_eq!(account("a@b@%"), "'a@b'@'%'");
    }

    #[test]
    fn a_server_that_would_need_super_loads_no_backup() {
        assert!(definer_privilege(Flavour::Mariadb, Version(10, 3, 39)).is_err());
        assert!(definer_privilege(Flavour::Mysql, Version(5, 7, 44)).is_err());
        assert_eq!(definer_privilege(Flavour::Mariadb, Version(10, 11, 6)).unwrap(), "SET USER");
        assert_eq!(definer_privilege(Flavour::Mysql, Version(8, 0, 31)).unwrap(), "SET_USER_ID");
    }
}
