//! Windows of a run, and the fate of trials without one.
//!
//! Reads steps only; `window_outcomes` evaluates the content of a window.

use std::collections::{BTreeMap, BTreeSet};
use toll_record::{Cpu, Plan, ProcessEnd, Stage, Step, TrialLine};
use toll_sys::count_format::format_count;

/// CPU time spent inside a window, by party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuUsage {
    pub host_busy_us: u64,
    pub host_steal_us: u64,
    /// Absent if the server's process is unknown at one edge, or differs between them.
    pub server_us: Option<u64>,
    /// Absent likewise, and if threads of it have ended since.
    pub server_wait_us: Option<u64>,
    pub driver_us: u64,
    pub treatment_us: u64,
    pub remote_us: u64,
    pub toll_us: u64,
    /// Absent if the kernel does not count interrupts apart.
    pub irq_us: Option<u64>,
}

/// A window that was measured completely.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    pub trial: u32,
    pub round: u32,
    /// Position in the plan's arms.
    pub arm: usize,
    /// When the arm was on: the window's begin if its command begins with it. Absent if the line is lost.
    pub on_us: Option<u64>,
    pub begin_us: u64,
    pub end_us: u64,
    /// CPU time in the window, by party. Absent if it was not read at both ends.
    pub cpu: Option<CpuUsage>,
    /// Runs of the command that ended by themselves inside the window, and their duration in microseconds.
    pub runs: Option<(u32, u64)>,
    /// Growth of the artefact in the window, bytes, if its size was known.
    pub artefact_bytes: Option<u64>,
    /// The treatment's processes, after their end.
    pub processes: Vec<ProcessEnd>,
    /// Packet counts at each stage from the sender to the file.
    pub stages: Vec<Stage>,
}

impl Window {
    pub fn seconds(&self) -> f64 {
        (self.end_us - self.begin_us) as f64 / 1e6
    }
}

/// The trial loop's note on a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct TrialNote {
    pub trial: u32,
    pub arm: usize,
    pub round: u32,
    /// Begin of the trial, and time of the step.
    pub begun_us: u64,
    pub at_us: u64,
    pub step: Step,
    pub text: String,
}

/// All trials of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trials {
    /// In the order measured.
    pub windows: Vec<Window>,
    /// Failed trials, with the trial loop's reason.
    pub failed: Vec<TrialNote>,
    /// Trials that began and neither closed their window nor failed: the run was cut there.
    pub truncated: Vec<TrialNote>,
    /// Notes on steps that did happen.
    pub notes: Vec<TrialNote>,
    /// Closed windows that cannot be used.
    pub excluded: Vec<Window>,
    /// Arm and round of those that were measured as planned and are not judged: the hypervisor withheld the CPU, or they only
    /// raised the exposure.
    pub set_aside: BTreeSet<(usize, u32)>,
    /// Trials with a server restart. Their failures do not count against their arm.
    pub restarted: BTreeSet<u32>,
    /// Rounds in which each arm was tried, by its position.
    pub tried: Vec<u32>,
    /// Rounds with any step.
    pub rounds_started: u32,
}

impl Trials {
    /// Moves unusable windows out of the counted ones, and returns them.
    pub fn exclude_windows(&mut self, useless: impl Fn(&Window) -> bool) -> Vec<Window> {
        let (out, kept) = std::mem::take(&mut self.windows).into_iter().partition(useless);
        self.windows = kept;
        self.excluded.extend_from_slice(&out);
        out
    }
}

/// Takes out the windows that only raised the exposure.
pub fn exclude_ramp(plan: &Plan, trials: &mut Trials) {
    let out = trials.exclude_windows(|window| plan.is_ramp_round(window.round));
    trials.set_aside.extend(out.iter().map(|window| (window.arm, window.round)));
}

/// Arms with their rounds, `K in round 4, B none in round 5`, at most a handful of rounds by name.
///
/// A round with `whole` of them is `all of round 5`.
pub fn describe_trials(plan: &Plan, trials: &[(usize, u32)], whole: usize) -> String {
    const NAMED: usize = 4;
    let mut by_round: BTreeMap<u32, Vec<&str>> = BTreeMap::new();
    // Arms in the order of the plan.
    for (arm, round) in trials.iter().copied().collect::<BTreeSet<_>>() {
        by_round.entry(round).or_default().push(&plan.arms[arm].name);
    }
    let mut names: Vec<String> = by_round
        .into_iter()
        .map(|(round, arms)| match arms.len() {
            n if n == whole => format!("all of round {}", round + 1),
            _ => format!("{} in round {}", arms.join(" "), round + 1),
        })
        .collect();
    let more = names.len().saturating_sub(NAMED);
    names.truncate(NAMED);
    if more > 0 {
        names.push(format!("and {} more", format_count(more as u64, "round")));
    }
    names.join(", ")
}

/// Pairs the steps of each trial. Lines of an unknown arm or round are left out.
pub fn pair_trial_steps(plan: &Plan, lines: &[TrialLine]) -> Trials {
    let positions: BTreeMap<&str, usize> =
        plan.arms.iter().enumerate().map(|(i, arm)| (arm.name.as_str(), i)).collect();
    let mut by_trial: BTreeMap<u32, Vec<&TrialLine>> = BTreeMap::new();
    for line in lines.iter().filter(|line| (line.round as usize) < plan.order.len()) {
        by_trial.entry(line.trial).or_default().push(line);
    }
    let mut trials = Trials { tried: vec![0; plan.arms.len()], ..Trials::default() };
    for (trial, steps) in by_trial {
        let Some(&arm) = steps.first().and_then(|line| positions.get(line.arm.as_str())) else { continue };
        let (round, begun_us) = (steps[0].round, steps[0].mono_us);
        trials.tried[arm] += 1;
        trials.rounds_started = trials.rounds_started.max(round + 1);
        let step = |wanted: Step| steps.iter().find(|line| line.step == wanted);
        let remark = |line: &TrialLine, step, text: &str| TrialNote {
            trial,
            arm,
            round,
            begun_us,
            at_us: line.mono_us,
            step,
            text: text.to_owned(),
        };
        for line in &steps {
            if let (Some(note), true) = (&line.note, line.step != Step::Failed) {
                trials.notes.push(remark(line, line.step, note));
            }
        }
        match (step(Step::WindowBegin), step(Step::WindowEnd), step(Step::Failed)) {
            // A trial may fail after its window closed (the treatment would not stop): the window counts.
            (Some(begin), Some(end), _) if end.mono_us > begin.mono_us => trials.windows.push(Window {
                trial,
                round,
                arm,
                on_us: match plan.arms[arm].window {
                    toll_record::Window::Done { .. } => Some(begin.mono_us),
                    _ => step(Step::Ready).map(|ready| ready.mono_us).filter(|on_us| *on_us <= begin.mono_us),
                },
                begin_us: begin.mono_us,
                end_us: end.mono_us,
                cpu: begin.cpu.zip(end.cpu).map(|(begin, end)| cpu_usage_between(begin, end)),
                runs: end.runs.zip(end.runs_us),
                artefact_bytes: begin
                    .artefact_bytes
                    .zip(end.artefact_bytes)
                    .map(|(begin, end)| end.saturating_sub(begin)),
                processes: step(Step::Stopped).map(|line| line.processes.clone()).unwrap_or_default(),
                stages: step(Step::Stopped).map(|line| line.stages.clone()).unwrap_or_default(),
            }),
            (_, _, Some(failed)) => {
                let why = failed.note.as_deref().unwrap_or("no reason was recorded");
                trials.failed.push(remark(failed, Step::Failed, why));
            }
            (begin, _, None) => {
                let step = if begin.is_some() { Step::WindowBegin } else { Step::Start };
                trials.truncated.push(remark(
                    steps[steps.len() - 1],
                    step,
                    "the run ended inside this trial",
                ));
            }
        }
    }
    trials
}

fn cpu_usage_between(begin: Cpu, end: Cpu) -> CpuUsage {
    // Zero, in older runs: no such process, or one on another host.
    let known = |us: Option<u64>| us.filter(|us| *us > 0);
    CpuUsage {
        host_busy_us: end.host_busy_us.saturating_sub(begin.host_busy_us),
        host_steal_us: end.host_steal_us.saturating_sub(begin.host_steal_us),
        server_us: known(end.server_us).zip(known(begin.server_us)).and_then(|(e, b)| e.checked_sub(b)),
        server_wait_us: end.server_wait_us.zip(begin.server_wait_us).and_then(|(e, b)| e.checked_sub(b)),
        driver_us: end.driver_us.saturating_sub(begin.driver_us),
        treatment_us: end.treatment_us.saturating_sub(begin.treatment_us),
        remote_us: end.remote_us.saturating_sub(begin.remote_us),
        toll_us: end.toll_us.saturating_sub(begin.toll_us),
        irq_us: end.irq_us.zip(begin.irq_us).map(|(e, b)| e.saturating_sub(b)),
    }
}
