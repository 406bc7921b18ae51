//! Unique names for several runs.
//!
//! The shortest distinction is used: the host, else one more fact, else the directory.

use std::collections::BTreeSet;
use toll_analysis::{Made, facts};
use toll_record::{Host, RunDir, RunResult, Server};

/// Last part of a run directory's path. The rest stays private.
pub fn directory(run: &RunDir) -> String {
    let whole = run.root().canonicalize().unwrap_or_else(|_| run.root().to_owned());
    whole.file_name().map_or_else(|| "run".to_owned(), |name| name.to_string_lossy().into_owned())
}

struct Unnamed<'a> {
    directory: String,
    host: &'a Host,
    server: Option<&'a Server>,
}

impl<'a> Unnamed<'a> {
    fn of(run: &RunDir, result: &'a RunResult) -> Self {
        Self { directory: directory(run), host: &result.host, server: result.server.as_ref() }
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
pub fn apart(runs: &[RunDir], made: &[Made]) -> Vec<String> {
    let runs: Vec<Unnamed> = runs.iter().zip(made).map(|(run, made)| Unnamed::of(run, made.result)).collect();
    let labels: Vec<String> = runs.iter().map(|run| run.label().to_owned()).collect();
    let mut candidates = vec![labels.clone()];
    let facts = facts(made);
    for at in 0..facts.first().map_or(0, Vec::len) {
        let with_fact = |(label, facts): (&String, &Vec<(String, String)>)| match &facts[at] {
            (_, which) if which.is_empty() => label.clone(),
            (what, which) => format!("{label}, {what} {which}"),
        };
        candidates.push(labels.iter().zip(&facts).map(with_fact).collect());
    }
    candidates.push(runs.iter().map(Unnamed::with_server).collect());
    candidates.push(runs.iter().map(|run| format!("{} ({})", run.with_server(), run.directory)).collect());
    let tells_apart = |names: &Vec<String>| names.iter().collect::<BTreeSet<_>>().len() == names.len();
    if let Some(names) = candidates.iter().find(|names| tells_apart(names)) {
        return names.clone();
    }
    let last = candidates.pop().unwrap_or_default();
    (1..).zip(last).map(|(number, name)| format!("{name} #{number}")).collect()
}
