//! How does a run go from a scenario to its report?
//!
//! Settle what was asked, make the server ready, plan, conduct, analyse, report; and on every way
//! out put the host and the server back as they were.

mod foretell;
mod lock;
mod name;

pub use lock::ServerLock;

use crate::analyse;
use crate::collector::{Collectors, ServerCounters};
use crate::conduct::{Conductor, Ending, Interrupt, Progress};
use crate::counted::counted;
use crate::journal::{Journal, Undo};
use crate::plan::{Facts, Settled, Wishes};
use crate::recorder::{Recorder, Recording};
use crate::say::tell;
use crate::scenario::Scenario;
use crate::secrets;
use crate::server::private;
use crate::stage::{self, Opened, ServerChoice, Stage};
use anyhow::{Context, bail};
use lock::HostLock;
use std::collections::BTreeMap;
use std::fs::{DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;
use toll_record::{Ends, Plan, RunDir, RunResult, RunWriter};

/// A run as it was asked for.
#[derive(Debug, Clone)]
pub struct Asked {
    pub scenario: Scenario,
    /// The scenario's text, kept in the run.
    pub text: String,
    pub wishes: Wishes,
    pub server: ServerChoice,
    /// Absent: a fresh directory named after the scenario and the time.
    pub out: Option<PathBuf>,
    pub keep_artefacts: bool,
    /// The command line that repeats the run.
    pub command: Vec<String>,
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    pub dir: PathBuf,
    pub result: RunResult,
    pub ending: Ending,
    /// Why the reports could not be written, where all was measured.
    pub unwritten: Option<anyhow::Error>,
}

/// Carries the run out. An interrupted run is finished too: what was measured is analysed.
pub fn run(asked: Asked) -> anyhow::Result<Finished> {
    let mut settled = Settled::new(asked.scenario.clone(), &asked.wishes)?;
    let interrupt = Interrupt::listen()?;
    let dir = asked.out.clone().unwrap_or_else(|| name::fresh(&settled.scenario.name));
    let run_id = name::run_id(&dir);
    let _alone = HostLock::take(&run_id)?;
    // Whatever the umask: who may write into it may put anything in the place of what toll writes.
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&dir)
        .with_context(|| format!("cannot make the run directory {}", dir.display()))?;
    let readers = only_for_owner();
    private::dir(&dir.join("artefacts"))?;
    let writer = RunWriter::create(&dir)
        .with_context(|| format!("cannot make the run directory {}", dir.display()))?;
    std::fs::write(dir.join("scenario.toml"), secrets::hide(&asked.text))
        .context("cannot write scenario.toml")?;
    let journal = Journal::begin(&run_id).context("nothing was changed")?;
    for name in ["plan.json", "host.json"] {
        let path = std::path::absolute(toll_record::unfinished(&dir, name))?;
        journal.record(Undo::Path { path })?;
    }
    let conducted = conduct(&asked, &mut settled, &dir, writer, journal, &interrupt);
    let ending = match conducted {
        Ok(ending) => ending,
        Err(error) => {
            forget_unmeasured(&dir);
            return Err(error);
        }
    };
    let run = RunDir::open(&dir)?;
    let result = analyse::run(&run).context("the run is whole, its analysis failed")?;
    let unwritten = write_reports(&run, &result, readers).err();
    Ok(Finished { dir, result, ending, unwritten })
}

/// From now on whatever toll or its children write is for this user alone: captures and logs hold what
/// people's queries hold. The answer is what the user's own umask lets others do with a new file.
fn only_for_owner() -> u32 {
    let umask = nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    0o644 & !umask.bits()
}

/// The two files of a run that hold no literals and are for whoever the user lets read.
fn write_reports(run: &RunDir, result: &RunResult, readers: u32) -> anyhow::Result<()> {
    let written = |name: &str, write: &dyn Fn() -> anyhow::Result<()>| {
        let path = run.root().join(name);
        write()
            .and_then(|()| Ok(std::fs::set_permissions(&path, Permissions::from_mode(readers))?))
            .with_context(|| format!("cannot write {}", path.display()))
    };
    written("result.json", &|| Ok(toll_record::write_json(run.root(), "result.json", result)?))?;
    written("report.html", &|| {
        let page = crate::report::html::html(std::slice::from_ref(run))?;
        Ok(std::fs::write(run.root().join("report.html"), page)?)
    })
}

fn conduct(
    asked: &Asked,
    settled: &mut Settled,
    dir: &Path,
    writer: RunWriter,
    journal: Journal,
    interrupt: &Interrupt,
) -> anyhow::Result<Ending> {
    let setup = settled.setup(&asked.server)?;
    let Opened { mut stage, facts, host } = stage::open(&asked.server, &setup, dir, journal, interrupt)?;
    stage.define(&settled.scenario.define);
    let conducted = (|| {
        if interrupt.raised() {
            bail!("interrupted before the first trial");
        }
        let capacities = capacities(settled, &facts, asked, &mut stage, interrupt)?;
        settled.settle_rates(&capacities, &asked.wishes.rates)?;
        let mut plan = settled.plan(&facts, &|arm| stage.fill_of(arm), asked.command.clone())?;
        writer.write_json("plan.json", &plan).context("cannot write plan.json")?;
        writer.write_json("host.json", &host).context("cannot write host.json")?;
        announce(settled, &plan, dir);
        for line in &stage.rig.told {
            tell!("toll: {line}");
        }
        let counters = stage.servers.iter().map(|s| ServerCounters::new(s.admin.sibling(), s.number));
        let counters = counters.collect();
        let (recorder, recording) = Recorder::start(writer);
        let collectors = Collectors::start(&recorder, counters, dir);
        let ending = trials(asked, settled, &mut plan, &mut stage, &recorder, &recording, interrupt);
        collectors.stop();
        let finished = recording.finish(&recorder);
        ending.and_then(|ending| finished.map(|()| ending))
    })();
    let closed = stage::close(stage);
    // What was measured holds even where something could not be put back; that is still an error.
    match (conducted, closed) {
        (conducted, Ok(())) => conducted,
        (Ok(_), Err(left)) => Ok(Ending::Cut(format!("{left:#}"))),
        (Err(error), Err(left)) => Err(error.context(format!("{left:#}"))),
    }
}

fn trials(
    asked: &Asked,
    settled: &Settled,
    plan: &mut Plan,
    stage: &mut Stage,
    recorder: &Recorder,
    recording: &Recording,
    interrupt: &Interrupt,
) -> anyhow::Result<Ending> {
    let count: usize = plan.order.iter().map(Vec::len).sum();
    let arms = plan.order.first().map_or(0, Vec::len);
    let planned = Duration::from_secs_f64(settled.expected_s(arms));
    let progress = Progress::new(count as u64, plan.rounds, planned);
    let root = recording.root().to_owned();
    let mut enough = || Ok(analyse::enough(&analyse::run(&RunDir::open(&root)?)?));
    let planned = plan.clone();
    let mut conductor = Conductor::new(
        &planned,
        &settled.arms,
        stage,
        recorder,
        interrupt,
        &progress,
        &mut enough,
        asked.keep_artefacts,
    );
    let ending = conductor.pilot(settled.profile.pilot.0).and_then(|bins| {
        plan.planned_mde_pct = foretell::mde_pct(&bins, plan);
        foretell::tell(plan, bins.len(), &progress);
        conductor.rehearse(&mut plan.arms)?;
        toll_record::write_json(&root, "plan.json", plan).context("cannot write plan.json")?;
        conductor.run()
    });
    let stopped = conductor.stop_load();
    conductor.second_opinions();
    progress.finish();
    ending.and_then(|ending| stopped.map(|()| ending))
}

/// What closed loops attain here, for the arms whose rates are shares of it. Its samples go to a
/// directory of their own that does not outlive the run.
fn capacities(
    settled: &Settled,
    facts: &Facts,
    asked: &Asked,
    stage: &mut Stage,
    interrupt: &Interrupt,
) -> anyhow::Result<BTreeMap<String, f64>> {
    let wanted = settled.capacities_wanted();
    let mut found = BTreeMap::new();
    if wanted.is_empty() || !asked.wishes.rates.is_empty() {
        return Ok(found);
    }
    let plan = settled.plan(facts, &|arm| stage.fill_of(arm), asked.command.clone())?;
    let scratch = stage.work_dir.join("capacity");
    let (recorder, recording) = Recorder::start(RunWriter::create(&scratch)?);
    let progress = Progress::new(0, 0, Duration::ZERO);
    let mut never = || Ok(false);
    let mut conductor =
        Conductor::new(&plan, &settled.arms, stage, &recorder, interrupt, &progress, &mut never, false);
    let measured = wanted.into_iter().try_for_each(|name| {
        let arm = settled.scenario.arms.iter().find(|a| a.name == name).context("no such arm")?;
        let per_s = conductor.capacity(&name, &settled.arm_workload(arm))?;
        tell!("toll: {name} attains {per_s:.0} events/s here");
        found.insert(name, per_s);
        anyhow::Ok(())
    });
    let stopped = conductor.stop_load();
    recording.finish(&recorder)?;
    measured?;
    stopped?;
    Ok(found)
}

/// A run that came to nothing before its first trial leaves no directory to wonder about.
fn forget_unmeasured(dir: &Path) {
    if std::fs::metadata(dir.join("trials.ndjson")).is_ok_and(|trials| trials.len() > 0) {
        tell!("toll: what was measured until then is in {}", dir.display());
        return;
    }
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let planned = ["plan.json", "host.json"].map(|name| dir.join(name));
    let ours = |path: &PathBuf| {
        path.extension().is_some_and(|e| e == "toml" || e == "ndjson" || e == "hlog")
            || planned.contains(path)
    };
    for file in files.filter(ours) {
        let _ = std::fs::remove_file(file);
    }
    // Not empty: then it was there before, with other things in it.
    let _ = std::fs::remove_dir(dir.join("artefacts")).and_then(|()| std::fs::remove_dir(dir));
}

/// What the run will be, before it begins.
fn announce(settled: &Settled, plan: &Plan, dir: &Path) {
    let arms = plan.order.first().map_or(0, Vec::len);
    let seconds = settled.profile.pilot.0 + settled.expected_s(arms);
    let may_end = plan.arms.iter().any(|arm| matches!(arm.ends, Ends::ClosesWindow | Ends::Rehearse));
    tell!(
        "toll: {} ({}): {} x {}, windows of {} s{}, {} {:.0}:{:02.0} min; seed {}; {}",
        plan.scenario,
        plan.profile,
        counted(arms as u64, "arm"),
        counted(plan.rounds.into(), "round"),
        plan.window_s,
        if settled.arms.iter().any(|arm| arm.until_done) { " or until done" } else { "" },
        if may_end { "at most" } else { "about" },
        (seconds / 60.0).floor(),
        seconds % 60.0,
        plan.seed,
        dir.display()
    );
    for arm in &plan.arms {
        if let Some(reason) = &arm.unavailable {
            tell!("toll: arm {} is not available: {reason}", arm.name);
        }
    }
}
