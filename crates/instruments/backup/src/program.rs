//! Dump and client programs: selection, connection options and arguments.
//!
//! Programs of the server's own family are preferred. The password is in an option file for toll's owner
//! alone. The host's own option files are not read, so a dump has exactly the options that its manifest
//! names.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use toll_journal::Journal;
use toll_mysql::{ClientFamily, Target};
use toll_server::{Flavour, Version};
use toll_sys::program::find_program;
use toll_sys::{child_process, private_dir};

/// A client program of either family.
#[derive(Debug, Clone)]
pub struct Program {
    pub path: PathBuf,
    /// What it says of itself.
    pub version: String,
    pub is_mariadb: bool,
    /// With the history of system-versioned tables.
    dumps_history: bool,
}

/// Every option has its reason: one snapshot for all tables that have snapshots; row by row, in the order of
/// the primary key, a line each; nothing that differs between two dumps of the same data; bytes that are
/// no text as hexadecimal digits; times in UTC. `--no-autocommit`: a restore commits once a table and not once a row.
const OPTIONS: [&str; 13] = [
    "--single-transaction",
    "--quick",
    "--order-by-primary",
    "--skip-dump-date",
    "--skip-extended-insert",
    "--no-autocommit",
    "--hex-blob",
    "--tz-utc",
    "--skip-triggers",
    "--no-tablespaces",
    "--default-character-set=utf8mb4",
    "--max-allowed-packet=1G",
    "--net-buffer-length=1M",
];
/// MariaDB's, since 10.11 (MDEV-16029), which can also write history.
pub const DUMP_HISTORY: &str = "--dump-history";
const DUMP_HISTORY_SINCE: Version = Version(10, 11, 0);
/// What has bodies: free text, in which anything may stand.
const OPTIONS_FOR_BODIES: [&str; 11] = [
    "--single-transaction",
    "--no-data",
    "--no-create-info",
    "--no-create-db",
    "--triggers",
    "--routines",
    "--events",
    "--skip-dump-date",
    "--no-tablespaces",
    "--default-character-set=utf8mb4",
    "--max-allowed-packet=1G",
];

impl Program {
    /// The program that dumps a server of this family.
    pub fn for_dumps(flavour: Flavour, path: Option<&Path>) -> Result<Self> {
        Self::find(flavour, path, ["mariadb-dump", "mysqldump"], "--dump-program")
    }

    /// The client that reads statements from its input.
    pub fn for_restores(flavour: Flavour) -> Result<Self> {
        Self::find(flavour, None, ["mariadb", "mysql"], "PATH")
    }

    fn find(flavour: Flavour, path: Option<&Path>, names: [&str; 2], how: &str) -> Result<Self> {
        let [mariadb, mysql] = names;
        let order = if flavour == Flavour::Mariadb { [mariadb, mysql] } else { [mysql, mariadb] };
        let found = path.map(Path::to_owned).or_else(|| order.into_iter().find_map(find_program));
        let Some(path) = found else {
            bail!(
                "neither {mariadb} nor {mysql} is on PATH: install mariadb-client or mysql-client, or see {how}"
            );
        };
        let output = child_process::clean_env_command(&path)
            .args(["--no-defaults", "--version"])
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("cannot run {}", path.display()))?;
        let said = String::from_utf8_lossy(&output.stdout);
        // The rest of the line is a path or a name.
        let version = said.trim().split_once("  ").map_or(said.trim(), |(_, version)| version).to_owned();
        if !output.status.success() || version.is_empty() {
            bail!("{} --version prints nothing: is it {mariadb} or {mysql}?", path.display());
        }
        let is_mariadb = version.contains("MariaDB");
        Ok(Self { path, version, is_mariadb, dumps_history: false })
    }

    /// Also dumps the rows that system-versioned tables once had, from a server of this version; false where
    /// program or server do not know how: without it they are left out without a word.
    pub fn enable_history(&mut self, server: Version) -> bool {
        let own = Version::parse_in(&self.version);
        self.dumps_history =
            self.is_mariadb && own >= Some(DUMP_HISTORY_SINCE) && server >= DUMP_HISTORY_SINCE;
        self.dumps_history
    }

    /// For the rows, without saying where the server is or which schemas.
    pub fn options(&self) -> Vec<String> {
        let mut options = self.with_flavour_options(&OPTIONS);
        options.extend(self.dumps_history.then(|| DUMP_HISTORY.to_owned()));
        options
    }

    pub fn options_for_bodies(&self) -> Vec<String> {
        self.with_flavour_options(&OPTIONS_FOR_BODIES)
    }

    fn with_flavour_options(&self, options: &[&str]) -> Vec<String> {
        // MySQL's program alone has them: a position in the binary log, which differs between two dumps of the
        // same data, and statistics that servers before 8.0 do not have.
        let own: &[&str] =
            if self.is_mariadb { &[] } else { &["--set-gtid-purged=OFF", "--column-statistics=0"] };
        options.iter().chain(own).map(|option| (*option).to_owned()).collect()
    }

    /// Ready to be started: nothing but these options, and the server of the option file.
    pub fn command(&self, options: &[String], server: &OptionFile) -> Command {
        let mut command = child_process::clean_env_command(&self.path);
        command.arg(format!("--defaults-file={}", server.path.display())).args(options);
        command
    }
}

/// How a client program logs in; removed with the journal.
#[derive(Debug)]
pub struct OptionFile {
    path: PathBuf,
}

impl OptionFile {
    pub fn write(target: &Target, program: &Program, journal: &Journal) -> Result<Self> {
        let (dir, _) = journal.create_private_dir(&private_dir::temporary_place()?, "toll-client")?;
        let family = if program.is_mariadb { ClientFamily::Mariadb } else { ClientFamily::Mysql };
        Ok(Self { path: dir.write("client.cnf", &target.to_option_file(family))? })
    }
}
