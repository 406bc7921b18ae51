//! Sequence of a counted run: kit, data, machines, merged run directory, analysis.

use crate::machines::MachineSet;
use crate::merge::{WholeRun, merge_runs};
use crate::messages::GuestRequest;
use crate::{precision, sizing};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use toll_execution::host::describe_host;
use toll_execution::host::tools::detect_tools;
use toll_execution::run::{self, FinishedRun, RunRequest, RunSource};
use toll_execution::testbed::{self, ServerChoice};
use toll_execution::trial_loop::{Progress, RunEnd};
use toll_journal::{Journal, Undo};
use toll_model::plan::{self, ResolvedScenario, RunOverrides};
use toll_model::scenario::Scenario;
use toll_record::{Clock, CountedClock, MEASURED, RunDir};
use toll_server::lock::HostLock;
use toll_sys::cancel::CancelToken;
use toll_sys::units::Seconds;
use toll_sys::{child_process, clock, paths, private_file, redact};
use toll_vm::Kit;

/// Request for a counted run, or with a time for one on both clocks.
#[derive(Debug)]
pub struct ExactRequest {
    /// Its scenario is the one that the run keeps.
    pub asked: RunRequest,
    /// The scenario in full.
    pub scenario_text: String,
    /// A kernel package, a `.deb` or an image; absent: the newest that can be had.
    pub kernel: Option<String>,
    /// Counting ends once nearly all intervals are this narrow: half their width, percent.
    pub precision_pct: f64,
}

/// Name of the directory with the machines' own, within the run's.
const MACHINES: &str = "private";
/// Where the run is merged: what there is no room for is gone with the machines.
const MERGED: &str = "merged";
/// Where rounds so far are merged, to see whether they are enough.
const INTERIM: &str = "interim";

/// Of the time that is given to both clocks, the counted one's share.
const COUNTED_SHARE: f64 = 0.65;
/// Less than this tells nothing in measured time.
const LEAST_MEASURED_S: f64 = 60.0;

/// Carries the run out: counts, and with a time measures for what is left of it. An interrupted run is finished too: its
/// rounds that have ended are analysed.
///
/// # Errors
/// The run cannot begin, or a machine failed before any round had ended.
pub fn run(
    request: &ExactRequest,
    progress: &dyn Progress,
    cancel: &CancelToken,
) -> anyhow::Result<FinishedRun> {
    let RunSource::Scenario(scenario, overrides) = &request.asked.source else {
        bail!("--exact counts by a scenario: name one in the place of --plan")
    };
    let begun = Instant::now();
    let counted = count(request, scenario, overrides, begun, progress, cancel)?;
    let (Some(time), RunEnd::Completed) = (overrides.time, &counted.ending) else { return Ok(counted) };
    let left_s = (time.0 - begun.elapsed().as_secs_f64()).max(LEAST_MEASURED_S);
    let seed = counted.result.seed;
    let asked = timed_request(&request.asked, scenario, overrides, seed, left_s, &counted.dir)?;
    tracing::info!("counted in {}; now the same in time, {left_s:.0} s", counted.dir.display());
    let ending = match run::run(asked, progress, cancel) {
        Ok(measured) => measured.ending,
        // What was counted stands.
        Err(error) => RunEnd::Aborted(format!("nothing was measured in time: {error:#}")),
    };
    analyse(&counted.dir, ending, request.asked.readers)
}

/// The measured part of a run on both clocks.
fn timed_request(
    asked: &RunRequest,
    scenario: &Scenario,
    overrides: &RunOverrides,
    seed: u64,
    time_s: f64,
    dir: &Path,
) -> anyhow::Result<RunRequest> {
    let counted = ResolvedScenario::new(scenario.clone(), overrides)?;
    let is_timed = |name: &String| counted.profile.timed.as_ref().is_none_or(|timed| timed.contains(name));
    let arms = counted.arms.iter().map(|arm| arm.name.clone()).filter(is_timed).collect();
    let overrides = RunOverrides {
        clock: Clock::Real,
        arms: Some(arms),
        time: Some(Seconds(time_s)),
        rounds: None,
        window: None,
        settle: None,
        gap: None,
        seed: Some(seed),
        ..overrides.clone()
    };
    Ok(RunRequest {
        source: RunSource::Scenario(Box::new(scenario.clone()), Box::new(overrides)),
        out: Some(dir.join(MEASURED)),
        ..asked.clone()
    })
}

/// The counted run.
fn count(
    request: &ExactRequest,
    scenario: &Scenario,
    overrides: &RunOverrides,
    begun: Instant,
    progress: &dyn Progress,
    cancel: &CancelToken,
) -> anyhow::Result<FinishedRun> {
    let asked = &request.asked;
    let overrides = RunOverrides { clock: Clock::Counted, ..overrides.clone() };
    let counted_s = overrides.time.map(|time| time.0 * COUNTED_SHARE);
    let server_bin = match &asked.server {
        ServerChoice::External { .. } => bail!(
            "--exact measures in virtual machines, on private servers alone: leave out --server, or leave out --exact"
        ),
        ServerChoice::Sandbox { program } => program.clone(),
        ServerChoice::None => None,
    };
    let resolved = ResolvedScenario::new(scenario.clone(), &overrides)?;
    let setup = testbed::resolve_setup(&resolved, &asked.server)?;
    let sizing = sizing::choose(&resolved, &setup)?;
    let dir = asked.out.clone().unwrap_or_else(|| run::new_run_dir(&resolved.scenario.name));
    let run_id = run::new_run_id(&dir);
    let _alone = HostLock::acquire()?;
    let journal = Journal::begin(&run_id).context("nothing was changed")?;
    let kit = Kit::prepare(request.kernel.as_deref(), &paths::cache_dir()?, cancel, &|text| {
        tracing::info!("{text}");
    })?;
    testbed::prepare_data(&setup, &journal, progress, cancel)?;

    run::make_run_dir(&dir, asked.readers)?;
    let dir = std::path::absolute(&dir).context("cannot resolve the path of the run directory")?;
    let machines_dir = dir.join(MACHINES);
    let machines_undo = journal.record(Undo::Path { path: machines_dir.clone() })?;
    private_file::create_dir(&machines_dir)?;
    std::fs::write(dir.join("scenario.toml"), redact::redact_text(&asked.text))
        .context("cannot write scenario.toml")?;

    let started_wall_us = clock::wall_us();
    let seed = resolved.seed.unwrap_or(started_wall_us % 1_000_000_007);
    let host = describe_host(&dir, &BTreeMap::new());
    let tools = detect_tools();
    let whole = |wall_s: f64| WholeRun {
        command: plan::build_repro_command(&asked.command, seed),
        seed,
        started_wall_us,
        counted: CountedClock {
            emulator: kit.emulator().to_owned(),
            cpu_model: Some(host.cpu_model.clone()),
            machines: sizing.machines as u32,
            cpus_per_machine: 1,
            ns_per_instruction: 1,
            wall_s,
        },
        tools: tools.clone(),
    };
    let set = MachineSet {
        kit: &kit,
        machines: sizing.machines,
        memory_bytes: sizing.memory_bytes,
        dir: &machines_dir,
        request: GuestRequest {
            scenario: request.scenario_text.clone(),
            text: asked.text.clone(),
            overrides,
            server_bin,
            keep_artefacts: asked.keep_artefacts,
            command: asked.command.clone(),
        },
        env: environment(&resolved),
        seed,
        rounds: resolved.times.rounds.unwrap_or(1),
        until: counted_s.map(|counted_s| begun + Duration::from_secs_f64(counted_s)),
    };
    tracing::info!(
        "{}: {} variants in {} virtual machines of {:.1} GB, Linux {}; seed {seed}; {}",
        resolved.scenario.name,
        resolved.arms.len(),
        sizing.machines,
        sizing.memory_bytes as f64 / 1e9,
        kit.kernel_version(),
        dir.display()
    );
    let mut is_enough = |runs: &[RunDir]| {
        let half_pct = interim_half_pct(runs, &whole(0.0), &machines_dir.join(INTERIM))?;
        if let Some(pct) = half_pct {
            progress.show_mde(pct);
        }
        Ok(half_pct.is_some_and(|pct| pct <= request.precision_pct))
    };
    let ended = set.run(&journal, progress, cancel, &mut is_enough);
    progress.finish();
    let ending = match ended {
        Ok(()) if cancel.is_cancelled() => RunEnd::Interrupted,
        Ok(()) => RunEnd::Completed,
        Err(error) => RunEnd::Aborted(format!("{error:#}")),
    };
    let merged = machines_dir.join(MERGED);
    let rounds = merge_runs(&set.runs(), &whole(begun.elapsed().as_secs_f64()), &merged)
        .and_then(|rounds| move_files(&merged, &dir).map(|()| rounds))
        .with_context(|| {
            format!(
                "cannot write the run to {}: free space there, or name another place with --out",
                dir.display()
            )
        });
    journal.undo(machines_undo)?;
    if rounds.as_ref().map_or(true, |rounds| *rounds == 0) {
        remove_empty_run(&dir);
    }
    if rounds? == 0 {
        match ending {
            RunEnd::Aborted(why) | RunEnd::NotRestored(why) => bail!("{why}"),
            _ => bail!("interrupted before the first round had ended"),
        }
    }
    analyse(&dir, ending, asked.readers)
}

/// Analyses what there is, and writes the result.
fn analyse(dir: &Path, ending: RunEnd, readers: u32) -> anyhow::Result<FinishedRun> {
    let run = RunDir::open(dir)?;
    let result =
        toll_analysis::analyse_run_dir(&run).context("the run is complete, but its analysis failed")?;
    let write_error = run::write_result(&run, &result, readers).err();
    Ok(FinishedRun { dir: dir.to_owned(), result, ending, write_error, reader_mode: readers })
}

/// The half of an interval that nearly all arms keep within in the rounds so far; `None`: too few rounds for one.
fn interim_half_pct(runs: &[RunDir], whole: &WholeRun, dir: &Path) -> anyhow::Result<Option<f64>> {
    let rounds = merge_runs(runs, whole, dir)?;
    let half_pct = if rounds == 0 {
        None
    } else {
        precision::usual_half_pct(&toll_analysis::analyse_run_dir(&RunDir::open(dir)?)?)
    };
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(half_pct)
}

/// State of the toll inside a machine, in the machine's own memory: it runs as root there, and the state of the user who
/// started it is not root's.
const GUEST_STATE: (&str, &str) = ("XDG_STATE_HOME", "/run/state");

/// Variables of toll's own environment that a child is given here too, and those that treatments are given by name.
fn environment(resolved: &ResolvedScenario) -> Vec<(String, String)> {
    let harmless = child_process::harmless_variables()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let names = resolved.arms.iter().flat_map(|arm| arm.env.iter());
    let named = names.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
    let state = (GUEST_STATE.0.to_owned(), GUEST_STATE.1.to_owned());
    harmless.chain(named).chain([state]).collect::<BTreeMap<_, _>>().into_iter().collect()
}

/// Moves what is in a directory, if there is one, to another of the same file system.
fn move_files(from: &Path, to: &Path) -> anyhow::Result<()> {
    if !from.exists() {
        return Ok(());
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        std::fs::rename(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

fn remove_empty_run(dir: &Path) {
    let _ = std::fs::remove_file(dir.join("scenario.toml"));
    // Not empty: then it was there before, with other things in it.
    let _ = std::fs::remove_dir(dir);
}
