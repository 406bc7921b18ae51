//! One step of a preparation: a program that runs until it ends or the preparation is cancelled.

use anyhow::{Context, Result, bail};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use toll_sys::cancel::CancelToken;

/// Most bytes of a program's words that an error repeats.
const MAX_WORDS: usize = 2_000;

/// Runs a command to its end. `log` takes its output, the end of which is in the error if it fails.
pub fn run_step(command: &mut Command, what: &str, log: &Path, cancel: &CancelToken) -> Result<()> {
    cancel.check()?;
    let output = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command.spawn().with_context(|| format!("cannot {what}: cannot run {program}"))?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if let Err(interrupted) = cancel.check() {
            child.kill()?;
            child.wait()?;
            return Err(interrupted);
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    if !status.success() {
        let words = std::fs::read(log).unwrap_or_default();
        let end = &words[words.len().saturating_sub(MAX_WORDS)..];
        bail!("cannot {what}: {program}: {status}\n{}", String::from_utf8_lossy(end).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_fails_is_reported_with_the_programs_words() {
        let dir = tempfile::tempdir().unwrap();
        let run = |script: &str, cancel: &CancelToken| {
            let mut command = Command::new("sh");
            run_step(command.args(["-c", script]), "try it", &dir.path().join("log"), cancel)
        };
        let cancel = CancelToken::new();
        assert!(run("true", &cancel).is_ok());
        let error = run("echo because >&2; exit 3", &cancel).unwrap_err().to_string();
        assert!(error.starts_with("cannot try it: sh: ") && error.ends_with("because"), "{error}");
        let waiting = cancel.clone();
        let later = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            waiting.cancel();
        });
        assert_eq!(run("exec sleep 600", &cancel).unwrap_err().to_string(), "interrupted");
        later.join().unwrap();
    }
}
