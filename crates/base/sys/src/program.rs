//! Lookup of programs: their path, or the reason why one cannot be started.

use crate::redact;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// This very program, for its own children. Its file may be replaced while it runs, as by an upgrade; only a child
/// that this process starts itself may use it.
pub const OWN_PROGRAM: &str = "/proc/self/exe";

/// Directories outside a user's PATH where distributions install servers.
const EXTRA_DIRS: [&str; 5] =
    ["/usr/sbin", "/sbin", "/usr/local/sbin", "/usr/libexec", "/usr/local/mysql/bin"];

/// Path of a program by its name.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(EXTRA_DIRS.iter().map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|path| nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok() && path.is_file())
}

/// Path of this program, for commands that others start.
///
/// # Errors
/// Its file was replaced or removed since it was started.
pub fn own_program_path() -> Result<PathBuf> {
    let path = std::fs::read_link(OWN_PROGRAM).context("cannot find toll's own program")?;
    if !path.exists() {
        bail!(
            "toll's own program was replaced or removed since it was started: {}. Start it again.",
            path.display()
        );
    }
    Ok(path)
}

/// Why a program, by its name or its path, cannot be started; `None`: it can.
pub fn missing_program_error(program: &str) -> Option<String> {
    let shown = redact::redact_text(program);
    if !program.contains('/') {
        return find_program(program)
            .is_none()
            .then(|| format!("{shown} is not installed: run `toll doctor` for the package to install"));
    }
    let path = Path::new(program);
    if !path.exists() {
        return Some(format!("there is no {shown}: give the path of a program that is there"));
    }
    let executable = path.is_file() && nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok();
    (!executable).then(|| format!("{shown} cannot be executed: make it executable, or name its interpreter"))
}

/// Error text for a required environment variable that is not set.
pub fn missing_variable_error(name: &str) -> String {
    format!("the environment variable {name} is not set: set it before toll is started")
}
