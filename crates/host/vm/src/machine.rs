//! A running machine: its start, its console, its end.

use crate::boot;
use crate::console::{ConsoleLine, LineSplitter};
use crate::kit::Kit;
use anyhow::{Context, Result, anyhow};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;
use rustix::fs::{MemfdFlags, memfd_create};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{PipeReader, Read, Write, pipe};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toll_journal::{Journal, Undo, UndoId};
use toll_sys::child_process::clean_env_command;
use toll_sys::cpu::TICK_US;
use toll_sys::process::{ProcessId, RUN_ID_VARIABLE};
use toll_sys::{clock, read_trimmed};

/// Lines that wait for the caller; beyond them the machine waits, and its clock with it.
const MAX_QUEUED_LINES: usize = 1_000;
/// Lines that an error message repeats.
const LAST_LINES: usize = 40;
/// All that QEMU can emulate, but for what would make counts less like a real CPU's work: with `erms` and `fsrm` programs
/// and kernel copy and clear by a string instruction that counts once a byte (a real CPU moves 32 bytes a cycle by it:
/// `tcpdump -w` came out at twice its work), and `la57` adds a level to each page walk that few hosts have.
const CPU: &str = "max,-erms,-fsrm,-la57";
/// What a machine draws from where a host has chance.
const SEED: &str = "1";
/// No addresses by chance, no work on behalf of other machines' secrets or hangs; a panic ends the machine.
const KERNEL_LINE: &str = "console=ttyS0,115200 quiet panic=1 mitigations=off nokaslr norandmaps nowatchdog \
                           random.trust_cpu=on rdinit=/init";

pub struct MachineSpec<'a> {
    /// For messages and the journal: "virtual machine 1".
    pub name: String,
    pub memory_bytes: u64,
    /// Directory that the machine may write; mounted at the same absolute path inside.
    pub shared_dir: &'a Path,
    /// Program and arguments, run as root in the machine; its standard output and error are the machine's console.
    pub command: Vec<String>,
    /// Working directory inside.
    pub dir: PathBuf,
    /// Variables of the command, besides `PATH`, `HOME` and `TERM`, which have values unless they are given.
    pub env: Vec<(String, String)>,
}

/// A machine that was started. It ends when this is dropped, and with this process, however that ends.
#[derive(Debug)]
pub struct Machine<'a> {
    name: String,
    child: Child,
    leader: ProcessId,
    journal: &'a Journal,
    entry: UndoId,
    /// `None`: nobody listens any more.
    lines: Option<Receiver<String>>,
    reader: Option<JoinHandle<()>>,
    last_lines: VecDeque<String>,
    status: Option<i32>,
    /// CPU seconds of QEMU once it was reaped.
    used_s: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MachineEvent {
    Line(String),
    /// From now on every event is this one.
    Ended(MachineEnd),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineEnd {
    /// Exit status of the command. `None`: the machine ended before the command did.
    pub status: Option<i32>,
    /// Last lines of the console, for an error message.
    pub console: Vec<String>,
}

impl<'a> Machine<'a> {
    /// Returns once QEMU runs; the command begins some 6 s of CPU time later.
    pub fn start(kit: &Kit, spec: &MachineSpec<'_>, journal: &'a Journal) -> Result<Self> {
        let name = &spec.name;
        let script = boot::machine_script(spec, &kit.tools.busybox, kit.kernel_version(), &kit.modules())?;
        let (console, output) = pipe().with_context(|| format!("cannot start {name}"))?;
        let mut command = emulator_command(kit, spec)?;
        command
            .env(RUN_ID_VARIABLE, journal.run_id())
            .process_group(0)
            .stdin(in_memory(&[&kit.base_archive, &boot::machine_archive(&script)])?)
            .stdout(output.try_clone()?)
            .stderr(output);
        let (queue, lines) = sync_channel(MAX_QUEUED_LINES);
        let (started, start) = sync_channel(1);
        // QEMU ends with the thread that started it (`prctl(2)`, PR_SET_PDEATHSIG): this one lives as long as it.
        let reader = std::thread::Builder::new()
            .name("console".into())
            .spawn(move || {
                let spawned = command.spawn();
                // Its copies of the pipe's end would keep the console open.
                drop(command);
                let is_started = spawned.is_ok();
                if started.send(spawned).is_ok() && is_started {
                    read_console(console, &queue);
                }
            })
            .with_context(|| format!("cannot start {name}: no thread for its console"))?;
        let mut child = start
            .recv()
            .map_err(|_| anyhow!("its thread has ended"))
            .and_then(|spawned| Ok(spawned?))
            .with_context(|| format!("cannot start {name}: cannot run {}", kit.tools.setpriv.display()))?;
        let recorded = ProcessId::from_pid(child.id() as i32).map_err(Into::into).and_then(|leader| {
            let change = Undo::ProcessGroup {
                leader,
                what: name.clone(),
                // It has nothing to put in order.
                signal: Some("SIGKILL".to_owned()),
                grace_ms: 1_000,
            };
            Ok((leader, journal.record(change)?))
        });
        let (leader, entry) = match recorded {
            Ok(recorded) => recorded,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error);
            }
        };
        Ok(Self {
            name: name.clone(),
            child,
            leader,
            journal,
            entry,
            lines: Some(lines),
            reader: Some(reader),
            last_lines: VecDeque::new(),
            status: None,
            used_s: None,
        })
    }

    /// Next console line (kernel messages included), or the end. `None`: nothing within `wait`.
    pub fn next_event(&mut self, wait: Duration) -> Option<MachineEvent> {
        let begun = Instant::now();
        while let Some(lines) = &self.lines {
            match lines.recv_timeout(wait.saturating_sub(begun.elapsed())) {
                Ok(line) => {
                    if let Some(text) = self.take_line(line) {
                        return Some(MachineEvent::Line(text));
                    }
                }
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => {
                    self.kill();
                    self.lines = None;
                }
            }
        }
        let console = self.last_lines.iter().cloned().collect();
        Some(MachineEvent::Ended(MachineEnd { status: self.status, console }))
    }

    /// `None`: nothing for the caller.
    fn take_line(&mut self, line: String) -> Option<String> {
        if self.status.is_some() {
            // How the kernel turns the machine off.
            return None;
        }
        let text = match ConsoleLine::parse(&line) {
            ConsoleLine::Text(_) => line,
            ConsoleLine::Status(status, before) => {
                self.status = Some(status);
                if before.is_empty() {
                    return None;
                }
                before.to_owned()
            }
        };
        if self.last_lines.len() == LAST_LINES {
            self.last_lines.pop_front();
        }
        self.last_lines.push_back(text.clone());
        Some(text)
    }

    /// Ends the machine now, if it has not ended. Lines that it has written can still be read.
    pub fn kill(&mut self) {
        if self.used_s.is_some() {
            return;
        }
        // A child that was not reaped; where it has ended already, nothing happens.
        let _ = self.child.kill();
        // Ended and not reaped yet, it still says what it used.
        let _ = waitid(Id::Pid(Pid::from_raw(self.leader.pid)), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        self.used_s = Some(read_cpu_s(self.leader.pid).unwrap_or_default());
        let _ = self.child.wait();
        if let Err(error) = self.journal.mark_done(self.entry) {
            tracing::warn!("{} has ended, and the journal does not know: {error:#}", self.name);
        }
    }

    /// CPU seconds QEMU used so far.
    pub fn cpu_s(&self) -> f64 {
        self.used_s.or_else(|| read_cpu_s(self.leader.pid)).unwrap_or_default()
    }
}

impl Drop for Machine<'_> {
    fn drop(&mut self) {
        self.kill();
        // A reader that waits for room in the queue goes on and ends.
        self.lines = None;
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

fn emulator_command(kit: &Kit, spec: &MachineSpec<'_>) -> Result<Command> {
    let shared = spec.shared_dir.canonicalize().with_context(|| {
        format!("{} cannot share {}: make that directory", spec.name, spec.shared_dir.display())
    })?;
    let shared = shared.to_str().context("the path of the shared directory is not UTF-8: move it")?;
    let mut command = clean_env_command(&kit.tools.setpriv);
    command.args(["--pdeathsig", "KILL", "--"]).arg(&kit.tools.qemu);
    // One CPU that executes an instruction a nanosecond. While it has none to execute, its clock follows the host's:
    // with `sleep=off` it goes to the next timer at once, and a read of a file, which waits for the host, took seconds
    // of that clock on a quiet host and minutes on a busy one.
    command.args(["-accel", "tcg", "-icount", "shift=0,sleep=on", "-cpu", CPU, "-smp", "1"]);
    command.args(["-m", &format!("{}M", spec.memory_bytes >> 20)]);
    command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    command.args(["-serial", "file:/dev/stdout", "-seed", SEED]);
    command.args(["-rtc", &format!("base={}T00:00:00,clock=vm", utc_date(clock::wall_us() / 1_000_000))]);
    command.arg("-kernel").arg(kit.image());
    command.args(["-initrd", "/dev/stdin", "-append", KERNEL_LINE]);
    // Inode numbers of different file systems of the host would collide.
    command.args(["-virtfs", &share("/", "root", "readonly=on,multidevs=remap")]);
    command.args(["-virtfs", &share(shared, "out", "multidevs=remap")]);
    Ok(command)
}

/// Option of QEMU, in which a comma of a path is doubled.
fn share(path: &str, tag: &str, more: &str) -> String {
    format!("local,path={},mount_tag={tag},security_model=none,{more}", path.replace(',', ",,"))
}

/// A file that is on no disk and has no name.
fn in_memory(parts: &[&[u8]]) -> Result<File> {
    let made = || -> std::io::Result<File> {
        let mut file = File::from(memfd_create("initrd", MemfdFlags::CLOEXEC)?);
        parts.iter().try_for_each(|part| file.write_all(part))?;
        Ok(file)
    };
    made().context("no memory for the first root of a virtual machine: end other programs")
}

/// `2026-11-25`, by Howard Hinnant's `civil_from_days`.
fn utc_date(unix_s: u64) -> String {
    // Days since 1 March of the year 0.
    let days = unix_s / 86_400 + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Until the machine has ended, or nobody listens.
fn read_console(mut console: PipeReader, queue: &SyncSender<String>) {
    let (mut splitter, mut buffer) = (LineSplitter::default(), [0; 4096]);
    let mut is_heard = true;
    while is_heard {
        let Ok(count @ 1..) = console.read(&mut buffer) else { break };
        splitter.push(&buffer[..count], |line| is_heard &= queue.send(line).is_ok());
    }
    if let Some(line) = splitter.finish() {
        let _ = queue.send(line);
    }
}

/// User and system time of a process of ours. `None`: it was reaped.
fn read_cpu_s(pid: i32) -> Option<f64> {
    let stat = read_trimmed(&format!("/proc/{pid}/stat"));
    // The name may hold spaces and parentheses. Fields 14 and 15 of `proc(5)`; 3 is the first after it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut ticks = fields.split_whitespace().skip(11).map_while(|field| field.parse::<u64>().ok());
    Some(((ticks.next()? + ticks.next()?) * TICK_US) as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, date) in
            [(0, "1970-01-01"), (11_016, "2000-02-29"), (11_017, "2000-03-01"), (20_782, "2026-11-25")]
        {
            assert_eq!(utc_date(days * 86_400), date);
            assert_eq!(utc_date(days * 86_400 + 86_399), date);
        }
    }

    #[test]
    fn a_comma_in_a_path_begins_no_other_option() {
        assert!(share("/a,b", "out", "x=y").starts_with("local,path=/a,,b,mount_tag=out,"));
    }

    #[test]
    fn cpu_time_is_that_of_the_process() {
        // Some, so that nothing and something differ.
        while clock::process_cpu_us() < 100_000 {}
        let before = clock::process_cpu_us() as f64 / 1e6;
        let own = read_cpu_s(std::process::id() as i32).unwrap();
        let after = clock::process_cpu_us() as f64 / 1e6;
        let tick = TICK_US as f64 / 1e6;
        assert!(before - 2.0 * tick <= own && own <= after + tick, "{own} s of {before} to {after} s");
        assert_eq!(read_cpu_s(i32::MAX), None);
    }
}
