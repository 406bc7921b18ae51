//! Program start that is held until the journal contains its entry.
//!
//! Until then a process is identified by its marker, `TOLL_RUN` in its environment. sshd writes its title
//! over its environment, so between its start and its entry it would be unidentified. A shell, which keeps
//! the marker, waits for the entry in its place and then executes the program. If toll dies before that, the
//! shell ends.

use std::ffi::OsStr;
use std::io::{PipeWriter, Write, pipe};
use std::process::Command;
use toll_sys::child_process;

/// Reads a line, and is another program then; the end of its input ends it.
const WAIT_SCRIPT: &str = "read -r _ && exec \"$@\" </dev/null";

/// A command for [`super::Journal::spawn_deferred`]; its arguments are the program's.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = child_process::clean_env_command("sh");
    command.args(["-c", WAIT_SCRIPT, "sh"]).arg(program);
    command
}

/// Handle that starts a held program. Dropped, the program never starts.
pub struct DeferredStart(PipeWriter);

impl DeferredStart {
    /// To be called before `command` is started; its input is not to be given otherwise.
    pub fn attach(command: &mut Command) -> std::io::Result<Self> {
        let (its_end, ours) = pipe()?;
        command.stdin(its_end);
        Ok(Self(ours))
    }

    pub fn release(mut self) -> std::io::Result<()> {
        self.0.write_all(b"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_begins_only_once_it_may_and_never_where_nobody_is_left_to_tell_it() {
        let dir = tempfile::tempdir().unwrap();
        for released in [true, false] {
            let made = dir.path().join(released.to_string());
            let mut command = command("touch");
            command.arg(&made);
            let hold = DeferredStart::attach(&mut command).unwrap();
            let mut child = command.spawn().unwrap();
            if released {
                hold.release().unwrap();
            } else {
                // As the kernel does for a toll that was killed.
                drop(hold);
            }
            assert_eq!(child.wait().unwrap().success(), released);
            assert_eq!(made.exists(), released);
        }
    }
}
