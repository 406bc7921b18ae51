//! Execution of any dump command behind the throttle.
//!
//! The command runs in a process group of its own, in the journal. Its output goes through the rate limiter
//! to toll's own output. Its standard error goes to the user, and its exit code is passed on.

use super::{Throttle, ThrottleOptions, ThrottleSummary, ThrottledReader};
use anyhow::{Context, Result, bail};
use nix::fcntl::{FcntlArg, fcntl};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, ExitStatus, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use toll_journal::{Journal, UndoId};
use toll_sys::cancel::CancelToken;
use toll_sys::{child_process, redact};

/// A small pipe lets the dump feel its reader soon; half of the kernel's default costs nothing at full
/// speed (`bench/throttle.sh`).
const PIPE_BYTES: i32 = 32 * 1024;
/// What is read and written at once, at most.
const BUFFER_BYTES: usize = 64 * 1024;
/// A dump gets this long after each signal that ends it.
const GRACE: Duration = Duration::from_secs(4);
/// A command whose output nobody reads any more ends of that within this, or is asked to.
const PIPE_BROKEN_GRACE: Duration = Duration::from_secs(2);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// End of the command, for toll's own exit code.
#[derive(Debug)]
pub struct CommandExit {
    /// Exit code of the command, or 128 plus the number of the signal that ended it.
    pub exit_code: u8,
    pub summary: ThrottleSummary,
}

/// Runs the command to its end. `env` names the variables that it inherits from toll's environment.
pub fn run_command(
    options: ThrottleOptions,
    words: &[String],
    env: &[String],
    to: impl Write + Send + 'static,
) -> Result<CommandExit> {
    let Some(name) = words.first() else { bail!("name a command after --") };
    if let Some(why) = toll_sys::program::missing_program_error(name) {
        bail!("{why}");
    }
    if let Some(name) = env.iter().find(|name| std::env::var_os(name).is_none()) {
        bail!("{}", toll_sys::program::missing_variable_error(name));
    }
    let run_id = format!("throttle-{}-{}", std::process::id(), toll_sys::clock::wall_us());
    let journal = Journal::begin(&run_id)?;
    let cancel = options.cancel.clone();
    let ended = run_throttled(Throttle::start(options, &journal)?, &journal, cancel, words, env, to);
    let undone = journal.undo_all();
    for failure in &undone.failures {
        tracing::warn!("cannot undo: {failure}. Run `toll clean`.");
    }
    ended
}

fn run_throttled(
    throttle: Throttle,
    journal: &Journal,
    cancel: CancelToken,
    words: &[String],
    env: &[String],
    to: impl Write + Send + 'static,
) -> Result<CommandExit> {
    let mut command = child_process::clean_env_command(&words[0]);
    command.args(&words[1..]).stdout(Stdio::piped());
    command.envs(env.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    let what = redact::redact_words(&words[..1]).concat();
    let (mut child, undo) = journal.spawn(&mut command, &what, None, GRACE)?;
    let Some(output) = child.stdout.take() else { bail!("{what} has no output: this is a bug in toll") };
    // A kernel that refuses (a user's quota of pipe pages) leaves the pipe as it was.
    let _ = fcntl(&output, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    let limiter = Arc::clone(throttle.limiter());
    let pump = std::thread::Builder::new()
        .name("pump".into())
        .spawn(move || copy_output(ThrottledReader::new(output, limiter), to))
        .context("cannot start a thread")?;
    let dump = DumpProcess { journal, cancel, undo, child, what };
    dump.supervise(throttle, pump)
}

/// Copies from the dump to its consumer, with one buffer.
fn copy_output(mut dump: ThrottledReader<ChildStdout>, mut taker: impl Write) -> CopyEnd {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let read = match dump.read(&mut buffer) {
            Ok(0) => return CopyEnd::EndOfDump,
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return CopyEnd::ReadFailed(error),
        };
        match taker.write_all(&buffer[..read]).and_then(|()| taker.flush()) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return CopyEnd::ReaderGone,
            Err(error) => return CopyEnd::WriteFailed(error),
        }
    }
}

/// Reason for the end of the copy.
#[derive(Debug)]
enum CopyEnd {
    EndOfDump,
    /// By the rate limiter, whose reason this is; or the pipe cannot be read.
    ReadFailed(io::Error),
    ReaderGone,
    WriteFailed(io::Error),
}

struct DumpProcess<'a> {
    journal: &'a Journal,
    cancel: CancelToken,
    undo: UndoId,
    child: Child,
    what: String,
}

impl DumpProcess<'_> {
    fn supervise(mut self, throttle: Throttle, pump: JoinHandle<CopyEnd>) -> Result<CommandExit> {
        let limiter = Arc::clone(throttle.limiter());
        while !pump.is_finished() {
            std::thread::sleep(POLL_INTERVAL);
            // Not by the limiter alone: its control loop may have failed.
            let interrupted = || self.cancel.is_cancelled().then(|| "interrupted".to_owned());
            if let Some(why) = limiter.close_reason().or_else(interrupted) {
                self.terminate()?;
                drop(throttle);
                bail!("{why}; the dump is incomplete");
            }
        }
        let Ok(passed) = pump.join() else {
            self.terminate()?;
            bail!("the pump has failed: this is a bug in toll. Please report it.");
        };
        let status = match &passed {
            CopyEnd::EndOfDump => self.wait_for_exit(None)?,
            CopyEnd::ReaderGone => {
                tracing::warn!("the reader of the dump has exited: ending {}", self.what);
                self.wait_for_exit(Some(PIPE_BROKEN_GRACE))?
            }
            CopyEnd::WriteFailed(_) | CopyEnd::ReadFailed(_) => self.terminate()?,
        };
        let account = throttle.finish()?;
        match passed {
            CopyEnd::WriteFailed(error) => {
                Err(error).with_context(|| format!("cannot write the dump; {} was ended", self.what))
            }
            CopyEnd::ReadFailed(why) => bail!("{why}; the dump is incomplete"),
            CopyEnd::EndOfDump | CopyEnd::ReaderGone => {
                Ok(CommandExit { exit_code: exit_code(status), summary: account })
            }
        }
    }

    /// Waits for the command to exit after the end of its output. After `patience` it is terminated, finally
    /// with KILL.
    fn wait_for_exit(&mut self, timeout: Option<Duration>) -> Result<ExitStatus> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.journal.undo(self.undo)?;
                return Ok(status);
            }
            if self.cancel.is_cancelled() {
                self.terminate()?;
                bail!("interrupted; the dump is incomplete");
            }
            if timeout.is_some_and(|patience| begun.elapsed() >= patience) {
                return self.terminate();
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// By the journal's entry: TERM, then KILL, to its whole group.
    fn terminate(&mut self) -> Result<ExitStatus> {
        self.journal.undo(self.undo)?;
        self.child.wait().context("cannot wait for the dump")
    }
}

/// As a shell would say it.
fn exit_code(status: ExitStatus) -> u8 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code as u8,
        (None, signal) => 128 + signal.unwrap_or(0) as u8,
    }
}
