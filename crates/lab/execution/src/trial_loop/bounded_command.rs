//! Commands that read an artefact: bounded in time, in the journal while they run.

use anyhow::{Context, bail};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use toll_journal::Journal;
use toll_sys::cancel::CancelToken;
use toll_sys::child_process;

/// For one command; what takes longer is given up.
const COUNT_TIMEOUT: Duration = Duration::from_secs(60);
/// They read only; whoever puts a killed run right need not wait for them.
pub const STOP_WITHIN: Duration = Duration::from_secs(2);

/// Standard output and end of a command, which is ended when it takes too long.
pub fn run_bounded(
    command: &mut Command,
    name: &str,
    journal: &Journal,
    cancel: &CancelToken,
) -> anyhow::Result<(Vec<u8>, ExitStatus)> {
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let (mut child, undo) =
        journal.spawn(command, name, None, STOP_WITHIN).context("it cannot be started")?;
    let mut stdout = child.stdout.take().context("no standard output")?;
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let begun = Instant::now();
    while !reader.is_finished() {
        let interrupted = cancel.check();
        if interrupted.is_err() || begun.elapsed() > COUNT_TIMEOUT {
            child.kill()?;
            child.wait()?;
            journal.mark_done(undo)?;
            interrupted?;
            bail!("given up after {} s", COUNT_TIMEOUT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = child.wait()?;
    journal.mark_done(undo)?;
    let output = reader.join().map_err(|_| anyhow::anyhow!("its output could not be read"))??;
    Ok((output, status))
}

/// Queries in the bytes `from..to` of a file, by a command that reads them and prints their number.
///
/// Its exit code is not asked: `grep -c` fails where it counts none.
pub fn count_by_command(
    words: &[String],
    path: &Path,
    (from, to): (u64, u64),
    journal: &Journal,
    cancel: &CancelToken,
) -> anyhow::Result<u64> {
    let (program, arguments) = words.split_first().context("`count_with` is empty")?;
    let mut part = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    part.seek(SeekFrom::Start(from))?;
    let (reader, mut writer) = std::io::pipe().context("no pipe to the counting command")?;
    let mut command = child_process::clean_env_command(program);
    command.args(arguments).stdin(reader);
    // It may end before it has read everything.
    let feeder = std::thread::spawn(move || {
        let _ = std::io::copy(&mut part.take(to.saturating_sub(from)), &mut writer);
    });
    let counted = run_bounded(&mut command, program, journal, cancel);
    // Its end of the pipe, or the feeder would wait for ever.
    drop(command);
    feeder.join().map_err(|_| anyhow::anyhow!("the artefact could not be read"))?;
    let (output, status) = counted.with_context(|| format!("`count_with`: {program}"))?;
    let text = String::from_utf8_lossy(&output);
    let said = text.trim();
    said.parse().ok().with_context(|| {
        let shown: String = said.chars().take(80).collect();
        format!("`count_with`: {program} printed no number but {shown:?} ({status})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_counts_what_lies_between_two_lengths_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin_in(&dir.path().join("journal"), "test-count").unwrap();
        let path = dir.path().join("said");
        std::fs::write(&path, "query\nquery\nother\nquery\n").unwrap();
        let cancel = CancelToken::default();
        let count = |words: &str, range| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            count_by_command(&words, &path, range, &journal, &cancel).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(count("grep -c query", (0, 24)), Ok(3));
        assert_eq!(count("grep -c query", (6, 18)), Ok(1));
        assert_eq!(count("grep -c nothing", (0, 24)), Ok(0), "grep exits with 1 then");
        let said = count("cat", (0, 24)).unwrap_err();
        assert!(said.contains("cat printed no number") && said.contains("query"), "{said}");
        assert!(count("no-such-program-at-all", (0, 24)).unwrap_err().contains("cannot be started"));
        assert!(journal.undo_all().failures.is_empty());
    }

    #[test]
    fn a_command_that_reads_nothing_does_not_hang_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::begin_in(&dir.path().join("journal"), "test-count").unwrap();
        let path = dir.path().join("said");
        // More than a pipe holds.
        std::fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        let words = ["echo", "7"].map(str::to_owned);
        let counted = count_by_command(&words, &path, (0, 1 << 20), &journal, &CancelToken::default());
        assert_eq!(counted.unwrap(), 7);
    }
}
