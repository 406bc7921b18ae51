//! Is what ARCHITECTURE.md says of enforcement so? Reads sources, starts nothing.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn crates() -> Vec<PathBuf> {
    std::fs::read_dir(root().join("crates")).expect("crates").flatten().map(|entry| entry.path()).collect()
}

/// All Rust below a directory, in one text.
fn sources(below: &Path) -> String {
    let entries = std::fs::read_dir(below).expect("a directory").flatten();
    entries.fold(String::new(), |text, entry| match entry.path() {
        path if path.is_dir() => text + &sources(&path),
        path if path.extension().is_some_and(|e| e == "rs") => {
            text + &std::fs::read_to_string(path).expect("a source")
        }
        _ => text,
    })
}

#[test]
fn every_test_that_an_invariant_names_is_there() {
    let page = std::fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let (_, invariants) = page.split_once("## Invariants").expect("invariants");
    // Tests are sentences; nothing else between backquotes there has three words.
    let is_sentence = |word: &&str| word.matches('_').count() >= 2 && !word.contains([' ', '.', '/']);
    let named: Vec<&str> = invariants.split('`').skip(1).step_by(2).filter(is_sentence).collect();
    assert!(named.len() >= 12, "the page is read: {named:?}");
    let text: String = crates().iter().map(|path| sources(path)).collect();
    let missing: Vec<_> = named.iter().filter(|name| !text.contains(&format!("fn {name}()"))).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names tests that are not there: {missing:?}");
    let by = ["(Cargo", "(lint", "(test", "(by hand"];
    let invariants = invariants.replace('\n', " ");
    let unsaid: Vec<&str> =
        invariants.split(". No ").skip(1).filter(|text| !by.iter().any(|by| text.contains(by))).collect();
    assert!(unsaid.is_empty(), "what enforces it is not said: {unsaid:?}");
}

#[test]
fn every_crate_keeps_the_lints_of_the_workspace() {
    let workspace = std::fs::read_to_string(root().join("Cargo.toml")).expect("the workspace");
    assert!(workspace.contains("unsafe_code = \"forbid\""));
    for path in crates() {
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).expect("a manifest");
        if path.ends_with("toll-capture") {
            // The one room that has what the workspace forbids: each block by itself, with its reason.
            for lint in
                ["unsafe_op_in_unsafe_fn", "undocumented_unsafe_blocks", "multiple_unsafe_ops_per_block"]
            {
                assert!(manifest.contains(&format!("{lint} = \"deny\"")), "toll-capture: {lint}");
            }
            continue;
        }
        assert!(manifest.contains("[lints]\nworkspace = true\n"), "{}", path.display());
    }
}

#[test]
fn the_pure_rooms_deny_what_their_lint_names() {
    for name in ["toll-stats", "toll-wire"] {
        let path = root().join("crates").join(name);
        let denied = std::fs::read_to_string(path.join("src/lib.rs")).expect("the crate's root");
        assert!(denied.contains("#![deny(clippy::disallowed_types, clippy::disallowed_methods)]"), "{name}");
        let text = sources(&path.join("src"));
        assert!(!text.contains("allow(clippy::disallowed"), "{name} makes an exception");
    }
    let of = |name: &str| std::fs::read_to_string(root().join("crates").join(name).join("clippy.toml"));
    assert_eq!(of("toll-stats").expect("lints"), of("toll-wire").expect("lints"));
}
