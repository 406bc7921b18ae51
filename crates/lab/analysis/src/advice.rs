//! Advice in sentences, drawn from the figures alone.
//!
//! Every sentence quotes its figures. Never refers to a tool's reputation.

use super::warnings::MAX_CAPTURED_RATIO;
use super::{dose_response, limits, load_curves};
use crate::estimate_format::{self, describe_estimate, format_verdict};
use toll_record::{ArmResult, Compare, Definition, Outcome, Plan, Role, RunResult, Verdict, catalogue};
use toll_sys::number_format::{self, capitalise};

/// Smallest share of the executed queries at which an artefact counts as complete.
const COMPLETE_SHARE: f64 = 0.98;
/// Links with which artefacts are compared: usable rate in Mb/s, and name.
const LINK_RATES: [(f64, &str); 2] = [(100.0, "100 Mb/s"), (1_000.0, "1 Gb/s")];

/// Most arms that the answer names one by one.
const MAX_NAMED_ARMS: usize = 6;
/// Arms with intervals in the answer. The table has all intervals.
const MAX_NAMED_WITH_INTERVALS: usize = 3;

/// Answer to the scenario's question, one sentence, followed by one on the curves if arms were swept.
///
/// With doses alone it summarises their results; with ladders it states the highest rung that holds.
pub fn answer_question(run: &RunResult, plan: &Plan) -> String {
    let swept = |name: &str| plan.arms.iter().any(|arm| arm.name == name && arm.curve.is_some());
    let asked: Vec<(&ArmResult, &Outcome)> =
        treatments_by_overhead(run).filter(|(arm, _)| !swept(&arm.name)).collect();
    let curves =
        load_curves::find_load_curve(run).filter(|_| plan.arms.iter().any(|arm| arm.curve.is_some()));
    let missed = describe_missed_controls(run);
    let describe = || match &missed {
        Some(missed) => format!("{}; but {missed}.", describe_overheads(run, &asked).trim_end_matches('.')),
        None => describe_overheads(run, &asked),
    };
    if let Some(limits) = limits::describe_limits(&run.limits) {
        return limits;
    }
    let doses = dose_response::summarise_doses(&run.doses);
    if asked.is_empty() && !doses.is_empty() {
        let missed = missed.map_or_else(String::new, |missed| format!(" But {missed}."));
        return doses + &missed;
    }
    match (curves, &missed) {
        (Some(curves), Some(missed)) if asked.is_empty() => format!("But {missed}. {}", curves.note),
        (Some(curves), None) if asked.is_empty() => curves.note.clone(),
        (Some(curves), _) => format!("{} {}", describe(), curves.note),
        (None, _) => describe(),
    }
}

/// Controls that missed a known effect, the A/A comparison among them. Many readers read no further.
fn describe_missed_controls(run: &RunResult) -> Option<String> {
    let aa = run.aa.iter().filter(|aa| aa.ci95_pct.or(aa.ci95).is_some() && !aa.ok).map(|aa| &aa.arm);
    let controls = run.controls.iter().filter(|c| c.ci95_pct.or(c.ci95).is_some() && !c.ok).map(|c| &c.arm);
    let names: Vec<&str> = aa.chain(controls).map(String::as_str).collect();
    match names.split_last()? {
        (one, []) => Some(format!("the control {one} missed its known effect (see Trust)")),
        (last, others) => Some(format!(
            "the controls {} and {last} missed their known effects (see Trust)",
            others.join(", ")
        )),
    }
}

fn describe_overheads(run: &RunResult, asked: &[(&ArmResult, &Outcome)]) -> String {
    let heading = capitalise(outcome_title(run, &run.primary));
    match *asked {
        [] => return "No treatment was measured against the baseline.".into(),
        [(arm, outcome)] => {
            let heading = capitalise(outcome_title(run, judged_outcome_name(run, arm)));
            return format!(
                "{heading} under {}: {}, {}.",
                arm.name,
                describe_estimate(outcome),
                format_verdict(outcome.verdict)
            );
        }
        _ => {}
    }
    let of = |verdict: Verdict| -> Vec<(&ArmResult, &Outcome)> {
        asked.iter().copied().filter(|(_, o)| o.verdict == verdict).collect()
    };
    let costly = of(Verdict::Costly);
    let mut parts = Vec::new();
    if !costly.is_empty() {
        let shown: Vec<String> = named_positions(costly.len())
            .into_iter()
            .map(|rank| match costly[rank] {
                (arm, outcome) if costly.len() <= MAX_NAMED_WITH_INTERVALS => {
                    format!("{} {}", describe_arm(run, arm), describe_estimate(outcome))
                }
                (arm, outcome) => {
                    format!("{} {}", describe_arm(run, arm), estimate_format::format_brief(outcome))
                }
            })
            .collect();
        let more = costly.len() - shown.len();
        let more = match more {
            0 => String::new(),
            1 => "; one more lies between".to_owned(),
            more => format!("; {more} more lie between"),
        };
        parts.push(format!("costly are {}{more}", shown.join(", ")));
    }
    for (verdict, says) in [
        (Verdict::NoEffect, format!("no effect beyond ±{}", describe_margin(run))),
        (Verdict::Cheaper, "better than the baseline".to_owned()),
        (Verdict::Unclear, "unclear, more rounds needed".to_owned()),
        (Verdict::NoInterval, "too few rounds to say".to_owned()),
        (Verdict::NotCompared, "with nothing to compare with".to_owned()),
    ] {
        let arms = of(verdict);
        if !arms.is_empty() {
            let names: Vec<String> =
                arms.iter().take(MAX_NAMED_ARMS).map(|(arm, _)| describe_arm(run, arm)).collect();
            let more = match arms.len() - names.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            parts.push(format!("{says}: {}{more}", names.join(", ")));
        }
    }
    format!("{heading}: {}.", parts.join("; "))
}

/// Sentences of advice, the most useful first.
pub fn collect_advice(run: &RunResult, plan: &Plan) -> Vec<String> {
    let asked: Vec<(&ArmResult, &Outcome)> =
        treatments_by_overhead(run).filter(|(_, o)| o.toll_pct.or(o.effect).is_some()).collect();
    let mut advice = Vec::new();
    advice.extend(run.pareto.as_ref().map(|pareto| pareto.text.clone()));
    // Load-latency curves share what there is to say of them, if the answer has not said it.
    advice.extend(
        load_curves::find_load_curve(run)
            .map(|curve| curve.note.clone())
            .filter(|note| !run.answer.contains(note)),
    );
    advice.extend(advise_complete_capture(run, &asked));
    advice.extend(advise_lowest_overhead(run, &asked));
    advice.extend(advise_dominated(&asked));
    advice.extend(compare_transports(run, plan));
    advice.extend(describe_stalls(run));
    advice.extend(compare_with_links(run));
    advice
}

/// Measured treatments with their primary outcome, lowest overhead first.
fn treatments_by_overhead(run: &RunResult) -> impl Iterator<Item = (&ArmResult, &Outcome)> {
    let mut arms: Vec<(&ArmResult, &Outcome)> = run
        .arms
        .iter()
        .filter(|arm| arm.role == Role::Treatment)
        .filter_map(|arm| Some((arm, judged_outcome(run, arm)?)))
        .collect();
    arms.sort_by(|a, b| harm(a.1).total_cmp(&harm(b.1)));
    arms.into_iter()
}

/// The outcome of an arm's verdict.
pub fn judged_outcome<'a>(run: &RunResult, arm: &'a ArmResult) -> Option<&'a Outcome> {
    arm.outcomes.get(judged_outcome_name(run, arm))
}

/// Name of the outcome of an arm's verdict.
pub fn judged_outcome_name<'a>(run: &'a RunResult, arm: &'a ArmResult) -> &'a str {
    arm.judged_by.as_ref().unwrap_or(&run.primary)
}

/// An arm's title and name, and its outcome if it differs from the others'.
fn describe_arm(run: &RunResult, arm: &ArmResult) -> String {
    match judged_outcome_name(run, arm) {
        name if name == run.primary => format!("{} ({})", arm.title, arm.name),
        name => format!("{} ({}, {})", arm.title, arm.name, outcome_title(run, name)),
    }
}

/// Positions of the named arms among `count`: the first, the last, and some between.
fn named_positions(count: usize) -> Vec<usize> {
    if count <= MAX_NAMED_ARMS {
        (0..count).collect()
    } else {
        (0..MAX_NAMED_ARMS).map(|i| i * (count - 1) / (MAX_NAMED_ARMS - 1)).collect()
    }
}

/// Overhead in the harmful direction.
///
/// Ratios are compared on the log scale, so that halving and doubling weigh the same. Differences keep their
/// unit.
pub fn harm(outcome: &Outcome) -> f64 {
    let effect = outcome.effect.filter(|_| outcome.verdict != Verdict::NotCompared);
    let toll = outcome.toll_pct.map(toll_stats::pct_to_log_ratio).or(effect).unwrap_or(0.0);
    if outcome.higher_is_better { -toll } else { toll }
}

fn advise_complete_capture(run: &RunResult, asked: &[(&ArmResult, &Outcome)]) -> Option<String> {
    // Of those at several loads, or over several ways, those that are held against the run's own baseline.
    let own = |arm: &ArmResult| arm.against.as_ref().is_none_or(|against| *against == run.baseline);
    let several = have_different_baselines(asked);
    let asked: Vec<_> = asked.iter().copied().filter(|(arm, _)| !several || own(arm)).collect();
    let caught = |arm: &ArmResult| arm.captured_ratio.unwrap_or(0.0);
    let title = |arm| outcome_title(run, judged_outcome_name(run, arm));
    if let Some((arm, outcome)) =
        asked.iter().find(|(arm, _)| COMPLETE_SHARE <= caught(arm) && caught(arm) <= MAX_CAPTURED_RATIO)
    {
        let heading = match find_lowest_overhead(&asked) {
            Some((least, _)) if !several && least.name == arm.name => "Full picture and least cost",
            _ => "Full picture",
        };
        return Some(format!(
            "{heading}: {} captures {} of the queries, at {} {}.",
            arm.name,
            format_share(caught(arm)),
            title(arm),
            describe_estimate(outcome)
        ));
    }
    let (arm, outcome) = asked
        .iter()
        .filter(|(arm, _)| 0.0 < caught(arm) && caught(arm) <= MAX_CAPTURED_RATIO)
        .max_by(|a, b| caught(a.0).total_cmp(&caught(b.0)))?;
    Some(format!(
        "Full picture: none here; {} captures most, {} of the queries, at {} {}.",
        arm.name,
        format_share(caught(arm)),
        title(arm),
        describe_estimate(outcome)
    ))
}

/// True if the arms have different baselines (other loads, other transports) and are no alternatives.
fn have_different_baselines(asked: &[(&ArmResult, &Outcome)]) -> bool {
    asked.windows(2).any(|pair| pair[0].0.against != pair[1].0.against)
}

/// The arm with the lowest overhead among those that capture anything, or among all if nothing is captured.
///
/// `None` if the arms have different baselines.
fn find_lowest_overhead<'a>(asked: &[(&'a ArmResult, &'a Outcome)]) -> Option<(&'a ArmResult, &'a Outcome)> {
    if have_different_baselines(asked) {
        return None;
    }
    let captures = |arm: &ArmResult| arm.captured_ratio.is_some_and(|r| r > 0.0);
    let any = asked.iter().any(|(arm, _)| captures(arm));
    asked.iter().copied().find(|(arm, _)| !any || captures(arm))
}

fn advise_lowest_overhead(run: &RunResult, asked: &[(&ArmResult, &Outcome)]) -> Option<String> {
    let (arm, outcome) = find_lowest_overhead(asked).filter(|_| asked.len() > 1)?;
    let caught = match arm.captured_ratio {
        // Said already, in the full picture.
        Some(ratio) if ratio >= COMPLETE_SHARE => return None,
        Some(ratio) => format!(", captures {} of the queries", format_share(ratio)),
        None if arm.artefact.as_ref().is_some_and(|a| a.encrypted) => {
            ", captures nothing that can be read: the session is encrypted".to_owned()
        }
        None => String::new(),
    };
    Some(format!(
        "Least cost: {}, {} {}{caught}.",
        arm.name,
        outcome_title(run, judged_outcome_name(run, arm)),
        describe_estimate(outcome)
    ))
}

/// Arms that cost more than another and capture less, both beyond their intervals.
///
/// Both arms have the same baseline and the same outcome.
fn advise_dominated(asked: &[(&ArmResult, &Outcome)]) -> Option<String> {
    let worse: Vec<String> = asked
        .iter()
        .filter(|(_, outcome)| outcome.verdict == Verdict::Costly)
        .filter_map(|(arm, outcome)| {
            let ratio = arm.captured_ratio?;
            let better = asked.iter().find(|(other, o)| {
                other.captured_ratio.is_some_and(|r| r > ratio + 0.01)
                    && (&other.against, &other.judged_by) == (&arm.against, &arm.judged_by)
                    && is_clearly_lower(o, outcome)
            })?;
            Some(format!("{} ({} does more for less)", arm.name, better.0.name))
        })
        .collect();
    (!worse.is_empty()).then(|| format!("Not worth it here: {}.", worse.join(", ")))
}

/// True if `cheap` costs less than `dear` and their intervals do not overlap.
fn is_clearly_lower(cheap: &Outcome, dear: &Outcome) -> bool {
    let interval = |outcome: &Outcome| outcome.ci95_pct.or(outcome.ci95);
    let (Some([cheap_low, cheap_high]), Some([dear_low, dear_high])) = (interval(cheap), interval(dear))
    else {
        return false;
    };
    if cheap.higher_is_better { cheap_low > dear_high } else { cheap_high < dear_low }
}

/// Transports as multiples of each other, with the difference in time.
///
/// The meaning of a percentage of a response time depends on the response time.
fn compare_transports(run: &RunResult, plan: &Plan) -> Option<String> {
    let ways: Vec<String> = plan
        .arms
        .iter()
        .zip(&run.arms)
        .filter(|(planned, arm)| arm.role == Role::Treatment && planned.curve.is_none())
        .filter_map(|(planned, arm)| {
            let reference = arm.against.as_ref()?;
            let load = &plan.arms.iter().find(|a| a.name == *reference)?.workload;
            if planned.workload == *load {
                return None;
            }
            let outcome = judged_outcome(run, arm)?;
            let [low, high] = outcome.ci95_pct?.map(overhead_factor);
            let than = judged_outcome(run, run.arms.iter().find(|a| a.name == *reference)?)?.mean;
            let multiple = overhead_factor(outcome.toll_pct?);
            let more = than * (multiple - 1.0);
            let digits = if outcome.unit == "us" { 0 } else { 2 };
            Some(format!(
                "{} {multiple:.2} times [{low:.2}, {high:.2}] {reference}'s, {more:+.digits$} {}",
                arm.name, outcome.unit
            ))
        })
        .collect();
    (!ways.is_empty())
        .then(|| format!("Multiples of {}: {}.", outcome_title(run, &run.primary), ways.join("; ")))
}

fn overhead_factor(toll_pct: f64) -> f64 {
    1.0 + toll_pct / 100.0
}

fn describe_stalls(run: &RunResult) -> Option<String> {
    let baseline = run.arms.iter().find(|arm| arm.name == run.baseline)?;
    let per_window = |arm: &ArmResult| arm.stalls.total_s / f64::from(arm.windows.max(1));
    let mut worst: Vec<&ArmResult> = run
        .arms
        .iter()
        .filter(|arm| arm.role == Role::Treatment && arm.stalls.count > 0)
        .filter(|arm| per_window(arm) > 2.0 * per_window(baseline))
        .collect();
    worst.sort_by(|a, b| per_window(b).total_cmp(&per_window(a)));
    let arms: Vec<String> = worst
        .iter()
        .take(4)
        .map(|arm| {
            let s = &arm.stalls;
            let times = if s.count == 1 { "once".to_owned() } else { format!("{} times", s.count) };
            format!("{} {times}, {:.1} s in all, the longest {:.1} s", arm.name, s.total_s, s.longest_s)
        })
        .collect();
    (!arms.is_empty()).then(|| format!("Stalls: {} (baseline: {}).", arms.join("; "), baseline.stalls.count))
}

/// Rates of artefacts against links. Packets sent through a scenario's own link are left out: nobody ships
/// them. Nor has a counted clock any rate.
fn compare_with_links(run: &RunResult) -> Option<String> {
    run.server.as_ref().filter(|_| run.host.counted.is_none())?;
    let needs = |link: f64| -> Vec<String> {
        let beyond = run.arms.iter().filter_map(|arm| {
            let need = arm.artefact.as_ref()?.link_mbit_per_s;
            (need > link).then(|| format!("{} (needs {need:.0} Mb/s)", arm.name))
        });
        beyond.collect()
    };
    let sentences: Vec<String> = LINK_RATES
        .iter()
        .filter_map(|&(link, name)| {
            let arms = needs(link);
            (!arms.is_empty()).then(|| format!("a {name} link would not carry {}", arms.join(", ")))
        })
        .collect();
    (!sentences.is_empty()).then(|| format!("Shipping it off the host: {}.", sentences.join("; ")))
}

/// Title of an outcome.
fn outcome_title<'a>(run: &'a RunResult, name: &'a str) -> &'a str {
    catalogue::find_definition(&run.definitions, name).map_or(name, |outcome| &outcome.title)
}

/// Equivalence margin of the primary outcome, in words.
pub fn describe_margin(run: &RunResult) -> String {
    match catalogue::find_definition(&run.definitions, &run.primary) {
        Some(Definition { compare: Compare::Difference, margin: Some(margin), unit, .. }) => {
            number_format::format_value(*margin, unit)
        }
        _ => format!("{}%", run.margin_pct),
    }
}

fn format_share(ratio: f64) -> String {
    format!("{:.1}%", 100.0 * ratio)
}
