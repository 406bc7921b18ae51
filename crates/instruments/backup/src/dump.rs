//! Reader of a dump program's output, with a completeness check.
//!
//! Reads through a pipe, and checks for signals while no data arrives. A dump is complete only if its program
//! confirms it twice: by its last line and by exit code 0.

use super::cost::{self, ProcessMonitor};
use super::program::{OptionFile, Program};
use anyhow::{Context, Result, bail};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::process::{Child, ChildStderr, ChildStdout, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;
use toll_journal::{Journal, UndoId};
use toll_sys::cancel::CancelToken;

/// A dump that goes on.
pub struct DumpProcess<'j> {
    child: Child,
    id: UndoId,
    journal: &'j Journal,
    cancel: CancelToken,
    stderr_tail: JoinHandle<String>,
    monitor: ProcessMonitor,
    what: &'static str,
}

/// After its end was asked for.
const GRACE: Duration = Duration::from_secs(5);

impl<'j> DumpProcess<'j> {
    /// Starts the program on these schemas; the answer reads what it writes.
    pub fn start(
        program: &Program,
        options: &[String],
        server: &OptionFile,
        schemas: &[String],
        what: &'static str,
        journal: &'j Journal,
        cancel: &CancelToken,
    ) -> Result<(Self, DumpStream)> {
        let mut command = program.command(options, server);
        // Behind `--`, a schema whose name begins with a dash is no option.
        command.args(["--databases", "--"]).args(schemas);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, id) = journal.spawn(&mut command, what, None, GRACE)?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            bail!("{what} has no output");
        };
        let watch = ProcessMonitor::start(child.id());
        let complaints = std::thread::spawn(move || read_stderr_tail(stderr));
        let stream = DumpStream { stdout, cancel: cancel.clone() };
        Ok((
            Self {
                child,
                id,
                journal,
                cancel: cancel.clone(),
                stderr_tail: complaints,
                monitor: watch,
                what,
            },
            stream,
        ))
    }

    /// To be called once its output has ended, whether that was `read` well or not. The answer is what it has used; an
    /// error says what it complained of.
    pub fn finish(mut self, read: Result<(), toll_store::Error>) -> Result<cost::ProcessUsage> {
        // What broke off in the middle is not to go on against a full pipe.
        if read.is_err() {
            self.journal.undo(self.id)?;
        }
        let (status, used) = self.monitor.wait(&mut self.child)?;
        self.journal.mark_done(self.id)?;
        let said = self.stderr_tail.join().unwrap_or_default();
        self.cancel.check()?;
        match read {
            // Its own words say more than where its output broke off.
            Err(toll_store::Error::Incomplete(_)) if !status.success() => {}
            Err(error) => {
                return Err(error).with_context(|| format!("{} could not be read to its end", self.what));
            }
            Ok(()) => {}
        }
        if !status.success() {
            bail!("{} failed ({status}): {}", self.what, said.trim());
        }
        Ok(used)
    }
}

/// What a dump writes. Whatever is to slow it down stands between it and its reader.
pub struct DumpStream {
    stdout: ChildStdout,
    cancel: CancelToken,
}

impl Read for DumpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const LOOK_MS: u8 = 100;
        loop {
            self.cancel.check().map_err(io::Error::other)?;
            let mut ready = [PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, PollTimeout::from(LOOK_MS)) {
                Ok(0) | Err(nix::errno::Errno::EINTR) => {}
                Ok(_) => return self.stdout.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The end of what it said; warnings about passwords and the like may come a thousand times.
fn read_stderr_tail(mut from: ChildStderr) -> String {
    const MOST: usize = 4096;
    let mut kept = Vec::new();
    let mut buffer = [0; MOST];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..read]);
        let surplus = kept.len().saturating_sub(MOST);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}
