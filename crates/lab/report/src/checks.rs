//! Validity checks of a report: what to know before believing the table, and under which conditions it was measured.
//!
//! One line for each fact, for text and Markdown alike; the checks in a word or two for the first screen.

use super::command::format_shell_command;
use toll_analysis::estimate_format::{self, format_overhead};
use toll_analysis::{describe_margin, judged_outcome, judged_outcome_name};
use toll_record::catalogue::{find_definition, is_duration};
use toll_record::{CountedClock, HeldIn, Role, RunResult, SelfCost, WhileOff};
use toll_sys::count_format::format_count;
use toll_sys::number_format;

/// Most controls that the first screen names one by one.
const MAX_NAMED_CONTROLS: usize = 3;
/// Minimum detectable effect, percent, from which on a size says nothing.
const MAX_MDE_PCT: f64 = 100.0;
/// Most rounds that are worth advising.
const MAX_ADVISED_ROUNDS: u32 = 1_000;

/// The checks of the first screen: A/A, controls, and the minimum detectable effect.
pub fn brief_checks(run: &RunResult) -> Vec<String> {
    let mut checks = vec![match &run.aa {
        Some(aa) => {
            let outcome =
                run.arms.iter().find(|arm| arm.name == aa.arm).and_then(|arm| judged_outcome(run, arm));
            format!(
                "A/A {}, {}",
                outcome.map_or_else(|| "-".to_owned(), estimate_format::format_cell),
                verdict(aa.ok)
            )
        }
        None => "no A/A in this run".to_owned(),
    }];
    if run.controls.len() <= MAX_NAMED_CONTROLS {
        checks.extend(run.controls.iter().map(|control| {
            let expected = match control.expected_pct {
                0.0 => String::new(),
                pct => format!(", expected {}", format_overhead(pct)),
            };
            let arm = run.arms.iter().find(|arm| arm.name == control.arm);
            let outcome = arm.and_then(|arm| arm.outcomes.get(&control.outcome));
            let measured = outcome.map_or_else(|| "-".to_owned(), estimate_format::format_cell);
            format!("{} {measured}{expected}, {}", control.arm, verdict(control.ok))
        }));
    } else {
        let count = |ok: Option<bool>| run.controls.iter().filter(|control| control.ok == ok).count();
        let counts = [(Some(true), "passed"), (Some(false), "failed"), (None, "not conclusive")];
        let counts = counts.into_iter().map(|(ok, word)| (count(ok), word)).filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts.map(|(count, word)| format!("{count} {word}")).collect();
        checks.push(format!("{} controls: {}", run.controls.len(), counts.join(", ")));
    }
    if run.controls.is_empty() {
        checks.push("no control in this run".to_owned());
    }
    checks
}

fn verdict(ok: Option<bool>) -> &'static str {
    match ok {
        Some(true) => "passed",
        Some(false) => "failed",
        None => "not conclusive",
    }
}

/// (name, fact), in order of use.
pub fn check_lines(run: &RunResult) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    facts.push(("A/A", describe_aa(run)));
    if run.controls.is_empty() {
        facts.push(("control", describe_missing_control(run)));
    }
    facts.extend(
        run.controls.iter().map(|control| ("control", format!("{}: {}", control.text, verdict(control.ok)))),
    );
    facts.push((
        "measured",
        format!(
            "{} of {}, {}, {}; seed {}",
            run.rounds_done,
            format_count(run.rounds_planned.into(), "round"),
            describe_windows(run),
            describe_duration(run),
            run.seed
        ),
    ));
    facts.extend(run.host.counted.iter().map(|counted| ("counted", describe_counted_clock(counted))));
    facts.push(("on", describe_host(run)));
    facts.push(("load", describe_load(run)));
    facts.extend(run.held_in.map(|held_in| ("treatments", describe_containment(held_in).to_owned())));
    if run.host.counted.is_none() {
        facts.push(("toll itself", describe_self_cost(&run.self_cost)));
    }
    facts.push(("again", format_shell_command(run.command.iter().map(String::as_str))));
    facts
}

fn describe_self_cost(cost: &SelfCost) -> String {
    let taken = match &cost.while_off {
        None => format!("{:.2}% of one core inside windows", cost.cpu_pct_of_one_core),
        Some(off) => describe_while_off(off),
    };
    format!(
        "{taken}, {} MB of memory, {} MB written",
        number_format::format_megabytes(cost.memory_peak_bytes as f64),
        number_format::format_megabytes(cost.written_bytes as f64)
    )
}

fn describe_while_off(off: &WhileOff) -> String {
    let of_all = off.queries_pct.map(|pct| format!(" ({pct:.1}% of all)")).unwrap_or_default();
    format!(
        "with no method on {:.2}% of the host's CPUs (toll {:.2}, guard {:.2}, tap {:.2}), {:.0} queries a second{of_all}, {}",
        off.toll_cpu_pct + off.guard_cpu_pct + off.tap_cpu_pct,
        off.toll_cpu_pct,
        off.guard_cpu_pct,
        off.tap_cpu_pct,
        off.queries_per_s,
        format_count(off.connections, "connection"),
    )
}

fn describe_aa(run: &RunResult) -> String {
    let Some(aa) = &run.aa else { return "none in this run: add a second baseline".to_owned() };
    let arm = run.arms.iter().find(|arm| arm.name == aa.arm);
    let measured = match arm.and_then(|arm| judged_outcome(run, arm)) {
        Some(outcome) => estimate_format::describe_estimate(outcome),
        None => "not measured".to_owned(),
    };
    let outcome = arm.map_or(run.primary.as_str(), |arm| judged_outcome_name(run, arm));
    let why = match (aa.ok, aa.ci95_pct.or(aa.ci95)) {
        (None, Some(_)) => format!(" (the interval is wider than ±{})", describe_margin(run)),
        (None, None) => " (too few rounds)".to_owned(),
        (Some(_), _) => String::new(),
    };
    format!("{}, the baseline again: {outcome} {measured}: {}{why}", aa.arm, verdict(aa.ok))
}

/// Note on a run without a measured control; names the planned ones.
fn describe_missing_control(run: &RunResult) -> String {
    let is_control = |role| matches!(role, Role::Placebo | Role::PositiveControl);
    let arms = run.arms.iter().filter(|arm| is_control(arm.role)).map(|arm| arm.name.as_str());
    match arms.collect::<Vec<_>>()[..] {
        [] => "none in this run: add a placebo and a positive control".to_owned(),
        ref arms => format!("none was measured in this run: see {}", arms.join(", ")),
    }
}

/// Lengths of the windows: some are planned, those of a dump last until it is done.
fn describe_windows(run: &RunResult) -> String {
    let duration = run.definitions.iter().find(|outcome| is_duration(outcome)).map_or("", |o| &o.name);
    let until_done = || run.arms.iter().filter_map(|arm| arm.outcomes.get(duration));
    let lasted = || until_done().flat_map(|outcome| outcome.values.iter().copied());
    let unit = if run.host.counted.is_some() { "G instructions" } else { "s" };
    let planned = match &run.long {
        Some(long) => format!(
            "{:.1} {unit}, {} of {} with {:.1} {unit}",
            run.window_s,
            long.rounds_done,
            format_count(run.rounds_done.into(), "round"),
            long.window_s
        ),
        None => format!("{:.1} {unit}", run.window_s),
    };
    let (Some(shortest), Some(longest)) = (lasted().reduce(f64::min), lasted().reduce(f64::max)) else {
        return format!("windows of {planned}");
    };
    let lasted = format!("{shortest:.1} to {longest:.1} {unit}");
    if run.arms.iter().any(|arm| arm.windows > 0 && !arm.outcomes.contains_key(duration)) {
        format!("windows of {planned}, those until done {lasted}")
    } else {
        format!("windows until done, {lasted}")
    }
}

/// How long it took; on a counted clock, how many instructions and how much real time.
fn describe_duration(run: &RunResult) -> String {
    match &run.host.counted {
        Some(counted) => format!(
            "{} in {}",
            number_format::format_instructions(run.duration_s * 1e9),
            number_format::format_duration_s(counted.wall_s)
        ),
        None => number_format::format_duration_s(run.duration_s),
    }
}

/// What the figures of a counted run leave out.
fn describe_counted_clock(counted: &CountedClock) -> String {
    let emulated_on = counted.cpu_model.as_ref().map_or(String::new(), |cpu| format!(" on {cpu}"));
    format!(
        "instructions, not time: {} of {} CPU, {} ns an instruction ({}{emulated_on}). Work is counted, waiting is not: no caches, stalls, \
         contention between CPUs, or disks. k is 10^3, M 10^6, G 10^9 instructions",
        format_count(counted.machines.into(), "virtual machine"),
        counted.cpus_per_machine,
        counted.ns_per_instruction,
        counted.emulator
    )
}

/// Minimum detectable effect of this run, a sentence.
pub fn describe_resolution(run: &RunResult) -> String {
    const UNKNOWN: &str = "Minimum detectable effect: unknown (too few rounds).";
    let Some(mde) = &run.mde else { return UNKNOWN.to_owned() };
    let definition = find_definition(&run.definitions, &run.primary);
    let unit = definition.map_or("", |outcome| &outcome.unit);
    let mut text = match (mde.achieved_pct, mde.achieved) {
        (Some(pct), _) if pct > MAX_MDE_PCT => {
            return "This run is too noisy: it does not detect a doubling four times in five.".to_owned();
        }
        (Some(0.0), _) | (None, Some(0.0)) => {
            return "Minimum detectable effect: none, since all windows are equal.".to_owned();
        }
        (Some(pct), _) => format!("Minimum detectable effect (80% power): {pct:.1}%"),
        (None, Some(size)) => {
            format!("Minimum detectable effect (80% power): {}", number_format::format_value(size, unit))
        }
        (None, None) => UNKNOWN.trim_end_matches('.').to_owned(),
    };
    text += &format!(" after {}", format_count(run.rounds_done.into(), "round"));
    let more = |rounds: &u32| *rounds > run.rounds_done && *rounds <= MAX_ADVISED_ROUNDS;
    if let Some(rounds) = mde.rounds_for_margin.filter(more) {
        text += &format!("; ±{} needs {rounds}", describe_margin(run));
    }
    text + "."
}

/// Conditions of the run for one line, the most important first.
pub fn brief_conditions(run: &RunResult) -> Vec<String> {
    let mut facts = Vec::new();
    facts.push(match &run.host.counted {
        Some(_) => "instructions counted".to_owned(),
        None => format_count(run.host.cpus.into(), "CPU"),
    });
    facts.extend(run.server.as_ref().map(|server| format!("{} {}", server.flavour, server.version)));
    let load = &run.workload;
    if load.driver != "none" {
        let speed = load.rate_per_s.map_or_else(
            || "full speed".to_owned(),
            |rate| format!("{}/s", number_format::format_grouped(rate)),
        );
        facts.push(format!("{}, {}, {speed}", format_count(load.threads.into(), "client"), load.profile));
    }
    facts.push(number_format::format_duration_s(match &run.host.counted {
        Some(counted) => counted.wall_s,
        None => run.duration_s,
    }));
    facts
}

fn describe_host(run: &RunResult) -> String {
    let host = &run.host;
    let kernel = format!("kernel {}", host.kernel);
    let known: Vec<&str> = [(&host.label, &host.label), (&host.os, &host.os), (&host.kernel, &kernel)]
        .into_iter()
        .filter(|(recorded, _)| !recorded.is_empty())
        .map(|(_, said)| said.as_str())
        .collect();
    let host =
        if known.is_empty() { "a host that the run does not describe".into() } else { known.join(", ") };
    match &run.server {
        Some(server) => format!("{host}; {} {} ({})", server.flavour, server.version, server.kind),
        None => format!("{host}; no server"),
    }
}

fn describe_containment(held_in: HeldIn) -> &'static str {
    match held_in {
        HeldIn::ControlGroup => "CPU of child processes is fully counted (control groups)",
        HeldIn::ProcessGroup => {
            "CPU of child processes that have ended may be missed (no control groups here)"
        }
    }
}

fn describe_load(run: &RunResult) -> String {
    let w = &run.workload;
    if w.driver == "none" {
        return "none of toll's".to_owned();
    }
    let loop_ = match w.rate_per_s {
        Some(rate) => format!("{} events/s", number_format::format_grouped(rate)),
        None => "as fast as it goes".to_owned(),
    };
    let connections = match w.reconnect_every {
        0 => String::new(),
        1 => ", a connection for each event".to_owned(),
        every => format!(", a new connection after {every} events"),
    };
    format!(
        "{} {}, {} over {}, {} of {} rows, {}{connections}, {loop_}",
        w.driver,
        w.profile,
        format_count(w.threads.into(), "thread"),
        w.transport,
        format_count(w.tables.into(), "table"),
        number_format::format_grouped(w.rows as f64),
        if w.prepared { "prepared" } else { "text" },
    )
}
