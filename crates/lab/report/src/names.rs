//! Unique names for several runs.
//!
//! The shortest distinction is used: the host, else one more fact, else the directory.

use std::collections::BTreeSet;
use toll_analysis::{AnalysedRun, platform_facts};
use toll_record::{Host, RunDir, RunResult, Server};

/// Last part of a run directory's path. The rest stays private.
pub fn directory_name(run: &RunDir) -> String {
    let whole = run.root().canonicalize().unwrap_or_else(|_| run.root().to_owned());
    whole.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

struct RunIdentity<'a> {
    directory: String,
    host: &'a Host,
    server: Option<&'a Server>,
}

impl<'a> RunIdentity<'a> {
    fn of(run: &RunDir, result: &'a RunResult) -> Self {
        Self { directory: directory_name(run), host: &result.host, server: result.server.as_ref() }
    }

    fn label(&self) -> &str {
        if self.host.label.is_empty() { &self.directory } else { &self.host.label }
    }

    fn with_server(&self) -> String {
        match self.server {
            Some(server) => [self.label(), ", ", &server.flavour, " ", &server.version].concat(),
            None => self.label().to_owned(),
        }
    }
}

/// A name for each run, in order. `made`: the runs' results.
pub fn distinguish_runs(runs: &[RunDir], analysed: &[AnalysedRun]) -> Vec<String> {
    let runs: Vec<RunIdentity> =
        runs.iter().zip(analysed).map(|(run, made)| RunIdentity::of(run, made.result)).collect();
    let labels: Vec<String> = runs.iter().map(|run| run.label().to_owned()).collect();
    let mut candidates = vec![labels.clone()];
    let facts = platform_facts(analysed);
    for at in 0..facts.first().map_or(0, Vec::len) {
        let with_fact = |(label, facts): (&String, &Vec<(String, String)>)| match &facts[at] {
            (_, which) if which.is_empty() => label.clone(),
            (what, which) => format!("{label}, {what} {which}"),
        };
        candidates.push(labels.iter().zip(&facts).map(with_fact).collect());
    }
    candidates.push(runs.iter().map(RunIdentity::with_server).collect());
    candidates.push(runs.iter().map(|run| format!("{} ({})", run.with_server(), run.directory)).collect());
    let tells_apart = |names: &Vec<String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    if let Some(names) = candidates.iter().find(|names| tells_apart(names)) {
        return names.clone();
    }
    let last = candidates.pop().unwrap_or_default();
    (1..).zip(last).map(|(number, name)| format!("{name} #{number}")).collect()
}
