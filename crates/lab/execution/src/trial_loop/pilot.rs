//! Pilot: the noise of this host, and the time that switching each arm on and off takes.
//!
//! The baseline alone, then each arm for a few seconds in random order, by trials like any other of which nothing
//! reaches the run. What is made of it is for the plan to say.

use super::environment::Environment;
use super::meter::Meter;
use super::trial::ClosedWindow;
use super::writeback::WritebackBarrier;
use super::{StaysOn, TrialLoop};
use crate::guard::Tripped;
use std::collections::BTreeMap;
use std::time::Duration;
use toll_model::plan::noise::{self, BinOutcome, Series};
use toll_record::{Arm, Bin, Meter as Counts, Noise, Pilot, Switching, Window};

/// Of the baseline's stretch, so that what lies unwritten is looked at now and then.
const STRETCHES: f64 = 6.0;
const LONGEST_STRETCH_S: f64 = 5.0;
/// No arm is on for longer: what is still on its way then is not seen.
const LONGEST_ON_S: f64 = 8.0;
/// With less than this for each arm, arms are not tried.
const LEAST_FOR_ARM_S: f64 = 0.9;
const SHORTEST_ON_S: f64 = 0.5;
/// With so much for each arm it is tried twice.
const TWICE_S: f64 = 12.0;
/// What switching takes, to keep to the time.
const SWITCH_S: f64 = 0.4;
/// Watched after an arm has been switched off, where there is time.
const AFTER_S: f64 = 1.5;
const AFTER_FROM_S: f64 = 4.0;
/// Compared stretches of what an arm leaves behind, and while it is on.
const LEAVING_S: f64 = 0.5;
const STEADY_S: f64 = 1.0;
/// A meter that is late with a bin has this long.
const LAST_BIN_S: f64 = 0.3;

/// How long a pilot may take.
#[derive(Debug, Clone, Copy)]
pub struct PilotTime {
    /// The baseline alone; 0: not at all.
    pub baseline_s: f64,
    /// All arms together; 0: none is tried.
    pub arms_s: f64,
}

/// What one arm's trials showed.
#[derive(Default)]
struct SwitchSamples {
    start_s: Vec<f64>,
    around_s: Vec<f64>,
    counted: Vec<f64>,
    stop_s: Vec<f64>,
    on: Vec<Series>,
    after: Vec<Series>,
}

impl<E: Environment> TrialLoop<'_, E> {
    /// Looks at the baseline alone, then at each arm of a round but those that may end by themselves, which are
    /// tried by a dry run. Interrupted: what was found until then.
    pub fn run_pilot(
        &mut self,
        outcome: BinOutcome,
        time: PilotTime,
        ending: &[&str],
    ) -> anyhow::Result<Pilot> {
        let begun_us = self.env.now_us();
        let mut pilot = Pilot::default();
        if time.baseline_s > 0.0 {
            (pilot.noise, pilot.events_per_s) = self.measure_baseline(outcome, time.baseline_s)?;
        }
        if time.arms_s > 0.0 {
            pilot.arms = self.measure_switching(outcome, time.arms_s, pilot.noise.as_ref(), ending)?;
        }
        pilot.took_s = (self.env.now_us() - begun_us) as f64 / 1e6;
        Ok(pilot)
    }

    /// The noise of the baseline's load, and events a second.
    fn measure_baseline(
        &mut self,
        outcome: BinOutcome,
        seconds: f64,
    ) -> anyhow::Result<(Option<Noise>, Option<f64>)> {
        let baseline = self.find_arm(&self.plan.baseline)?;
        if baseline.meter == Counts::None || baseline.window.is_until_done() {
            return Ok((None, None));
        }
        self.env
            .print_line(&format!("pilot: the baseline alone for {seconds:.0} s, how noisy is this host?"));
        let length_s = (seconds / STRETCHES).min(LONGEST_STRETCH_S);
        let alone = Arm { window: Window::Time { s: length_s }, artefact: None, ..baseline };
        self.ensure_load(&alone, false)?;
        let (mut unwritten, mut stretches) = (Vec::new(), Vec::new());
        let (mut events, mut took_us) = (0, 0);
        let last = self.env.now_us() + (seconds * 1e6) as u64;
        while self.env.now_us() + (length_s * 1e6) as u64 <= last {
            let Some(closed) = self.unrecorded_trial(&alone, 0.0)? else { return Ok((None, None)) };
            unwritten.push(self.env.unwritten_bytes());
            stretches.push((closed.begin_mono_us, closed.end_mono_us));
            took_us += closed.end_mono_us - closed.begin_mono_us;
            events +=
                closed.load.map_or(0, |load| if load.events > 0 { load.events } else { load.statements });
        }
        // Never waits for less than two seconds: short windows write as much.
        self.env.set_writeback_barrier(WritebackBarrier::from_samples(
            unwritten,
            Duration::from_secs_f64(self.plan.window_s.max(1.0)),
        ));
        let (Some(&(begin, _)), Some(&(_, end))) = (stretches.first(), stretches.last()) else {
            return Ok((None, None));
        };
        if alone.treatment.is_nothing() {
            // Nothing was switched: one stretch.
            stretches = vec![(begin, end)];
        }
        let bins = self.bins_since(begin);
        let noise = noise::fit_noise(&Series::from_bins(&bins, outcome, &stretches));
        Ok((noise, Some(events as f64 * 1e6 / took_us.max(1) as f64)))
    }

    fn measure_switching(
        &mut self,
        outcome: BinOutcome,
        seconds: f64,
        noise: Option<&Noise>,
        ending: &[&str],
    ) -> anyhow::Result<BTreeMap<String, Switching>> {
        /// Of draws that nothing else makes.
        const SALT: u64 = 0x7069_6c6f;
        let plan = self.plan;
        let arms: Vec<&Arm> = (plan.arms.iter())
            .filter(|arm| arm.unavailable.is_none() && !ending.contains(&arm.name.as_str()))
            .collect();
        let each_s = seconds / arms.len().max(1) as f64;
        if arms.is_empty() || each_s < LEAST_FOR_ARM_S {
            return Ok(BTreeMap::new());
        }
        let times = if each_s >= TWICE_S { 2 } else { 1 };
        let each_s = each_s / times as f64;
        let after_s = if each_s >= AFTER_FROM_S { AFTER_S } else { 0.0 };
        let on_s = (each_s - after_s - SWITCH_S).clamp(SHORTEST_ON_S, LONGEST_ON_S);
        self.env.print_line(&format!(
            "pilot: each variant {}for {on_s:.1} s, what does switching it take?",
            if times > 1 { "twice " } else { "" }
        ));
        let mut tried: BTreeMap<String, SwitchSamples> = BTreeMap::new();
        for order in toll_stats::draw_orders(plan.seed ^ SALT, arms.len(), times) {
            for i in order {
                if self.env.is_interrupted() {
                    return Ok(BTreeMap::new());
                }
                self.server_restarted()?;
                let tried = tried.entry(arms[i].name.clone()).or_default();
                self.switch_arm_once(arms[i], on_s, after_s, outcome, tried)?;
            }
        }
        let switching =
            tried.into_iter().filter(|(_, tried)| !tried.around_s.is_empty()).map(|(name, tried)| {
                let settle_s = plan.arms.iter().find(|arm| arm.name == name).map_or(0.0, |arm| arm.settle_s);
                let switching = tried.to_switching(noise, settle_s);
                (name, switching)
            });
        Ok(switching.collect())
    }

    /// One arm on and off again. One that fails is tried again in its rounds, and fails there if it must.
    fn switch_arm_once(
        &mut self,
        arm: &Arm,
        on_s: f64,
        after_s: f64,
        outcome: BinOutcome,
        tried: &mut SwitchSamples,
    ) -> anyhow::Result<()> {
        let begun_us = self.env.now_us();
        let once = Arm { window: Window::Time { s: on_s }, ..arm.clone() };
        let closed = match self.unrecorded_trial(&once, 0.0) {
            Ok(Some(closed)) => closed,
            Ok(None) => return Ok(()),
            Err(error) if error.is::<Tripped>() => return Err(error),
            Err(error) if error.is::<StaysOn>() => {
                return Err(error.context(format!("variant {} failed in the pilot", arm.name)));
            }
            Err(error) => {
                self.env.print_line(&format!("variant {} failed in the pilot: {error:#}", arm.name));
                return Ok(());
            }
        };
        let ClosedWindow { begin_mono_us, end_mono_us, switched, .. } = closed;
        let over_us = self.env.now_us();
        let seconds = |us: u64| us as f64 / 1e6;
        tried
            .around_s
            .push(seconds(over_us - begun_us - (end_mono_us - begin_mono_us) - switched.counted_us));
        tried.counted.push(switched.counted_us as f64 / (switched.off_us - switched.start_us).max(1) as f64);
        tried.stop_s.push(seconds(switched.stopped_us - switched.off_us));
        let Some(ready_us) = switched.ready_us else { return Ok(()) };
        tried.start_s.push(seconds(ready_us - switched.start_us));
        let watched_us = switched.stopped_us + (after_s * 1e6) as u64;
        if after_s > 0.0 && !self.wait_until(watched_us + (LAST_BIN_S * 1e6) as u64)? {
            return Ok(());
        }
        let bins = self.bins_since(ready_us);
        let [on, after] = [(ready_us, end_mono_us), (switched.stopped_us, watched_us)].map(|(begin, end)| {
            let inside = |bin: &&Bin| bin.mono_us >= begin + bin.width_us && bin.mono_us <= end;
            let bins: Vec<Bin> = bins.iter().filter(inside).cloned().collect();
            Series::from_bins(&bins, outcome, &[(begin, end)])
        });
        tried.on.push(on);
        tried.after.push(after);
        Ok(())
    }

    fn bins_since(&mut self, moment_us: u64) -> Vec<Bin> {
        self.env.meter().map_or_else(Vec::new, |meter: &mut dyn Meter| meter.bins_since(moment_us))
    }
}

impl SwitchSamples {
    fn to_switching(&self, noise: Option<&Noise>, settle_s: f64) -> Switching {
        let steady = |series: &[Series], from_s: f64, stretch_s: f64| {
            noise::find_steady_start(series, noise?, from_s, stretch_s)
        };
        let mean = |of: &[f64]| (!of.is_empty()).then(|| toll_stats::mean(of));
        let left_s = steady(&self.after, 0.0, LEAVING_S);
        Switching {
            tried: self.around_s.len() as u32,
            start_s: mean(&self.start_s),
            settle_s: steady(&self.on, settle_s, STEADY_S),
            leave_s: left_s.and_then(|left_s| Some(mean(&self.stop_s)? + left_s)),
            around_s: mean(&self.around_s).unwrap_or(0.0),
            count_s_per_s: mean(&self.counted).unwrap_or(0.0),
            done_s: None,
        }
    }
}
