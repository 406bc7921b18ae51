//! Consent to put a run's load on a server that toll did not start.
//!
//! A load at a given rate is announced. One at full speed takes whatever the server has, and needs `--yes` or an answer
//! at the terminal.

use super::console::eprint_line;
use anyhow::{Context, bail, ensure};
use std::io::{IsTerminal, Write};
use toll_consent::load::{describe, heaviest_load};
use toll_execution::run::RunSource;
use toll_execution::testbed::ServerChoice;

/// Announces the load on an existing server, and asks for consent where it has no rate.
///
/// # Errors
/// The load has no rate, and nobody agreed to it.
pub fn check_load(source: &RunSource, server: &ServerChoice, is_agreed: bool) -> anyhow::Result<()> {
    let ServerChoice::External { target, .. } = server else { return Ok(()) };
    let Some(load) = heaviest_load(source, server)? else { return Ok(()) };
    let (address, what) = (&target.address, describe(&load));
    if load.rate_per_s.is_some() || is_agreed {
        eprint_line!("toll: load on the server at {address}: {what}");
        return Ok(());
    }
    let advice = match source {
        RunSource::Scenario(..) => "Set a rate that is safe for it, such as --rate 300, or use --yes",
        RunSource::Plan(_) => "Use --yes",
    };
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        bail!("load on the server at {address}: {what}. {FULL_SPEED}, and toll did not start it. {advice}");
    }
    eprint_line!("toll: load on the server at {address}: {what}. {FULL_SPEED}. {advice} to be asked no more");
    ensure!(is_answered_yes()?, "nothing was done on the server at {address}");
    Ok(())
}

const FULL_SPEED: &str = "This slows down every other client of the server";

fn is_answered_yes() -> anyhow::Result<bool> {
    let mut terminal = std::io::stderr();
    terminal.write_all(b"Go on? [y/N] ").and_then(|()| terminal.flush()).context("cannot ask")?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}
