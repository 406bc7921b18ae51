//! Commands quoted so that they can be pasted into a shell.
//!
//! `shell_words::join` is for lines that toll itself parses: it leaves `{a,b}` and `!` bare, which bash
//! expands.

/// Joins words, and quotes those that a shell would split or change.
pub fn format_shell_command<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    let quoted = words.map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_back() {
        let words = ["toll", "cost", "--", "sh", "-c", "echo it's", "", "{a,b}", "x!y"];
        let line = format_shell_command(words.into_iter());
        assert_eq!(line, r"toll cost -- sh -c 'echo it'\''s' '' '{a,b}' 'x!y'");
        assert_eq!(shell_words::split(&line).unwrap(), words);
    }
}
