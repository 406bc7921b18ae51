//! Tests of the documents: links lead somewhere, commands are those of this toll, generated pages are current.

mod commands;
mod evidence;
mod links;
mod tables;
mod written;

use toll_testkit::pages::repository;

/// Fails if a generated page is not what it should be. `make reference` writes it (TOLL_RENEW).
fn assert_current(page: &str, text: &str) {
    let path = repository().join("docs").join(page);
    if std::env::var_os("TOLL_RENEW").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == text, "docs/{page} is not current: make reference");
}

/// Head of a generated page.
fn heading(title: &str) -> String {
    format!("# {title}\n\n<!-- Made by `make reference` from the program: do not edit. -->\n")
}

/// Text for Markdown: what is no code must not look like HTML or emphasis.
fn escape(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(at, part)| match at % 2 {
        0 => part.replace('<', "\\<").replace('*', "\\*").replace('|', "\\|"),
        _ => part.replace('|', "\\|"),
    });
    parts.collect::<Vec<_>>().join("`")
}
