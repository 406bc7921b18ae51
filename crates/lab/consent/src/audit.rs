//! Audit of a live run: who agreed to what, and what was done when, in a file of the run that only its owner can read.

use anyhow::{Context, Result};
use serde::Serialize;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use toll_execution::trial_loop::RunEnd;

/// In the run's directory.
pub const AUDIT_FILE: &str = "audit.ndjson";

/// A line is on disk before what it tells of is done.
#[derive(Debug)]
pub struct Audit {
    file: File,
    path: PathBuf,
}

/// What is told.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action<'a> {
    /// Somebody agreed to the plan.
    Consent {
        server: &'a str,
        server_uuid: Option<&'a str>,
        /// What was typed.
        confirmed_by: &'a str,
        /// Why it is done, in the words of whoever does it.
        reason: &'a str,
        login: &'a str,
        command: &'a [String],
        on: &'a [String],
        off: &'a [String],
    },
    End {
        how: &'a str,
    },
}

/// How a run ended, in words.
#[must_use]
pub fn describe_end(ending: &RunEnd) -> String {
    match ending {
        RunEnd::Completed | RunEnd::EarlyStop => "the run ended, and everything is off".to_owned(),
        RunEnd::Interrupted => "interrupted; everything is off".to_owned(),
        RunEnd::Aborted(why) => format!("ended early: {why}; everything is off"),
        RunEnd::NotRestored(why) => format!("NOT everything was put back: {why}"),
    }
}

#[derive(Serialize)]
struct Line<'a> {
    utc: String,
    #[serde(flatten)]
    action: Action<'a>,
}

impl Audit {
    /// # Errors
    /// The file cannot be made: nothing may be done.
    pub fn create(dir: &Path) -> Result<Self> {
        let path = dir.join(AUDIT_FILE);
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        Ok(Self { file: file.with_context(|| format!("cannot make {}", path.display()))?, path })
    }

    /// # Errors
    /// The line is not on disk: what it tells of must not be done.
    pub fn write(&mut self, action: Action<'_>) -> Result<()> {
        let mut line = serde_json::to_vec(&Line { utc: jiff::Timestamp::now().to_string(), action })?;
        line.push(b'\n');
        self.file
            .write_all(&line)
            .and_then(|()| self.file.sync_data())
            .with_context(|| format!("cannot write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_has_its_reason_and_no_more_is_called_off_than_is() {
        let off = |ending: RunEnd| {
            let text = describe_end(&ending);
            (text.contains("it tripped"), text.ends_with("everything is off"))
        };
        assert_eq!(off(RunEnd::Completed), (false, true));
        assert_eq!(off(RunEnd::Aborted("it tripped".to_owned())), (true, true));
        assert_eq!(off(RunEnd::NotRestored("it tripped".to_owned())), (true, false));
    }

    #[test]
    fn lines_have_their_time_and_their_words() {
        let dir = tempfile::tempdir().unwrap();
        let mut audit = Audit::create(dir.path()).unwrap();
        audit.write(Action::End { how: "completed" }).unwrap();
        let text = std::fs::read_to_string(dir.path().join(AUDIT_FILE)).unwrap();
        let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
        assert_eq!((line["action"].as_str(), line["how"].as_str()), (Some("end"), Some("completed")));
        assert!(line["utc"].as_str().unwrap().ends_with('Z'));
    }
}
