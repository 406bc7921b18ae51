//! Command `toll digest`: that of `toll-agent`, and plans from a server.

use super::console::eprint_line;
use super::exit_code;
use super::login::Login;
use anyhow::Context;
use clap::Args;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use toll_commands::digest;
use toll_digest::{DigestResult, Request};
use toll_sys::units;

// Its description is that of the options which it flattens.
#[derive(Debug, Args)]
pub struct DigestWithPlans {
    #[command(flatten)]
    digest: digest::Digest,
    /// Add the plan of each class shown: EXPLAIN of its slowest statement on this server (an option file with a
    /// [client] section, or a DSN), by an account that can only read
    #[arg(long, value_name = "DSN|FILE", conflicts_with_all = ["events", "compare", "compare_at", "tables"])]
    #[arg(help_heading = "Plans")]
    explain: Option<String>,
    /// Longest time of one EXPLAIN
    #[arg(long, value_name = "DURATION", value_parser = units::duration, default_value = "2s")]
    #[arg(requires = "explain", help_heading = "Plans")]
    explain_time: Duration,
}

pub fn run(arguments: DigestWithPlans) -> anyhow::Result<ExitCode> {
    let Some(server) = &arguments.explain else { return arguments.digest.run(None) };
    let target = Login::parse(server).context("in --explain")?.target;
    let time_limit = arguments.explain_time;
    toll_explain::check_account(&target, time_limit).context("cannot explain on the server of --explain")?;
    let mut is_whole = true;
    let mut add = |request: &Request, done: &mut DigestResult, stop: &AtomicBool| {
        let explained = toll_explain::explain_classes(done, request.limit, &target, time_limit, stop);
        if let Err(error) = explained {
            eprint_line!("toll: plans are missing: {error:#}");
            is_whole = false;
        }
    };
    let code = arguments.digest.run(Some(&mut add))?;
    Ok(if is_whole { code } else { ExitCode::from(exit_code::ATTENTION) })
}
