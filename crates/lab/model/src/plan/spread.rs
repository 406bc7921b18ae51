//! Spread of a run over hours, in parts, to measure the variation between hours.

use super::{expected_s, likely_rounds};
use anyhow::ensure;
use toll_record::{Plan, Spread};
use toll_sys::count_format::format_count;
use toll_sys::number_format::format_duration_s;

/// Most parts. More would have too few rounds each, or too little time between them.
const MOST_PARTS: u32 = 6;
/// Fewest rounds of a part that has an error estimate of its own.
const FEWEST_ROUNDS: u32 = 3;
/// Fewest parts. The spread between fewer is not worth the wait.
const FEWEST_PARTS: u32 = 3;

/// Checks that a run of `takes_s` seconds fits into `over_s` seconds with pauses.
///
/// # Errors
/// The run takes as long or longer.
pub fn check_spread(over_s: f64, takes_s: f64) -> anyhow::Result<()> {
    ensure!(
        over_s > takes_s,
        "--spread over {} leaves no pause in a run that takes {}: spread it over hours",
        format_duration_s(over_s),
        format_duration_s(takes_s)
    );
    Ok(())
}

/// Spreads a whole plan over `over_s` seconds.
///
/// # Errors
/// There are too few rounds, or the run itself takes that long.
pub fn spread_rounds(plan: &mut Plan, over_s: f64) -> anyhow::Result<()> {
    let rounds = likely_rounds(plan);
    let parts = (rounds / FEWEST_ROUNDS).min(MOST_PARTS);
    ensure!(
        parts >= FEWEST_PARTS,
        "--spread needs {} rounds at least, {FEWEST_PARTS} parts of {FEWEST_ROUNDS}, and this run has {}: give it more \
         --time",
        FEWEST_PARTS * FEWEST_ROUNDS,
        format_count(rounds.into(), "round")
    );
    check_spread(over_s, expected_s(plan))?;
    // Spare rounds, if there is time for any, belong to the last part.
    let begins = (1..parts).map(|part| part * rounds / parts).collect();
    plan.spread = Some(Spread { over_s, begins });
    Ok(())
}
