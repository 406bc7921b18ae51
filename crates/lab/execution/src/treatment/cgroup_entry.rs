//! Start of a program inside its control groups, from its first instruction on.

use super::START_TIMEOUT;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use toll_sys::child_process;
use toll_sys::program::OWN_PROGRAM;

/// Command line of `toll enter` before it has become the program.
const ENTER_PREFIX: &[u8] = b"/proc/self/exe\0enter\0";
/// Command for the program, alone or (`toll enter`) inside these groups.
pub fn build_command(groups: &[PathBuf], program: &Path, words: &[String]) -> Command {
    if groups.is_empty() {
        let mut command = child_process::clean_env_command(program);
        command.args(words);
        return command;
    }
    let mut command = child_process::clean_env_command(OWN_PROGRAM);
    command.arg("enter").args(groups).arg("--").arg(program).args(words);
    command
}

/// Returns once the program itself runs, or has ended.
///
/// On a busy host a window could otherwise be over before its treatment begins. After the time limit it starts all the
/// same.
pub fn wait_until_entered(pid: u32) {
    let begun = Instant::now();
    let is_entering =
        || std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(ENTER_PREFIX));
    while is_entering() && begun.elapsed() < START_TIMEOUT {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Creates a group inside the run's.
pub fn create_cgroup(run: &Path, stem: &str) -> anyhow::Result<PathBuf> {
    let path = run.join(stem);
    // The run's own with it, should somebody have tidied up in between.
    std::fs::create_dir_all(&path)
        .with_context(|| format!("cannot make control group {}", path.display()))?;
    Ok(path)
}
