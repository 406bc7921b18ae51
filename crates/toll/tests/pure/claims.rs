//! Tests that the documents name tests that exist for what they promise.

use std::path::{Path, PathBuf};

const HEADING: &str = "## Tests of these claims";
/// Documents that promise safety to users: each has such a table.
const WITH_CLAIMS: [&str; 7] = [
    "safety.md",
    "explain/backup.md",
    "explain/capture.md",
    "explain/sockets.md",
    "explain/throttle.md",
    "reference/otlp.md",
    "reference/streaming.md",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Paths and texts of all files with an extension below a directory.
fn sources(below: &Path, extension: &str) -> Vec<(PathBuf, String)> {
    let entries = std::fs::read_dir(below).expect("a directory").flatten().map(|entry| entry.path());
    let read = |path: PathBuf| match path.is_dir() {
        true => sources(&path, extension),
        false if path.extension().is_some_and(|e| e == extension) => {
            let text = std::fs::read_to_string(&path).expect("a source");
            vec![(path, text)]
        }
        false => Vec::new(),
    };
    entries.flat_map(read).collect()
}

/// Rows of a document's table: claim and test. `None`: it has none.
fn rows(document: &str) -> Option<Vec<(&str, &str)>> {
    let (_, table) = document.split_once(HEADING)?;
    let rows =
        table.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |")?.rsplit_once(" | "));
    Some(rows.filter(|(claim, _)| *claim != "claim" && !claim.starts_with("--")).collect())
}

/// True for a test in a source whose path and modules are those of its name, as nextest shows it: `safety::tests::name`.
fn is_there(sources: &[(PathBuf, String)], test: &str) -> bool {
    let mut modules: Vec<&str> = test.split("::").collect();
    let Some(name) = modules.pop() else { return false };
    sources.iter().any(|(path, text)| {
        let shown = path.display().to_string();
        let is_of = |module: &&str| {
            let file = format!("{module}.rs");
            // A module of tests may have a file of its own beside what it tests.
            shown.contains(&format!("/{module}/"))
                || path.with_file_name(&file).is_file()
                || text.contains(&format!("mod {module} {{"))
                || (*module == "tests" && shown.ends_with("_tests.rs"))
        };
        let is_test =
            text.split("fn ").any(|part| part.starts_with(&format!("{name}("))) && text.contains("#[test]");
        is_test && modules.iter().all(is_of)
    })
}

#[test]
fn every_claim_of_the_documents_names_what_holds_it() {
    let docs = root().join("docs");
    let (documents, sources) = (sources(&docs, "md"), sources(&root().join("crates"), "rs"));
    let mut wrong = Vec::new();
    for (path, text) in documents {
        let name = path.strip_prefix(&docs).expect("a document").display().to_string();
        let Some(rows) = rows(&text) else {
            assert!(!WITH_CLAIMS.contains(&name.as_str()), "docs/{name} has no `{HEADING}`");
            continue;
        };
        assert!(rows.len() > 3, "docs/{name}: the table `| claim | test |` is read: {rows:?}");
        for (claim, tests) in rows {
            let named: Vec<&str> = tests.split('`').skip(1).step_by(2).collect();
            let is_known = |test: &&str| match test.strip_prefix("scripts/") {
                Some(script) => root().join("scripts").join(script).is_file(),
                None => is_there(&sources, test),
            };
            let unknown: Vec<_> = named.iter().filter(|test| !is_known(test)).collect();
            if named.is_empty() || !unknown.is_empty() {
                wrong.push(format!("docs/{name}: `{claim}` names no test that there is: {unknown:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
