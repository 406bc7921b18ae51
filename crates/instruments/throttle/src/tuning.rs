//! Tuning constants of the two control loops, determined with the simulation in `simulation.rs`.

#[derive(Debug, Clone, Copy)]
pub struct Tuning {
    /// Steers the brake: higher ones see what touches few queries, lower ones are told by fewer answers.
    pub fast_quantile: f64,
    pub fast_half_life_s: f64,
    pub slow_half_life_s: f64,
    /// Standard errors by which the slow loop stays below the limit.
    pub margin_errors: f64,
    /// Maximum margin as a share of the limit.
    pub margin_max: f64,
    /// Change of the logarithm of the rate in a second, with the whole limit as headroom: at first, and in
    /// the end. What is learnt of the rate outlasts the noise of one p99, so that the gain falls with time.
    pub gain_first: f64,
    pub gain_last: f64,
    pub gain_half_life_s: f64,
    /// Reduction of the logarithm of the rate at the end of the start phase: the probe reflects an earlier
    /// rate, and the rate has risen since.
    pub start_reduction: f64,
    /// Standard errors above the limit at which the brake acts.
    pub brake_errors: f64,
    pub pause_samples: usize,
    pub pause_interval_s: f64,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            fast_quantile: 0.9,
            fast_half_life_s: 1.5,
            slow_half_life_s: 8.0,
            margin_errors: 1.5,
            margin_max: 0.85,
            gain_first: 0.1,
            gain_last: 0.02,
            gain_half_life_s: 30.0,
            start_reduction: 0.7,
            brake_errors: 1.4,
            pause_samples: 100,
            pause_interval_s: 12.0,
        }
    }
}
