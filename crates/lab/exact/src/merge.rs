//! Merging of the runs that virtual machines left into one run directory.
//!
//! Rounds and trials are numbered on, and each machine's times are put behind those of the one before: all of them count
//! from the machine's own boot. Rounds that were cut short are left out.

use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::path::Path;
use toll_record::{
    Artefact, CountedClock, Cpu, Host, LatencyWindow, Plan, RunDir, RunWriter, Sample, Step, Tool, TrialLine,
};

/// Between the machines' times, so that no interval spans two machines.
const APART_US: u64 = 1_000_000;

/// Rounds of a machine that have ended.
pub fn complete_rounds(plan: &Plan, trials: &[TrialLine]) -> u32 {
    let mut ended: BTreeMap<u32, usize> = BTreeMap::new();
    for line in trials.iter().filter(|line| line.step == Step::Stopped) {
        *ended.entry(line.round).or_default() += 1;
    }
    // A trial that failed has ended too, but an arm that has never worked is left out of later rounds.
    let failed = |round: u32, arm: &str| {
        trials.iter().any(|line| line.arm == arm && line.round <= round && line.step == Step::Failed)
    };
    let is_whole = |round: u32, arms: &[String]| {
        let missing = arms.len() - ended.get(&round).copied().unwrap_or(0).min(arms.len());
        missing <= arms.iter().filter(|arm| failed(round, arm)).count()
    };
    let rounds = plan.order.iter().zip(0u32..).take_while(|(arms, round)| is_whole(*round, arms));
    rounds.count() as u32
}

/// What is merged of one machine.
struct Part {
    plan: Plan,
    host: Host,
    rounds: u32,
    trials: Vec<TrialLine>,
    samples: Vec<Sample>,
    latencies: Vec<LatencyWindow>,
    artefacts: Vec<Artefact>,
}

impl Part {
    fn read(run: &RunDir) -> anyhow::Result<Self> {
        let plan = run.plan()?;
        let trials = run.trials()?;
        let rounds = complete_rounds(&plan, &trials);
        Ok(Self {
            host: run.host()?,
            samples: run.samples()?,
            latencies: run.latencies()?,
            artefacts: run.artefacts()?,
            rounds,
            trials,
            plan,
        })
    }

    /// Trials of its rounds that have ended, those that were left out among them.
    fn trial_count(&self) -> u32 {
        self.plan.order.iter().take(self.rounds as usize).map(|round| round.len() as u32).sum()
    }
}

/// What of a run the machines do not know.
#[derive(Debug, Clone)]
pub struct WholeRun {
    pub command: Vec<String>,
    pub seed: u64,
    pub started_wall_us: u64,
    pub counted: CountedClock,
    /// Programs of the host, which are the machines' own.
    pub tools: Vec<Tool>,
}

/// Writes the run of all machines into `dir`, which holds none yet. The answer: its rounds; 0: nothing was written.
///
/// # Errors
/// The machines carried out different plans, or a file cannot be read or written.
pub fn merge_runs(runs: &[RunDir], whole: &WholeRun, dir: &Path) -> anyhow::Result<u32> {
    let mut parts = Vec::with_capacity(runs.len());
    for run in runs {
        let part = Part::read(run).with_context(|| format!("in {}", run.root().display()))?;
        if part.rounds > 0 {
            parts.push((run, part));
        }
    }
    let Some((_, first)) = parts.first() else { return Ok(0) };
    let plan = merge_plans(&parts.iter().map(|(_, part)| part).collect::<Vec<_>>(), whole)?;
    let host =
        Host { counted: Some(whole.counted.clone()), tools: whole.tools.clone(), ..first.host.clone() };
    let mut writer =
        RunWriter::create(dir).with_context(|| format!("cannot make the run in {}", dir.display()))?;
    let (mut round_base, mut trial_base, mut next_us, mut cpu) = (0, 0, 0, Cpu::default());
    for (run, part) in &parts {
        let times = part.trials.iter().map(|line| line.mono_us);
        let begun_us = times.clone().min().unwrap_or(0);
        let shift = Shift { rounds: round_base, trials: trial_base, us: next_us, begun_us, cpu };
        write_part(part, &shift, &mut writer)?;
        copy_outputs(part, &shift, run.root(), dir)?;
        cpu = part.trials.iter().rev().find_map(|line| line.cpu).map_or(cpu, |last| add_cpu(cpu, last));
        next_us += times.max().unwrap_or(0) - begun_us + APART_US;
        round_base += part.rounds;
        trial_base += part.trial_count();
    }
    writer.finish()?;
    toll_record::write_json(dir, "host.json", &host)?;
    toll_record::write_json(dir, "plan.json", &plan)?;
    Ok(plan.rounds)
}

fn merge_plans(parts: &[&Part], whole: &WholeRun) -> anyhow::Result<Plan> {
    let Some(first) = parts.first() else { bail!("no machine has a plan") };
    let runnable = |plan: &Plan| -> Vec<String> {
        plan.arms.iter().filter(|arm| arm.unavailable.is_none()).map(|arm| arm.name.clone()).collect()
    };
    if parts.iter().any(|part| runnable(&part.plan) != runnable(&first.plan)) {
        bail!(
            "the virtual machines could not carry out the same variants: run again, and report it if that stays so"
        );
    }
    let order: Vec<Vec<String>> =
        parts.iter().flat_map(|part| part.plan.order.iter().take(part.rounds as usize).cloned()).collect();
    Ok(Plan {
        command: whole.command.clone(),
        seed: whole.seed,
        started_wall_us: whole.started_wall_us,
        rounds: order.len() as u32,
        order,
        ..first.plan.clone()
    })
}

/// How far a machine's numbers and times are moved.
struct Shift {
    rounds: u32,
    trials: u32,
    us: u64,
    /// The machine's own time of its first step.
    begun_us: u64,
    /// Used in the machines before: no clock of a party goes back.
    cpu: Cpu,
}

impl Shift {
    /// `None`: before the first step.
    fn time(&self, mono_us: u64) -> Option<u64> {
        Some(mono_us.checked_sub(self.begun_us)? + self.us)
    }
}

fn write_part(part: &Part, shift: &Shift, writer: &mut RunWriter) -> anyhow::Result<()> {
    let mut last_trial = None;
    for line in part.trials.iter().filter(|line| line.round < part.rounds) {
        last_trial = last_trial.max(Some(line.trial));
        let mut moved = line.clone();
        moved.trial += shift.trials;
        moved.round += shift.rounds;
        moved.mono_us = shift.time(line.mono_us).context("a step before the first one")?;
        moved.cpu = line.cpu.map(|cpu| add_cpu(shift.cpu, cpu));
        for process in &mut moved.processes {
            for time in [&mut process.begin_mono_us, &mut process.end_mono_us] {
                *time = shift.time(*time).unwrap_or(shift.us);
            }
        }
        writer.write_trial(&moved)?;
    }
    for sample in &part.samples {
        if let Some(moved) = move_sample(sample.clone(), shift) {
            writer.write_sample(&moved)?;
        }
    }
    let is_kept = |trial: u32| last_trial.is_some_and(|last| trial <= last);
    for window in part.latencies.iter().filter(|window| is_kept(window.trial)) {
        let begin_us = shift.time(window.begin_mono_us).unwrap_or(shift.us);
        writer.write_latency(
            &window.arm,
            window.trial + shift.trials,
            begin_us,
            window.duration_us,
            &window.histogram,
        )?;
    }
    for artefact in part.artefacts.iter().filter(|artefact| artefact.round < part.rounds) {
        let mut moved = artefact.clone();
        moved.file = artefact.file.as_ref().map(|file| renumber(file, &artefact.arm, artefact.trial, shift));
        moved.trial += shift.trials;
        moved.round += shift.rounds;
        writer.write_artefact(&moved)?;
    }
    Ok(())
}

fn add_cpu(a: Cpu, b: Cpu) -> Cpu {
    Cpu {
        host_busy_us: a.host_busy_us + b.host_busy_us,
        host_steal_us: a.host_steal_us + b.host_steal_us,
        irq_us: b.irq_us.map(|us| us + a.irq_us.unwrap_or(0)),
        server_us: b.server_us.map(|us| us + a.server_us.unwrap_or(0)),
        server_wait_us: b.server_wait_us.map(|us| us + a.server_wait_us.unwrap_or(0)),
        driver_us: a.driver_us + b.driver_us,
        treatment_us: a.treatment_us + b.treatment_us,
        remote_us: a.remote_us + b.remote_us,
        toll_us: a.toll_us + b.toll_us,
    }
}

fn move_sample(mut sample: Sample, shift: &Shift) -> Option<Sample> {
    let time = match &mut sample {
        Sample::Bin(s) => &mut s.mono_us,
        Sample::Second(s) => &mut s.mono_us,
        Sample::Host(s) => &mut s.mono_us,
        Sample::Pressure(s) => &mut s.mono_us,
        Sample::Server(s) => &mut s.mono_us,
        Sample::Tick(s) => &mut s.mono_us,
        Sample::Own(s) => &mut s.mono_us,
        Sample::Output(s) => &mut s.mono_us,
        Sample::Classes(s) => &mut s.mono_us,
        Sample::Footprint(s) => &mut s.mono_us,
        Sample::Cut(s) => &mut s.mono_us,
        Sample::Unknown => return None,
    };
    *time = shift.time(*time)?;
    Some(sample)
}

/// Copies what tools said, and kept artefacts, under the trials' new numbers.
fn copy_outputs(part: &Part, shift: &Shift, from: &Path, to: &Path) -> anyhow::Result<()> {
    let from = from.join("artefacts");
    let Ok(entries) = std::fs::read_dir(&from) else { return Ok(()) };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str().filter(|_| path.is_file()) else { continue };
        let trial = part.trials.iter().find(|line| is_output_of(name, &line.arm, line.trial));
        let Some(trial) = trial.filter(|line| line.round < part.rounds) else { continue };
        let target = to.join("artefacts").join(renumber(name, &trial.arm, trial.trial, shift));
        std::fs::copy(&path, &target).with_context(|| format!("cannot write {}", target.display()))?;
    }
    Ok(())
}

/// Files of a trial begin with `ARM-TRIAL.`.
fn is_output_of(name: &str, arm: &str, trial: u32) -> bool {
    name.strip_prefix(&format!("{arm}-{trial}")).is_some_and(|rest| rest.starts_with('.'))
}

fn renumber(file: &str, arm: &str, trial: u32, shift: &Shift) -> String {
    file.replacen(&format!("{arm}-{trial}."), &format!("{arm}-{}.", trial + shift.trials), 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use toll_record::{Bin, latency_histogram};

    const ARMS: [&str; 2] = ["none", "x-1"];

    fn plan(order: &[[&str; 2]]) -> Plan {
        let arm = |name: &str| {
            json!({
                "name": name, "title": name, "role": if name == "none" { "baseline" } else { "treatment" }, "command": "",
                "workload": { "driver": "toll", "profile": "read-only", "transport": "tcp", "threads": 1, "tables": 1,
                    "rows": 1, "prepared": true, "rate_per_s": null },
                "meter": "driver", "window": { "until": "time", "s": 1.0 }, "settle_s": 0.1, "artefact": null,
                "unavailable": null, "burn_share": null,
            })
        };
        serde_json::from_value(json!({
            "format": toll_record::FORMAT, "toll_version": "0", "command": [], "scenario": "x", "question": "?",
            "profile": "quick", "clock": "counted", "seed": 1, "baseline": "none", "primary": "qps", "outcomes": [],
            "columns": [], "panels": [], "margin_pct": 0.5, "alpha": 0.05, "setup": {}, "rounds": order.len(),
            "window_s": 1.0, "settle_s": 0.1, "gap_s": 0.0, "pilot_s": 0.0, "early_stop": false,
            "arms": ARMS.map(arm), "order": order, "jitter": 0.0, "started_wall_us": 5, "planned_mde_pct": null,
        }))
        .unwrap()
    }

    /// A machine's run; of the last round only so many steps.
    fn machine(dir: &Path, order: &[[&str; 2]], begun_us: u64, last_steps: usize) -> RunDir {
        let mut writer = RunWriter::create(dir).unwrap();
        writer.write_json("host.json", &Host { kernel: "6.12".into(), ..Host::default() }).unwrap();
        writer.write_json("plan.json", &plan(order)).unwrap();
        let steps = ["start", "ready", "window-begin", "window-end", "stopped"];
        let mut now_us = begun_us;
        let mut left = (order.len() - 1) * steps.len() * ARMS.len() + last_steps;
        for (trial, (round, arm)) in order
            .iter()
            .enumerate()
            .flat_map(|(round, arms)| arms.iter().map(move |arm| (round, arm)))
            .enumerate()
        {
            for step in steps {
                if left == 0 {
                    break;
                }
                left -= 1;
                now_us += 1_000;
                let line = json!({ "mono_us": now_us, "wall_us": 7, "trial": trial, "round": round, "arm": arm, "step": step });
                writer.write_trial(&serde_json::from_value(line).unwrap()).unwrap();
            }
            let bin = Bin {
                mono_us: now_us,
                width_us: 1_000,
                statements: 3,
                events: 1,
                errors: 0,
                errors_by_code: BTreeMap::new(),
                latency_us_sum: 1,
                latency_us_max: None,
                in_flight: 0,
                oldest_us: 0,
            };
            writer.write_sample(&Sample::Bin(bin)).unwrap();
            writer.write_latency(arm, trial as u32, now_us, 1_000, &latency_histogram()).unwrap();
            std::fs::write(dir.join("artefacts").join(format!("{arm}-{trial}.tcpdump.stderr")), "said")
                .unwrap();
        }
        writer.finish().unwrap();
        RunDir::open(dir).unwrap()
    }

    fn whole() -> WholeRun {
        let counted = CountedClock { machines: 2, ..CountedClock::default() };
        WholeRun { command: vec!["toll".into()], seed: 9, started_wall_us: 77, counted, tools: Vec::new() }
    }

    #[test]
    fn rounds_of_two_machines_follow_each_other_and_a_round_cut_short_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let [a, b] = [["none", "x-1"], ["x-1", "none"]];
        let first = machine(&dir.path().join("1"), &[a, b], 500_000, 10);
        let second = machine(&dir.path().join("2"), &[b, a], 400_000, 7);
        let merged = dir.path().join("merged");
        assert_eq!(merge_runs(&[first, second], &whole(), &merged).unwrap(), 3);

        let run = RunDir::open(&merged).unwrap();
        let plan = run.plan().unwrap();
        assert_eq!(plan.order, [a, b, b].map(|round| round.map(str::to_owned).to_vec()));
        assert_eq!((plan.rounds, plan.seed, plan.started_wall_us), (3, 9, 77));
        assert_eq!(run.host().unwrap().counted.map(|counted| counted.machines), Some(2));
        let trials = run.trials().unwrap();
        assert_eq!(trials.len(), 30);
        assert!(trials.windows(2).all(|pair| pair[0].mono_us < pair[1].mono_us), "times go on");
        let numbers: Vec<(u32, u32, &str)> = trials
            .iter()
            .filter(|line| line.step == Step::Stopped)
            .map(|line| (line.trial, line.round, line.arm.as_str()))
            .collect();
        let expected =
            [(0, 0, "none"), (1, 0, "x-1"), (2, 1, "x-1"), (3, 1, "none"), (4, 2, "x-1"), (5, 2, "none")];
        assert_eq!(numbers, expected);
        let latencies: Vec<u32> = run.latencies().unwrap().iter().map(|window| window.trial).collect();
        assert_eq!(latencies, [0, 1, 2, 3, 4, 5]);
        let outputs: Vec<bool> = ["none-0", "x-1-4", "none-5", "x-1-0"]
            .map(|of| merged.join(format!("artefacts/{of}.tcpdump.stderr")).exists())
            .to_vec();
        assert_eq!(outputs, [true, true, true, false]);
        assert!(run.truncated_series().is_empty());
    }

    #[test]
    fn no_round_that_has_ended_is_no_run_and_other_arms_are_another_plan() {
        let dir = tempfile::tempdir().unwrap();
        let order = [["none", "x-1"]];
        let cut = machine(&dir.path().join("1"), &order, 0, 9);
        let merged = dir.path().join("merged");
        assert_eq!(merge_runs(std::slice::from_ref(&cut), &whole(), &merged).unwrap(), 0);
        assert!(!merged.exists());

        let first = machine(&dir.path().join("2"), &order, 0, 10);
        let second = machine(&dir.path().join("3"), &order, 0, 10);
        let mut other = second.plan().unwrap();
        other.arms[1].unavailable = Some("no tcpdump".into());
        toll_record::write_json(second.root(), "plan.json", &other).unwrap();
        let said = merge_runs(&[first, second], &whole(), &merged).unwrap_err().to_string();
        assert!(said.contains("could not carry out the same variants"), "{said}");
    }
}
