//! What does a run directory hold, in an order that finds any stretch of time at once?
//!
//! Reads each file once. Never judges: what a crash cut off is simply not there.

use toll_record::{
    Artefact, Bin, Host, HostSample, LatencyWindow, OwnSample, Plan, PressureSample, ReadError, RunDir,
    Sample, Second, ServerSample, Tick, TrialLine,
};

/// Everything that the analysis looks at. Samples of each kind are in the order of their clock.
#[derive(Debug, Clone)]
pub struct Recorded {
    pub plan: Plan,
    /// Absent when the run ended before the host was described.
    pub host: Option<Host>,
    pub trials: Vec<TrialLine>,
    pub artefacts: Vec<Artefact>,
    pub latencies: Vec<LatencyWindow>,
    pub bins: Vec<Bin>,
    pub seconds: Vec<Second>,
    pub hosts: Vec<HostSample>,
    pub pressures: Vec<PressureSample>,
    pub servers: Vec<ServerSample>,
    pub ticks: Vec<Tick>,
    pub own: Vec<OwnSample>,
    /// Files that end inside a line.
    pub cut_short: Vec<&'static str>,
}

impl Recorded {
    /// Reads all that is there. Only the plan must be.
    ///
    /// # Errors
    /// No plan, a newer format, or a line that is not what the format says.
    pub fn read(run: &RunDir) -> Result<Self, ReadError> {
        let mut recorded = Recorded::of(run.plan()?);
        recorded.host = match run.host() {
            Err(ReadError::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => None,
            host => Some(host?),
        };
        recorded.trials = run.trials()?;
        recorded.artefacts = run.artefacts()?;
        recorded.latencies = run.latencies()?;
        recorded.take(run.samples()?);
        recorded.cut_short = run.cut_short();
        Ok(recorded)
    }

    /// A run in which nothing has happened yet.
    pub fn of(plan: Plan) -> Self {
        Recorded {
            plan,
            host: None,
            trials: Vec::new(),
            artefacts: Vec::new(),
            latencies: Vec::new(),
            bins: Vec::new(),
            seconds: Vec::new(),
            hosts: Vec::new(),
            pressures: Vec::new(),
            servers: Vec::new(),
            ticks: Vec::new(),
            own: Vec::new(),
            cut_short: Vec::new(),
        }
    }

    /// Adds samples of every kind and puts each kind in order.
    pub fn take(&mut self, samples: Vec<Sample>) {
        for sample in samples {
            match sample {
                Sample::Bin(s) => self.bins.push(s),
                Sample::Second(s) => self.seconds.push(s),
                Sample::Host(s) => self.hosts.push(s),
                Sample::Pressure(s) => self.pressures.push(s),
                Sample::Tick(s) => self.ticks.push(s),
                Sample::Own(s) => self.own.push(s),
                Sample::Server(s) => self.servers.push(s),
            }
        }
        // Nearly sorted already: collectors write as they go.
        self.bins.sort_by_key(|s| s.mono_us);
        self.seconds.sort_by_key(|s| s.mono_us);
        self.hosts.sort_by_key(|s| s.mono_us);
        self.pressures.sort_by_key(|s| s.mono_us);
        self.servers.sort_by_key(|s| s.mono_us);
        self.ticks.sort_by_key(|s| s.mono_us);
        self.own.sort_by_key(|s| s.mono_us);
    }
}

/// A sample that carries the end of the interval it speaks of.
pub trait Stamped {
    /// CLOCK_MONOTONIC, microseconds.
    fn mono_us(&self) -> u64;
}

macro_rules! stamped {
    ($($sample:ty),*) => {
        $(impl Stamped for $sample {
            fn mono_us(&self) -> u64 {
                self.mono_us
            }
        })*
    };
}
stamped!(Bin, Second, HostSample, PressureSample, ServerSample, Tick, OwnSample);

/// The samples whose end lies in (begin, end]; `samples` must be in order.
pub fn within<T: Stamped>(samples: &[T], begin_us: u64, end_us: u64) -> &[T] {
    let from = samples.partition_point(|s| s.mono_us() <= begin_us);
    let to = samples.partition_point(|s| s.mono_us() <= end_us);
    &samples[from..to.max(from)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_takes_the_bins_that_end_inside_it() {
        let ticks: Vec<Tick> = (1..=10).map(|i| Tick { mono_us: i * 100, late_us: 0 }).collect();
        let ends = |b, e| within(&ticks, b, e).iter().map(|t| t.mono_us).collect::<Vec<_>>();
        assert_eq!(ends(200, 500), [300, 400, 500]);
        assert_eq!(ends(250, 399), [300]);
        assert!(ends(1_000, 2_000).is_empty() && ends(500, 200).is_empty());
    }
}
