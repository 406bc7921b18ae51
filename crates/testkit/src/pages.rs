//! Code blocks of the project's Markdown pages.
//!
//! A fence that begins with `sh run` holds commands that a test runs; those of `sh` and of no language are read only.

use std::path::{Path, PathBuf};

/// A fenced block, or an indented one.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    /// What stands behind the fence: `sh run`; empty for an indented block.
    pub info: String,
    pub text: String,
}

/// The repository's root, as seen from a package of the workspace.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Paths, from the root on, and texts of the pages in README, CONTRIBUTING, CHANGELOG, ARCHITECTURE and `docs`.
pub fn pages() -> Vec<(String, String)> {
    let root = repository();
    let mut found = Vec::new();
    let mut directories = vec![root.join("docs")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => directories.push(path),
                false if path.extension().is_some_and(|e| e == "md") => found.push(path),
                false => (),
            }
        }
    }
    found.extend(
        ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "ARCHITECTURE.md"].map(|name| root.join(name)),
    );
    found.sort();
    let named = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path.strip_prefix(&root).unwrap().display().to_string(), text)
    };
    found.into_iter().map(named).collect()
}

/// The blocks of a page, in their order.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut fenced = None;
    let mut before_blank = true;
    for line in page.lines() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            fenced = match fenced {
                None => {
                    found.push(Block { info: info.trim().to_owned(), text: String::new() });
                    Some(())
                }
                Some(()) => None,
            };
        } else if fenced.is_some() {
            push_line(&mut found, line);
        } else if let Some(code) = line.strip_prefix("    ").filter(|_| before_blank) {
            let goes_on = found.last().is_some_and(|last| last.info.is_empty() && last.text.ends_with('\n'));
            if !goes_on {
                found.push(Block { info: String::new(), text: String::new() });
            }
            push_line(&mut found, code);
            continue;
        }
        before_blank = line.trim().is_empty();
    }
    found
}

fn push_line(found: &mut [Block], line: &str) {
    if let Some(last) = found.last_mut() {
        last.text.push_str(line);
        last.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_and_indented_blocks_are_found_with_their_kind() {
        let page = "# A\n\n```sh run\ntoll --version\n```\n\ntext\n\n    toll list\n    toll doctor\n\n- item\n    goes on\n";
        let shown: Vec<_> = blocks(page).into_iter().map(|block| (block.info, block.text)).collect();
        let block = |info: &str, text: &str| (info.to_owned(), text.to_owned());
        assert_eq!(shown, [block("sh run", "toll --version\n"), block("", "toll list\ntoll doctor\n")]);
    }
}
