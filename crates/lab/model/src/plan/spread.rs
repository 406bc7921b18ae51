//! In which parts is a run laid out that is to say how far one hour differs from another?

use super::{expected_s, likely_rounds};
use anyhow::ensure;
use toll_record::{Plan, Spread};
use toll_sys::counted::counted;
use toll_sys::figures::duration_s;

/// More would leave each too few rounds, or too little to do between them.
const MOST_PARTS: u32 = 6;
/// A part of fewer rounds has no error of its own.
const FEWEST_ROUNDS: u32 = 3;
/// The spread between fewer parts is not worth the wait.
const FEWEST_PARTS: u32 = 3;

/// Whether a run that takes so long can be spread over so long.
///
/// # Errors
/// It takes longer.
pub fn check(over_s: f64, takes_s: f64) -> anyhow::Result<()> {
    ensure!(
        over_s > takes_s,
        "--spread over {} leaves no pause in a run that takes {}: spread it over hours",
        duration_s(over_s),
        duration_s(takes_s)
    );
    Ok(())
}

/// Lays a whole plan out over so many seconds.
///
/// # Errors
/// Too few rounds, or a time that the run itself takes.
pub fn spread(plan: &mut Plan, over_s: f64) -> anyhow::Result<()> {
    let rounds = likely_rounds(plan);
    let parts = (rounds / FEWEST_ROUNDS).min(MOST_PARTS);
    ensure!(
        parts >= FEWEST_PARTS,
        "--spread needs {} rounds at least, {FEWEST_PARTS} parts of {FEWEST_ROUNDS}, and this run has {}: give it more \
         --time",
        FEWEST_PARTS * FEWEST_ROUNDS,
        counted(rounds.into(), "round")
    );
    check(over_s, expected_s(plan))?;
    // Spare rounds, if there is time for any, belong to the last part.
    let begins = (1..parts).map(|part| part * rounds / parts).collect();
    plan.spread = Some(Spread { over_s, begins });
    Ok(())
}
