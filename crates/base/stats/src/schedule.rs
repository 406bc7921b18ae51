//! Intended start times of events in an open loop.
//!
//! Intended times depend on the seed alone, never on the state of the server. An event that cannot start in
//! time starts late, and its latency counts from its intended time.

use crate::random::Rng;

/// How events are spaced in an open loop.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ArrivalProcess {
    /// Exponential gaps: independent clients.
    #[default]
    Poisson,
    /// Equal gaps.
    Uniform,
}

/// When events begin.
#[derive(Debug, Clone, PartialEq)]
pub enum Pacing {
    /// Each connection begins its next event when its last one is done.
    Closed,
    /// Events are due at intended times, `rate_per_s` of them a second.
    Open { rate_per_s: f64, arrivals: ArrivalProcess },
    /// Events are due at these offsets from the start, ns, rising.
    Recorded { offsets_ns: Vec<u64> },
}

/// An event that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledEvent {
    /// CLOCK_MONOTONIC.
    pub intended_ns: u64,
    /// Counts from 0: in a recorded schedule, which of the recorded events this is.
    pub number: u64,
}

/// The intended times of a run, one after the other.
#[derive(Debug, Clone)]
pub struct Schedule {
    gaps: GapSource,
    rng: Rng,
    start_ns: u64,
    end_ns: u64,
    number: u64,
    next: Option<ScheduledEvent>,
}

#[derive(Debug, Clone)]
enum GapSource {
    Poisson { mean_ns: f64, offset_ns: f64 },
    Uniform { rate_per_s: f64 },
    Recorded(std::sync::Arc<[u64]>),
}

/// A stream of its own, so that arrivals do not depend on what the statements draw.
const ARRIVAL_STREAM: u64 = u64::MAX;

impl Schedule {
    /// `None` for a closed loop, which has no intended times. Nothing is due from `end_ns` on.
    pub fn new(pace: &Pacing, seed: u64, start_ns: u64, end_ns: u64) -> Option<Self> {
        let gaps = match pace {
            Pacing::Closed => return None,
            Pacing::Open { rate_per_s, arrivals: ArrivalProcess::Poisson } => {
                GapSource::Poisson { mean_ns: 1e9 / rate_per_s, offset_ns: 0.0 }
            }
            Pacing::Open { rate_per_s, arrivals: ArrivalProcess::Uniform } => {
                GapSource::Uniform { rate_per_s: *rate_per_s }
            }
            Pacing::Recorded { offsets_ns } => GapSource::Recorded(offsets_ns.as_slice().into()),
        };
        let mut schedule =
            Self { gaps, rng: Rng::new(seed, ARRIVAL_STREAM), start_ns, end_ns, number: 0, next: None };
        schedule.next = schedule.compute_next();
        Some(schedule)
    }

    /// The next event, not yet taken; `None` once the schedule is over.
    #[inline]
    pub fn peek(&self) -> Option<ScheduledEvent> {
        self.next
    }

    #[inline]
    pub fn pop(&mut self) -> Option<ScheduledEvent> {
        let due = self.next?;
        self.number += 1;
        self.next = self.compute_next();
        Some(due)
    }

    #[inline]
    fn compute_next(&mut self) -> Option<ScheduledEvent> {
        let offset_ns = match &mut self.gaps {
            GapSource::Poisson { mean_ns, offset_ns } => {
                *offset_ns -= self.rng.unit().ln() * *mean_ns;
                *offset_ns as u64
            }
            // From the count, so that rounding never adds up.
            GapSource::Uniform { rate_per_s } => (self.number as f64 * 1e9 / *rate_per_s) as u64,
            GapSource::Recorded(offsets) => *offsets.get(usize::try_from(self.number).ok()?)?,
        };
        let intended_ns = self.start_ns.saturating_add(offset_ns);
        (intended_ns < self.end_ns).then_some(ScheduledEvent { intended_ns, number: self.number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn intended(arrivals: ArrivalProcess, rate_per_s: f64, seed: u64, seconds: u64) -> Vec<f64> {
        let pace = Pacing::Open { rate_per_s, arrivals };
        let mut schedule = Schedule::new(&pace, seed, 5, 5 + seconds * 1_000_000_000).unwrap();
        std::iter::from_fn(|| schedule.pop()).map(|d| (d.intended_ns - 5) as f64 / 1e9).collect()
    }

    #[test]
    fn uniform_arrivals_are_equally_spaced_and_exactly_as_many_as_asked() {
        for rate in [10.0, 333.0, 100_000.0] {
            let times = intended(ArrivalProcess::Uniform, rate, 1, 10);
            assert_eq!(times.len(), (rate * 10.0) as usize);
            assert!(times.windows(2).all(|w| ((w[1] - w[0]) * rate - 1.0).abs() < 1e-3));
        }
    }

    #[test]
    fn poisson_gaps_are_exponential_by_the_kolmogorov_smirnov_test() {
        for (rate, seconds) in [(10.0, 2000), (2000.0, 10), (20_000.0, 1)] {
            let times = intended(ArrivalProcess::Poisson, rate, 7, seconds);
            let mut gaps: Vec<f64> = times.windows(2).map(|w| w[1] - w[0]).collect();
            gaps.sort_by(f64::total_cmp);
            let n = gaps.len() as f64;
            let distance = gaps
                .iter()
                .enumerate()
                .map(|(i, gap)| (1.0 - (-gap * rate).exp() - (i as f64 + 0.5) / n).abs())
                .fold(0.0, f64::max);
            // 1.63 / sqrt(n) is the 1% point.
            assert!(distance < 1.63 / n.sqrt(), "{distance} with {n} gaps at {rate}/s");
            // And independent: no correlation of one gap with the next.
            let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) * rate - 1.0).collect();
            let lag1 = gaps.windows(2).map(|w| w[0] * w[1]).sum::<f64>() / gaps.len() as f64;
            assert!(lag1.abs() < 3.3 / n.sqrt(), "{lag1} at {rate}/s");
        }
    }

    #[test]
    fn a_uniform_schedule_is_no_poisson_schedule() {
        let spread = |arrivals| {
            let times = intended(arrivals, 1000.0, 3, 10);
            let gaps: Vec<f64> = times.windows(2).map(|w| (w[1] - w[0]) * 1000.0).collect();
            gaps.iter().map(|g| (g - 1.0).powi(2)).sum::<f64>() / gaps.len() as f64
        };
        assert!(spread(ArrivalProcess::Uniform) < 1e-6);
        assert!((spread(ArrivalProcess::Poisson) - 1.0).abs() < 0.1);
    }

    #[test]
    fn a_seed_repeats_its_schedule_and_recorded_times_are_kept() {
        assert_eq!(
            intended(ArrivalProcess::Poisson, 50.0, 9, 4),
            intended(ArrivalProcess::Poisson, 50.0, 9, 4)
        );
        assert_ne!(
            intended(ArrivalProcess::Poisson, 50.0, 9, 4),
            intended(ArrivalProcess::Poisson, 50.0, 10, 4)
        );
        let pace = Pacing::Recorded { offsets_ns: vec![0, 3, 3, 90] };
        let mut schedule = Schedule::new(&pace, 0, 10, 100).unwrap();
        let times: Vec<u64> = std::iter::from_fn(|| schedule.pop()).map(|d| d.intended_ns).collect();
        assert_eq!(times, [10, 13, 13], "what is due after the end is not due");
        assert!(Schedule::new(&Pacing::Closed, 0, 0, 1).is_none());
    }
}
