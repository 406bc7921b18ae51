//! The pages of `evidence`: what each stored run found, in its own words.

use super::{assert_current, escape, heading};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use toll_model::scenario::Preset;
use toll_testkit::pages::repository;

/// A stored run: its path from the root on, the names of its variants, and its report up to the table of overheads.
struct Stored {
    path: String,
    arms: Vec<String>,
    host: String,
    question: String,
    command: String,
    head: String,
}

/// Parts of a report that a page quotes: heading, result and checks, overheads.
const PARTS: usize = 3;

fn directories(at: PathBuf) -> Vec<PathBuf> {
    let mut found: Vec<_> =
        std::fs::read_dir(at).unwrap().flatten().map(|e| e.path()).filter(|p| p.is_dir()).collect();
    found.sort();
    found
}

/// Runs of `toll live` have a page of their own, whatever their scenario.
const LIVE: (&str, &str) =
    ("live", "What does a method cost a server that serves users, by their own queries? (`toll live`)");

/// Stored runs by scenario.
fn stored() -> BTreeMap<String, Vec<Stored>> {
    let mut found: BTreeMap<String, Vec<Stored>> = BTreeMap::new();
    for run in directories(repository().join("runs")).into_iter().flat_map(directories) {
        let report = std::fs::read_to_string(run.join("report.txt")).unwrap();
        let head = report.split("\n\n").take(PARTS).collect::<Vec<_>>().join("\n\n");
        let read = |file: &str| -> serde_json::Value {
            serde_json::from_str(&std::fs::read_to_string(run.join(file)).unwrap()).unwrap()
        };
        let (host, plan) = (read("host.json"), read("plan.json"));
        let command = plan["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap());
        let is_live = !plan["design"]["blocks"].is_null();
        let scenario = if is_live { LIVE.0 } else { plan["scenario"].as_str().unwrap() }.to_owned();
        let arms = plan["arms"].as_array().unwrap().iter();
        let of = |name: &str| host[name].as_str().unwrap_or("-").to_owned();
        found.entry(scenario).or_default().push(Stored {
            path: run.strip_prefix(repository()).unwrap().display().to_string(),
            arms: arms.map(|arm| arm["name"].as_str().unwrap().to_owned()).collect(),
            host: format!("{}, {}, {}, Linux {}", of("label"), of("cpu_model"), of("os"), of("kernel")),
            question: plan["question"].as_str().unwrap().to_owned(),
            command: shell_words::join(command),
            head: head.trim_end().to_owned(),
        });
    }
    found
}

/// The present names of variants that a run was stored with under another one.
fn present_names(scenario: &str, runs: &[Stored]) -> String {
    let arms = Preset::named(scenario).map(|preset| preset.scenario().unwrap().arms).unwrap_or_default();
    let pairs = arms.iter().flat_map(|arm| arm.alias.iter().map(|alias| (alias, &arm.name)));
    let renamed: Vec<String> = pairs
        .filter(|(alias, _)| runs.iter().any(|run| run.arms.contains(alias)))
        .map(|(alias, name)| format!("`{alias}` is `{name}`"))
        .collect();
    if renamed.is_empty() {
        return String::new();
    }
    format!("\nPresent names of variants that had another one: {}.\n", renamed.join(", "))
}

#[test]
fn the_pages_of_stored_runs_are_current() {
    let all = stored();
    assert!(all.values().map(Vec::len).sum::<usize>() > 30, "the runs are read");
    let mut index = heading("Stored runs")
        + "\nEvery figure of this documentation comes from a run whose raw data are in the repository, below `runs/`. \
           `toll report PATH` analyses one of them again, and needs no server. A page for each scenario quotes the results.\n\n\
           | scenario | question | runs |\n|---|---|---|\n";
    for (scenario, runs) in &all {
        let question = Preset::named(scenario).map(|preset| preset.scenario().unwrap().question);
        let question = question.unwrap_or_else(|| match scenario == LIVE.0 {
            true => LIVE.1.to_owned(),
            false => runs[0].question.clone(),
        });
        writeln!(index, "| [{scenario}]({scenario}.md) | {} | {} |", escape(&question), runs.len()).unwrap();
        let mut page = heading(&format!("Stored runs of {scenario}"));
        write!(page, "\n{}\n{}", escape(&question), present_names(scenario, runs)).unwrap();
        for run in runs {
            let (path, host, head, command) = (&run.path, escape(&run.host), &run.head, &run.command);
            let name = path.trim_start_matches("runs/");
            write!(
                page,
                "\n## {name}\n\n{host}. Command: `{command}`.\n\n```text\n{head}\n```\n\nThe whole report: `{path}/report.txt`.\n"
            )
            .unwrap();
        }
        assert_current(&format!("evidence/{scenario}.md"), &page);
    }
    assert_current("evidence/index.md", &index);
}
