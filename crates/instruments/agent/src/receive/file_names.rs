//! Names of files that streams are written to: host, time and number, and a mark beside some.

use std::path::{Path, PathBuf};

pub const QUERIES: &str = "queries";
/// A name of a host in the name of a file has no more letters.
const MAX_HOST_NAME: usize = 64;

/// The host of a file that was made here: `HOST-YYYYMMDD-HHMMSS.queries`, or `...-2.queries`; `None`: another file.
pub fn host_of_file(name: &str) -> Option<&str> {
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let stem = name.strip_suffix(".queries").filter(|_| !name.starts_with('.'))?;
    let (mut rest, mut time) = stem.rsplit_once('-')?;
    if is_number(time) && time.len() < 6 {
        (rest, time) = rest.rsplit_once('-')?;
    }
    let (host, date) = rest.rsplit_once('-')?;
    let is_ours = is_number(time) && time.len() == 6 && is_number(date) && date.len() == 8;
    (is_ours && !host.is_empty()).then_some(host)
}

/// Files of a host in the order in which they were begun.
pub fn place_in_order(name: &str) -> (&str, u32) {
    let stem = name.strip_suffix(".queries").unwrap_or(name);
    let numbered = stem.rsplit_once('-').filter(|(_, number)| number.len() < 6);
    let number = numbered.and_then(|(stem, number)| Some((stem, number.parse().ok()?)));
    number.unwrap_or((stem, 1))
}

/// An empty file that marks one which goes on from another receiver's: what is missing before it is not known.
pub fn elsewhere_mark(path: &Path) -> PathBuf {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    path.with_file_name(format!(".{name}.elsewhere"))
}

pub fn goes_on_from_elsewhere(path: &Path) -> bool {
    elsewhere_mark(path).exists()
}

/// Letters, digits and `._-` of a host's name, never one that hides the file.
pub fn file_name(host: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = host.chars().take(MAX_HOST_NAME).map(plain).collect();
    match name.trim_start_matches(['.', '-']) {
        "" => "host".into(),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_host_and_order_and_never_hides_its_file() {
        assert_eq!([".hidden", "-w", "", "db1"].map(file_name), ["hidden", "w", "host", "db1"]);
        let hosts = [
            "db-1-20231114-221320.queries",
            "db1-20231114-221320-2.queries",
            "notes.queries",
            "db1-20231114-221320.pcapng",
            "-20231114-221320.queries",
            "db1-20231114-2213.queries",
        ]
        .map(host_of_file);
        assert_eq!(hosts, [Some("db-1"), Some("db1"), None, None, None, None]);
        let mut names = [
            "db1-20231114-221321.queries",
            "db1-20231114-221320-10.queries",
            "db1-20231114-221320-2.queries",
            "db1-20231114-221320.queries",
        ];
        names.sort_by_key(|name| place_in_order(name));
        let parts = names.map(place_in_order);
        let begun = "db1-20231114-221320";
        assert_eq!(parts, [(begun, 1), (begun, 2), (begun, 10), ("db1-20231114-221321", 1)]);
    }
}
