//! Limits: the highest rung of a ladder of arms at which an outcome stays within its bound.
//!
//! Every round climbs the whole ladder, in random order. Its limit is the highest rung up to which it and all
//! below hold, as RFC 2544 defines a throughput (section 26.1). A search that follows the last trial would
//! have no rounds, and no interval unless it is repeated.

use super::compare::ArmWindows;
use toll_record::{Limit, LimitResult, Plan};
use toll_sys::number_format::capitalise;

/// Largest relative shortfall of a sender that has still reached a rung.
const REACHED_WITHIN: f64 = 0.01;

/// Results of all ladders of the plan, in its order.
pub fn find_limits(plan: &Plan, windows: &[ArmWindows]) -> Vec<LimitResult> {
    plan.limits.iter().flat_map(|limit| evaluate_limit(plan, limit, windows)).collect()
}

/// The rung that each ladder held in every round, a sentence for each kind of limit. `None` without ladders.
pub fn describe_limits(limits: &[LimitResult]) -> Option<String> {
    let of_kind = |kind: &[LimitResult]| {
        let ladders: Vec<String> = kind.iter().map(describe_limit).collect();
        format!("{}, in every round: {}.", capitalise(&kind[0].title), ladders.join(", "))
    };
    let told: Vec<String> = limits.chunk_by(|a, b| a.name == b.name).map(of_kind).collect();
    (!told.is_empty()).then(|| told.join(" "))
}

fn describe_limit(limit: &LimitResult) -> String {
    let of: Vec<&str> = limit.of.iter().map(|(_, value)| value.as_str()).collect();
    let space = if of.is_empty() { "" } else { " " };
    let held = match limit.rungs.first() {
        Some(lowest) if limit.in_all <= 0.0 => format!("below {lowest} {}", limit.unit),
        _ => format!("{} {}", limit.in_all, limit.unit),
    };
    let or_more = if limit.is_open() { " or more" } else { "" };
    format!("{}{space}{held}{or_more}", of.join(" "))
}

/// Arms that differ in the rung alone.
struct Ladder {
    of: Vec<(String, String)>,
    /// Each rung's number, and the position of its arm.
    rungs: Vec<(f64, usize)>,
}

/// One outcome by rung and round. `None` for a window that was not measured.
type ByRung = Vec<Vec<Option<f64>>>;

fn evaluate_limit(plan: &Plan, limit: &Limit, windows: &[ArmWindows]) -> Vec<LimitResult> {
    let mut ladders: Vec<Ladder> = Vec::new();
    for (i, arm) in plan.arms.iter().enumerate().filter(|(_, arm)| arm.unavailable.is_none()) {
        let rung = arm.varied.iter().find(|(key, _)| *key == limit.over);
        let Some(number) = rung.and_then(|(_, value)| value.parse::<f64>().ok()) else { continue };
        let of: Vec<_> = arm.varied.iter().filter(|(key, _)| *key != limit.over).cloned().collect();
        match ladders.iter_mut().find(|ladder| ladder.of == of) {
            Some(ladder) => ladder.rungs.push((number, i)),
            None => ladders.push(Ladder { of, rungs: vec![(number, i)] }),
        }
    }
    ladders.into_iter().filter_map(|ladder| evaluate_ladder(plan, limit, ladder, windows)).collect()
}

/// `None` if no round has a limit.
fn evaluate_ladder(
    plan: &Plan,
    limit: &Limit,
    mut ladder: Ladder,
    windows: &[ArmWindows],
) -> Option<LimitResult> {
    ladder.rungs.sort_by(|a, b| a.0.total_cmp(&b.0));
    // A rung that never could be measured is where the ladder ends.
    let is_measured =
        |&(_, arm): &(f64, usize)| windows[arm].values(&limit.outcome).iter().any(Option::is_some);
    ladder.rungs.truncate(ladder.rungs.iter().take_while(|rung| is_measured(rung)).count());
    let values =
        |name: &str| -> ByRung { ladder.rungs.iter().map(|rung| windows[rung.1].values(name)).collect() };
    let numbers: Vec<f64> = ladder.rungs.iter().map(|rung| rung.0).collect();
    let reached = limit.reached.as_deref().map(values);
    let climbed = limit_rounds(&numbers, &values(&limit.outcome), reached.as_ref(), limit.at_most);
    let in_all = climbed.limits.iter().copied().reduce(f64::min)?;
    let interval = toll_stats::median_interval(&climbed.limits, plan.alpha).ok();
    Some(LimitResult {
        name: limit.name.clone(),
        title: limit.title.clone(),
        outcome: limit.outcome.clone(),
        over: limit.over.clone(),
        unit: limit.unit.clone(),
        at_most: limit.at_most,
        of: ladder.of,
        rungs: numbers,
        in_all,
        median: toll_stats::median(&climbed.limits),
        ci95: interval.map(|interval| [interval.low, interval.high]),
        open: climbed.unbounded_rounds,
        values: climbed.limits,
    })
}

#[derive(Debug, PartialEq)]
struct RoundLimits {
    /// Limits of the rounds that have one.
    limits: Vec<f64>,
    /// Rounds whose limit may be higher.
    unbounded_rounds: u32,
}

fn limit_rounds(rungs: &[f64], values: &ByRung, reached: Option<&ByRung>, at_most: f64) -> RoundLimits {
    let mut climbed = RoundLimits { limits: Vec::new(), unbounded_rounds: 0 };
    let at = |of: &ByRung, rung: usize, round: usize| of.get(rung)?.get(round).copied().flatten();
    'rounds: for round in 0..values.iter().map(Vec::len).max().unwrap_or(0) {
        let (mut limit, mut is_open) = (0.0, true);
        for (rung, &number) in rungs.iter().enumerate() {
            let is_reached = reached.is_none_or(|reached| {
                at(reached, rung, round).is_some_and(|sent| sent >= number * (1.0 - REACHED_WITHIN))
            });
            match at(values, rung, round) {
                Some(value) if value > at_most => {
                    is_open = false;
                    break;
                }
                Some(_) if is_reached => limit = number,
                // The sender got no further: whether more would have held is not known, but all below did.
                Some(_) if limit > 0.0 => break,
                // Not measured, or not even the lowest was sent: the round says nothing of its limit.
                _ => continue 'rounds,
            }
        }
        climbed.limits.push(limit);
        climbed.unbounded_rounds += u32::from(is_open);
    }
    climbed
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNGS: [f64; 3] = [100.0, 200.0, 400.0];

    fn some(values: [f64; 3]) -> ByRung {
        values.map(|value| vec![Some(value)]).into()
    }

    #[test]
    fn a_round_gets_as_far_as_it_and_all_below_hold() {
        for (lost, limit, unbounded_rounds) in [
            ([0.0, 0.0, 0.0], 400.0, 1),
            ([0.0, 0.0, 0.1], 200.0, 0),
            // What holds above a rung that does not is chance.
            ([0.0, 0.1, 0.0], 100.0, 0),
            ([0.1, 0.0, 0.0], 0.0, 0),
        ] {
            let found = limit_rounds(&RUNGS, &some(lost), None, 0.0);
            assert_eq!(found, RoundLimits { limits: vec![limit], unbounded_rounds }, "{lost:?}");
        }
        assert_eq!(limit_rounds(&RUNGS, &some([0.0, 0.1, 0.2]), None, 0.1).limits, [200.0]);
    }

    #[test]
    fn a_rung_that_the_sender_did_not_reach_proves_nothing() {
        let reached = some([100.0, 199.0, 250.0]);
        let found = limit_rounds(&RUNGS, &some([0.0; 3]), Some(&reached), 0.0);
        assert_eq!(found, RoundLimits { limits: vec![200.0], unbounded_rounds: 1 });
        // Loss below the rung's own rate is loss all the same.
        let found = limit_rounds(&RUNGS, &some([0.0, 0.0, 3.0]), Some(&reached), 0.0);
        assert_eq!(found, RoundLimits { limits: vec![200.0], unbounded_rounds: 0 });
    }

    #[test]
    fn a_round_with_a_rung_that_was_not_measured_below_its_limit_tells_none() {
        let values: ByRung = vec![
            vec![Some(0.0), None, Some(0.0)],
            vec![None, None, Some(0.0)],
            vec![Some(0.0), None, Some(1.0)],
        ];
        let found = limit_rounds(&RUNGS, &values, None, 0.0);
        assert_eq!(found, RoundLimits { limits: vec![200.0], unbounded_rounds: 0 });
        // What is lost below the gap is known.
        let values: ByRung = vec![vec![Some(1.0)], vec![None], vec![Some(0.0)]];
        assert_eq!(
            limit_rounds(&RUNGS, &values, None, 0.0),
            RoundLimits { limits: vec![0.0], unbounded_rounds: 0 }
        );
        // A sender that did not reach the lowest rung proves nothing against it.
        let found = limit_rounds(&RUNGS, &some([0.0; 3]), Some(&some([90.0, 90.0, 90.0])), 0.0);
        assert_eq!(found, RoundLimits { limits: vec![], unbounded_rounds: 0 });
    }

    #[test]
    fn what_held_in_every_round_is_said_of_each_ladder() {
        let limit = |set: &str, values: [f64; 2], open| LimitResult {
            title: "highest rate without a loss".into(),
            unit: "Mb/s".into(),
            of: vec![("set".into(), set.into())],
            rungs: RUNGS.into(),
            in_all: values[0].min(values[1]),
            values: values.into(),
            open,
            ..LimitResult::default()
        };
        assert_eq!(describe_limits(&[]), None);
        let ladders = [
            limit("http", [400.0, 400.0], 2),
            limit("mixed", [200.0, 400.0], 1),
            limit("skype", [0.0, 400.0], 1),
        ];
        let said = "Highest rate without a loss, in every round: http 400 Mb/s or more, mixed 200 Mb/s, skype below 100 Mb/s.";
        assert_eq!(describe_limits(&ladders).as_deref(), Some(said));
    }
}
