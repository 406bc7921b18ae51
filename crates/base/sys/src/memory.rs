//! Memory of the host and memory available to a new server.
//!
//! Reads /proc and cgroup limits. Never allocates memory to find out.

/// Total memory of the machine, bytes.
pub fn total_bytes() -> u64 {
    meminfo("MemTotal:").unwrap_or(0)
}

/// Memory that a new process can use without swapping, bytes, or the control group's headroom if that is
/// less.
pub fn available_bytes() -> u64 {
    let machine = meminfo("MemAvailable:").unwrap_or(0);
    match cgroup_room() {
        Some(room) => machine.min(room),
        None => machine,
    }
}

/// Dirty pages and pages under writeback, bytes.
pub fn unwritten_bytes() -> u64 {
    meminfo("Dirty:").unwrap_or(0) + meminfo("Writeback:").unwrap_or(0)
}

fn meminfo(field: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    parse_meminfo(&text, field)
}

/// A field of /proc/meminfo in bytes; the file writes `kB` and means KiB.
pub fn parse_meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line[field.len()..].trim().split(' ').next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Limit minus usage in the cgroup v2 hierarchy, bytes; `None` without a limit.
fn cgroup_room() -> Option<u64> {
    let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let dir = format!("/sys/fs/cgroup{path}");
    let limit: u64 = std::fs::read_to_string(format!("{dir}/memory.max")).ok()?.trim().parse().ok()?;
    let used: u64 = std::fs::read_to_string(format!("{dir}/memory.current")).ok()?.trim().parse().ok()?;
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kibibytes_become_bytes_and_a_missing_field_is_none() {
        let text = "MemTotal:       24604036 kB\nMemAvailable:   23988112 kB\n";
        assert_eq!(parse_meminfo(text, "MemAvailable:"), Some(23_988_112 * 1024));
        assert_eq!(parse_meminfo(text, "Dirty:"), None);
    }
}
