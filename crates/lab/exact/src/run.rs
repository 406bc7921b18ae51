//! Sequence of a counted run: kit, data, machines, merged run directory, analysis.

use crate::machines::MachineSet;
use crate::merge::{WholeRun, merge_runs};
use crate::messages::GuestRequest;
use crate::{precision, sizing};
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use toll_execution::run::{self, FinishedRun};
use toll_execution::testbed::{self, ServerChoice};
use toll_execution::trial_loop::{Progress, RunEnd};
use toll_journal::{Journal, Undo};
use toll_model::plan::{self, ResolvedScenario, RunOverrides};
use toll_model::scenario::Scenario;
use toll_record::{Clock, CountedClock, RunDir};
use toll_server::lock::HostLock;
use toll_sys::cancel::CancelToken;
use toll_sys::{child_process, clock, paths, private_file, redact};
use toll_vm::Kit;

/// Request for a counted run.
#[derive(Debug, Clone)]
pub struct ExactRequest {
    pub scenario: Scenario,
    /// The scenario in full, and as it is kept in the run.
    pub scenario_text: String,
    pub text: String,
    pub overrides: RunOverrides,
    pub server: ServerChoice,
    /// A kernel package, a `.deb` or an image; absent: the newest that can be had.
    pub kernel: Option<String>,
    /// The run ends once all intervals are this narrow: half their width, percent.
    pub precision_pct: f64,
    pub out: Option<PathBuf>,
    pub keep_artefacts: bool,
    /// Mode of files without literals.
    pub readers: u32,
    /// The command line that repeats the run.
    pub command: Vec<String>,
}

/// Name of the directory with the machines' own, within the run's.
const MACHINES: &str = "private";
/// Where rounds so far are merged, to see whether they are enough.
const INTERIM: &str = "interim";

/// Carries the run out. An interrupted run is finished too: its rounds that have ended are analysed.
///
/// # Errors
/// The run cannot begin, or a machine failed before any round had ended.
pub fn run(
    request: &ExactRequest,
    progress: &dyn Progress,
    cancel: &CancelToken,
) -> anyhow::Result<FinishedRun> {
    let begun = Instant::now();
    let overrides = RunOverrides { clock: Clock::Counted, ..request.overrides.clone() };
    let resolved = ResolvedScenario::new(request.scenario.clone(), &overrides)?;
    let server_bin = match &request.server {
        ServerChoice::External { .. } => bail!(
            "--exact measures in virtual machines, on private servers alone: leave out --server, or leave out --exact"
        ),
        ServerChoice::Sandbox { program } => program.clone(),
        ServerChoice::None => None,
    };
    let setup = testbed::resolve_setup(&resolved, &request.server)?;
    let sizing = sizing::choose(&resolved, &setup)?;
    let dir = request.out.clone().unwrap_or_else(|| run::new_run_dir(&resolved.scenario.name));
    let run_id = run::new_run_id(&dir);
    let _alone = HostLock::acquire(&run_id)?;
    let journal = Journal::begin(&run_id).context("nothing was changed")?;
    let kit = Kit::prepare(request.kernel.as_deref(), &paths::cache_dir()?, cancel, &|text| {
        tracing::info!("{text}");
    })?;
    testbed::prepare_data(&setup, &journal, progress, cancel)?;

    run::make_run_dir(&dir, request.readers)?;
    let dir = std::path::absolute(&dir).context("cannot resolve the path of the run directory")?;
    let machines_dir = dir.join(MACHINES);
    let machines_undo = journal.record(Undo::Path { path: machines_dir.clone() })?;
    private_file::create_dir(&machines_dir)?;
    std::fs::write(dir.join("scenario.toml"), redact::redact_text(&request.text))
        .context("cannot write scenario.toml")?;

    let started_wall_us = clock::wall_us();
    let seed = resolved.seed.unwrap_or(started_wall_us % 1_000_000_007);
    let whole = |wall_s: f64| WholeRun {
        command: plan::build_repro_command(&request.command, seed),
        seed,
        started_wall_us,
        counted: CountedClock {
            emulator: kit.emulator().to_owned(),
            machines: sizing.machines as u32,
            cpus_per_machine: 1,
            ns_per_instruction: 1,
            wall_s,
        },
    };
    let set = MachineSet {
        kit: &kit,
        machines: sizing.machines,
        memory_bytes: sizing.memory_bytes,
        dir: &machines_dir,
        request: GuestRequest {
            scenario: request.scenario_text.clone(),
            text: request.text.clone(),
            overrides,
            server_bin,
            keep_artefacts: request.keep_artefacts,
            command: request.command.clone(),
        },
        env: environment(&resolved),
        seed,
        rounds: resolved.times.rounds.unwrap_or(1),
    };
    tracing::info!(
        "{}: {} arms in {} virtual machines of {:.1} GB, Linux {}; seed {seed}; {}",
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
    let rounds = merge_runs(&set.runs(), &whole(begun.elapsed().as_secs_f64()), &dir);
    journal.undo(machines_undo)?;
    if rounds? == 0 {
        remove_empty_run(&dir);
        match ending {
            RunEnd::Aborted(why) => bail!("{why}"),
            _ => bail!("interrupted before the first round had ended"),
        }
    }
    let run = RunDir::open(&dir)?;
    let result =
        toll_analysis::analyse_run_dir(&run).context("the run is complete, but its analysis failed")?;
    let write_error = run::write_result(&run, &result, request.readers).err();
    Ok(FinishedRun { dir, result, ending, write_error, reader_mode: request.readers })
}

/// The widest half of an interval in the rounds so far; `None`: too few rounds for one.
fn interim_half_pct(runs: &[RunDir], whole: &WholeRun, dir: &Path) -> anyhow::Result<Option<f64>> {
    let rounds = merge_runs(runs, whole, dir)?;
    let half_pct = if rounds == 0 {
        None
    } else {
        precision::widest_half_pct(&toll_analysis::analyse_run_dir(&RunDir::open(dir)?)?)
    };
    if dir.exists() {
        std::fs::remove_dir_all(dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(half_pct)
}

/// Variables of toll's own environment that a child is given here too, and those that treatments are given by name.
fn environment(resolved: &ResolvedScenario) -> Vec<(String, String)> {
    let harmless = child_process::harmless_variables()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let names = resolved.arms.iter().flat_map(|arm| arm.env.iter());
    let named = names.filter_map(|name| Some((name.clone(), std::env::var(name).ok()?)));
    harmless.chain(named).collect::<BTreeMap<_, _>>().into_iter().collect()
}

fn remove_empty_run(dir: &Path) {
    let _ = std::fs::remove_file(dir.join("scenario.toml"));
    // Not empty: then it was there before, with other things in it.
    let _ = std::fs::remove_dir(dir);
}
