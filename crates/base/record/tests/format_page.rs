//! Check that docs/reference/run-format.md names every field of the run format.

use std::path::Path;

/// Names after `pub ` in the types of this crate, and where each stands.
fn fields(source: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(source).expect("source");
    let named = text.lines().filter_map(|line| line.strip_prefix("    pub ")?.split_once(':'));
    named.map(|(name, _)| name.to_owned()).filter(|name| !name.contains([' ', '('])).collect()
}

#[test]
fn every_field_of_a_run_is_on_the_page() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(here.join("../../../docs/reference/run-format.md")).expect("the page");
    let sources = std::fs::read_dir(here.join("src")).expect("sources").flatten().map(|entry| entry.path());
    let mut all: Vec<String> = sources.flat_map(|source| fields(&source)).collect();
    all.sort();
    all.dedup();
    assert!(all.len() > 100, "the sources are read: {all:?}");
    // Goes by another name there: `where` is no name for a field.
    all.retain(|name| name != "which");
    all.retain(|name| !page.contains(&format!("`{name}`")));
    assert_eq!(all, [""; 0], "not in docs/reference/run-format.md");
}
