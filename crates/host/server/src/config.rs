//! Configuration of a sandbox server, with the reason for each setting.
//!
//! The plan shows the whole file. No option file of the host is read (`--defaults-file`).

use super::program::{Flavour, ServerProgram, Version};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

/// Settings of a sandbox that the caller may choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub buffer_pool_bytes: u64,
    pub max_connections: u32,
    /// Costs some percent by itself; needed by the statement-history arm.
    pub performance_schema: bool,
    /// Listen addresses.
    pub addresses: Vec<IpAddr>,
    /// Further `name=value`, after toll's own, so that they win.
    pub extra: Vec<String>,
}

/// Where one sandbox keeps its files.
#[derive(Debug, Clone)]
pub(super) struct InstancePaths<'a> {
    pub home: &'a Path,
    pub datadir: &'a Path,
    pub socket: &'a Path,
    pub port: u16,
    /// Settings that name the certificate, where TLS is offered.
    pub tls: &'a [String],
}

/// `name=value` for each setting that bears on results, as the plan shows it.
pub(super) fn render_settings(program: &ServerProgram, settings: &Settings) -> Vec<String> {
    let mut list = vec![
        format!("innodb_buffer_pool_size={}", settings.buffer_pool_bytes),
        format!("max_connections={}", settings.max_connections),
        format!("performance_schema={}", if settings.performance_schema { "ON" } else { "OFF" }),
        format!(
            "bind_address={}",
            settings.addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",")
        ),
        // A name lookup would be part of every connection's latency.
        "skip_name_resolve=ON".into(),
        "skip_log_bin".into(),
        "thread_cache_size=128".into(),
        "table_open_cache=4000".into(),
        "character_set_server=utf8mb4".into(),
        // Data is in the buffer pool; a second copy in the page cache would be evicted by captures
        // and its eviction mistaken for their cost.
        "innodb_flush_method=O_DIRECT".into(),
        // Both move pages in the background at a time of their own choosing.
        "innodb_buffer_pool_dump_at_shutdown=OFF".into(),
        "innodb_buffer_pool_load_at_startup=OFF".into(),
        "innodb_stats_auto_recalc=OFF".into(),
        "slow_query_log=OFF".into(),
        "general_log=OFF".into(),
        "local_infile=OFF".into(),
    ];
    match program.flavour {
        Flavour::Mariadb => list.push("query_cache_type=OFF".into()),
        Flavour::Mysql | Flavour::Percona => {
            list.push("loose_mysqlx=OFF".into());
            // Clients without caching_sha2_password (older sysbench builds) must get in.
            if program.version >= Version(8, 4, 0) && program.version < Version(9, 0, 0) {
                list.push("mysql_native_password=ON".into());
            }
        }
    }
    list.extend(settings.extra.iter().cloned());
    list
}

/// The option file.
pub(super) fn render_option_file(
    program: &ServerProgram,
    files: &InstancePaths<'_>,
    shown: &[String],
    runs_as_root: bool,
) -> String {
    let home = files.home.display();
    let mut text = String::from("# Written by toll for one sandbox server.\n[mysqld]\n");
    for setting in [
        format!("basedir={}", program.basedir.display()),
        format!("datadir={}", files.datadir.display()),
        format!("socket={}", files.socket.display()),
        format!("port={}", files.port),
        format!("pid_file={home}/server.pid"),
        format!("log_error={home}/error.log"),
        format!("slow_query_log_file={home}/slow.log"),
        format!("general_log_file={home}/general.log"),
        format!("tmpdir={home}/tmp"),
        format!("secure_file_priv={home}/tmp"),
        format!("init_file={home}/init.sql"),
    ] {
        text.push_str(&setting);
        text.push('\n');
    }
    if runs_as_root {
        // Servers refuse to run as root unless told so; the sandbox's files are root's.
        text.push_str("user=root\n");
    }
    for setting in files.tls.iter().chain(shown) {
        text.push_str(setting);
        text.push('\n');
    }
    text
}

/// Statements run by the server itself before it lets anyone in: one account, for this host (and the far end of the
/// run's own link) only, with a password of this sandbox alone. Without one, any local user could read and write
/// files through the server.
pub(super) fn account_statements(
    program: &ServerProgram,
    password: &str,
    far_end: Option<Ipv4Addr>,
) -> String {
    let identified = identified_clause(program, password);
    let mut text = String::new();
    let far_end = far_end.map(|ip| ip.to_string());
    for host in ["localhost", "127.0.0.1", "::1"].into_iter().chain(far_end.as_deref()) {
        let account = format!("'{SANDBOX_USER}'@'{host}'");
        text.push_str(&format!("CREATE USER IF NOT EXISTS {account};\n"));
        text.push_str(&format!("ALTER USER {account} {identified};\n"));
        text.push_str(&format!("GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION;\n"));
    }
    if program.flavour != Flavour::Mariadb {
        // `--initialize-insecure` leaves root without a password.
        text.push_str(&format!("ALTER USER 'root'@'localhost' IDENTIFIED BY '{password}';\n"));
    }
    text
}

/// How an account with this password is identified, in a way that all clients know.
pub(super) fn identified_clause(program: &ServerProgram, password: &str) -> String {
    match program.flavour {
        Flavour::Mariadb => format!("IDENTIFIED VIA mysql_native_password USING PASSWORD('{password}')"),
        _ if program.version < Version(9, 0, 0) => {
            format!("IDENTIFIED WITH mysql_native_password BY '{password}'")
        }
        _ => format!("IDENTIFIED BY '{password}'"),
    }
}

/// The account that drivers and tools use.
pub const SANDBOX_USER: &str = "toll";

/// The least of a buffer pool: undo, dictionary and whatever a user puts into an empty server.
pub const MIN_BUFFER_POOL_BYTES: u64 = 64 << 20;
/// Connections that a sandbox takes.
pub const MAX_CONNECTIONS: u32 = 512;

/// Buffer pool size of each of `servers`, bytes, and a warning if it is too small.
///
/// `wanted`, or what the data needs where nothing is wanted (0), is cut so that all pools together take six tenths of the memory that is available: captures
/// still find a page cache.
pub fn choose_buffer_pool_bytes(
    wanted: u64,
    data: u64,
    available: u64,
    servers: u64,
) -> (u64, Option<String>) {
    const MIB: u64 = 1 << 20;
    let allowed = (available / 10 * 6 / servers.max(1)).max(64 * MIB);
    let [wanted, data] = [wanted, data].map(|bytes| bytes.next_multiple_of(MIB));
    let requested = if wanted == 0 { data } else { wanted };
    let given = requested.min(allowed) / MIB * MIB;
    let together = match servers {
        0 | 1 => String::new(),
        many => format!(
            "; {many} servers would need {} MiB together, and {} MiB can be had",
            many * requested / MIB,
            many * allowed / MIB
        ),
    };
    // A pool that was asked to be smaller than the data is no surprise.
    let warning = if given < data.min(requested) {
        Some(format!(
            "the buffer pool of {} MiB does not hold the data of {} MiB: the disk is measured too; \
             use fewer --rows or a host with more memory{together}",
            given / MIB,
            data / MIB
        ))
    } else if given < wanted {
        Some(format!(
            "the buffer pool is {} MiB instead of {} MiB, as memory allows; the data of {} MiB fits{together}",
            given / MIB,
            wanted / MIB,
            data / MIB
        ))
    } else {
        None
    };
    (given, warning)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_pool_holds_the_data_where_memory_allows() {
        assert_eq!(choose_buffer_pool_bytes(16 * GIB, 2 * GIB, 64 * GIB, 1), (16 * GIB, None));
        let odd = 77_109_601;
        let (given, warning) = choose_buffer_pool_bytes(0, odd, 64 * GIB, 1);
        assert!(given >= odd && warning.is_none(), "{given} for {odd}: {warning:?}");
        let (given, warning) = choose_buffer_pool_bytes(16 * GIB, 2 * GIB, 10 * GIB, 1);
        assert!((2 * GIB..=6 * GIB).contains(&given));
        assert!(warning.expect("a warning").contains("instead of"));
    }

    #[test]
    fn a_pool_smaller_than_the_data_says_that_the_disk_is_measured() {
        let (given, warning) = choose_buffer_pool_bytes(0, 8 * GIB, 4 * GIB, 1);
        assert!(given < 8 * GIB);
        assert!(warning.expect("a warning").contains("--rows"));
    }

    #[test]
    fn the_pools_of_several_servers_fit_into_memory_together() {
        let (given, warning) = choose_buffer_pool_bytes(4 * GIB, GIB, 10 * GIB, 3);
        assert!((GIB..=2 * GIB).contains(&given), "{given}");
        let warning = warning.expect("a warning");
        assert!(warning.contains("3 servers would need 12288 MiB together, and 6144 MiB"), "{warning}");
    }
}
