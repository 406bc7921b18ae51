//! What the host and a virtual machine say to each other: a request, lines on the console, an answer after each round.

use anyhow::Context;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use toll_model::plan::RunOverrides;
use toll_sys::private_file;

/// In the directory that both share: what is to be carried out.
const REQUEST: &str = "request.json";
/// Likewise: the run directory, as far as rounds have ended.
const RUN: &str = "run";

/// A run to be carried out inside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuestRequest {
    /// The scenario in full. It may hold secrets of a priced command.
    pub scenario: String,
    /// The scenario as the run keeps it.
    pub text: String,
    pub overrides: RunOverrides,
    /// The server program of the sandbox; absent: the first found.
    pub server_bin: Option<PathBuf>,
    pub keep_artefacts: bool,
    /// The command line that repeats the whole run.
    pub command: Vec<String>,
}

impl GuestRequest {
    pub fn write(&self, shared: &Path) -> anyhow::Result<()> {
        private_file::write(&shared.join(REQUEST), &serde_json::to_string(self)?)
    }

    pub fn read(shared: &Path) -> anyhow::Result<Self> {
        let path = shared.join(REQUEST);
        let text =
            std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} is no request", path.display()))
    }
}

/// The run directory of a machine.
pub fn run_dir(shared: &Path) -> PathBuf {
    shared.join(RUN)
}

/// Whether a machine is to go on after a round, once the host has said so.
pub fn read_answer(shared: &Path, round: u32) -> Option<bool> {
    let answer = std::fs::read(answer_path(shared, round)).ok()?;
    // An answer that is being written is empty.
    (!answer.is_empty()).then(|| answer == GO)
}

pub fn write_answer(shared: &Path, round: u32, go_on: bool) -> anyhow::Result<()> {
    let path = answer_path(shared, round);
    std::fs::write(&path, if go_on { GO } else { STOP })
        .with_context(|| format!("cannot write {}", path.display()))
}

const GO: &[u8] = b"go";
const STOP: &[u8] = b"stop";

fn answer_path(shared: &Path, round: u32) -> PathBuf {
    shared.join(format!("answer-{round}"))
}

/// A line on a machine's console that is for the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GuestLine {
    /// So many trials lie ahead in each round, and all of them take about so long by the machine's clock.
    Ahead {
        trials_per_round: u32,
        expected_ms: u32,
    },
    Trial {
        round: u32,
        trial: u32,
        arm: String,
    },
    /// A round has ended: the machine waits for an answer.
    Round(u32),
    /// For the user.
    Say(String),
}

/// No other program begins a line with it.
const MARK: &str = "@toll ";

impl GuestLine {
    /// `None`: the line is not for the host.
    pub fn parse(line: &str) -> Option<Self> {
        // The kernel's own lines may stand before it on the same line of the console.
        let (_, said) = line.split_once(MARK)?;
        let (kind, rest) = said.split_once(' ').unwrap_or((said, ""));
        let mut numbers = rest.splitn(3, ' ');
        let mut number = || numbers.next()?.parse().ok();
        Some(match kind {
            "ahead" => Self::Ahead { trials_per_round: number()?, expected_ms: number()? },
            "trial" => Self::Trial { round: number()?, trial: number()?, arm: numbers.next()?.to_owned() },
            "round" => Self::Round(number()?),
            "say" => Self::Say(rest.to_owned()),
            _ => return None,
        })
    }
}

impl std::fmt::Display for GuestLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(MARK)?;
        match self {
            Self::Ahead { trials_per_round, expected_ms } => {
                write!(f, "ahead {trials_per_round} {expected_ms}")
            }
            Self::Trial { round, trial, arm } => write!(f, "trial {round} {trial} {arm}"),
            Self::Round(round) => write!(f, "round {round}"),
            Self::Say(text) => write!(f, "say {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written_and_others_are_not_for_the_host() {
        for line in [
            GuestLine::Ahead { trials_per_round: 18, expected_ms: 30_500 },
            GuestLine::Trial { round: 1, trial: 20, arm: "toll-packets".into() },
            GuestLine::Round(2),
            GuestLine::Say("arm x failed: no such file".into()),
        ] {
            assert_eq!(GuestLine::parse(&line.to_string()), Some(line.clone()));
            assert_eq!(GuestLine::parse(&format!("[  1.2] kernel: {line}")), Some(line));
        }
        for other in [
            "",
            "toll: ready",
            "@toll",
            "@toll trial 1",
            "@toll trial x 1 a",
            "@toll ahead 1 -2",
            "@toll x 1",
        ] {
            assert_eq!(GuestLine::parse(other), None, "{other}");
        }
    }

    #[test]
    fn an_answer_is_for_its_round_and_half_of_one_is_none() {
        let shared = tempfile::tempdir().unwrap();
        assert_eq!(read_answer(shared.path(), 0), None);
        std::fs::write(answer_path(shared.path(), 0), "").unwrap();
        assert_eq!(read_answer(shared.path(), 0), None);
        write_answer(shared.path(), 0, true).unwrap();
        write_answer(shared.path(), 1, false).unwrap();
        assert_eq!([0, 1, 2].map(|round| read_answer(shared.path(), round)), [Some(true), Some(false), None]);
    }
}
