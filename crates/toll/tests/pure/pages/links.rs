//! Links and paths between pages, and from the sources to pages.

use std::path::{Path, PathBuf};
use toll_testkit::pages::{pages, repository};

/// Targets of the links of a page, outside of code.
fn targets(page: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found = Vec::new();
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if !fenced {
            let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            found.extend(links.map(str::to_owned));
        }
    }
    found
}

#[test]
fn every_link_between_pages_leads_to_a_file() {
    let (mut seen, mut broken) = (0, Vec::new());
    for (path, text) in pages() {
        for target in targets(&text) {
            let file = target.split('#').next().unwrap();
            if file.is_empty() || target.contains(':') {
                continue;
            }
            seen += 1;
            if !repository().join(&path).with_file_name("").join(file).exists() {
                broken.push(format!("{path}: {target}"));
            }
        }
    }
    assert!(seen > 100, "{seen} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_is_in_the_summary() {
    let summary = std::fs::read_to_string(repository().join("docs/SUMMARY.md")).unwrap();
    let listed = targets(&summary);
    let mut missing: Vec<String> = pages().into_iter().map(|(path, _)| path).collect();
    missing.retain(|path| match path.strip_prefix("docs/") {
        Some(page) => page != "SUMMARY.md" && !listed.iter().any(|listed| listed == page),
        None => false,
    });
    assert_eq!(missing, [""; 0], "not in docs/SUMMARY.md");
}

/// Sources, scenarios, scripts and pages.
fn texts(below: &Path, found: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(below).unwrap().flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", "node_modules", ".git", "runs"].contains(&name.as_str()) {
                texts(&path, found);
            }
        } else if path
            .extension()
            .is_none_or(|e| ["rs", "toml", "md", "sh", "service"].iter().any(|k| e == *k))
        {
            found.push(path);
        }
    }
}

#[test]
fn every_path_of_a_document_in_sources_is_there() {
    let root = repository();
    let mut files = Vec::new();
    texts(&root, &mut files);
    let (mut seen, mut broken) = (0, Vec::new());
    for path in files {
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        for (at, _) in text.match_indices("docs/") {
            let before = text[..at].chars().next_back();
            let end = text[at..].find(|c: char| !c.is_ascii_alphanumeric() && !"/._-".contains(c));
            let named = text[at..].split_at(end.unwrap_or(text.len() - at)).0.trim_end_matches('.');
            let is_page = [".md", ".toml", ".service"].iter().any(|ending| named.ends_with(ending));
            if is_page && before.is_none_or(|c| !c.is_ascii_alphanumeric() && !"/.-".contains(c)) {
                seen += 1;
                if !root.join(named).is_file() {
                    broken.push(format!("{}: {named}", path.strip_prefix(&root).unwrap().display()));
                }
            }
        }
    }
    assert!(seen > 50, "{seen} paths");
    assert!(broken.is_empty(), "{broken:#?}");
}
