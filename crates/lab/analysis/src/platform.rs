//! Platform of a run (host, server, tools, rig, commands), and the differences between runs.
//!
//! Reads only data that the runs recorded. Judges nothing.

use std::collections::BTreeSet;
use toll_record::{Arm, Host, Plan, RunResult};

/// One of several runs.
#[derive(Debug, Clone, Copy)]
pub struct AnalysedRun<'a> {
    pub plan: &'a Plan,
    pub result: &'a RunResult,
}

/// Libraries with a version, and the programs that capture with them.
const LIBRARIES: [(&str, [&str; 2]); 1] = [("libpcap", ["tcpdump", "dumpcap"])];
/// Most differences between commands that are listed.
const MOST_WORDS: usize = 3;

/// For each run, pairs of a fact's name (`kernel`) and value. All runs have the same names in the same order.
///
/// Facts that no run has are left out.
pub fn platform_facts(runs: &[AnalysedRun]) -> Vec<Vec<(String, String)>> {
    let mut columns: Vec<(String, Vec<String>)> = vec![
        ("system".into(), per_run(runs, |run| run.result.host.os.clone())),
        ("kernel".into(), per_run(runs, |run| run.result.host.kernel.clone())),
        ("server".into(), per_run(runs, describe_server)),
    ];
    for tool in describe_tools(runs) {
        let version = |run: &AnalysedRun| find_version(&run.result.host, &tool).unwrap_or_default();
        columns.push((tool.clone(), per_run(runs, version)));
    }
    columns.push(("commands".into(), distinct_words(runs)));
    columns.push(("rig".into(), per_run(runs, describe_rig)));
    columns.push(("CPU".into(), per_run(runs, |run| describe_cpu(&run.result.host))));
    columns.push(("memory".into(), per_run(runs, |run| describe_memory(&run.result.host))));
    columns.retain(|(_, values)| values.iter().any(|value| !value.is_empty()));
    let of_run =
        |run: usize| columns.iter().map(|(what, values)| (what.clone(), values[run].clone())).collect();
    (0..runs.len()).map(of_run).collect()
}

/// Names of the facts in which the runs differ. The host if only its label differs.
pub fn differing_facts(runs: &[AnalysedRun], facts: &[Vec<(String, String)>]) -> Vec<String> {
    let Some((first, others)) = facts.split_first() else { return Vec::new() };
    let differs = |at: &usize| others.iter().any(|other| other[*at].1 != first[*at].1);
    let found: Vec<String> = (0..first.len()).filter(differs).map(|at| first[at].0.clone()).collect();
    let labels: BTreeSet<&String> = runs.iter().map(|run| &run.result.host.label).collect();
    if found.is_empty() && labels.len() > 1 { vec!["host".to_owned()] } else { found }
}

fn per_run(runs: &[AnalysedRun], of: impl Fn(&AnalysedRun) -> String) -> Vec<String> {
    runs.iter().map(of).collect()
}

fn describe_cpu(host: &Host) -> String {
    match (host.cpus, host.cpu_model.as_str()) {
        (0, _) => String::new(),
        (cpus, "") => format!("{cpus} ({})", host.arch),
        (cpus, model) => format!("{cpus} x {model} ({})", host.arch),
    }
}

fn describe_memory(host: &Host) -> String {
    match host.memory_bytes {
        0 => String::new(),
        bytes => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn describe_server(run: &AnalysedRun) -> String {
    run.result.server.as_ref().map_or_else(String::new, |s| format!("{} {}", s.flavour, s.version))
}

/// Steps of the rig with their settings.
fn describe_rig(run: &AnalysedRun) -> String {
    let step = |step: &toll_record::RigStep| {
        let chosen = step.keys.iter().filter(|(_, value)| !value.is_empty());
        let keys: Vec<String> = chosen.map(|(key, value)| format!("{key} {value}")).collect();
        if keys.is_empty() { step.kind.clone() } else { format!("{} ({})", step.kind, keys.join(", ")) }
    };
    run.plan.setup.rig.iter().map(step).collect::<Vec<_>>().join("; ")
}

/// Programs of the arms with a known version, and the libraries that they capture with.
fn describe_tools(runs: &[AnalysedRun]) -> Vec<String> {
    let started: BTreeSet<String> =
        runs.iter().flat_map(|run| run.plan.arms.iter().flat_map(command_words)).collect();
    let starts = |name: &str| started.iter().any(|word| word.rsplit('/').next() == Some(name));
    let is_used = |name: &str| {
        let library = LIBRARIES.iter().find(|(library, _)| *library == name);
        library.map_or_else(|| starts(name), |(_, programs)| programs.iter().any(|program| starts(program)))
    };
    let mut found: Vec<String> = Vec::new();
    for tool in runs.iter().flat_map(|run| &run.result.host.tools) {
        if tool.version.is_some() && !found.contains(&tool.name) && is_used(&tool.name) {
            found.push(tool.name.clone());
        }
    }
    found
}

fn find_version(host: &Host, tool: &str) -> Option<String> {
    let of_tool = host.tools.iter().find(|known| known.name == tool);
    let version = of_tool?.version.clone()?;
    // `tcpdump version 4.99.3` is listed below `tcpdump`.
    let bare = version.strip_prefix(tool).map(str::trim_start);
    let bare = bare.map(|rest| rest.strip_prefix("version").map_or(rest, str::trim_start));
    Some(bare.filter(|rest| !rest.is_empty()).map_or_else(|| version.clone(), str::to_owned))
}

/// Words of all commands of an arm as planned. Values that differ from trial to trial stay open.
fn command_words(arm: &Arm) -> impl Iterator<Item = String> + '_ {
    arm.treatment.processes.iter().flat_map(|process| process.stages.iter().flatten().cloned())
}

/// Words of arms of the same name that are in one run and not in all: `-B 65536`.
fn distinct_words(runs: &[AnalysedRun]) -> Vec<String> {
    let mut told: Vec<Vec<String>> = vec![Vec::new(); runs.len()];
    let Some((first, others)) = runs.split_first() else { return Vec::new() };
    for arm in &first.plan.arms {
        let same = |run: &AnalysedRun| {
            run.plan.arms.iter().find(|other| other.name == arm.name).map(collect_command_words)
        };
        let Some(mut of_runs) = others.iter().map(same).collect::<Option<Vec<_>>>() else { continue };
        of_runs.insert(0, collect_command_words(arm));
        let shared = |word: &String| of_runs.iter().all(|words| words.contains(word));
        for (words, told) in of_runs.iter().zip(&mut told) {
            let own = join_distinct_words(words, shared);
            if !own.is_empty() && !told.contains(&own) {
                told.push(own);
            }
        }
    }
    let text = |own: Vec<String>| {
        let more = if own.len() > MOST_WORDS { ", ..." } else { "" };
        own.into_iter().take(MOST_WORDS).collect::<Vec<_>>().join(", ") + more
    };
    told.into_iter().map(text).collect()
}

fn collect_command_words(arm: &Arm) -> Vec<String> {
    command_words(arm).collect()
}

/// Words that are not shared, each with its option.
fn join_distinct_words(words: &[String], shared: impl Fn(&String) -> bool) -> String {
    let mut own: Vec<&str> = Vec::new();
    for (at, word) in words.iter().enumerate().filter(|(_, word)| !shared(word)) {
        let before = at.checked_sub(1).map(|before| &words[before]);
        if let Some(option) = before.filter(|before| before.starts_with('-') && shared(before)) {
            own.push(option);
        }
        own.push(word);
    }
    own.join(" ")
}
