//! Parser of MySQL and MariaDB option files (`my.cnf`).
//!
//! Follows mysys/my_default.c: comments, quotes, escapes, `!include` and `!includedir`. Knows no meaning of
//! an option.

use crate::error::TargetError;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The sections that a client reads: `mysql --help` and `mariadb --help` name them.
const SECTIONS: [&str; 5] = ["client", "client-server", "client-mariadb", "mysql", "mariadb-client"];
/// As deep as the clients follow files that include files.
const MAX_INCLUDE_DEPTH: usize = 10;
const WRITABLE_BY_ALL: u32 = 0o002;

/// An option of a section that clients read. `port` alone has no value, `port=` an empty one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub key: String,
    pub value: Option<String>,
    /// The line as it stands there.
    pub text: String,
    file: PathBuf,
    line: usize,
}

impl Entry {
    /// The option's name. `loose-` only says that a program that does not know it goes on.
    pub fn name(&self) -> &str {
        self.key.strip_prefix("loose-").unwrap_or(&self.key)
    }

    /// True or false if this entry switches the option `name` on or off: `x`, `x=1`, `enable-x`, `skip-x`.
    pub fn switch(&self, name: &str) -> Option<Result<bool, TargetError>> {
        let value = self.value.as_deref().unwrap_or_default();
        let invalid =
            || Err(self.error_at_entry(&format!("{value:?} is no value of {}: write 1 or 0", self.key)));
        if self.name() == name {
            return Some(match value.to_ascii_lowercase().as_str() {
                "" | "1" | "on" | "true" => Ok(true),
                "0" | "off" | "false" => Ok(false),
                _ => invalid(),
            });
        }
        let (word, rest) = self.name().split_once('-')?;
        if rest != name {
            return None;
        }
        let on = match word {
            "enable" => true,
            "skip" | "disable" => false,
            _ => return None,
        };
        Some(if value.is_empty() { Ok(on) } else { invalid() })
    }

    /// Error about this entry, with its position.
    pub fn error_at_entry(&self, reason: &str) -> TargetError {
        error_at_line(&self.file, self.line, reason)
    }
}

/// Options in the order in which they count: a later one overrules an earlier one. Fails where no
/// section is for clients, because such a file would mean root on this host.
pub fn read(path: &Path) -> Result<Vec<Entry>, TargetError> {
    let mut file = OptionFile { entries: Vec::new(), has_client_section: false };
    file.read_file(path, 0)?;
    if !file.has_client_section {
        return Err(TargetError::NoClientSection { path: path.display().to_string() });
    }
    Ok(file.entries)
}

struct OptionFile {
    entries: Vec<Entry>,
    /// There was a section that clients read.
    has_client_section: bool,
}

fn error_at_line(path: &Path, line: usize, reason: &str) -> TargetError {
    TargetError::InvalidOptionFile { path: path.display().to_string(), line, reason: reason.into() }
}

impl OptionFile {
    fn read_file(&mut self, path: &Path, depth: usize) -> Result<(), TargetError> {
        let unreadable =
            |reason: String| TargetError::Unreadable { path: path.display().to_string(), reason };
        let mode = match std::fs::metadata(path) {
            // As the clients: what is included need not be there.
            Err(e) if depth > 0 && e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(unreadable(e.to_string())),
            Ok(found) => found.is_file().then(|| found.permissions().mode()),
        };
        // The clients leave such a file out, and then connect as somebody else.
        if mode.is_some_and(|mode| mode & WRITABLE_BY_ALL != 0) {
            return Err(unreadable("anybody may write to it: chmod o-w".into()));
        }
        let bytes = std::fs::read(path).map_err(|e| unreadable(e.to_string()))?;
        // None: before the first section.
        let mut ours = None;
        for (index, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let number = index + 1;
            let text = String::from_utf8_lossy(line);
            let text = text.trim_start_matches(is_space);
            if text.is_empty() || text.starts_with(['#', ';']) {
                continue;
            }
            if let Some(directive) = text.strip_prefix('!') {
                if depth >= MAX_INCLUDE_DEPTH {
                    return Err(error_at_line(
                        path,
                        number,
                        "files are included too deep: do they include each other?",
                    ));
                }
                self.include(directive.trim_matches(is_space), depth)
                    .map_err(|reason| reason.at_line(path, number))?;
                continue;
            }
            if let Some(section) = text.strip_prefix('[') {
                let (name, _) = section
                    .split_once(']')
                    .ok_or_else(|| error_at_line(path, number, "a section needs its closing ]"))?;
                let of_clients = SECTIONS.contains(&name.trim_end_matches(is_space));
                self.has_client_section |= of_clients;
                ours = Some(of_clients);
                continue;
            }
            match ours {
                None => {
                    return Err(error_at_line(
                        path,
                        number,
                        "an option needs a section before it: write [client] above",
                    ));
                }
                Some(false) => {}
                Some(true) => {
                    if std::str::from_utf8(line).is_err() {
                        return Err(error_at_line(path, number, "it is not UTF-8: save the file as UTF-8"));
                    }
                    let (key, value) = parse_option(text);
                    let text = text.trim_end_matches(is_space).to_owned();
                    self.entries.push(Entry { key, value, text, file: path.into(), line: number });
                }
            }
        }
        Ok(())
    }

    fn include(&mut self, directive: &str, depth: usize) -> Result<(), IncludeError> {
        let words =
            directive.split_once(is_space).map(|(word, what)| (word, what.trim_start_matches(is_space)));
        match words {
            Some(("include", file)) => {
                self.read_file(Path::new(file), depth + 1).map_err(IncludeError::Failed)
            }
            Some(("includedir", directory)) => {
                let failed = |e: std::io::Error| IncludeError::Bad(format!("cannot read {directory} ({e})"));
                let found = std::fs::read_dir(directory).map_err(failed)?;
                let found: Result<Vec<PathBuf>, _> =
                    found.map(|entry| entry.map(|entry| entry.path())).collect();
                let mut files = found.map_err(failed)?;
                files.retain(|file| file.to_string_lossy().ends_with(".cnf"));
                files.sort();
                files
                    .iter()
                    .try_for_each(|file| self.read_file(file, depth + 1))
                    .map_err(IncludeError::Failed)
            }
            _ => Err(IncludeError::Bad("after ! comes include FILE or includedir DIRECTORY".into())),
        }
    }
}

/// Why nothing was included.
enum IncludeError {
    Bad(String),
    Failed(TargetError),
}

impl IncludeError {
    fn at_line(self, path: &Path, line: usize) -> TargetError {
        match self {
            Self::Bad(reason) => error_at_line(path, line, &reason),
            Self::Failed(error) => error,
        }
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

/// Key and value of a line, its comment cut off.
fn parse_option(line: &str) -> (String, Option<String>) {
    let line = strip_comment(line);
    let (key, value) = match line.split_once('=') {
        Some((key, value)) => (key, Some(unescape(unquote(value.trim_matches(is_space))))),
        None => (line, None),
    };
    (key.trim_end_matches(is_space).replace('_', "-"), value)
}

/// A # begins a comment wherever it stands, but within quotes; a quote that is not closed protects
/// the rest of the line.
fn strip_comment(line: &str) -> &str {
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in line.char_indices() {
        match (quote, c) {
            (None, '#') => return &line[..at],
            (None, '\'' | '"') if !escaped => quote = Some(c),
            (Some(open), _) if c == open && !escaped => quote = None,
            _ => {}
        }
        escaped = quote.is_some() && c == '\\' && !escaped;
    }
    line
}

fn unquote(value: &str) -> &str {
    let between = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    between('"').or_else(|| between('\'')).unwrap_or(value)
}

fn unescape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        match (c, if c == '\\' { rest.next() } else { None }) {
            ('\\', Some('n')) => text.push('\n'),
            ('\\', Some('t')) => text.push('\t'),
            ('\\', Some('r')) => text.push('\r'),
            ('\\', Some('b')) => text.push('\u{8}'),
            ('\\', Some('s')) => text.push(' '),
            ('\\', Some(c @ ('"' | '\'' | '\\'))) => text.push(c),
            ('\\', Some(other)) => text.extend(['\\', other]),
            (c, _) => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Odd in each way that the clients' own reader knows; `DIR` is where the files are.
    const ODD: [&str; 18] = [
        "[client]\nuser = app\npassword=\"a#b\"\nsocket=/tmp/s\n",
        "[client]\nuser=app # the application\npassword=a#b\n",
        "[client]\npassword='a # b' # c\nhost = \"two words\"\n",
        "[client]\npassword=it's#1\nuser=\"open # end\n",
        "[client]\npassword=a\\sb\\tc\\\\d\\\"e\\xf\nuser='q\\'u'\n",
        "[client]\npassword=\"a\\\"#b\" # c\n",
        "\t[client]\n\t user\t=\tapp\t\r\n  password =  x y  \r\n",
        "[client] # comment\nuser=a\n; user=b\n#user=c\n  ; user=d\n",
        "[client ]\nuser=a\n[ client]\nuser=b\n",
        "[mysqld]\nuser=mysql\nport=1\n[client]\nport=2\n[mysql]\nuser=m\n[client]\nport=3\n",
        "[client-mariadb]\nuser=a\n[client-server]\nport=7\n[mariadb-client]\nuser=b\n[mysqldump]\nuser=c\n",
        "[client]\npassword\nuser=\nport = \nssl\nssl_ca=/x_y\n",
        "[client]\npassword=\"\"\nuser='\nhost=\"a'\n",
        "[client]\npassword=a=b=c\nuser==x\n",
        "[client]\nuser=a\\\npassword=\"tail\\\\\"\n",
        "!include DIR/included\n[client]\nport=5\n",
        "[client]\nuser=first\n!includedir DIR/dir\nuser=last\n!include DIR/missing\n",
        "[client]\n\n\nuser=ä\u{df}\npassword=p\u{e4}ss\n",
    ];

    /// What the clients' own reader makes of a file.
    fn oracle(file: &Path) -> Option<Vec<String>> {
        let found = Command::new("my_print_defaults")
            .arg(format!("--defaults-file={}", file.display()))
            .args(SECTIONS)
            .output()
            .ok()?;
        assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
        Some(String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect())
    }

    fn as_printed(entries: &[Entry]) -> Vec<String> {
        let line = |e: &Entry| match &e.value {
            Some(value) => format!("--{}={value}", e.key),
            None => format!("--{}", e.key),
        };
        entries.iter().map(line).collect()
    }

    #[test]
    fn odd_files_say_to_toll_what_they_say_to_the_clients() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("dir")).unwrap();
        std::fs::write(at("included"), "[client]\nuser=included\n[mysqld]\nport=9\n").unwrap();
        for (name, user) in [("b.cnf", "b"), ("a.cnf", "a"), ("c.cnf.bak", "c"), (".hidden.cnf", "h")] {
            std::fs::write(at("dir").join(name), format!("[client]\nuser={user}\n")).unwrap();
        }
        for text in ODD {
            let file = at("my.cnf");
            std::fs::write(&file, text.replace("DIR", &dir.path().display().to_string())).unwrap();
            let read = as_printed(&read(&file).unwrap_or_else(|e| panic!("{e}: {text}")));
            let Some(expected) = oracle(&file) else {
                toll_testkit::skip!("my_print_defaults is missing: apt-get install mariadb-client");
                return;
            };
            let dashes = |lines: Vec<String>| lines.iter().map(|l| l.replace('_', "-")).collect::<Vec<_>>();
            assert_eq!(dashes(read), dashes(expected), "{text}");
        }
    }

    #[test]
    fn a_file_that_says_nothing_to_a_client_is_refused_with_what_to_write() {
        let dir = tempfile::tempdir().unwrap();
        let said = |text: &str| {
            let file = dir.path().join("my.cnf");
            std::fs::write(&file, text).unwrap();
            read(&file).unwrap_err().to_string()
        };
        for text in ["", "# nothing\n", "[mysqld]\nuser=mysql\n", "[mysqldump]\nuser=d\n"] {
            let said = said(text);
            assert!(said.contains("[client]") && said.contains("user="), "{said}");
        }
        let before = said("user=app\n[client]\n");
        assert!(before.contains("line 1") && before.contains("[client]"), "{before}");
        assert!(said("[client\nuser=a\n").contains("closing ]"));
        assert!(said("!includedir /no/such/directory\n").contains("/no/such/directory"));
        let itself = said(&format!("!include {}\n", dir.path().join("my.cnf").display()));
        assert!(itself.contains("include each other"), "{itself}");
        let open = dir.path().join("open.cnf");
        std::fs::write(&open, "[client]\n").unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read(&open).unwrap_err().to_string().contains("chmod o-w"));
    }
}
