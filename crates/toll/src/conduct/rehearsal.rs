//! Does a command that may end by itself end in time, and with success? Tried once before the first trial.

use super::Conductor;
use crate::clock;
use crate::treatment::{Bench, Treatment};
use anyhow::Context;
use std::time::Duration;
use toll_record::Ends;

/// How often it is looked whether the command has ended.
const LOOK_EVERY: Duration = Duration::from_millis(2);

impl Conductor<'_> {
    /// Tries each command that may end by itself, beside its load, and writes what was found into the plan's
    /// arms. A command that fails ends the run: there is nothing to be measured.
    pub fn rehearse(&mut self, arms: &mut [toll_record::Arm]) -> anyhow::Result<()> {
        for planned in arms.iter_mut().filter(|arm| !arm.ends.is_never() && arm.unavailable.is_none()) {
            let name = planned.name.clone();
            if self.arm(&name)?.0.until_done || self.interrupt.raised() {
                continue;
            }
            let took_s = self.try_out(&name).with_context(|| {
                format!(
                    "arm {name} was tried before the first trial and cannot be measured; \
                     run its command by hand until it succeeds"
                )
            })?;
            if self.interrupt.raised() {
                continue;
            }
            let whole_s = self.plan.settle_s + self.plan.window_s;
            let (ends, says) = match (planned.ends, took_s) {
                (Ends::Again, Some(s)) => {
                    (Ends::Again, format!("takes {s:.2} s, and is run again until its window ends"))
                }
                (Ends::Again, None) => {
                    (Ends::Again, format!("does not end within {whole_s:.1} s, and is not run again"))
                }
                (_, Some(s)) => (
                    Ends::ClosesWindow,
                    format!("ends by itself, here after {s:.2} s: its end closes its window"),
                ),
                (Ends::ClosesWindow, None) => {
                    (Ends::ClosesWindow, format!("does not end within {whole_s:.1} s, and is stopped then"))
                }
                (_, None) => (
                    Ends::Never,
                    format!("does not end within {whole_s:.1} s: it runs throughout its windows"),
                ),
            };
            self.progress.say(&format!("the command of arm {name} {says}"));
            self.ends.insert(name, ends);
            planned.ends = ends;
        }
        Ok(())
    }

    /// What an arm's command means by its end, now that it has been tried.
    pub(super) fn ends(&self, name: &str) -> Ends {
        let planned = || self.plan.arms.iter().find(|arm| arm.name == name).map(|arm| arm.ends);
        self.ends.get(name).copied().or_else(planned).unwrap_or_default()
    }

    /// Seconds that the command took; `None`: it did not end within settle and window.
    fn try_out(&mut self, name: &str) -> anyhow::Result<Option<f64>> {
        let (arm, workload) = self.arm(name)?;
        self.ensure_driver(name, &workload, false)?;
        // What it writes is no artefact of the run, and goes with the private files.
        let dir = self.stage.work_dir.join("rehearsal");
        std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let whole_s = self.plan.settle_s + self.plan.window_s;
        let mut fill = self.stage.fill_of(name);
        fill.set("duration_s", format!("{}", (whole_s + 60.0).ceil()));
        let mut bench = Bench { dir: &dir, ..self.stage.bench(name) };
        let begun = clock::mono_us();
        let last = begun + (whole_s * 1e6) as u64;
        let mut treatment = Treatment::start(arm, &fill, 0, &mut bench)?;
        let ended = loop {
            match treatment.has_ended() {
                Ok(false) if clock::mono_us() < last && !self.interrupt.raised() => {
                    std::thread::sleep(LOOK_EVERY);
                }
                ended => break ended,
            }
        };
        let took_s = (clock::mono_us() - begun) as f64 / 1e6;
        let stopped = treatment.stop(&mut bench);
        treatment.discard(bench.journal);
        if let Some(not) = stopped.not_put_back {
            return Err(not.into());
        }
        Ok(ended?.then_some(took_s))
    }
}
