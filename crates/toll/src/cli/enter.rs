//! Command `toll enter`: runs a program inside control groups from its first instruction on.
//!
//! A program that is started first and moved afterwards could already have children outside.

use anyhow::{Context, bail};
use clap::Args;
use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct Enter {
    /// Directories of the control groups
    #[arg(required = true)]
    groups: Vec<PathBuf>,
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the program. Returns only with an error.
pub fn run(arguments: &Enter) -> anyhow::Result<Infallible> {
    for group in &arguments.groups {
        let list = group.join("cgroup.procs");
        std::fs::write(&list, "0").with_context(|| format!("cannot enter {}", list.display()))?;
    }
    let Some((program, words)) = arguments.command.split_first() else { bail!("no program") };
    let error =
        toll_sys::child_process::clean_env_command(program).args(words).envs(std::env::vars_os()).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}
