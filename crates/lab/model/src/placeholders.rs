//! Expansion of placeholders (`{port}`, `{artefact}`) and of the scenario's own definitions.
//!
//! Definitions are text of the scenario and are split into words. Values (a path, a port) are filled in
//! afterwards.
//!
//! # Invariants
//! A value is never split into words, whatever blanks and quotes it holds.

use crate::scenario::Define;
use anyhow::{Context, bail};
use std::collections::{BTreeMap, BTreeSet};
use toll_sys::redact;

/// Names of the placeholders that toll fills in, each with its description.
pub const BUILT_IN_PLACEHOLDERS: [(&str, &str); 23] = [
    ("artefact", "the file that the arm writes; with the key `artefact`"),
    ("client_defaults", "an option file with user and password, for --defaults-file"),
    ("copy", "the number of the copy, from 1; in `process`"),
    ("datadir", "the server's data directory"),
    ("duration_s", "seconds that a tool must last at least; more than settle and window"),
    ("far_ip", "the rig's far end, for what streams there by itself"),
    ("link_device", "the device at either end of the rig's link"),
    ("link_receive", "the network namespace of its receiving end"),
    ("link_send", "the network namespace of its sending end"),
    ("near_ip", "the sandbox as the rig's far end reaches it; with `far`"),
    ("packets", "the directory with the rig's synthetic captures: http.pcap and the like"),
    ("pid", "the server's process, if it is on this host"),
    ("port", "the server's port"),
    ("receiver_key", "the key file of its receiver, for `toll receive`; with the rig's far end"),
    ("remote_ip", "the far end; with the key `remote_port`"),
    ("remote_port", "its port; with the key `remote_port`"),
    ("schema", "the schema of the load's tables"),
    ("server_bin", "the server's program"),
    ("socket", "the server's socket"),
    ("ssh_compressed_port", "a port on 127.0.0.1 that leads to the server through the rig's ssh -C"),
    ("ssh_port", "a port on 127.0.0.1 that leads to the server through the rig's ssh"),
    ("stream_key", "a sender's key file for `toll capture --stream`; with the rig's far end"),
    ("toll", "toll itself"),
];

/// Placeholders that have a value only if there is a server.
pub const SERVER_PLACEHOLDERS: [&str; 10] = [
    "client_defaults",
    "datadir",
    "near_ip",
    "pid",
    "port",
    "schema",
    "server_bin",
    "socket",
    "ssh_compressed_port",
    "ssh_port",
];

/// Placeholders that each trial fills in for itself.
pub const PER_TRIAL_PLACEHOLDERS: [&str; 4] = ["artefact", "duration_s", "remote_ip", "remote_port"];

/// The scenario's definitions for one server flavour, and the names that will get values.
///
/// The expanded text holds no definition any more. `{port}` and the like, and `{{name}}`, stay for [`PlaceholderValues`].
#[derive(Debug, Clone)]
pub struct Definitions {
    texts: BTreeMap<String, String>,
    values: BTreeSet<&'static str>,
}

/// Deepest nesting of definitions within definitions.
const MAX_DEPTH: usize = 8;

impl Definitions {
    /// Resolves the scenario's definitions for `flavour`.
    pub fn new(define: &BTreeMap<String, Define>, flavour: &str) -> Self {
        let text = |value: &Define| match value {
            Define::Text(text) => Some(text.clone()),
            Define::ByFlavour(by) => by.get(flavour).cloned(),
        };
        Self {
            texts: define.iter().filter_map(|(name, value)| Some((name.clone(), text(value)?))).collect(),
            values: BUILT_IN_PLACEHOLDERS.iter().map(|(name, _)| *name).collect(),
        }
    }

    pub fn define(&mut self, name: &str, text: String) {
        self.texts.insert(name.to_owned(), text);
    }

    /// Removes a name: it will get no value.
    pub fn remove_value(&mut self, value: &str) {
        self.values.remove(value);
    }

    /// Replaces every definition. Braces around anything but a name stay as they are.
    ///
    /// # Errors
    /// A name is unknown, or a definition refers to itself.
    pub fn expand(&self, text: &str) -> anyhow::Result<String> {
        self.expand_to_depth(text, MAX_DEPTH)
    }

    fn expand_to_depth(&self, text: &str, depth: usize) -> anyhow::Result<String> {
        replace_placeholders(
            text,
            |name| {
                if let Some(text) = self.texts.get(name) {
                    return self.expand_to_depth(text, next_depth(name, depth)?);
                }
                if self.values.contains(name) {
                    return Ok(format!("{{{name}}}"));
                }
                let known: Vec<_> =
                    self.texts.keys().map(String::as_str).chain(self.values.iter().copied()).collect();
                Err(unknown_placeholder_error(name, &known))
            },
            |name| format!("{{{{{name}}}}}"),
        )
    }

    /// Splits a command as a shell would (quotes, no expansion). A bare word that is a definition becomes
    /// that definition's words.
    ///
    /// # Errors
    /// A name is unknown, a definition refers to itself, or a quote does not close.
    pub fn split_command(&self, command: &str) -> anyhow::Result<Vec<String>> {
        let words = self.split_to_depth(command, MAX_DEPTH)?;
        if words.is_empty() {
            bail!("the command is empty");
        }
        Ok(words)
    }

    fn split_to_depth(&self, command: &str, depth: usize) -> anyhow::Result<Vec<String>> {
        let mut words = Vec::new();
        for written in split_raw_words(command) {
            let name = written.strip_prefix('{').and_then(parse_leading_name);
            let bare = name.filter(|name| written.len() == name.len() + 2);
            if let Some((name, text)) = bare.and_then(|name| self.texts.get_key_value(name)) {
                words.extend(self.split_to_depth(text, next_depth(name, depth)?)?);
                continue;
            }
            let unquoted = shell_words::split(written).with_context(|| {
                format!("a quote is not closed in `{}`: close it", redact::redact_text(command))
            })?;
            for word in unquoted {
                words.push(self.expand_to_depth(&word, depth)?);
            }
        }
        Ok(words)
    }
}

/// Values for `{name}` in words and settings. A value is inserted unchanged and stays one word.
#[derive(Debug, Clone, Default)]
pub struct PlaceholderValues {
    values: BTreeMap<String, String>,
}

impl PlaceholderValues {
    pub fn set(&mut self, name: &str, value: String) {
        self.values.insert(name.to_owned(), value);
    }

    /// Replaces every `{name}`; `{{name}}` becomes `{name}` itself.
    ///
    /// # Errors
    /// A name has no value.
    pub fn fill_in(&self, text: &str) -> anyhow::Result<String> {
        let value = |name: &str| {
            let known = || self.values.keys().map(String::as_str).collect::<Vec<_>>();
            self.values.get(name).cloned().ok_or_else(|| unknown_placeholder_error(name, &known()))
        };
        replace_placeholders(text, value, |name| format!("{{{name}}}"))
    }
}

fn unknown_placeholder_error(name: &str, known: &[&str]) -> anyhow::Error {
    anyhow::anyhow!(
        "unknown placeholder {{{name}}}: use {}; write {{{{{name}}}}} for literal braces",
        known.join(", ")
    )
}

/// `text` with `value(name)` for each `{name}` and `escaped(name)` for each `{{name}}`.
fn replace_placeholders(
    text: &str,
    value: impl Fn(&str) -> anyhow::Result<String>,
    escaped: impl Fn(&str) -> String,
) -> anyhow::Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        let (before, from) = rest.split_at(open);
        out.push_str(before);
        if let Some(name) = from.strip_prefix("{{").and_then(parse_leading_name)
            && from[name.len() + 3..].starts_with('}')
        {
            out.push_str(&escaped(name));
            rest = &from[name.len() + 4..];
            continue;
        }
        let Some(name) = parse_leading_name(&from[1..]) else {
            out.push('{');
            rest = &from[1..];
            continue;
        };
        out.push_str(&value(name)?);
        rest = &from[name.len() + 2..];
    }
    out.push_str(rest);
    Ok(out)
}

fn next_depth(name: &str, depth: usize) -> anyhow::Result<usize> {
    depth.checked_sub(1).with_context(|| format!("{{{name}}} is defined by itself"))
}

/// The name that `{` opens here, if a `}` closes it.
fn parse_leading_name(text: &str) -> Option<&str> {
    let end = text.find('}')?;
    let name = &text[..end];
    is_placeholder_name(name).then_some(name)
}

/// True if `{name}` is a placeholder: lower-case letters, digits and underscores.
pub fn is_placeholder_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
}

/// The words of a command as written, each with its quotes; comments are left out.
fn split_raw_words(command: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut begin = None;
    let mut quote = None;
    let mut chars = command.char_indices();
    while let Some((at, c)) = chars.next() {
        match quote {
            Some('"') if c == '\\' => {
                chars.next();
            }
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c.is_ascii_whitespace() => {
                words.extend(begin.take().map(|begin| &command[begin..at]));
            }
            None if c == '#' && begin.is_none() => {
                chars.by_ref().find(|(_, c)| *c == '\n');
            }
            None => {
                begin.get_or_insert(at);
                match c {
                    '\\' => {
                        chars.next();
                    }
                    '\'' | '"' => quote = Some(c),
                    _ => {}
                }
            }
        }
    }
    words.extend(begin.map(|begin| &command[begin..]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definitions() -> Definitions {
        let define = [
            ("plain", "port {port}"),
            ("dump", "tcpdump -s 0 {which}"),
            ("which", "-i 'any one'"),
            ("loop", "{loop}"),
        ];
        let define = define.map(|(name, text)| (name.to_owned(), Define::Text(text.to_owned())));
        Definitions::new(&BTreeMap::from(define), "mariadb")
    }

    fn fill() -> PlaceholderValues {
        let mut placeholders = PlaceholderValues::default();
        placeholders.set("port", "33002".into());
        placeholders.set("socket", "/s".into());
        placeholders.set("artefact", "/r/my \"odd' {run}/a.pcap".into());
        placeholders
    }

    fn expand_and_fill(command: &str) -> Vec<String> {
        let words = definitions().split_command(command).unwrap();
        words.iter().map(|word| fill().fill_in(word).unwrap()).collect()
    }

    #[test]
    fn a_quoted_filter_stays_one_word() {
        assert_eq!(expand_and_fill("tcpdump -w - '{plain}'"), ["tcpdump", "-w", "-", "port 33002"]);
        let words = expand_and_fill(r#"bpftrace -e 'probe:{artefact} { printf("%d\n", {port}); }' "#);
        let script = "probe:/r/my \"odd' {run}/a.pcap { printf(\"%d\\n\", 33002); }";
        assert_eq!(words, ["bpftrace", "-e", script]);
    }

    #[test]
    fn a_value_is_put_in_as_it_is_and_never_split() {
        let path = "/r/my \"odd' {run}/a.pcap";
        let expected = ["tee", path, &format!("--to={path}"), "x"];
        assert_eq!(expand_and_fill("tee {artefact} --to={artefact} x"), expected);
    }

    #[test]
    fn a_definition_that_stands_alone_becomes_its_own_words() {
        let expected = ["tcpdump", "-s", "0", "-i", "any one", "-w", "x", "-i 'any one'", "--port 33002"];
        assert_eq!(expand_and_fill("{dump} -w x \"{which}\" --{plain}"), expected);
    }

    #[test]
    fn braces_of_other_languages_are_left_alone() {
        let both = |text: &str| fill().fill_in(&definitions().expand(text).unwrap()).unwrap();
        assert_eq!(both("probe { printf(\"%d\", {port}); }"), "probe { printf(\"%d\", 33002); }");
        assert_eq!(
            both("awk '{{print}}' ${{x}} {{} {{port}} {{plain}}"),
            "awk '{print}' ${x} {{} {port} {plain}"
        );
    }

    #[test]
    fn words_are_split_where_a_shell_splits_them() {
        for command in ["a 'b c'd \"e \\\" f\" g\\ h", "x # all 'this\ny", "a#b \"\" ''", " \t\n"] {
            let expected = shell_words::split(command).unwrap();
            let words: Vec<String> = split_raw_words(command)
                .into_iter()
                .flat_map(|word| shell_words::split(word).unwrap())
                .collect();
            assert_eq!(words, expected, "{command}");
        }
    }

    #[test]
    fn an_unknown_name_and_a_circle_are_errors() {
        let said = |text: &str| definitions().expand(text).unwrap_err().to_string();
        assert!(said("{nobody}").contains("which, artefact, client_defaults, copy"), "{}", said("{nobody}"));
        assert!(said("{loop}").contains("by itself"));
        assert!(fill().fill_in("{pid}").unwrap_err().to_string().contains("use artefact, port, socket;"));
        let words = |command: &str| format!("{:#}", definitions().split_command(command).unwrap_err());
        assert!(words("{loop}").contains("by itself"));
        assert!(words("sleep 'open").contains("quote is not closed in `sleep 'open`"));
        assert!(words(" # nothing").contains("empty"));
    }
}
