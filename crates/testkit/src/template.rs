//! Empty data directories of servers: created once for each checkout and server version, copied for each
//! server.

use nix::fcntl::{Flock, FlockArg};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Servers of tests write little: a log of this size is copied in no time, the usual 96 MB are not.
pub const REDO_LOG: &str = "--loose-innodb-log-file-size=16M";

/// `target/testdata` of this checkout.
fn testdata_dir() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target"));
    target.join("testdata")
}

/// `mariadb-10.11.6` or `mysql-8.0.15`, as the server's `--version` says.
fn name_of(program: &Path) -> Result<String, String> {
    let output = Command::new(program).args(["--no-defaults", "--version"]).output();
    let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split("Ver ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let version = version.ok_or_else(|| format!("{} does not say its version: {text}", program.display()))?;
    let flavour = if version.contains("MariaDB") { "mariadb" } else { "mysql" };
    Ok(format!("{flavour}-{}", version.split('-').next().unwrap_or(version)))
}

fn install(program: &Path, flavour: &str, data: &Path, temporary: &Path) -> Result<(), String> {
    let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).unwrap().unwrap().name;
    let mut command = if flavour == "mariadb" {
        let mut command = Command::new("mariadb-install-db");
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
        command
    } else {
        let mut command = Command::new(program);
        command.args(["--no-defaults", "--initialize-insecure"]);
        command
    };
    command
        .arg(format!("--datadir={}", data.display()))
        .arg(format!("--user={user}"))
        .arg(REDO_LOG)
        .env("TMPDIR", temporary); // in a shared one, servers delete each other's temporary tables
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() { Ok(()) } else { Err(format!("{command:?} failed: {said}")) }
}

/// The installed data directory of this server. Test processes side by side wait for the one that makes it.
pub fn template_dir(program: &Path) -> Result<PathBuf, String> {
    let (testdata, name) = (testdata_dir(), name_of(program)?);
    let home = testdata.join(&name);
    let data = home.join("data");
    if data.exists() {
        return Ok(data);
    }
    std::fs::create_dir_all(&testdata).unwrap();
    let lock = std::fs::File::create(testdata.join(format!(".{name}.lock"))).unwrap();
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| error).unwrap();
    if data.exists() {
        return Ok(data);
    }
    let new = tempfile::Builder::new().prefix(".new-").tempdir_in(&testdata).unwrap();
    let flavour = name.split('-').next().unwrap_or_default();
    install(program, flavour, &new.path().join("data"), new.path())?;
    // It gets its name once it is whole.
    std::fs::rename(new.keep(), &home).unwrap();
    Ok(data)
}

/// A copy of an installed data directory, owned by `user` where that is another than ours.
pub fn copy_template(template: &Path, to: &Path, user: Option<&str>) {
    let copied = Command::new("cp").args(["-a", "--reflink=auto"]).arg(template).arg(to).status().unwrap();
    assert!(copied.success(), "cp {} {}", template.display(), to.display());
    if let Some(user) = user {
        let owned = Command::new("chown").args(["-R", user]).arg(to).status().unwrap();
        assert!(owned.success(), "chown {user} {}", to.display());
    }
}

/// A place for one server's files: in memory where there is room for several, so that no test waits for a disk.
pub fn server_dir() -> tempfile::TempDir {
    const FREE_BYTES: u64 = 2 << 30;
    let memory = Path::new("/dev/shm");
    let free = nix::sys::statvfs::statvfs(memory).map_or(0, |fs| fs.blocks_available() * fs.fragment_size());
    let builder = || {
        let mut builder = tempfile::Builder::new();
        builder.prefix("toll-test-");
        builder
    };
    let in_memory = if free > FREE_BYTES { builder().tempdir_in(memory).ok() } else { None };
    in_memory.unwrap_or_else(|| builder().tempdir().unwrap())
}
