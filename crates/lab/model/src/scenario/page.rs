//! Tests of docs/reference/scenarios.md: it names every key of a scenario, and its examples are valid.

use super::Scenario;
use crate::data::RECIPES;
use crate::placeholders::BUILT_IN_PLACEHOLDERS;
use crate::rig::{STEP_KINDS, list_transports};
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs")
}

fn page() -> String {
    std::fs::read_to_string(docs().join("reference/scenarios.md")).unwrap()
}

/// Names after `pub ` in the structs of a scenario, without those that are never in a file.
fn keys() -> Vec<String> {
    let sources = [include_str!("mod.rs"), include_str!("arm.rs")];
    let lines: Vec<&str> = sources.iter().flat_map(|source| source.lines()).collect();
    let read = lines.windows(2).filter(|pair| pair[0].trim() != "#[serde(skip)]");
    let fields = read.filter_map(|pair| pair[1].strip_prefix("    pub ")?.split_once(':'));
    fields.map(|(name, _)| name.to_owned()).filter(|name| !name.contains([' ', '('])).collect()
}

#[test]
fn every_key_kind_and_placeholder_is_on_the_page() {
    let page = page();
    let keys = keys();
    assert!(keys.len() > 50, "the source is read: {keys:?}");
    let mut wanted: Vec<String> = keys
        .iter()
        .map(|name| match name.as_str() {
            "arms" => "[[arm]]".to_owned(),
            "outcomes" => "[[outcome]]".to_owned(),
            "workload" => "[workload]".to_owned(),
            "server" => "[server]".to_owned(),
            "data" => "[data]".to_owned(),
            "rig" => "[[rig]]".to_owned(),
            "define" => "[define]".to_owned(),
            "sweep" => "[sweep]".to_owned(),
            "contrasts" => "[[contrast]]".to_owned(),
            "limits" => "[[limit]]".to_owned(),
            "pareto" => "[pareto]".to_owned(),
            "charts" => "[[chart]]".to_owned(),
            name => name.to_owned(),
        })
        .collect();
    wanted.extend(BUILT_IN_PLACEHOLDERS.map(|(name, _)| format!("{{{name}}}")));
    wanted.extend(list_transports().into_iter().map(str::to_owned));
    wanted.extend(RECIPES.iter().map(|recipe| recipe.name.to_owned()));
    for kind in &STEP_KINDS {
        wanted.push(kind.name.to_owned());
        wanted.extend(kind.keys.iter().flat_map(|(key, default)| [*key, *default]).map(str::to_owned));
    }
    let words = "server host none baseline treatment aa placebo positive-control pcap tcpdump-text \
        queries slow-log general-log audit-log lines server bytes directory never closes-window again rehearse INT TERM KILL USR1 \
        mariadb mysql percona toll sysbench";
    wanted.extend(words.split_whitespace().map(str::to_owned));
    wanted.retain(|name| !page.contains(&format!("`{name}`")));
    assert_eq!(wanted, [""; 0], "not in docs/reference/scenarios.md");
}

#[test]
fn every_example_is_a_scenario_and_on_the_page() {
    let page = page();
    let mut found = 0;
    for entry in std::fs::read_dir(docs().join("examples")).unwrap().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let name = entry.file_name().into_string().unwrap();
        let scenario = Scenario::parse(&text).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        assert_eq!(format!("{}.toml", scenario.name), name);
        assert!(page.contains(&format!("(../examples/{name})")), "{name} is not on the page");
        found += 1;
    }
    assert!(found >= 3);
}

#[test]
fn what_the_page_shows_as_the_shortest_is_a_scenario() {
    let page = page();
    let shortest = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    Scenario::parse(shortest).unwrap();
}
