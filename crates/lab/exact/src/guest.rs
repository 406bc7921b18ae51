//! The part that runs inside a virtual machine: one run by the usual trial loop, copied out after each round.

use crate::messages::{GuestLine, GuestRequest, read_answer, run_dir};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toll_execution::LiveLoad;
use toll_execution::run::{self, RunRequest, RunSource};
use toll_execution::testbed::ServerChoice;
use toll_execution::testbed::data::LoadProgress;
use toll_execution::trial_loop::{Progress, RunEnd, TrialsAhead};
use toll_model::scenario::{Scenario, Subject};
use toll_sys::cancel::CancelToken;
use toll_sys::child_process;

/// Where the run is while windows are open: in memory, so that no file of the host's is waited for.
const RUN_IN_MEMORY: &str = "/dev/shm/toll-run";
/// Files that only the owner of the run reads.
const READERS: u32 = 0o600;

/// Carries out the request in `shared`, and leaves the run there. `print` takes lines for the console.
///
/// # Errors
/// The run could not begin or was cut short; what was measured until then is in `shared`.
pub fn run_in_machine(
    shared: &Path,
    print: &(dyn Fn(&str) + Sync),
    cancel: &CancelToken,
) -> anyhow::Result<()> {
    let request = GuestRequest::read(shared)?;
    let scenario = Scenario::parse(&request.scenario)?;
    let server = match scenario.subject {
        Subject::Server => ServerChoice::Sandbox { program: request.server_bin },
        Subject::Host => ServerChoice::None,
    };
    let asked = RunRequest {
        source: RunSource::Scenario(Box::new(scenario), Box::new(request.overrides)),
        text: request.text,
        server,
        out: Some(PathBuf::from(RUN_IN_MEMORY)),
        keep_artefacts: request.keep_artefacts,
        live: None,
        readers: READERS,
        command: request.command,
    };
    run_before_others().context("cannot read counters on time")?;
    let progress = ConsoleProgress { shared, print };
    let finished = run::run(asked, &progress, cancel)?;
    copy_run(shared)?;
    match finished.ending {
        RunEnd::Completed | RunEnd::EarlyStop => Ok(()),
        RunEnd::Interrupted => bail!("interrupted"),
        RunEnd::Aborted(why) | RunEnd::NotRestored(why) => bail!("{why}"),
    }
}

/// Lets this thread, and nothing that it starts, run as soon as it wakes up: counters are read at the edges of a window.
/// As one of many it waited for up to 4 ms, four thousandths of a window.
fn run_before_others() -> anyhow::Result<()> {
    let words = ["--reset-on-fork", "--fifo", "--pid", "1", &std::process::id().to_string()];
    let output = child_process::clean_env_command("chrt").args(words).output().context("cannot run chrt")?;
    anyhow::ensure!(output.status.success(), "chrt: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Copies all files of the run to where the host sees them.
fn copy_run(shared: &Path) -> anyhow::Result<()> {
    let from = Path::new(RUN_IN_MEMORY);
    copy_files(from, &run_dir(shared))?;
    copy_files(&from.join("artefacts"), &run_dir(shared).join("artefacts"))
}

/// Regular files alone: what is private to the run stays inside.
fn copy_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in std::fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let path = entry?.path();
        if let Some(name) = path.file_name().filter(|_| path.is_file()) {
            std::fs::copy(&path, to.join(name))
                .with_context(|| format!("cannot copy {} out of the virtual machine", path.display()))?;
        }
    }
    Ok(())
}

/// Lines for the host, which alone shows anything.
struct ConsoleProgress<'a> {
    shared: &'a Path,
    print: &'a (dyn Fn(&str) + Sync),
}

impl ConsoleProgress<'_> {
    fn tell(&self, line: &GuestLine) {
        (self.print)(&line.to_string());
    }
}

impl LoadProgress for ConsoleProgress<'_> {
    fn show_rows(&self, _loaded: u64, _whole: u64) {}

    fn finish_rows(&self) {}
}

impl Progress for ConsoleProgress<'_> {
    fn set_ahead(&self, ahead: TrialsAhead) {
        self.tell(&GuestLine::Ahead {
            trials_per_round: (ahead.trials / u64::from(ahead.rounds.max(1))) as u32,
            expected_ms: (ahead.expected_s * 1e3) as u32,
        });
    }

    fn begin_trial(&self, round: u32, trial: u32, arm: &str) {
        self.tell(&GuestLine::Trial { round, trial, arm: arm.to_owned() });
    }

    fn end_round(&self, round: u32) -> anyhow::Result<bool> {
        /// By the machine's clock, which skips it.
        const ASK_AGAIN: Duration = Duration::from_millis(20);
        copy_run(self.shared)?;
        self.tell(&GuestLine::Round(round));
        // A host that is gone takes the machine with it.
        loop {
            if let Some(go_on) = read_answer(self.shared, round) {
                return Ok(go_on);
            }
            std::thread::sleep(ASK_AGAIN);
        }
    }

    fn show_mde(&self, _pct: f64) {}

    fn show_load(&self, _live: Option<LiveLoad>) {}

    fn print_line(&self, text: &str) {
        self.tell(&GuestLine::Say(text.replace('\n', " ")));
    }

    fn finish(&self) {}
}
