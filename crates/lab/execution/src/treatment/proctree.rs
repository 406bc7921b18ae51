//! CPU time and memory of a treatment's processes.
//!
//! CPU time comes from each process's own CPU clock (nanoseconds, all threads, ended ones too).
//! `/proc/PID/stat` has only 10 ms ticks.

use nix::time::ClockId;
use nix::unistd::Pid;
use toll_sys::process;

/// CPU time of a process so far, microseconds; 0 once it is gone.
pub fn cpu_of_process_us(pid: u32) -> u64 {
    let Ok(pid) = i32::try_from(pid) else { return 0 };
    ClockId::pid_cpu_clock_id(Pid::from_raw(pid))
        .and_then(ClockId::now)
        .map_or(0, |t| t.tv_sec() as u64 * 1_000_000 + t.tv_nsec() as u64 / 1000)
}

/// CPU time of all living processes of a process group, microseconds.
pub fn cpu_of_group_us(pgid: i32) -> u64 {
    process::list_group_pids(pgid)
        .into_iter()
        .filter_map(|pid| u32::try_from(pid).ok())
        .map(cpu_of_process_us)
        .sum()
}

/// A process and all that descend from it, leaves last.
pub fn list_descendants(pid: u32) -> Vec<u32> {
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() && found.len() < 1024 {
        let parent = found[next];
        let path = format!("/proc/{parent}/task/{parent}/children");
        let text = std::fs::read_to_string(path).unwrap_or_default();
        found.extend(text.split_ascii_whitespace().filter_map(|p| p.parse::<u32>().ok()));
        next += 1;
    }
    found
}

/// Resident memory of a process, bytes.
pub fn resident_bytes(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap_or_default();
    let pages: u64 = text.split_ascii_whitespace().nth(1).and_then(|v| v.parse().ok()).unwrap_or(0);
    pages * 4096
}
