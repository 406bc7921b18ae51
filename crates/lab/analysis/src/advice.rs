//! Advice in sentences, drawn from the figures alone.
//!
//! Every sentence quotes its figures. Never refers to a tool's reputation.

use super::warnings::MAX_CAPTURED_RATIO;
use super::{dose_response, limits, load_curves};
use crate::estimate_format::{self, describe_estimate};
use toll_record::{ArmResult, Compare, Definition, Outcome, Plan, Role, RunResult, Verdict, catalogue};
use toll_sys::number_format::{self, capitalise};

/// Smallest share of the executed queries at which an artefact counts as complete.
pub const COMPLETE_SHARE: f64 = 0.98;
/// Links with which artefacts are compared: usable rate in Mb/s, and name.
const LINK_RATES: [(f64, &str); 2] = [(100.0, "100 Mb/s"), (1_000.0, "1 Gb/s")];

/// Most arms named as equal to the best.
const MAX_NAMED_ALIKE: usize = 3;
/// Most treatments whose results the answer has one by one.
const MAX_NAMED_ARMS: usize = 3;
/// Minimum detectable effect, in multiples of the margin, beyond which a run gives no advice.
const MAX_MDE_MARGINS: f64 = 5.0;
/// Shortest time without service that is worth a sentence, seconds: all stalls of an arm together.
const NOTABLE_STALLS_S: f64 = 1.0;

/// Answer to the scenario's question in one or two sentences, followed by one on the curves if arms were swept.
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
        Some(missed) => format!("{} But {missed}.", describe_overheads(run, &asked)),
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

/// Controls that failed, the A/A comparison among them. Many readers read no further.
fn describe_missed_controls(run: &RunResult) -> Option<String> {
    let aa = run.aa.iter().filter(|aa| aa.ok == Some(false)).map(|aa| &aa.arm);
    let controls =
        run.controls.iter().filter(|control| control.ok == Some(false)).map(|control| &control.arm);
    let names: Vec<&str> = aa.chain(controls).map(String::as_str).collect();
    match names.split_last()? {
        (one, []) => Some(format!("the control {one} failed (see Checks)")),
        (last, others) => Some(format!("the controls {} and {last} failed (see Checks)", others.join(", "))),
    }
}

fn describe_overheads(run: &RunResult, asked: &[(&ArmResult, &Outcome)]) -> String {
    let heading = capitalise(outcome_title(run, &run.primary));
    if asked.is_empty() {
        return "No treatment was measured against the baseline.".into();
    }
    if asked.len() <= MAX_NAMED_ARMS {
        let result = |(arm, outcome): &(&ArmResult, &Outcome), sign: &str| {
            let word = estimate_format::verdict_word(run, judged_outcome_name(run, arm), outcome.verdict);
            format!("{}{sign} {}, {word}", describe_arm(run, arm), describe_estimate(outcome))
        };
        return match asked {
            [one] => {
                let heading = capitalise(outcome_title(run, judged_outcome_name(run, one.0)));
                format!("{heading} with {}.", result(one, ":"))
            }
            several => {
                let each: Vec<String> = several.iter().map(|one| result(one, "")).collect();
                format!("{heading}: {}.", each.join("; "))
            }
        };
    }
    let of = |verdict: Verdict| asked.iter().filter(move |(_, o)| o.verdict == verdict).collect::<Vec<_>>();
    let mut sentences = Vec::new();
    for (verdict, is_harm) in [(Verdict::Costly, true), (Verdict::Cheaper, false)] {
        let arms = of(verdict);
        if !arms.is_empty() {
            sentences.push(describe_group(run, &arms, is_harm, asked.len()));
        }
    }
    for (verdict, meaning) in [
        (Verdict::NoEffect, describe_equivalence(run)),
        (Verdict::Unclear, "inconclusive".to_owned()),
        (Verdict::NoInterval, "without an interval: too few rounds".to_owned()),
        (Verdict::NotCompared, "not compared with anything".to_owned()),
    ] {
        let count = of(verdict).len();
        if count == 0 {
            continue;
        }
        let subject = match (count, sentences.is_empty()) {
            (count, _) if count == asked.len() => format!("All {count} treatments are"),
            (1, true) => format!("1 of {} treatments is", asked.len()),
            (count, true) => format!("{count} of {} treatments are", asked.len()),
            (1, false) => "1 is".to_owned(),
            (count, false) => format!("{count} are"),
        };
        let of_primary = if sentences.is_empty() {
            format!(" in {}", outcome_title(run, &run.primary))
        } else {
            String::new()
        };
        sentences.push(format!("{subject} {meaning}{of_primary}."));
    }
    sentences.join(" ")
}

/// `15 of 20 treatments raise mean response time, from general-log +9.3% to tcpdump-text +25%.`
fn describe_group(run: &RunResult, arms: &[&(&ArmResult, &Outcome)], is_harm: bool, of: usize) -> String {
    let one_outcome = arms.iter().all(|(arm, _)| judged_outcome_name(run, arm) == run.primary);
    let is_raised = |outcome: &Outcome| outcome.higher_is_better != is_harm;
    let deed = match (one_outcome, arms.iter().all(|(_, outcome)| is_raised(outcome)), arms.len()) {
        (true, true, 1) => format!("raises {}", outcome_title(run, &run.primary)),
        (true, true, _) => format!("raise {}", outcome_title(run, &run.primary)),
        (true, false, 1) => format!("lowers {}", outcome_title(run, &run.primary)),
        (true, false, _) => format!("lower {}", outcome_title(run, &run.primary)),
        (false, _, 1) if is_harm => "is worse than its baseline".to_owned(),
        (false, _, _) if is_harm => "are worse than their baselines".to_owned(),
        (false, _, 1) => "is better than its baseline".to_owned(),
        (false, _, _) => "are better than their baselines".to_owned(),
    };
    let brief = |(arm, outcome): &(&ArmResult, &Outcome)| {
        format!("{} {}", arm.name, estimate_format::format_brief(outcome))
    };
    let plural = if of == 1 { "treatment" } else { "treatments" };
    match arms {
        [one] => format!("1 of {of} {plural} {deed}: {}.", brief(one)),
        [first, .., last] => {
            format!("{} of {of} {plural} {deed}, from {} to {}.", arms.len(), brief(first), brief(last))
        }
        [] => String::new(),
    }
}

/// Sentences of advice, the most useful first.
///
/// A run whose controls failed, or that detects only effects of several margins, gives none: it only says why.
pub fn collect_advice(run: &RunResult, plan: &Plan) -> Vec<String> {
    let asked: Vec<(&ArmResult, &Outcome)> =
        treatments_by_overhead(run).filter(|(_, o)| o.toll_pct.or(o.effect).is_some()).collect();
    let mut advice = Vec::new();
    match explain_no_advice(run) {
        Some(why) => advice.extend((asked.len() > 1).then_some(why)),
        None => {
            advice.extend(run.pareto.as_ref().map(|pareto| pareto.text.clone()));
            advice.extend(advise_complete_capture(run, &asked));
            advice.extend(advise_lowest_overhead(run, &asked));
            advice.extend(advise_dominated(&asked));
        }
    }
    // Load-latency curves share what there is to say of them, if the answer has not said it.
    advice.extend(
        load_curves::find_load_curve(run)
            .map(|curve| curve.note.clone())
            .filter(|note| !run.answer.contains(note)),
    );
    advice.extend(compare_transports(run, plan));
    advice.extend(describe_stalls(run));
    advice.extend(compare_with_links(run));
    advice
}

/// The reason for a run to rank nothing, if it has one.
fn explain_no_advice(run: &RunResult) -> Option<String> {
    let aa_failed = run.aa.as_ref().is_some_and(|aa| aa.ok == Some(false));
    if aa_failed || run.controls.iter().any(|control| control.ok == Some(false)) {
        return Some("No ranking: a control of this run failed.".to_owned());
    }
    let definition = catalogue::find_definition(&run.definitions, &run.primary);
    let margin = match definition {
        Some(Definition { compare: Compare::Difference, margin, .. }) => *margin,
        _ => Some(run.margin_pct),
    };
    let detectable = run.mde.as_ref().and_then(|mde| mde.achieved_pct.or(mde.achieved));
    let (detectable, margin) = detectable.zip(margin.filter(|margin| *margin > 0.0))?;
    (detectable > MAX_MDE_MARGINS * margin)
        .then(|| format!("No ranking: this run is too noisy to detect effects of {}.", describe_margin(run)))
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

/// Overhead in the harmful direction.
///
/// Ratios are compared on the log scale, so that halving and doubling weigh the same. Differences keep their
/// unit.
pub fn harm(outcome: &Outcome) -> f64 {
    let effect = outcome.effect.filter(|_| outcome.verdict != Verdict::NotCompared);
    let toll = outcome.toll_pct.map(toll_stats::pct_to_log_ratio).or(effect).unwrap_or(0.0);
    if outcome.higher_is_better { -toll } else { toll }
}

/// The complete captures of the lowest overhead: one, or those that cannot be told apart from it.
fn advise_complete_capture(run: &RunResult, asked: &[(&ArmResult, &Outcome)]) -> Option<String> {
    // Of those at several loads, or over several ways, those that are held against the run's own baseline.
    let own = |arm: &ArmResult| arm.against.as_ref().is_none_or(|against| *against == run.baseline);
    let several = have_different_baselines(asked);
    let asked: Vec<_> = asked.iter().copied().filter(|(arm, _)| !several || own(arm)).collect();
    let captured = |arm: &ArmResult| arm.captured_ratio.unwrap_or(0.0);
    let title = |arm| outcome_title(run, judged_outcome_name(run, arm));
    let is_complete =
        |arm: &ArmResult| COMPLETE_SHARE <= captured(arm) && captured(arm) <= MAX_CAPTURED_RATIO;
    let mut complete: Vec<_> = asked.iter().copied().filter(|(arm, _)| is_complete(arm)).collect();
    complete.sort_by(|a, b| highest_harm(a.1).total_cmp(&highest_harm(b.1)));
    if let Some(((first, least), others)) = complete.split_first() {
        let alike: Vec<String> = others
            .iter()
            .filter(|(arm, outcome)| arm.judged_by == first.judged_by && !is_clearly_lower(least, outcome))
            .map(|(arm, outcome)| format!("{} {}", arm.name, estimate_format::format_brief(outcome)))
            .collect();
        let lowest = format!("{}, {} {}", first.name, title(first), describe_estimate(least));
        return Some(match &alike[..] {
            [] if others.is_empty() => format!("Captures every query: {lowest}."),
            [] => format!("Captures every query at the lowest overhead: {lowest}."),
            alike => {
                let (named, more) = alike.split_at(alike.len().min(MAX_NAMED_ALIKE));
                let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
                format!(
                    "Captures every query: {lowest}. Cannot be distinguished from it: {}{more}.",
                    named.join(", ")
                )
            }
        });
    }
    let (arm, outcome) = asked
        .iter()
        .filter(|(arm, _)| 0.0 < captured(arm) && captured(arm) <= MAX_CAPTURED_RATIO)
        .max_by(|a, b| captured(a.0).total_cmp(&captured(b.0)))?;
    Some(format!(
        "No variant captures every query. {} captures most, {}, with {} {}.",
        arm.name,
        format_share(captured(arm)),
        title(arm),
        describe_estimate(outcome)
    ))
}

/// The harmful end of an interval; without one, beyond all others.
fn highest_harm(outcome: &Outcome) -> f64 {
    let Some([low, high]) = outcome.ci95_pct.or(outcome.ci95) else { return f64::INFINITY };
    if outcome.higher_is_better { -low } else { high }
}

/// True if the arms have different baselines (other loads, other transports) and are no alternatives.
fn have_different_baselines(asked: &[(&ArmResult, &Outcome)]) -> bool {
    asked.windows(2).any(|pair| pair[0].0.against != pair[1].0.against)
}

/// The treatment with the lowest overhead, where nothing is captured and no other is as low.
fn advise_lowest_overhead(run: &RunResult, asked: &[(&ArmResult, &Outcome)]) -> Option<String> {
    let captures = |arm: &ArmResult| arm.captured_ratio.is_some_and(|ratio| ratio > 0.0);
    if have_different_baselines(asked) || asked.iter().any(|(arm, _)| captures(arm)) {
        return None;
    }
    let ((arm, outcome), others) = asked.split_first().filter(|(_, others)| !others.is_empty())?;
    if !others.iter().all(|(_, other)| is_clearly_lower(outcome, other)) {
        return None;
    }
    let encrypted = match arm.artefact.as_ref().is_some_and(|artefact| artefact.encrypted) {
        true => "; the session is encrypted, no query can be read from its packets",
        false => "",
    };
    Some(format!(
        "Lowest overhead: {}, {} {}{encrypted}.",
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
            Some(format!("{} (by {})", arm.name, better.0.name))
        })
        .collect();
    (!worse.is_empty()).then(|| {
        format!("Dominated, with more overhead and fewer queries than another: {}.", worse.join(", "))
    })
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
        .filter(|arm| arm.role == Role::Treatment && arm.stalls.total_s >= NOTABLE_STALLS_S)
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
            (!arms.is_empty()).then(|| format!("a {name} link does not carry {}", arms.join(", ")))
        })
        .collect();
    (!sentences.is_empty()).then(|| format!("To another host: {}.", sentences.join("; ")))
}

/// Title of an outcome.
fn outcome_title<'a>(run: &'a RunResult, name: &'a str) -> &'a str {
    catalogue::find_definition(&run.definitions, name).map_or(name, |outcome| &outcome.title)
}

/// What an equivalent treatment is, in words: within the margin, or equal where there is none.
fn describe_equivalence(run: &RunResult) -> String {
    match catalogue::find_definition(&run.definitions, &run.primary) {
        Some(Definition { compare: Compare::Difference, margin: None, .. }) => {
            "equal to the baseline".to_owned()
        }
        _ => format!("within ±{}", describe_margin(run)),
    }
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
