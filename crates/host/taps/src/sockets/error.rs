//! Errors of the socket tap, with the missing privilege or feature. Text only; changes nothing.

use super::btf::BtfError;
use std::io;
use thiserror::Error;

#[derive(Debug, Error)]
pub enum TapError {
    #[error("cannot {what}: the kernel does not permit it{why}")]
    NotPermitted { what: &'static str, why: String },
    #[error("cannot {what}: {source}")]
    Failed { what: &'static str, source: io::Error },
    /// The verifier said no.
    #[error("the kernel refuses the program {program}: {source}; {why}")]
    Rejected { program: &'static str, why: String, source: io::Error },
    #[error("{0}")]
    Unsupported(String),
    #[error("cannot read {path}: {source}")]
    Unreadable { path: String, source: io::Error },
    #[error("cannot use the kernel's type information in {path}: {source}")]
    BadBtf { path: String, source: BtfError },
    #[error("there is no process {0}: look for the server's with pidof mariadbd mysqld")]
    NoProcess(u32),
    #[error(
        "process {pid} listens on nothing where queries may come in{others}: name the server's process or its port"
    )]
    DoesNotListen { pid: u32, others: String },
    #[error("process {pid} (the server) has ended")]
    Ended { pid: u32 },
}

impl TapError {
    /// What the kernel answered, with what is missing where that was no.
    pub fn from_kernel(what: &'static str, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => TapError::NotPermitted { what, why: missing_capabilities() },
            _ => TapError::Failed { what, source },
        }
    }
}

/// Rights that this takes, with their numbers in capabilities(7).
const CAPABILITIES: [(&str, u32); 3] = [("cap_bpf", 39), ("cap_perfmon", 38), ("cap_sys_ptrace", 19)];
const ADMIN: u32 = 21;

fn missing_capabilities() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    describe_missing(&read("/proc/self/status"), &read("/sys/kernel/security/lockdown"))
}

/// From a process's own status and the lockdown that the kernel names.
fn describe_missing(status: &str, lockdown: &str) -> String {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or_default();
    let has = |bit: u32| effective & 1 << bit != 0;
    // For the first two, the right to administer the system does as well.
    let missing = CAPABILITIES.iter().filter(|(_, bit)| !has(*bit) && (*bit == 19 || !has(ADMIN)));
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    if !missing.is_empty() {
        let names = missing.join(", ");
        return format!(" ({names} missing): run as root, or give the binary {names}");
    }
    let locked = lockdown.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    match locked {
        Some(mode) if mode != "none" => format!(" (the kernel is locked down: {mode})"),
        _ => ", though no right is missing: a container's seccomp profile or a security module may forbid bpf()".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_and_what_is_there_is_not() {
        let status = |bits: &[u32]| {
            format!("Name:\ttoll\nCapEff:\t{:016x}\n", bits.iter().fold(0u64, |all, bit| all | 1 << bit))
        };
        assert_eq!(
            describe_missing(&status(&[]), ""),
            " (cap_bpf, cap_perfmon, cap_sys_ptrace missing): run as root, or give the binary cap_bpf, cap_perfmon, cap_sys_ptrace"
        );
        assert_eq!(
            describe_missing(&status(&[39, 19]), ""),
            " (cap_perfmon missing): run as root, or give the binary cap_perfmon"
        );
        assert_eq!(
            describe_missing(&status(&[ADMIN, 19]), "none [integrity] confidentiality\n"),
            " (the kernel is locked down: integrity)"
        );
        assert!(
            describe_missing(&status(&[38, 39, 19]), "[none] integrity confidentiality\n")
                .contains("seccomp")
        );
    }
}
