//! Process identity by pid and start time, and orderly termination of processes and process groups.
//!
//! A pid alone does not identify a process: the kernel reuses it. Pid and start time within one boot do.
//! Reads /proc.
//!
//! # Invariants
//! Never sends a signal to a process before its identity was checked.

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::io;
use std::time::{Duration, Instant};

/// Environment variable of every process that toll starts; its value is the run id. It identifies an orphan
/// even if toll died between the fork and the journal entry.
pub const RUN_ID_VARIABLE: &str = "TOLL_RUN";

/// Identity of a process of this boot. A later process with the same pid has another identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// Field 22 of /proc/PID/stat: clock ticks after boot.
    pub start_ticks: u64,
}

impl ProcessId {
    /// Fails when there is no such process.
    pub fn from_pid(pid: i32) -> io::Result<Self> {
        Ok(Self { pid, start_ticks: Stat::read(pid)?.start_ticks })
    }

    pub fn current() -> io::Result<Self> {
        Self::from_pid(Pid::this().as_raw())
    }

    /// A zombie has ended: all that is left of it is an exit code.
    pub fn is_alive(&self) -> bool {
        Stat::read(self.pid).is_ok_and(|s| s.start_ticks == self.start_ticks && !s.has_ended())
    }
}

/// The fields of /proc/PID/stat that decide whose a process is.
#[derive(Debug, Clone, Copy)]
struct Stat {
    state: u8,
    parent: i32,
    group: i32,
    flags: u64,
    start_ticks: u64,
}

impl Stat {
    fn read(pid: i32) -> io::Result<Self> {
        let text = std::fs::read(format!("/proc/{pid}/stat"))?;
        Self::parse(&text).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat is not understood")))
    }

    /// The name in parentheses may itself hold spaces and parentheses: fields count from the last `)`.
    fn parse(text: &[u8]) -> Option<Self> {
        let after_name = text.iter().rposition(|&b| b == b')')? + 1;
        let fields = std::str::from_utf8(&text[after_name..]).ok()?;
        let mut fields = fields.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        let group = fields.next()?.parse().ok()?;
        let flags = fields.nth(3)?.parse().ok()?;
        let start_ticks = fields.nth(12)?.parse().ok()?;
        Some(Self { state, parent, group, flags, start_ticks })
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X')
    }
}

/// This boot's id; pids and start times of another boot mean nothing.
pub fn boot_id() -> String {
    crate::read_trimmed("/proc/sys/kernel/random/boot_id")
}

/// PID namespace of this process; empty if it cannot be read.
pub fn pid_namespace() -> String {
    std::fs::read_link("/proc/self/ns/pid")
        .map(|link| link.to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Living processes whose environment carries `TOLL_RUN=run_id`, other than this one and the
/// members of the groups that `except` leads.
pub fn find_by_run_id(run_id: &str, except: &[ProcessId]) -> Vec<ProcessId> {
    find_by_run_id_until(run_id, except, Instant::now() + EXEC_TIMEOUT)
}

fn find_by_run_id_until(run_id: &str, except: &[ProcessId], deadline: Instant) -> Vec<ProcessId> {
    let wanted = format!("{RUN_ID_VARIABLE}={run_id}");
    let own = Pid::this().as_raw();
    list_processes()
        .filter(|(id, stat)| id.pid != own && !except.iter().any(|leader| leader.pid == stat.group))
        .filter(|(id, _)| has_environment_entry(id.pid, wanted.as_bytes(), deadline))
        .map(|(id, _)| id)
        .collect()
}

/// Running members of the process group of `leader`. If the leader has ended, only members with the run's
/// marker count.
pub fn find_group_members(leader: ProcessId, run_id: &str) -> Vec<ProcessId> {
    find_group_members_until(leader, run_id, Instant::now() + EXEC_TIMEOUT)
}

fn find_group_members_until(leader: ProcessId, run_id: &str, deadline: Instant) -> Vec<ProcessId> {
    let wanted = format!("{RUN_ID_VARIABLE}={run_id}");
    let led = leader.is_alive();
    list_processes()
        .filter(|(_, stat)| stat.group == leader.pid)
        .filter(|(id, _)| led || has_environment_entry(id.pid, wanted.as_bytes(), deadline))
        .map(|(id, _)| id)
        .collect()
}

/// Living processes of a group, whoever started them.
pub fn list_group_pids(group: i32) -> Vec<i32> {
    list_processes().filter(|(_, stat)| stat.group == group).map(|(id, _)| id.pid).collect()
}

/// True if a running process of the group is in uninterruptible sleep, where no signal reaches it.
pub fn is_uninterruptible(group: i32) -> bool {
    list_processes().any(|(_, stat)| stat.group == group && stat.state == b'D')
}

fn list_processes() -> impl Iterator<Item = (ProcessId, Stat)> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = Stat::read(pid).ok()?;
        (!stat.has_ended()).then_some((ProcessId { pid, start_ticks: stat.start_ticks }, stat))
    })
}

/// Waits for a process that has just been forked, until the deadline of the whole search: a process can look like that for as
/// long as it lives, and there may be many.
fn has_environment_entry(pid: i32, wanted: &[u8], deadline: Instant) -> bool {
    loop {
        let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
        if !environment.is_empty() || !is_in_execve(pid) || Instant::now() >= deadline {
            return environment.split(|&b| b == 0).any(|variable| variable == wanted);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Longest time between fork and execve on a host with busy CPUs.
const EXEC_TIMEOUT: Duration = Duration::from_secs(5);
/// `PF_FORKNOEXEC` of linux/sched.h: forked, and no program of its own yet.
const PF_FORKNOEXEC: u64 = 0x40;

/// True inside execve: arguments and environment of the new program are not readable yet.
fn is_in_execve(pid: i32) -> bool {
    // Without a program: of the kernel.
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.is_empty())
        && std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// Waits until each process that a killed toll had just forked has executed its program: before that it has
/// no marker. Ignores processes of a toll that is still running.
pub fn wait_for_pending_execs() {
    let program = |pid: i32| {
        let path = std::fs::read_link(format!("/proc/{pid}/exe")).ok()?;
        let name = path.file_name()?.to_str()?;
        // Replaced since.
        Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
    };
    let Some(own) = program(Pid::this().as_raw()) else { return };
    let is_toll = |pid: i32| program(pid).is_some_and(|name| name == own);
    let is_unborn = |(id, stat): (ProcessId, Stat)| {
        stat.flags & PF_FORKNOEXEC != 0 && is_toll(id.pid) && !is_toll(stat.parent)
    };
    let begun = Instant::now();
    while list_processes().any(is_unborn) && begun.elapsed() < EXEC_TIMEOUT {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// How a process (or group) came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Termination {
    /// There was nothing left to end.
    AlreadyExited,
    /// The process ended after this signal.
    Signalled(Signal),
    /// The process ignored the other signals and was killed.
    Killed,
    /// It is still there (stuck in the kernel).
    Stuck,
}

impl std::fmt::Display for Termination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AlreadyExited => write!(f, "had already exited"),
            Self::Signalled(signal) => write!(f, "ended by {signal}"),
            Self::Killed => write!(f, "killed: it ignored the earlier signals"),
            Self::Stuck => write!(f, "still there after SIGKILL (stuck in the kernel)"),
        }
    }
}

/// Ends a process group: `first`, then TERM, then KILL, each given `grace`. Returns when none of
/// its members lives. A leader that is a child of ours is reaped by whoever holds its `Child`.
#[allow(clippy::disallowed_methods)] // the members are compared by their start times
pub fn terminate_group(leader: ProcessId, run_id: &str, first: Signal, grace: Duration) -> Termination {
    let deadline = Instant::now() + EXEC_TIMEOUT;
    terminate(
        first,
        grace,
        || find_group_members_until(leader, run_id, deadline),
        |signal| {
            // Only while a member was just seen: the number of an empty group may be handed out again.
            killpg(Pid::from_raw(leader.pid), signal)?;
            // A stopped process handles no signal but KILL until it continues.
            killpg(Pid::from_raw(leader.pid), Signal::SIGCONT)
        },
    )
}

/// Time that the living threads of a process, ready to run, have waited for a CPU, microseconds. `None`: the process is gone, or the
/// kernel does not count it.
pub fn run_queue_wait_us(pid: u32) -> Option<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let waits = tasks.flatten().filter_map(|task| {
        // Nanoseconds on a CPU, nanoseconds of waiting, stretches.
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().nth(1)?.parse::<u64>().ok()
    });
    let (count, sum) = waits.fold((0u32, 0), |(count, sum), ns| (count + 1, sum + ns));
    (count > 0).then_some(sum / 1_000)
}

/// Ends every process of [`find_by_run_id`].
pub fn terminate_by_run_id(run_id: &str, except: &[ProcessId], grace: Duration) -> Termination {
    let deadline = Instant::now() + EXEC_TIMEOUT;
    let members = || find_by_run_id_until(run_id, except, deadline);
    terminate(Signal::SIGTERM, grace, members, |signal| {
        for process in members() {
            send_signal(process, signal)?;
        }
        Ok(())
    })
}

/// Sends a signal to this process, and never to a later one with its pid. One that has ended gets none.
fn send_signal(process: ProcessId, signal: Signal) -> Result<(), Errno> {
    let handle = rustix::process::Pid::from_raw(process.pid)
        .map(|pid| pidfd_open(pid, PidfdFlags::empty()))
        .transpose();
    match handle {
        // Looked at once it is held: the handle stays this process's, whoever has the pid.
        Ok(Some(handle)) if process.is_alive() => {
            let number = rustix::process::Signal::from_named_raw(signal as i32).ok_or(Errno::EINVAL)?;
            pidfd_send_signal(handle, number).map_err(|error| Errno::from_raw(error.raw_os_error()))
        }
        // Before Linux 5.3.
        Err(rustix::io::Errno::NOSYS) if process.is_alive() => {
            #[allow(clippy::disallowed_methods)] // compared by its start time a moment ago
            kill(Pid::from_raw(process.pid), signal)
        }
        _ => Ok(()),
    }
}

fn terminate(
    first: Signal,
    grace: Duration,
    members: impl Fn() -> Vec<ProcessId>,
    send: impl Fn(Signal) -> Result<(), Errno>,
) -> Termination {
    if members().is_empty() {
        return Termination::AlreadyExited;
    }
    // The kernel needs time to tear down a large address space even after SIGKILL.
    let last = grace.max(Duration::from_secs(10));
    let steps = [(first, grace), (Signal::SIGTERM, grace), (Signal::SIGKILL, last)];
    let gone_within = |patience: Duration| {
        let asked = Instant::now();
        loop {
            if members().is_empty() {
                return true;
            }
            if asked.elapsed() >= patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    // Gone between the look and the signal: the next look says so.
    let send = |signal| {
        let _ = send(signal);
    };
    match escalate(&steps, send, gone_within) {
        (_, false) => Termination::Stuck,
        (Some(Signal::SIGKILL), true) => Termination::Killed,
        (signal, true) => Termination::Signalled(signal.unwrap_or(first)),
    }
}

/// The only function that terminates processes: sends each signal in turn and waits for its timeout. Returns
/// the last signal sent, and true if the processes are gone.
pub fn escalate(
    steps: &[(Signal, Duration)],
    mut send: impl FnMut(Signal),
    mut gone_within: impl FnMut(Duration) -> bool,
) -> (Option<Signal>, bool) {
    for &(signal, patience) in steps {
        send(signal);
        if gone_within(patience) {
            return (Some(signal), true);
        }
    }
    (steps.last().map(|step| step.0), steps.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let stat = b"42 (a) b (c) S 1 7 7 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 9876 0 0";
        let stat = Stat::parse(stat).expect("parsed");
        assert_eq!((stat.state, stat.parent, stat.group), (b'S', 1, 7));
        assert_eq!((stat.flags, stat.start_ticks), (4194560, 9876));
    }

    #[test]
    fn another_start_time_is_another_process() {
        let own = ProcessId::current().expect("own process");
        assert!(own.is_alive());
        assert!(!ProcessId { start_ticks: own.start_ticks + 1, ..own }.is_alive());
    }

    #[test]
    fn a_signal_reaches_this_process_and_never_another_with_its_pid() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("started");
        let real = ProcessId::from_pid(child.id() as i32).expect("running");
        let earlier = ProcessId { start_ticks: real.start_ticks - 1, ..real };
        send_signal(earlier, Signal::SIGKILL).expect("nobody to send it to");
        assert!(real.is_alive());
        send_signal(real, Signal::SIGKILL).expect("sent");
        child.wait().expect("ended");
        send_signal(real, Signal::SIGKILL).expect("gone");
    }

    #[test]
    fn what_a_killed_toll_had_forked_is_waited_for_until_it_is_a_program() {
        use std::io::{BufRead, BufReader};
        use std::os::unix::process::CommandExt;

        let scratch = tempfile::tempdir().expect("scratch directory");
        // By its name, a toll.
        let toll = scratch.path().join(std::env::current_exe().expect("path").file_name().expect("name"));
        // Not by this process: what a test beside this one forks would keep the copy open for writing.
        let copied = std::process::Command::new("cp").arg("/usr/bin/perl").arg(&toll).status();
        assert!(copied.expect("cp runs").success());
        let script = r#"$| = 1; if ($pid = fork) { print "$pid\n"; sleep 60 }
            else { select undef, undef, undef, 0.7; exec "sleep", "60" }"#;
        let mut killed = std::process::Command::new(&toll)
            .args(["-e", script])
            .process_group(0)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        BufReader::new(killed.stdout.take().expect("piped")).read_line(&mut line).expect("a pid");
        let forked: i32 = line.trim().parse().expect("a pid");
        killed.kill().expect("killed");
        killed.wait().expect("waited for");

        wait_for_pending_execs();
        // A program already, its words not yet there: whoever looks for its mark waits for them.
        let begun = Instant::now();
        while is_in_execve(forked) && begun.elapsed() < EXEC_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let words = std::fs::read(format!("/proc/{forked}/cmdline")).expect("still there");
        kill(Pid::from_raw(forked), Signal::SIGKILL).expect("killed");
        assert_eq!(words, b"sleep\x0060\0");
    }
}
