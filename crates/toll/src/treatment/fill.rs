//! What do `{port}`, `{artefact}` and the scenario's own definitions stand for?
//!
//! Definitions are text of the scenario and are split into words as such; values (a path, a port) are put
//! in afterwards and never split, whatever blanks and quotes they hold.

use crate::scenario::Define;
use crate::secrets;
use anyhow::{Context, bail};
use std::collections::BTreeMap;

/// Names that toll itself fills in, and what each is.
pub const BUILT_IN: [(&str, &str); 15] = [
    ("artefact", "the file that the arm writes; with the key `artefact`"),
    ("client_defaults", "an option file with user and password, for --defaults-file"),
    ("datadir", "the server's data directory"),
    ("duration_s", "seconds that a tool must last at least; more than settle and window"),
    ("link_device", "the device at either end of the rig's link"),
    ("link_receive", "the network namespace of its receiving end"),
    ("link_send", "the network namespace of its sending end"),
    ("pid", "the server's process, if it is on this host"),
    ("port", "the server's port"),
    ("remote_ip", "the far end; with the key `remote_port`"),
    ("remote_port", "its port; with the key `remote_port`"),
    ("schema", "the schema of the load's tables"),
    ("server_bin", "the server's program"),
    ("socket", "the server's socket"),
    ("toll", "toll itself"),
];

/// Those of them that only a server gives.
pub const OF_SERVER: [&str; 7] =
    ["client_defaults", "datadir", "pid", "port", "schema", "server_bin", "socket"];

/// Values for `{name}` in commands and settings.
#[derive(Debug, Clone, Default)]
pub struct Fill {
    definitions: BTreeMap<String, String>,
    values: BTreeMap<String, String>,
}

/// Definitions may use others, this deep.
const DEPTH: usize = 8;

impl Fill {
    /// Takes the scenario's definitions, those by flavour for `flavour`.
    pub fn new(define: &BTreeMap<String, Define>, flavour: &str) -> Self {
        let mut fill = Self::default();
        fill.define(define, flavour);
        fill
    }

    /// Adds the scenario's definitions.
    pub fn define(&mut self, define: &BTreeMap<String, Define>, flavour: &str) {
        for (name, value) in define {
            let text = match value {
                Define::Text(text) => Some(text),
                Define::ByFlavour(by) => by.get(flavour),
            };
            if let Some(text) = text {
                self.definitions.insert(name.clone(), text.clone());
            }
        }
    }

    /// A value: stays as it is, and one word, wherever it is put in.
    pub fn set(&mut self, name: &str, value: String) {
        self.values.insert(name.to_owned(), value);
    }

    /// Replaces every `{name}`; `{{name}}` stands for `{name}` itself, and braces around anything but a name
    /// are left as they are.
    pub fn apply(&self, text: &str) -> anyhow::Result<String> {
        self.apply_to_depth(text, DEPTH)
    }

    fn apply_to_depth(&self, text: &str, depth: usize) -> anyhow::Result<String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (before, from) = rest.split_at(open);
            out.push_str(before);
            if let Some(name) = from.strip_prefix("{{").and_then(leading_name)
                && from[name.len() + 3..].starts_with('}')
            {
                out.push_str(&from[1..name.len() + 3]);
                rest = &from[name.len() + 4..];
                continue;
            }
            let Some(name) = leading_name(&from[1..]) else {
                out.push('{');
                rest = &from[1..];
                continue;
            };
            if let Some(value) = self.values.get(name) {
                out.push_str(value);
            } else if let Some(text) = self.definitions.get(name) {
                out.push_str(&self.apply_to_depth(text, deeper(name, depth)?)?);
            } else {
                let known: Vec<_> =
                    self.definitions.keys().chain(self.values.keys()).map(String::as_str).collect();
                bail!(
                    "nothing is known as {{{name}}} here: known are {}; {{{{{name}}}}} stands for the braces themselves",
                    known.join(", ")
                );
            }
            rest = &from[name.len() + 2..];
        }
        out.push_str(rest);
        Ok(out)
    }

    /// The words of a command; a bare word that is a definition becomes that definition's words.
    fn words_to_depth(&self, command: &str, depth: usize) -> anyhow::Result<Vec<String>> {
        let mut words = Vec::new();
        for written in written_words(command) {
            let name = written.strip_prefix('{').and_then(leading_name);
            let bare = name.filter(|name| written.len() == name.len() + 2);
            if let Some((name, text)) = bare.and_then(|name| self.definitions.get_key_value(name)) {
                words.extend(self.words_to_depth(text, deeper(name, depth)?)?);
                continue;
            }
            let unquoted = shell_words::split(written).with_context(|| {
                format!("a quote is not closed in `{}`: close it", secrets::hide(command))
            })?;
            for word in unquoted {
                words.push(self.apply_to_depth(&word, depth)?);
            }
        }
        Ok(words)
    }
}

fn deeper(name: &str, depth: usize) -> anyhow::Result<usize> {
    depth.checked_sub(1).with_context(|| format!("{{{name}}} is defined by itself"))
}

/// The name that `{` opens here, if a `}` closes it.
fn leading_name(text: &str) -> Option<&str> {
    let end = text.find('}')?;
    let name = &text[..end];
    is_name(name).then_some(name)
}

/// Whether `{name}` is a placeholder.
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
}

/// The words of a command as written, each with its quotes; comments are left out.
fn written_words(command: &str) -> Vec<&str> {
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

/// Splits a command as a shell would (quotes, no expansion), and fills each word in.
pub fn words_of(command: &str, fill: &Fill) -> anyhow::Result<Vec<String>> {
    let words = fill.words_to_depth(command, DEPTH)?;
    if words.is_empty() {
        bail!("the command is empty");
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill() -> Fill {
        let define = [
            ("plain", "port {port}"),
            ("dump", "tcpdump -s 0 {which}"),
            ("which", "-i 'any one'"),
            ("loop", "{loop}"),
        ];
        let define = define.map(|(name, text)| (name.to_owned(), Define::Text(text.to_owned())));
        let mut fill = Fill::new(&BTreeMap::from(define), "mariadb");
        fill.set("port", "33002".into());
        fill.set("artefact", "/r/my \"odd' {run}/a.pcap".into());
        fill
    }

    #[test]
    fn a_quoted_filter_stays_one_word() {
        let words = words_of("tcpdump -w - '{plain}'", &fill()).unwrap();
        assert_eq!(words, ["tcpdump", "-w", "-", "port 33002"]);
        let words =
            words_of(r#"bpftrace -e 'probe:{artefact} { printf("%d\n", {port}); }' "#, &fill()).unwrap();
        let script = "probe:/r/my \"odd' {run}/a.pcap { printf(\"%d\\n\", 33002); }";
        assert_eq!(words, ["bpftrace", "-e", script]);
    }

    #[test]
    fn a_value_is_put_in_as_it_is_and_never_split() {
        let words = words_of("tee {artefact} --to={artefact} x", &fill()).unwrap();
        let path = "/r/my \"odd' {run}/a.pcap";
        assert_eq!(words, ["tee", path, &format!("--to={path}"), "x"]);
    }

    #[test]
    fn a_definition_that_stands_alone_becomes_its_own_words() {
        let words = words_of("{dump} -w x \"{which}\" --{plain}", &fill()).unwrap();
        let expected = ["tcpdump", "-s", "0", "-i", "any one", "-w", "x", "-i 'any one'", "--port 33002"];
        assert_eq!(words, expected);
    }

    #[test]
    fn braces_of_other_languages_are_left_alone() {
        let text = "probe { printf(\"%d\", {port}); }";
        assert_eq!(fill().apply(text).unwrap(), "probe { printf(\"%d\", 33002); }");
        assert_eq!(
            fill().apply("awk '{{print}}' ${{x}} {{} {{port}").unwrap(),
            "awk '{print}' ${x} {{} {33002"
        );
    }

    #[test]
    fn words_are_split_where_a_shell_splits_them() {
        for command in ["a 'b c'd \"e \\\" f\" g\\ h", "x # all 'this\ny", "a#b \"\" ''", " \t\n"] {
            let expected = shell_words::split(command).unwrap();
            let words: Vec<String> = written_words(command)
                .into_iter()
                .flat_map(|word| shell_words::split(word).unwrap())
                .collect();
            assert_eq!(words, expected, "{command}");
        }
    }

    #[test]
    fn an_unknown_name_and_a_circle_are_errors() {
        assert!(fill().apply("{nobody}").unwrap_err().to_string().contains("plain, which, artefact, port"));
        assert!(fill().apply("{loop}").unwrap_err().to_string().contains("by itself"));
        assert!(words_of("{loop}", &fill()).unwrap_err().to_string().contains("by itself"));
        let open = format!("{:#}", words_of("sleep 'open", &fill()).unwrap_err());
        assert!(open.contains("quote is not closed in `sleep 'open`"), "{open}");
        assert!(words_of(" # nothing", &fill()).is_err());
    }
}
