//! Length, number and exposure of the blocks of a live run.

use anyhow::{bail, ensure};

/// Window lengths of the first blocks: exposure grows from a second.
pub const RAMP_S: [f64; 4] = [1.0, 2.0, 5.0, 10.0];
/// Blocks that a sequence needs before it can say anything, for each treatment.
const LEAST_BLOCKS: u32 = 8;
const SHAM_EVERY: u32 = 5;
/// Time for switching and edges of windows, seconds a window.
const AROUND_S: f64 = 1.0;

/// A live run's times, seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct LiveDesign {
    pub window_s: f64,
    /// Thrown away after each switch.
    pub guard_s: f64,
    /// No block begins that would end later.
    pub time_s: f64,
    /// Ramp and shams included.
    pub blocks: u32,
    pub treatments: u32,
    pub ramp_s: Vec<f64>,
}

impl LiveDesign {
    /// As many blocks as fit.
    ///
    /// # Errors
    /// Too few for a result: says how much time it takes.
    pub fn fit(time_s: f64, window_s: f64, guard_s: f64, treatments: u32) -> anyhow::Result<Self> {
        if treatments == 0 {
            bail!("there is no treatment to price: name some with --variants, or a command after --");
        }
        ensure!(
            window_s >= 1.0,
            "a window of {window_s} s is too short for a server's own traffic: 1s is the least"
        );
        let ramp_s: Vec<f64> = RAMP_S.iter().copied().filter(|s| *s < window_s).collect();
        let block_s = |window_s: f64| 2.0 * (window_s + guard_s + AROUND_S);
        let ramp_total_s: f64 = ramp_s.iter().map(|s| block_s(*s)).sum();
        // Of five blocks four are of treatments.
        let shams = |tested: u32| tested.div_ceil(SHAM_EVERY - 1);
        let needed_s = |tested: u32| ramp_total_s + f64::from(tested + shams(tested)) * block_s(window_s);
        let least = LEAST_BLOCKS * treatments;
        if needed_s(least) > time_s {
            bail!(
                "{} treatments take {:.0} min at least with windows of {window_s} s: give more --time, fewer variants or a \
                 shorter --window",
                treatments,
                (needed_s(least) / 60.0).ceil()
            );
        }
        let after_ramp = ((time_s - ramp_total_s) / block_s(window_s)).floor() as u32;
        Ok(Self { time_s, window_s, guard_s, blocks: ramp_s.len() as u32 + after_ramp, treatments, ramp_s })
    }

    fn tested_blocks(&self) -> u32 {
        self.blocks - self.blocks / SHAM_EVERY
    }

    /// Seconds that one treatment is on, at most, in all its blocks together.
    #[must_use]
    pub fn on_s(&self) -> f64 {
        let each = f64::from(self.tested_blocks()) / f64::from(self.treatments);
        each.ceil() * self.longest_on_s()
    }

    /// Seconds of the longest stretch with a treatment on.
    #[must_use]
    pub fn longest_on_s(&self) -> f64 {
        // A window's begin is moved by up to a fifth of its length.
        self.guard_s + 1.2 * self.window_s + AROUND_S
    }

    /// Blocks of each treatment that are judged.
    #[must_use]
    pub fn judged_blocks(&self) -> u32 {
        (self.tested_blocks() - (self.ramp_s.len() as u32).min(self.tested_blocks())) / self.treatments
    }

    /// Seconds from the begin of one window to that of the next.
    #[must_use]
    pub fn apart_s(&self) -> f64 {
        self.window_s + self.guard_s + AROUND_S
    }

    /// Seconds from the first block to the last.
    #[must_use]
    pub fn duration_s(&self) -> f64 {
        let ramp: f64 = self.ramp_s.iter().sum();
        let full = f64::from(self.blocks) - self.ramp_s.len() as f64;
        2.0 * (ramp + full * self.window_s + f64::from(self.blocks) * (self.guard_s + AROUND_S))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_blocks_as_fit_and_no_fewer_than_say_something() {
        let design = LiveDesign::fit(1_200.0, 10.0, 5.0, 1).unwrap();
        assert!(design.duration_s() <= 1_200.0 && design.duration_s() > 1_100.0, "{design:?}");
        assert_eq!(design.ramp_s, [1.0, 2.0, 5.0]);
        assert!(design.on_s() < 0.5 * design.duration_s(), "{} of {}", design.on_s(), design.duration_s());
        let error = LiveDesign::fit(120.0, 10.0, 5.0, 2).unwrap_err().to_string();
        assert!(error.contains("min at least") && error.contains("--time"), "{error}");
        assert!(LiveDesign::fit(1_200.0, 10.0, 5.0, 0).is_err());
        assert!(LiveDesign::fit(1_200.0, 0.5, 5.0, 1).is_err());
    }
}
