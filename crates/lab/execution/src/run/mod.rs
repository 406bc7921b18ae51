//! Sequence of a run, from scenario to report.
//!
//! Resolves the options, prepares the server, plans, conducts, analyses and reports.
//!
//! # Invariants
//! Host and server are restored on every way out.

mod name;
mod power_forecast;
mod preview;
mod trials;

pub use name::{new_run_dir, new_run_id};
pub use preview::{RunPreview, preview};

use crate::collector::{Collectors, ServerCounters};
use crate::host;
use crate::live::LiveRequest;
use crate::recorder::Recorder;
use crate::testbed::{self, OpenTestbed, ServerChoice};
use crate::trial_loop::{Progress, RunEnd};
use anyhow::{Context, bail};
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use toll_journal::{Journal, Undo};
use toll_model::plan::{self, ResolvedScenario, RunOverrides};
use toll_model::scenario::Scenario;
use toll_net::pcap::profile::json::Document;
use toll_record::{CAPTURES_FILE, Clock, Plan, RunDir, RunResult, RunWriter, Setup};
use toll_server::lock::HostLock;
use toll_sys::cancel::CancelToken;
use toll_sys::{private_file, redact};

/// Files that are written before the first trial, and removed if there is none.
const PRE_TRIAL_FILES: [&str; 3] = ["plan.json", "host.json", CAPTURES_FILE];

/// Request for a run.
#[derive(Debug, Clone)]
pub struct RunRequest {
    pub source: RunSource,
    /// The scenario's text, stored in the run.
    pub text: String,
    pub server: ServerChoice,
    /// Absent: a new directory named after the scenario and the time.
    pub out: Option<PathBuf>,
    pub keep_artefacts: bool,
    /// Absent: nobody is served by the server but the run.
    pub live: Option<LiveRequest>,
    /// Mode of files without literals. All other files are made with the process's umask: nobody but their owner may
    /// read those of captures and logs, which hold literals of users' queries.
    pub readers: u32,
    /// The command line that repeats the run.
    pub command: Vec<String>,
}

/// Source of the run: scenario or plan.
#[derive(Debug, Clone)]
pub enum RunSource {
    /// A scenario to plan, with command-line overrides.
    Scenario(Box<Scenario>, Box<RunOverrides>),
    /// An earlier plan, to be repeated exactly.
    Plan(Box<Plan>),
}

/// Whoever runs it: where progress is shown, and what ends the run early.
#[derive(Clone, Copy)]
struct RunContext<'a> {
    progress: &'a dyn Progress,
    cancel: &'a CancelToken,
}

/// The source of the run after everything is resolved that needs no server.
enum ResolvedSource {
    Scenario(Box<ResolvedScenario>, Box<RunOverrides>),
    Plan(Box<Plan>),
}

impl ResolvedSource {
    fn resolve(what: &RunSource) -> anyhow::Result<Self> {
        Ok(match what {
            RunSource::Scenario(scenario, overrides) => {
                let resolved = ResolvedScenario::new(scenario.as_ref().clone(), overrides)?;
                Self::Scenario(Box::new(resolved), overrides.clone())
            }
            RunSource::Plan(plan) => {
                plan::check_unredacted(plan)?;
                Self::Plan(plan.clone())
            }
        })
    }

    fn scenario(&self) -> &str {
        match self {
            Self::Scenario(resolved, _) => &resolved.scenario.name,
            Self::Plan(plan) => &plan.scenario,
        }
    }

    fn clock(&self) -> Clock {
        match self {
            Self::Scenario(resolved, _) => resolved.clock,
            Self::Plan(plan) => plan.clock,
        }
    }

    fn setup(&self, choice: &ServerChoice) -> anyhow::Result<Setup> {
        match self {
            Self::Scenario(resolved, _) => testbed::resolve_setup(resolved, choice),
            Self::Plan(plan) => Ok(plan.setup.clone()),
        }
    }
}

/// A finished run.
#[derive(Debug)]
pub struct FinishedRun {
    pub dir: PathBuf,
    pub result: RunResult,
    pub ending: RunEnd,
    /// The reason why `result.json` could not be written, although all was measured.
    pub write_error: Option<anyhow::Error>,
    /// Mode of files without literals, for the readers that the user's umask allows.
    pub reader_mode: u32,
}

/// Carries the run out. An interrupted run is finished too: its measurements are analysed.
///
/// # Errors
/// The run cannot begin, or the host or server could not be restored.
pub fn run(asked: RunRequest, progress: &dyn Progress, cancel: &CancelToken) -> anyhow::Result<FinishedRun> {
    let mut source = ResolvedSource::resolve(&asked.source)?;
    let dir = asked.out.clone().unwrap_or_else(|| name::new_run_dir(source.scenario()));
    let run_id = name::new_run_id(&dir);
    let _alone = HostLock::acquire()?;
    make_run_dir(&dir, asked.readers)?;
    private_file::create_dir(&dir.join("artefacts"))?;
    let writer = RunWriter::create(&dir)
        .with_context(|| format!("cannot make the run directory {}", dir.display()))?;
    std::fs::write(dir.join("scenario.toml"), redact::redact_text(&asked.text))
        .context("cannot write scenario.toml")?;
    let journal = Journal::begin(&run_id).context("nothing was changed")?;
    for name in PRE_TRIAL_FILES {
        let path = std::path::absolute(toll_record::temporary_path(&dir, name))?;
        journal.record(Undo::Path { path })?;
    }
    let conducted =
        run_in_testbed(&asked, &mut source, &dir, writer, journal, RunContext { progress, cancel });
    let ending = match conducted {
        Ok(ending) => ending,
        Err(error) => {
            remove_unmeasured_dir(&dir);
            return Err(error);
        }
    };
    let run = RunDir::open(&dir)?;
    let result =
        toll_analysis::analyse_run_dir(&run).context("the run is complete, but its analysis failed")?;
    let unwritten = write_result(&run, &result, asked.readers).err();
    Ok(FinishedRun { dir, result, ending, write_error: unwritten, reader_mode: asked.readers })
}

/// Makes the run directory, and those above it that are not there, for the readers that the user allows.
///
/// Whatever the umask: who may write into it may put anything in the place of what toll writes.
pub fn make_run_dir(dir: &Path, readers: u32) -> anyhow::Result<()> {
    make_dir(dir, readers).with_context(|| format!("cannot make the run directory {}", dir.display()))
}

fn make_dir(dir: &Path, readers: u32) -> std::io::Result<()> {
    let is_missing = |dir: &&Path| !dir.as_os_str().is_empty() && !dir.exists();
    let missing: Vec<&Path> = dir.ancestors().take_while(is_missing).collect();
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Who may read a directory may look into it.
    let mode = 0o700 | readers | ((readers & 0o444) >> 2);
    missing.into_iter().try_for_each(|made| std::fs::set_permissions(made, Permissions::from_mode(mode)))
}

/// Writes the result, which holds no literals, for the readers that the user allows.
pub fn write_result(run: &RunDir, result: &RunResult, readers: u32) -> anyhow::Result<()> {
    let path = run.root().join("result.json");
    toll_record::write_json(run.root(), "result.json", result)
        .map_err(anyhow::Error::from)
        .and_then(|()| Ok(std::fs::set_permissions(&path, Permissions::from_mode(readers))?))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn run_in_testbed(
    request: &RunRequest,
    source: &mut ResolvedSource,
    dir: &Path,
    writer: RunWriter,
    journal: Journal,
    caller: RunContext<'_>,
) -> anyhow::Result<RunEnd> {
    let RunContext { progress, cancel } = caller;
    let setup = source.setup(&request.server)?;
    let OpenTestbed { mut testbed, mut facts, mut host } =
        testbed::open(&request.server, &setup, dir, journal, progress, cancel)?;
    let conducted = (|| {
        if cancel.is_cancelled() {
            bail!("interrupted before the first trial");
        }
        if source.clock().is_real() {
            // A virtual machine has the programs of its host, which asks them faster.
            host.tools = host::tools::detect_tools();
        }
        writer.write_json("host.json", &host).context("cannot write host.json")?;
        if !testbed.rig.captures.is_empty() {
            let document = Document { profiles: std::mem::take(&mut testbed.rig.captures) };
            writer.write_captures(&document).with_context(|| format!("cannot write {CAPTURES_FILE}"))?;
        }
        for line in &testbed.rig.step_notes {
            tracing::info!("{line}");
        }
        let counters = testbed.servers.iter().map(|s| ServerCounters::new(s.admin.sibling(), s.number));
        let counters = counters.collect();
        let (recorder, recording) = Recorder::start(writer);
        // On the counted clock their own work would be a part of every window.
        let start = || Collectors::start(&recorder, counters, dir, request.live.is_some());
        let collectors = source.clock().is_real().then(start);
        let ending = trials::run_trials(request, source, &mut facts, &mut testbed, &recorder, dir, caller);
        if let Some(collectors) = collectors {
            collectors.stop();
        }
        let finished = recording.finish(&recorder);
        ending.and_then(|ending| finished.map(|()| ending))
    })();
    end_closed(conducted, testbed::close(testbed))
}

/// What was measured holds even where something could not be put back; that is still an error.
fn end_closed(conducted: anyhow::Result<RunEnd>, closed: anyhow::Result<()>) -> anyhow::Result<RunEnd> {
    match (conducted, closed) {
        (conducted, Ok(())) => conducted,
        (Ok(RunEnd::Aborted(why)), Err(left)) => Ok(RunEnd::NotRestored(format!("{left:#}; before: {why}"))),
        (Ok(_), Err(left)) => Ok(RunEnd::NotRestored(format!("{left:#}"))),
        (Err(error), Err(left)) => Err(error.context(format!("{left:#}"))),
    }
}

/// Removes the directory of a run that ended before its first trial.
fn remove_unmeasured_dir(dir: &Path) {
    if std::fs::metadata(dir.join("trials.ndjson")).is_ok_and(|trials| trials.len() > 0) {
        tracing::info!("measurements up to then are in {}", dir.display());
        return;
    }
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let planned = PRE_TRIAL_FILES.map(|name| dir.join(name));
    let ours = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "toml" || e == "ndjson" || e == "zst") || planned.contains(path)
    };
    for file in files.filter(ours) {
        let _ = std::fs::remove_file(file);
    }
    // Not empty: then it was there before, with other things in it.
    let _ = std::fs::remove_dir(dir.join("artefacts")).and_then(|()| std::fs::remove_dir(dir));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_leaves_something_switched_on_says_so_beside_its_own_reason() {
        let (tripped, left) =
            (|| Ok(RunEnd::Aborted("it tripped".into())), || Err(anyhow::anyhow!("it is on")));
        assert_eq!(end_closed(tripped(), Ok(())).unwrap(), RunEnd::Aborted("it tripped".into()));
        let both = "it is on; before: it tripped".to_owned();
        assert_eq!(end_closed(tripped(), left()).unwrap(), RunEnd::NotRestored(both));
        let alone = RunEnd::NotRestored("it is on".into());
        assert_eq!(end_closed(Ok(RunEnd::Completed), left()).unwrap(), alone);
        let failed = end_closed(Err(anyhow::anyhow!("it failed")), left()).unwrap_err();
        assert_eq!(format!("{failed:#}"), "it is on: it failed");
    }

    #[test]
    fn a_run_directory_is_for_the_readers_of_its_report_and_those_that_were_there_stay() {
        let there = tempfile::tempdir().unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let before = mode(there.path());
        for (readers, expected) in [(0o644, 0o755), (0o640, 0o750), (0o600, 0o700)] {
            let between = there.path().join(format!("{readers:o}"));
            let dir = between.join("run");
            make_dir(&dir, readers).unwrap();
            make_dir(&dir, 0o600).unwrap();
            assert_eq!([mode(&dir), mode(&between)], [expected; 2]);
        }
        assert_eq!(mode(there.path()), before);
    }
}
