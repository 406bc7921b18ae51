//! Commands that pages show: this toll understands their options. Nothing is run.

use clap::Parser;
use clap::error::ErrorKind;
use toll::cli::Cli;
use toll_testkit::pages::{Block, blocks, pages};

/// Words that end a command in a shell.
const ENDS: [&str; 9] = ["|", ";", "&&", "||", ">", ">>", "2>", "<", "&"];

/// Commands of toll on a line: without prompts, sudo, comments and what a shell does around them.
fn commands(line: &str) -> Vec<Vec<String>> {
    let line = line.split_once("$ ").map_or(line, |(_, behind_prompt)| behind_prompt);
    let words = shell_words::split(line).unwrap_or_default();
    let words: Vec<String> = words.into_iter().take_while(|word| !word.starts_with('#')).collect();
    let parts = words.split(|word| ENDS.contains(&word.as_str()));
    let of_toll = parts.filter_map(|part| {
        let part = part.strip_prefix(&["sudo".to_owned()]).unwrap_or(part);
        // A synopsis is no command.
        let is_synopsis = part.iter().any(|word| word.starts_with('[') || word == "...");
        (part.first().is_some_and(|word| word == "toll") && !is_synopsis).then(|| part.to_vec())
    });
    of_toll.collect()
}

fn is_shell(block: &Block) -> bool {
    matches!(block.info.split_whitespace().next(), None | Some("sh" | "console"))
}

#[test]
fn every_command_on_a_page_has_the_options_of_this_toll() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for (path, text) in pages() {
        // Notes are of their day.
        if path.starts_with("docs/journal/") || path == "docs/evidence/replication.md" {
            continue;
        }
        for block in blocks(&text).iter().filter(|block| is_shell(block)) {
            let whole = block.text.replace("\\\n", " ");
            for words in whole.lines().flat_map(commands) {
                seen += 1;
                let shown = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
                if let Err(error) = Cli::try_parse_from(&words)
                    && !shown.contains(&error.kind())
                {
                    wrong.push(format!("{path}: {}: {error}", words.join(" ")));
                }
            }
        }
    }
    assert!(seen > 100, "{seen} commands");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn commands_are_found_behind_prompts_pipes_and_sudo() {
    let found = |line: &str| commands(line).iter().map(|words| words.join(" ")).collect::<Vec<_>>();
    assert_eq!(
        found("busy host$ sudo toll capture -w - | toll digest -  # now"),
        ["toll capture -w -", "toll digest -"]
    );
    assert_eq!(found("toll report RUN [RUN ...]"), [""; 0]);
    assert_eq!(found("toll digest --filter 'a || b' x > y"), ["toll digest --filter a || b x"]);
}
