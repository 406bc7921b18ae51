//! The virtual machines of a run: their starts, their progress, the answers to their questions, their ends.

use crate::messages::{GuestLine, GuestRequest, run_dir, write_answer};
use anyhow::{Context, bail};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use toll_execution::trial_loop::{Progress, TrialsAhead};
use toll_journal::Journal;
use toll_model::plan::RunOverrides;
use toll_record::RunDir;
use toll_sys::cancel::CancelToken;
use toll_sys::private_file;
use toll_sys::program::own_program_path;
use toll_vm::{Kit, Machine, MachineEvent, MachineSpec};

/// Seeds of machines lie so far apart: those of neighbours draw nothing alike.
const SEED_STEP: u64 = 7_919;
/// Real seconds that a planned one of a machine takes, about: emulation, and the starts of treatments.
const REAL_PER_COUNTED: f64 = 15.0;
/// How long one machine is listened to before the next.
const LISTEN: Duration = Duration::from_millis(50);

/// What all machines have in common.
pub struct MachineSet<'a> {
    pub kit: &'a Kit,
    pub machines: usize,
    pub memory_bytes: u64,
    /// Directory of the machines' own directories.
    pub dir: &'a Path,
    pub request: GuestRequest,
    pub env: Vec<(String, String)>,
    pub seed: u64,
    /// Rounds of all machines together, at most.
    pub rounds: u32,
    /// When the last round should have ended; absent: no limit.
    pub until: Option<Instant>,
}

/// One machine of the run.
struct Member<'a> {
    machine: Machine<'a>,
    shared: PathBuf,
    has_ended: bool,
    /// When its present round began, or the machine itself.
    round_began: Instant,
}

/// What has happened in all machines so far.
struct Tally {
    trials_per_round: u32,
    trials_begun: u32,
    /// What a round takes by the plan, counted milliseconds.
    round_ms: u32,
    rounds_ended: u32,
    /// As many as the machines have been told to carry out: which is known only as rounds end.
    rounds_ahead: u32,
}

impl Tally {
    /// Rounds that the machines have been told to carry out are, whatever they take.
    fn ahead(&self) -> TrialsAhead {
        TrialsAhead {
            trials: u64::from(self.trials_per_round * self.rounds_ahead),
            rounds: self.rounds_ahead,
            expected_s: f64::from(self.round_ms * self.rounds_ahead) / 1e3 * REAL_PER_COUNTED,
            limit_s: None,
        }
    }
}

impl MachineSet<'_> {
    /// Carries the rounds out. `is_enough` is asked with the runs so far after each round.
    ///
    /// # Errors
    /// A machine ended early, without having been asked to.
    pub fn run(
        &self,
        journal: &Journal,
        progress: &dyn Progress,
        cancel: &CancelToken,
        is_enough: &mut dyn FnMut(&[RunDir]) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let mut members = Vec::with_capacity(self.machines);
        for number in 0..self.machines {
            members.push(self.start(number, journal)?);
        }
        let mut tally = Tally {
            trials_per_round: 0,
            trials_begun: 0,
            round_ms: 0,
            rounds_ended: 0,
            rounds_ahead: self.rounds.min(self.machines as u32),
        };
        let mut enough = false;
        // What is enough ends all machines at once, within their next rounds.
        while !enough && members.iter().any(|member| !member.has_ended) {
            if cancel.is_cancelled() {
                break;
            }
            for i in 0..members.len() {
                if members[i].has_ended {
                    continue;
                }
                match members[i].machine.next_event(LISTEN) {
                    Some(MachineEvent::Line(line)) => {
                        if let Some(line) = GuestLine::parse(&line) {
                            enough |= self.handle(&line, i, &mut members, &mut tally, progress, is_enough)?;
                        }
                    }
                    Some(MachineEvent::Ended(end)) => {
                        members[i].has_ended = true;
                        if end.status != Some(0) {
                            bail!(
                                "virtual machine {} ended before its rounds were done{}; the end of its console:\n{}",
                                i + 1,
                                end.status.map_or_else(String::new, |status| format!(" (status {status})")),
                                end.console.join("\n")
                            );
                        }
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Run directories of the machines, as far as rounds have ended.
    pub fn runs(&self) -> Vec<RunDir> {
        (0..self.machines).filter_map(|number| RunDir::open(run_dir(&self.shared_dir(number))).ok()).collect()
    }

    fn shared_dir(&self, number: usize) -> PathBuf {
        self.dir.join(format!("machine-{}", number + 1))
    }

    fn start<'j>(&self, number: usize, journal: &'j Journal) -> anyhow::Result<Member<'j>> {
        let shared = self.shared_dir(number);
        private_file::create_dir(&shared)?;
        // Those that come first have a round more.
        let rounds = (self.rounds as usize + self.machines - 1 - number) / self.machines;
        let overrides = RunOverrides {
            seed: Some(self.seed + SEED_STEP * number as u64),
            rounds: Some(rounds as u32),
            ..self.request.overrides.clone()
        };
        GuestRequest { overrides, ..self.request.clone() }.write(&shared)?;
        let toll = own_program_path()?;
        let spec = MachineSpec {
            name: format!("virtual machine {}", number + 1),
            memory_bytes: self.memory_bytes,
            shared_dir: &shared,
            command: vec![toll.display().to_string(), "inside".into(), shared.display().to_string()],
            dir: std::env::current_dir().context("cannot find the current directory")?,
            env: self.env.clone(),
        };
        let machine = Machine::start(self.kit, &spec, journal)?;
        Ok(Member { machine, shared, has_ended: false, round_began: Instant::now() })
    }

    /// True once the rounds so far are enough.
    fn handle(
        &self,
        line: &GuestLine,
        from: usize,
        members: &mut [Member<'_>],
        tally: &mut Tally,
        progress: &dyn Progress,
        is_enough: &mut dyn FnMut(&[RunDir]) -> anyhow::Result<bool>,
    ) -> anyhow::Result<bool> {
        match line {
            GuestLine::Ahead { trials_per_round, expected_ms } => {
                if tally.trials_per_round == 0 {
                    tally.trials_per_round = *trials_per_round;
                    tally.round_ms = expected_ms / (self.rounds / self.machines as u32).max(1);
                    progress.set_ahead(tally.ahead());
                }
            }
            GuestLine::Trial { arm, .. } => {
                let round = tally.trials_begun / tally.trials_per_round.max(1);
                progress.begin_trial(round, tally.trials_begun, arm);
                tally.trials_begun += 1;
            }
            GuestLine::Round(round) => {
                if is_enough(&self.runs())? {
                    return Ok(true);
                }
                let now = Instant::now();
                let member = &mut members[from];
                let next_ends = now + (now - member.round_began);
                let is_in_time = self.until.is_none_or(|until| next_ends <= until);
                member.round_began = now;
                tally.rounds_ended += 1;
                let running = members.iter().filter(|member| !member.has_ended).count() as u32;
                let ahead = tally.rounds_ended + if is_in_time { running } else { 0 };
                if ahead.min(self.rounds) > tally.rounds_ahead {
                    tally.rounds_ahead = ahead.min(self.rounds);
                    progress.set_ahead(tally.ahead());
                }
                write_answer(&members[from].shared, *round, is_in_time)?;
            }
            GuestLine::Say(text) => {
                // All machines say the same of the same arm.
                if from == 0 {
                    progress.print_line(text);
                }
            }
        }
        Ok(false)
    }
}
