//! Process group of a treatment: started, polled and always ended.

use super::pause::PausableLoad;
use super::tool_output::parse_packet_counts;
use super::usage::{OutputMeter, Usage, WriteSample};
use super::{TreatmentContext, cgroup_entry, proctree};
use anyhow::{Context, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::time::TimeVal;
use nix::unistd::Pid;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use toll_journal::{Journal, UndoId};
use toll_record::{PacketCounts, ProcessEnd};
use toll_sys::cancel::CancelToken;
use toll_sys::process::{self, RUN_ID_VARIABLE};
use toll_sys::program::find_program;
use toll_sys::{cgroup, clock, redact};

/// One or more processes joined by pipes, in a process group of their own.
#[derive(Debug)]
pub struct ProcessGroup {
    name: String,
    children: Vec<Child>,
    /// Exit status of each process, as far as known.
    statuses: Vec<Option<ExitStatus>>,
    pgid: i32,
    stderr: PathBuf,
    stdout: Option<PathBuf>,
    stop: Signal,
    undo: Option<UndoId>,
    cancel: CancelToken,
    begun_us: u64,
    /// Time at which its last process was found to have ended, microseconds.
    ended_us: Option<u64>,
    usage: Usage,
    output: OutputMeter,
    last_poll: Option<Instant>,
    /// Counters of its control group, once it has ended.
    figures: cgroup::ResourceUsage,
    /// Control group, if one can be made; else the process group is all there is.
    cgroup: Option<PathBuf>,
    /// All groups that a process enters: this one and the limiting ones.
    entered_cgroups: Vec<PathBuf>,
    /// CPU time of ended processes and their children, microseconds. Only a parent can read it.
    ended_cpu_us: u64,
    /// Secrets of the command line, to be redacted.
    secrets: Vec<String>,
}

/// Location of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessHost {
    Local,
    /// At the far end of a link, which represents another host.
    FarEnd,
}

/// Report on the end of a group: signals that it needed, and leftovers.
#[derive(Debug, Default)]
pub struct StopReport {
    name: String,
    escalated_to: Option<Signal>,
    waited: Duration,
    survived: bool,
    /// Processes that had left the group.
    strays: usize,
}

/// Time limit after each signal; then the next one is sent.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(4);
/// Time limit for a process that waits inside the kernel: it has received the signal. Killed there, it would
/// lose the end of its file.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit after KILL. Only a process stuck in the kernel is left then.
const KILL_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for draining. A capture of tens of megabytes a second has written its ring long before.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between polls of the processes.
const POLL_EVERY: Duration = Duration::from_millis(100);
/// Most bytes of a tool's output that are read back.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;
/// Time limit for a tool to print its counters.
const PROBE_TIMEOUT: Duration = Duration::from_millis(150);

/// The kernel's name of a scenario's signal.
pub fn to_signal(signal: toll_record::Signal) -> Signal {
    match signal {
        toll_record::Signal::Int => Signal::SIGINT,
        toll_record::Signal::Term => Signal::SIGTERM,
        toll_record::Signal::Kill => Signal::SIGKILL,
        toll_record::Signal::Usr1 => Signal::SIGUSR1,
    }
}

impl ProcessGroup {
    /// Starts `stages` as a pipeline, with the last output to `stdout`.
    ///
    /// `env` names the variables of toll's own environment that are passed on.
    pub fn spawn(
        stages: &[Vec<String>],
        stdout: Option<&Path>,
        stop: Signal,
        stem: &str,
        env: &[String],
        place: ProcessHost,
        context: &TreatmentContext<'_>,
    ) -> anyhow::Result<Self> {
        let stderr = context.dir.join(format!("{stem}.stderr"));
        let errors = File::create(&stderr).with_context(|| format!("cannot write {}", stderr.display()))?;
        let mut group = Self {
            name: stages[0][0].clone(),
            children: Vec::new(),
            statuses: Vec::new(),
            pgid: 0,
            stderr,
            stdout: stdout.map(Path::to_owned),
            stop,
            undo: None,
            cancel: context.cancel.clone(),
            begun_us: clock::mono_us(),
            ended_us: None,
            usage: Usage::default(),
            output: OutputMeter::default(),
            last_poll: None,
            figures: cgroup::ResourceUsage::default(),
            entered_cgroups: Vec::new(),
            cgroup: context.cgroup.map(|run| cgroup_entry::create_cgroup(run, stem)).transpose()?,
            ended_cpu_us: 0,
            secrets: stages.iter().flat_map(|words| redact::find_secrets(words)).collect(),
        };
        // What runs at the far end would not take of this host's.
        let limits = if place == ProcessHost::Local { context.limits } else { &[] };
        group.entered_cgroups = limits.iter().chain(&group.cgroup).cloned().collect();
        let mut input = Stdio::null();
        for (i, words) in stages.iter().enumerate() {
            let last = i + 1 == stages.len();
            let ready = || -> anyhow::Result<Command> {
                let output = match (last, stdout) {
                    (false, _) => Stdio::piped(),
                    (true, Some(path)) => {
                        let file = File::create(path);
                        file.with_context(|| format!("cannot write {}", path.display()))?.into()
                    }
                    (true, None) => Stdio::null(),
                };
                let mut command = group.command(words)?;
                command.stdin(input).stdout(output).stderr(errors.try_clone()?);
                command.envs(env.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
                Ok(command)
            };
            let spawned = ready().and_then(|mut command| {
                if i == 0 {
                    let what = format!("{} of {stem}", words[0]);
                    let (child, undo) =
                        context.journal.spawn(&mut command, &what, Some(stop), SIGNAL_TIMEOUT)?;
                    group.pgid = child.id() as i32;
                    group.undo = Some(undo);
                    return Ok(child);
                }
                command.env(RUN_ID_VARIABLE, context.journal.run_id()).process_group(group.pgid);
                Ok(command.spawn()?)
            });
            // What runs of it already must not outlive one that cannot be started.
            let mut child = match spawned {
                Ok(child) => child,
                Err(error) => {
                    group.request_stop();
                    group.finish(context.journal, None);
                    return Err(error
                        .context(format!("cannot start {}: `toll doctor` says what is missing", words[0])));
                }
            };
            input = child.stdout.take().map_or_else(Stdio::null, Stdio::from);
            if !group.entered_cgroups.is_empty() {
                cgroup_entry::wait_until_entered(child.id());
            }
            group.children.push(child);
            group.statuses.push(None);
        }
        // A byte into each group's list.
        let before = group.entered_cgroups.len() as u64;
        group.output = OutputMeter::of(group.children.last().map(Child::id), group.begun_us, before);
        Ok(group)
    }

    /// A stage's command, marked so that it and all its children can be found again.
    fn command(&self, words: &[String]) -> anyhow::Result<Command> {
        let name = &words[0];
        let program = if name.contains('/') { Some(PathBuf::from(name)) } else { find_program(name) };
        let program = program
            .with_context(|| format!("{name} is not installed. Run `toll doctor` for the package name"))?;
        Ok(cgroup_entry::build_command(&self.entered_cgroups, &program, &words[1..]))
    }

    /// Standard error of the group so far, at most a mebibyte.
    pub fn stderr_text(&self) -> String {
        read_text(&self.stderr, MAX_OUTPUT_BYTES)
    }

    /// The file with its standard output so far, at most a mebibyte.
    pub fn stdout_text(&self) -> String {
        self.stdout.as_deref().map_or_else(String::new, |path| read_text(path, MAX_OUTPUT_BYTES))
    }

    /// The first bytes of standard output, where some tools report readiness.
    fn stdout_head(&self) -> String {
        self.stdout.as_deref().map_or_else(String::new, |path| read_text(path, 4096))
    }

    /// Waits for `text` on standard error, or at the head of standard output.
    ///
    /// # Errors
    /// The tool ended, or did not print it in time; the error quotes the tool.
    pub fn wait_for_output(&mut self, text: &str, within: Duration) -> anyhow::Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < within {
            if self.stderr_text().contains(text) || self.stdout_head().contains(text) {
                return Ok(());
            }
            self.check_alive()?;
            self.cancel.check()?;
            std::thread::sleep(Duration::from_millis(3));
        }
        bail!(
            "{} did not print `{text}` within {} s; its output: {}",
            self.name,
            within.as_secs(),
            self.output_tail()
        )
    }

    /// True if every process has ended by itself.
    ///
    /// # Errors
    /// A process failed.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        for i in 0..self.children.len() {
            let last = i + 1 == self.children.len();
            let Some(status) = self.status_of(i) else { return Ok(false) };
            // A later stage that has read enough (`| head`) ends an earlier one by a signal.
            let read_enough = !last && status.signal() == Some(Signal::SIGPIPE as i32);
            if !status.success() && !read_enough {
                bail!("{} failed ({status}); its output: {}", self.name, self.output_tail());
            }
        }
        self.ended_us.get_or_insert_with(clock::mono_us);
        Ok(true)
    }

    /// Polls memory and I/O of its processes, unless it has just done so. A poll costs some 20 us a process.
    pub fn poll_if_due(&mut self) {
        if self.last_poll.is_none_or(|at| at.elapsed() >= POLL_EVERY) {
            self.poll_usage();
        }
    }

    fn poll_usage(&mut self) {
        self.last_poll = Some(Instant::now());
        let members = match &self.cgroup {
            Some(cgroup) => cgroup::members(cgroup),
            None if self.pgid != 0 => process::list_group_pids(self.pgid),
            None => Vec::new(),
        };
        self.usage.poll(&members);
        self.output.poll();
    }

    /// Output since the last call, poll by poll.
    pub fn drain_writes(&mut self) -> Vec<WriteSample> {
        self.output.drain()
    }

    /// Summary of its whole life, once it has ended.
    pub fn process_end(&self, name: &str) -> ProcessEnd {
        let last = self.statuses.last().copied().flatten();
        ProcessEnd {
            name: name.to_owned(),
            begin_mono_us: self.begun_us,
            end_mono_us: self.ended_us.unwrap_or_else(clock::mono_us),
            exit: last.and_then(|status| status.code()),
            signal: last.and_then(|status| status.signal()),
            cpu_us: self.cpu_us(),
            // The group's own figures know of children that no look has met.
            memory_peak_bytes: self.figures.memory_peak_bytes.or(self.usage.memory_peak_bytes()),
            read_bytes: self.figures.read_bytes.or(self.usage.read_bytes()),
            written_bytes: self.figures.written_bytes.or(self.usage.written_bytes()),
            output_bytes: self.output.bytes(),
            waited_cpu_us: self.figures.cpu_pressure_us,
            waited_io_us: self.figures.io_pressure_us,
            waited_memory_us: self.figures.memory_pressure_us,
            sent: None,
            packets: None,
        }
    }

    /// Returns once its last process has written nothing for `quiet`: all it had received is then written.
    ///
    /// Returns at once if it has ended, and at the latest after [`DRAIN_TIMEOUT`] or if toll is asked to end.
    pub fn drain(&mut self, quiet: Duration) {
        let (begun, last) = (Instant::now(), self.children.len().saturating_sub(1));
        let (mut written, mut since) = (None, begun);
        while since.elapsed() < quiet && begun.elapsed() < DRAIN_TIMEOUT {
            if self.status_of(last).is_some() || self.children.is_empty() || self.cancel.is_cancelled() {
                return;
            }
            std::thread::sleep(POLL_EVERY);
            self.output.poll();
            if self.output.bytes() != written {
                (written, since) = (self.output.bytes(), Instant::now());
            }
        }
    }

    /// Fails if the first process has ended.
    pub fn check_alive(&mut self) -> anyhow::Result<()> {
        match self.status_of(0) {
            Some(status) => {
                let advice = if status.success() { "; set the key `ends` if it may" } else { "" };
                bail!("{} exited by itself ({status}); its output: {}{advice}", self.name, self.output_tail())
            }
            None => Ok(()),
        }
    }

    /// Exit status of a process, if it has ended; its CPU time is stored.
    fn status_of(&mut self, i: usize) -> Option<ExitStatus> {
        let known = self.statuses.get_mut(i)?;
        if known.is_none() {
            // What the last one wrote is known until it has been waited for, which one that ends only now is later.
            if i + 1 == self.children.len() {
                if !self.output.has_writer_ended() {
                    return None;
                }
                self.output.poll();
            }
            let before = cpu_of_ended_children_us();
            *known = self.children.get_mut(i)?.try_wait().ok().flatten();
            if known.is_some() {
                self.ended_cpu_us += cpu_of_ended_children_us().saturating_sub(before);
            }
        }
        *known
    }

    /// CPU time of the group so far, microseconds.
    ///
    /// Without a control group, the time of children that their own parent has reaped is missing.
    pub fn cpu_us(&self) -> u64 {
        if let Some(used_us) = self.cgroup.as_deref().and_then(cgroup::cpu_us) {
            return used_us;
        }
        let living = if self.pgid == 0 { 0 } else { proctree::cpu_of_group_us(self.pgid) };
        living + self.ended_cpu_us
    }

    /// Signals the tool to print its counters, and waits a moment for them.
    pub fn probe(&mut self, signal: Signal) -> Option<PacketCounts> {
        if self.status_of(0).is_some() {
            return None;
        }
        let before = self.stderr_text();
        let first = self.children.first()?.id();
        // A wrapper such as `timeout` would die of the signal: only the leaf is the tool.
        let tool = *proctree::list_descendants(first).last()?;
        #[allow(clippy::disallowed_methods)] // below a child that was just seen to live
        kill(Pid::from_raw(tool as i32), signal).ok()?;
        let begun = Instant::now();
        while begun.elapsed() < PROBE_TIMEOUT {
            let said = self.stderr_text();
            if said.len() > before.len() && said.ends_with('\n') {
                return parse_packet_counts(&said);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        None
    }

    /// Sends the group the signal that ends its tool.
    ///
    /// A group that has ended gets no signal: its number may be another's by now.
    #[allow(clippy::disallowed_methods)] // a group that was just seen to have a member
    pub fn request_stop(&mut self) {
        self.poll_usage();
        if self.pgid == 0 || self.has_exited_within(Duration::ZERO) {
            return;
        }
        let pgid = Pid::from_raw(self.pgid);
        // The first process's own children (the tool below `timeout`) hear it too; a pipeline's
        // later stages do not: they end when their input does, having passed on what is left.
        let _ = if self.children.len() == 1 { killpg(pgid, self.stop) } else { kill(pgid, self.stop) };
    }

    /// Waits until the signalled group has ended; then sends TERM, then KILL to all.
    #[allow(clippy::disallowed_methods)] // a group that was just seen to have a member
    pub fn finish(&mut self, journal: &Journal, load: Option<PausableLoad>) -> StopReport {
        let begun = Instant::now();
        let mut report = StopReport { name: self.name.clone(), ..StopReport::default() };
        if self.pgid == 0 {
            // Nothing was started in it, or it was ended before.
            if let Some(cgroup) = self.cgroup.take() {
                let _ = cgroup::remove(&cgroup);
            }
            return report;
        }
        let pgid = Pid::from_raw(self.pgid);
        let _pause = load.map(PausableLoad::pause_if_slow);
        let mut ended = self.has_exited_within(SIGNAL_TIMEOUT);
        if !ended {
            let steps = [(Signal::SIGTERM, SIGNAL_TIMEOUT), (Signal::SIGKILL, KILL_TIMEOUT)];
            let send = |signal| {
                let _ = killpg(pgid, signal);
            };
            (report.escalated_to, ended) =
                process::escalate(&steps, send, |patience| self.has_exited_within(patience));
        }
        self.ended_us.get_or_insert_with(clock::mono_us);
        report.waited = begun.elapsed();
        let used_us = self.cpu_us();
        if let Some(cgroup) = self.cgroup.take() {
            self.figures = cgroup::read_resource_usage(&cgroup);
            self.ended_cpu_us = used_us;
            match cgroup::remove(&cgroup) {
                Ok(strays) => report.strays = if ended { strays.unwrap_or(0) } else { 0 },
                Err(_) => ended = false,
            }
        }
        report.survived = !ended;
        if ended {
            // A journal that cannot be written keeps the entry; undoing it finds nothing to do.
            if let Some(undo) = self.undo.take() {
                let _ = journal.mark_done(undo);
            }
            self.pgid = 0;
        }
        report
    }

    fn has_exited_within(&mut self, patience: Duration) -> bool {
        let begun = Instant::now();
        loop {
            let ours_ended = (0..self.children.len()).all(|i| self.status_of(i).is_some());
            if ours_ended && process::list_group_pids(self.pgid).is_empty() {
                return true;
            }
            let waited = begun.elapsed();
            let closing = waited < CLOSE_TIMEOUT && process::is_uninterruptible(self.pgid);
            if waited > patience && !closing {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn output_tail(&self) -> String {
        let said = self.stderr_text();
        let lines: Vec<_> = said.lines().rev().filter(|l| !l.trim().is_empty()).take(3).collect();
        if lines.is_empty() {
            return "(nothing)".into();
        }
        let mut tail = redact::redact_text(&lines.into_iter().rev().collect::<Vec<_>>().join(" / "));
        for secret in &self.secrets {
            tail = tail.replace(secret.as_str(), "***");
        }
        tail
    }
}

/// CPU time of this process's reaped children, theirs included, microseconds.
fn cpu_of_ended_children_us() -> u64 {
    let micros = |t: TimeVal| t.tv_sec() as u64 * 1_000_000 + t.tv_usec() as u64;
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(0, |u| micros(u.user_time()) + micros(u.system_time()))
}

/// At most `cap` bytes of a file as text. Empty if unreadable.
fn read_text(path: &Path, cap: u64) -> String {
    use std::io::Read;
    let mut bytes = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(cap).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl StopReport {
    /// Unusual events, one line each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if let Some(signal) = self.escalated_to {
            let waited = self.waited.as_secs_f64();
            notes.push(if self.survived {
                format!("{} survived {signal} for {waited:.1} s: see `toll clean`", self.name)
            } else {
                format!("{} ignored its signal and was ended by {signal} after {waited:.1} s", self.name)
            });
        }
        if self.strays > 0 {
            notes.push(format!(
                "{} left {} processes behind that had gone their own way: they were killed",
                self.name, self.strays
            ));
        }
        notes
    }
}
