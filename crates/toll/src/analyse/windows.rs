//! Which windows did the run make, and what came of the trials that made none?
//!
//! Reads steps only; what was measured inside a window is for `outcomes` to say.

use std::collections::BTreeMap;
use toll_record::{Cpu, Plan, Step, TrialLine};

/// A stretch that was measured from its begin to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    pub trial: u32,
    pub round: u32,
    /// Position in the plan's arms.
    pub arm: usize,
    pub begin_us: u64,
    pub end_us: u64,
    /// CPU spent in the window, by party; absent where it was not read at both ends.
    pub cpu: Option<Cpu>,
    /// Growth of the artefact in the window, where its size could be seen.
    pub artefact_bytes: Option<u64>,
}

impl Window {
    pub fn seconds(&self) -> f64 {
        (self.end_us - self.begin_us) as f64 / 1e6
    }
}

/// Something that the conductor wrote down about a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Remark {
    pub arm: usize,
    pub round: u32,
    pub step: Step,
    pub text: String,
}

/// All trials of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Trials {
    /// In the order measured.
    pub windows: Vec<Window>,
    /// Trials that failed, with the conductor's reason.
    pub failed: Vec<Remark>,
    /// Trials that began and neither closed their window nor failed: the run was cut there.
    pub cut: Vec<Remark>,
    /// Notes on steps that did happen.
    pub remarks: Vec<Remark>,
    /// Rounds in which each arm was tried, by its position.
    pub tried: Vec<u32>,
    /// Rounds of which anything happened.
    pub rounds_begun: u32,
}

/// Pairs the steps of each trial. Lines of an arm or a round that the plan does not know are left out.
pub fn trials(plan: &Plan, lines: &[TrialLine]) -> Trials {
    let positions: BTreeMap<&str, usize> =
        plan.arms.iter().enumerate().map(|(i, arm)| (arm.name.as_str(), i)).collect();
    let mut by_trial: BTreeMap<u32, Vec<&TrialLine>> = BTreeMap::new();
    for line in lines.iter().filter(|line| (line.round as usize) < plan.order.len()) {
        by_trial.entry(line.trial).or_default().push(line);
    }
    let mut trials = Trials { tried: vec![0; plan.arms.len()], ..Trials::default() };
    for (trial, steps) in by_trial {
        let Some(&arm) = steps.first().and_then(|line| positions.get(line.arm.as_str())) else { continue };
        let round = steps[0].round;
        trials.tried[arm] += 1;
        trials.rounds_begun = trials.rounds_begun.max(round + 1);
        let step = |wanted: Step| steps.iter().find(|line| line.step == wanted);
        let remark = |step, text: &str| Remark { arm, round, step, text: text.to_owned() };
        for line in &steps {
            if let (Some(note), true) = (&line.note, line.step != Step::Failed) {
                trials.remarks.push(remark(line.step, note));
            }
        }
        match (step(Step::WindowBegin), step(Step::WindowEnd), step(Step::Failed)) {
            // A trial may fail after its window closed (the treatment would not stop): the window counts.
            (Some(begin), Some(end), _) if end.mono_us > begin.mono_us => trials.windows.push(Window {
                trial,
                round,
                arm,
                begin_us: begin.mono_us,
                end_us: end.mono_us,
                cpu: begin.cpu.zip(end.cpu).map(|(begin, end)| spent(begin, end)),
                artefact_bytes: begin
                    .artefact_bytes
                    .zip(end.artefact_bytes)
                    .map(|(begin, end)| end.saturating_sub(begin)),
            }),
            (_, _, Some(failed)) => {
                let why = failed.note.as_deref().unwrap_or("no reason was recorded");
                trials.failed.push(remark(Step::Failed, why));
            }
            (begin, _, None) => {
                let step = if begin.is_some() { Step::WindowBegin } else { Step::Start };
                trials.cut.push(remark(step, "the run ended inside this trial"));
            }
        }
    }
    trials
}

fn spent(begin: Cpu, end: Cpu) -> Cpu {
    Cpu {
        host_busy_us: end.host_busy_us.saturating_sub(begin.host_busy_us),
        host_steal_us: end.host_steal_us.saturating_sub(begin.host_steal_us),
        server_us: end.server_us.saturating_sub(begin.server_us),
        driver_us: end.driver_us.saturating_sub(begin.driver_us),
        treatment_us: end.treatment_us.saturating_sub(begin.treatment_us),
        remote_us: end.remote_us.saturating_sub(begin.remote_us),
        toll_us: end.toll_us.saturating_sub(begin.toll_us),
    }
}
