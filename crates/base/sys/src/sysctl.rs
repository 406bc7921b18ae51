//! Access to kernel settings (sysctl): read, write, and the write that restores the old value.

use anyhow::{Context, ensure};
use std::path::{Path, PathBuf};

const PROC_SYS: &str = "/proc/sys";
/// Pairs of settings of which one is in effect and the other is 0. Writing the one in effect restores both.
const EXCLUSIVE_PAIRS: [[&str; 2]; 2] =
    [["vm.dirty_bytes", "vm.dirty_ratio"], ["vm.dirty_background_bytes", "vm.dirty_background_ratio"]];

/// Path of a setting under /proc/sys. `None` if `name` is invalid: valid are words of letters, digits, `_`
/// and `-`, joined by dots.
pub fn path(name: &str) -> Option<PathBuf> {
    let is_letter = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(is_letter);
    (name.contains('.') && name.split('.').all(is_word))
        .then(|| Path::new(PROC_SYS).join(name.replace('.', "/")))
}

/// # Errors
/// No such setting, or it is not for this user.
pub fn read(name: &str) -> anyhow::Result<String> {
    let path = path(name).with_context(|| format!("{name:?} is not a valid sysctl name"))?;
    let value = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(value.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

/// # Errors
/// The same, or the kernel refuses the value.
pub fn write(name: &str, value: &str) -> anyhow::Result<()> {
    let path = path(name).with_context(|| format!("{name:?} is not a valid sysctl name"))?;
    std::fs::write(&path, value).with_context(|| format!("cannot set {name} to {value}"))?;
    let found = read(name)?;
    ensure!(found == value, "the kernel took {name}={value} for {found}");
    Ok(())
}

/// Name and value that restore the present state.
///
/// # Errors
/// As of [`read`].
pub fn snapshot(name: &str) -> anyhow::Result<(String, String)> {
    let value = read(name)?;
    let pair = EXCLUSIVE_PAIRS.iter().find(|pair| pair.contains(&name) && value == "0");
    match pair.and_then(|pair| pair.iter().find(|other| **other != name)) {
        Some(other) => Ok(((*other).to_owned(), read(other)?)),
        None => Ok((name.to_owned(), value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_setting_has_a_place_and_its_way_back_may_be_another_one() {
        assert_eq!(path("vm.dirty_bytes").unwrap(), Path::new("/proc/sys/vm/dirty_bytes"));
        assert!(path("fs.aio-max-nr").is_some());
        for odd in ["vm", "vm.", "../x", "vm./etc/passwd", "vm.dirty bytes", ""] {
            assert_eq!(path(odd), None, "{odd}");
        }
        let [of_bytes, of_ratio] = ["vm.dirty_bytes", "vm.dirty_ratio"].map(|name| snapshot(name).unwrap());
        assert_eq!(of_bytes, of_ratio, "the one that holds brings both back");
        assert_eq!(read(&of_bytes.0).unwrap(), of_bytes.1);
        assert_ne!(of_bytes.1, "0");
        assert!(read("vm.no_such_setting").unwrap_err().to_string().contains("/proc/sys/vm/no_such_setting"));
    }
}
