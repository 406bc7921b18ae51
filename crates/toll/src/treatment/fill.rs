//! What do `{port}`, `{artefact}` and the scenario's own definitions stand for?

use crate::scenario::Define;
use anyhow::{Context, bail};
use std::collections::BTreeMap;

/// Values for `{name}` in commands and settings.
#[derive(Debug, Clone, Default)]
pub struct Fill {
    values: BTreeMap<String, String>,
}

/// Definitions may use others, this deep.
const DEPTH: usize = 8;

impl Fill {
    /// Takes the scenario's definitions, those by flavour for `flavour`.
    pub fn new(define: &BTreeMap<String, Define>, flavour: &str) -> Self {
        let mut fill = Self::default();
        for (name, value) in define {
            match value {
                Define::Text(text) => fill.set(name, text.clone()),
                Define::ByFlavour(by) => {
                    if let Some(text) = by.get(flavour) {
                        fill.set(name, text.clone());
                    }
                }
            }
        }
        fill
    }

    pub fn set(&mut self, name: &str, value: String) {
        self.values.insert(name.to_owned(), value);
    }

    /// Replaces every `{name}`; braces around anything but a name are left as they are.
    pub fn apply(&self, text: &str) -> anyhow::Result<String> {
        self.apply_to_depth(text, DEPTH)
    }

    fn apply_to_depth(&self, text: &str, depth: usize) -> anyhow::Result<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (before, from) = rest.split_at(open);
            out.push_str(before);
            let Some(name) = leading_name(&from[1..]) else {
                out.push('{');
                rest = &from[1..];
                continue;
            };
            let Some(value) = self.values.get(name) else {
                let known: Vec<_> = self.values.keys().map(String::as_str).collect();
                bail!("nothing is known as {{{name}}} here: known are {}", known.join(", "));
            };
            if depth == 0 {
                bail!("{{{name}}} is defined by itself");
            }
            out.push_str(&self.apply_to_depth(value, depth - 1)?);
            rest = &from[name.len() + 2..];
        }
        out.push_str(rest);
        Ok(out)
    }
}

/// The name that `{` opens here, if a `}` closes it.
fn leading_name(text: &str) -> Option<&str> {
    let end = text.find('}')?;
    let name = &text[..end];
    let is_name =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit());
    is_name.then_some(name)
}

/// Splits a command as a shell would (quotes, no expansion).
///
/// Definitions of whole options (`{dump}`) are split too; placeholders inside quotes stay one word.
pub fn words_of(command: &str, fill: &Fill) -> anyhow::Result<Vec<String>> {
    let filled = fill.apply(command)?;
    let words = shell_words::split(&filled).with_context(|| format!("cannot split `{filled}` into words"))?;
    if words.is_empty() {
        bail!("the command is empty");
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill() -> Fill {
        let mut fill = Fill::default();
        fill.set("port", "33002".into());
        fill.set("plain", "port {port}".into());
        fill.set("loop", "{loop}".into());
        fill
    }

    #[test]
    fn a_quoted_filter_stays_one_word() {
        let words = words_of("tcpdump -w - '{plain}'", &fill()).unwrap();
        assert_eq!(words, ["tcpdump", "-w", "-", "port 33002"]);
    }

    #[test]
    fn braces_of_other_languages_are_left_alone() {
        let text = "probe { printf(\"%d\", {port}); }";
        assert_eq!(fill().apply(text).unwrap(), "probe { printf(\"%d\", 33002); }");
    }

    #[test]
    fn an_unknown_name_and_a_circle_are_errors() {
        assert!(fill().apply("{nobody}").unwrap_err().to_string().contains("plain, port"));
        assert!(fill().apply("{loop}").unwrap_err().to_string().contains("by itself"));
        assert!(words_of("sleep 'open", &fill()).is_err());
    }
}
