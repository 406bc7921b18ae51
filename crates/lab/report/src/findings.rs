//! Findings over several arms, and on the arms' output, one line each for text and Markdown.
//!
//! Contrasts, pauses, limits, and stages at which packets were lost.

use toll_analysis::{estimate_format, format_multiple};
use toll_record::{ContrastResult, Ledger, LimitResult, Pause, RunResult};
use toll_sys::count_format::format_count;
use toll_sys::number_format;

/// (name, result).
pub fn contrast_lines(run: &RunResult) -> Vec<(&str, String)> {
    run.contrasts.iter().map(|contrast| (contrast.name.as_str(), describe_contrast(contrast))).collect()
}

fn describe_contrast(contrast: &ContrastResult) -> String {
    let found = match (contrast.ratio, contrast.ci95) {
        (Some(ratio), Some([low, high])) => format!("{ratio:.2} [{low:.2}, {high:.2}]"),
        (Some(ratio), None) => format!("{ratio:.2} (no interval)"),
        (None, _) => "unknown".to_owned(),
    };
    let beyond =
        contrast.beyond.as_ref().map_or_else(String::new, |beyond| format!(", both beyond {beyond}"));
    format!(
        "{}: {found}, {} of {} over {}{beyond}, {}",
        contrast.title,
        contrast.outcome,
        contrast.of,
        format_multiple(contrast),
        format_count(contrast.pairs.into(), "round")
    )
}

/// (arm, number of its pauses and the longest).
pub fn pause_lines(run: &RunResult) -> Vec<(&str, String)> {
    let of_arm = |name: &str| run.pauses.iter().filter(|pause| pause.arm == name).collect::<Vec<_>>();
    let arms = run.arms.iter().map(|arm| (arm.name.as_str(), of_arm(&arm.name)));
    arms.filter_map(|(name, pauses)| Some((name, describe_arm_pauses(&pauses)?))).collect()
}

fn describe_arm_pauses(pauses: &[&Pause]) -> Option<String> {
    let seconds = |pause: &Pause| (pause.end_mono_us - pause.begin_mono_us) as f64 / 1e6;
    let longest = pauses.iter().max_by(|a, b| seconds(a).total_cmp(&seconds(b)))?;
    let all: f64 = pauses.iter().map(|pause| seconds(pause)).sum();
    Some(format!(
        "{} of a second or more in what its commands write, {all:.1} s in all; the longest {:.1} s: {}",
        format_count(pauses.len() as u64, "pause"),
        seconds(longest),
        estimate_format::describe_pause(longest)
    ))
}

/// (ladder, highest rung that holds).
pub fn limit_lines(run: &RunResult) -> Vec<(&str, String)> {
    run.limits.iter().map(|limit| (limit.name.as_str(), describe_ladder(limit))).collect()
}

fn describe_ladder(limit: &LimitResult) -> String {
    let of: Vec<&str> = limit.of.iter().map(|(_, value)| value.as_str()).collect();
    let top = limit.rungs.last().copied().unwrap_or(0.0);
    let rounds = format_count(limit.values.len() as u64, "round");
    let rung = |number: f64| match number > 0.0 {
        true => format!("{number} {}", limit.unit),
        false => format!("below {} {}", limit.rungs.first().copied().unwrap_or(0.0), limit.unit),
    };
    let interval = match limit.ci95 {
        Some([low, high]) => format!(" [{}, {}]", rung(low), rung(high)),
        None => " (no interval)".to_owned(),
    };
    let or_more = if limit.is_open() { " or more" } else { "" };
    let open = match limit.open {
        0 => String::new(),
        _ if limit.is_open() => "; the ladder, or what the sender reaches, ends there".to_owned(),
        open => format!(
            "; in {open} of them it was not found: the ladder, or what the sender reaches, ends at {top} {}",
            limit.unit
        ),
    };
    format!(
        "{}{}{}: {}{or_more} in every one of {rounds}; the median round {}{or_more}{interval}{open}",
        limit.title,
        if of.is_empty() { "" } else { ", " },
        of.join(", "),
        rung(limit.in_all),
        rung(limit.median),
    )
}

/// (arms, stages at which their packets were lost). Arms without losses share one line.
pub fn packet_accounting_lines(run: &RunResult) -> Vec<(String, String)> {
    let of_arms = || run.arms.iter().filter_map(|arm| Some((arm.name.as_str(), arm.ledger.as_ref()?)));
    let loses = |ledger: &Ledger| ledger.stages.iter().any(|stage| stage.lost.unwrap_or(0) > 0);
    let mut lines: Vec<(String, String)> = of_arms()
        .filter(|(_, ledger)| loses(ledger))
        .map(|(name, ledger)| (name.to_owned(), describe_losses(ledger)))
        .collect();
    for (is_whole, told) in [
        (true, "nothing lost from the sender to the file"),
        (
            false,
            "nothing lost where both sides were counted; captures ended first, or their filter left packets out: what was captured is not all that was sent",
        ),
    ] {
        let alike: Vec<_> =
            of_arms().filter(|(_, l)| !loses(l) && (l.whole == l.trials) == is_whole).collect();
        let sum = |of: fn(&Ledger) -> u32| alike.iter().map(|(_, ledger)| of(ledger)).sum::<u32>();
        let (adds_up, trials) = (sum(|ledger| ledger.adds_up), sum(|ledger| ledger.trials));
        if trials > 0 {
            let names = join_names(alike.iter().map(|(name, _)| *name).collect());
            lines.push((names, format!("{told}; adds up in {adds_up} of {trials} trials")));
        }
    }
    lines
}

/// Names in a column: of many, only the first ones.
fn join_names(names: Vec<&str>) -> String {
    const NAMED: usize = 3;
    match names.len() {
        0..=NAMED => names.join(" "),
        more => format!("{} and {} more", names[..NAMED].join(" "), more - NAMED),
    }
}

fn describe_losses(ledger: &Ledger) -> String {
    let mut parts = Vec::new();
    if let Some(first) = ledger.stages.first() {
        parts.push(format!("{} {}", number_format::format_grouped(first.packets as f64), first.name));
    }
    for stage in &ledger.stages {
        let (Some(lost @ 1..), Some(pct)) = (stage.lost, stage.lost_pct) else { continue };
        let counted = stage.lost_counted.unwrap_or(0);
        let unsaid = match lost.saturating_sub(counted) {
            0 => String::new(),
            gap => format!(", {} of them not in any drop counter", number_format::format_grouped(gap as f64)),
        };
        parts.push(format!(
            "{} ({pct:.3}%) lost before {}{unsaid}",
            number_format::format_grouped(lost as f64),
            stage.name
        ));
    }
    if let Some(last) = ledger.stages.last().filter(|_| ledger.stages.len() > 1) {
        parts.push(format!("{} {}", number_format::format_grouped(last.packets as f64), last.name));
    }
    if ledger.whole < ledger.trials {
        parts.push("what was captured is not all that was sent".to_owned());
    }
    format!("{}; adds up in {} of {} trials", parts.join(", "), ledger.adds_up, ledger.trials)
}
