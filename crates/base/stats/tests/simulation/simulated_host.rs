//! Simulated unchanged host with autocorrelation, drift and periodic jobs.

use toll_stats::SeededRng;

/// Length of the windows that are compared.
pub const WINDOW_S: usize = 30;
/// Rounds of two arms.
pub const ROUNDS: usize = 20;
/// Memory of the load from one second to the next.
const PHI: f64 = 0.9;
/// Stationary standard deviation of ln throughput from second to second.
const NOISE: f64 = 0.1;
/// Change of ln throughput over the whole run.
const DRIFT: f64 = -0.1;
/// What a job on the host takes from ln throughput, in the 10 seconds of each minute that it is at work.
const JOB: f64 = -0.3;

pub struct SimulatedHost {
    pub draws: SeededRng,
}

impl SimulatedHost {
    pub fn new(seed: u64) -> Self {
        SimulatedHost { draws: SeededRng::new(seed, 1_000) }
    }

    /// Standard normal (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.draws.next_fraction()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.draws.next_fraction()).cos()
    }

    pub fn normals(&mut self, n: usize, mean: f64, sd: f64) -> Vec<f64> {
        (0..n).map(|_| mean + sd * self.normal()).collect()
    }

    /// Mean 0, sd 1 and a long right tail (exponential).
    pub fn skewed(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| -(1.0 - self.draws.next_fraction()).ln() - 1.0).collect()
    }

    /// ln throughput of each second, for as many seconds as two arms in 20 rounds take.
    pub fn seconds(&mut self, job: Job) -> Vec<f64> {
        let length = 2 * ROUNDS * WINDOW_S;
        let innovation = NOISE * (1.0 - PHI * PHI).sqrt();
        let mut level = NOISE * self.normal();
        let phase = self.draws.below(60) as usize;
        (0..length)
            .map(|second| {
                level = PHI * level + innovation * self.normal();
                let busy = job == Job::EveryMinute && (second + phase) % 60 < 10;
                let drift = DRIFT * second as f64 / length as f64;
                level + drift + if busy { JOB } else { 0.0 }
            })
            .collect()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Job {
    None,
    EveryMinute,
}

/// The seconds of each window.
pub fn windows(seconds: &[f64]) -> Vec<&[f64]> {
    seconds.chunks_exact(WINDOW_S).collect()
}
