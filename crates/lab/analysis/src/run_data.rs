//! Data of a run directory, ordered so that any stretch of time is found at once.
//!
//! Reads each file once. Never judges: lines that a crash cut off are absent.

use toll_record::{
    Artefact, Bin, ClassSample, Cut, Footprint, Host, HostSample, LatencyWindow, OutputSample, OwnSample,
    Plan, PressureSample, ReadError, RunDir, Sample, Second, ServerSample, Tick, TrialLine,
};

/// Input of the analysis. Samples of each kind are in the order of their clock.
#[derive(Debug, Clone)]
pub struct RunData {
    pub plan: Plan,
    /// Absent if the run ended before the host was described.
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
    pub outputs: Vec<OutputSample>,
    pub classes: Vec<ClassSample>,
    pub footprints: Vec<Footprint>,
    /// Why the run could not go on; absent if it ended by itself, and in older runs.
    pub cut: Option<Cut>,
    /// Samples of kinds from a newer toll, which are ignored.
    pub unknown: usize,
    /// Files that end inside a line.
    pub cut_short: Vec<&'static str>,
}

impl RunData {
    /// Reads a run directory. Only the plan is required.
    ///
    /// # Errors
    /// There is no plan, the format is newer, or a line does not match the format.
    pub fn read(run: &RunDir) -> Result<Self, ReadError> {
        let mut recorded = RunData::without_samples(run.plan()?);
        recorded.host = match run.host() {
            Err(ReadError::Io { cause, .. }) if cause.kind() == std::io::ErrorKind::NotFound => None,
            host => Some(host?),
        };
        recorded.trials = run.trials()?;
        recorded.artefacts = run.artefacts()?;
        recorded.latencies = run.latencies()?;
        recorded.add_samples(run.samples()?);
        recorded.cut_short = run.truncated_series();
        Ok(recorded)
    }

    /// A run without data.
    pub fn without_samples(plan: Plan) -> Self {
        RunData {
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
            outputs: Vec::new(),
            classes: Vec::new(),
            footprints: Vec::new(),
            cut: None,
            unknown: 0,
            cut_short: Vec::new(),
        }
    }

    /// Adds samples of every kind and sorts each kind.
    pub fn add_samples(&mut self, samples: Vec<Sample>) {
        for sample in samples {
            match sample {
                Sample::Bin(s) => self.bins.push(s),
                Sample::Second(s) => self.seconds.push(s),
                Sample::Host(s) => self.hosts.push(s),
                Sample::Pressure(s) => self.pressures.push(s),
                Sample::Tick(s) => self.ticks.push(s),
                Sample::Own(s) => self.own.push(s),
                Sample::Output(s) => self.outputs.push(s),
                Sample::Server(s) => self.servers.push(s),
                Sample::Classes(s) => self.classes.push(s),
                Sample::Footprint(s) => self.footprints.push(s),
                Sample::Cut(s) => self.cut = Some(s),
                Sample::Unknown => self.unknown += 1,
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
        self.outputs.sort_by_key(|s| s.mono_us);
        self.classes.sort_by_key(|s| s.mono_us);
        self.footprints.sort_by_key(|s| s.mono_us);
    }
}

/// A sample stamped with the end of its interval.
pub trait Timestamped {
    /// CLOCK_MONOTONIC, microseconds.
    fn mono_us(&self) -> u64;
}

macro_rules! stamped {
    ($($sample:ty),*) => {
        $(impl Timestamped for $sample {
            fn mono_us(&self) -> u64 {
                self.mono_us
            }
        })*
    };
}
stamped!(
    Bin,
    Second,
    HostSample,
    PressureSample,
    ServerSample,
    Tick,
    OwnSample,
    OutputSample,
    ClassSample,
    Footprint
);

/// Samples whose end is in (begin, end]. `samples` must be in order.
pub fn samples_within<T: Timestamped>(samples: &[T], begin_us: u64, end_us: u64) -> &[T] {
    let from = samples.partition_point(|s| s.mono_us() <= begin_us);
    let to = samples.partition_point(|s| s.mono_us() <= end_us);
    &samples[from..to.max(from)]
}

/// Samples whose middle is in (begin, end], which mostly cover that stretch.
///
/// An interval begins at the previous sample.
pub fn samples_centred_within<T: Timestamped>(samples: &[T], begin_us: u64, end_us: u64) -> &[T] {
    let middle_us = |i: usize| {
        let end = samples[i].mono_us();
        let begin = i.checked_sub(1).map_or(end, |before| samples[before].mono_us());
        begin + (end - begin) / 2
    };
    // Only a sample in whose stretch an edge lies can be on the other side of it.
    let first_after = |edge_us: u64| {
        let next = samples.partition_point(|s| s.mono_us() <= edge_us);
        next + usize::from(next < samples.len() && middle_us(next) <= edge_us)
    };
    let from = first_after(begin_us);
    &samples[from..first_after(end_us).max(from)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_takes_the_bins_that_end_inside_it() {
        let ticks: Vec<Tick> = (1..=10).map(|i| Tick { mono_us: i * 100, late_us: 0 }).collect();
        let ends = |b, e| samples_within(&ticks, b, e).iter().map(|t| t.mono_us).collect::<Vec<_>>();
        assert_eq!(ends(200, 500), [300, 400, 500]);
        assert_eq!(ends(250, 399), [300]);
        assert!(ends(1_000, 2_000).is_empty() && ends(500, 200).is_empty());
    }

    #[test]
    fn a_sample_belongs_to_the_window_that_most_of_it_lies_in() {
        let ticks: Vec<Tick> = (1..=10).map(|i| Tick { mono_us: i * 100, late_us: 0 }).collect();
        let ends = |b, e| samples_centred_within(&ticks, b, e).iter().map(|t| t.mono_us).collect::<Vec<_>>();
        assert_eq!(ends(200, 500), [300, 400, 500]);
        assert_eq!(ends(240, 460), [300, 400, 500], "of (200, 300] most lies inside, and of (400, 500]");
        assert_eq!(ends(260, 440), [400]);
        assert_eq!(ends(0, 140), [100], "of the first sample only its end is known");
        assert!(ends(1_000, 2_000).is_empty() && ends(500, 200).is_empty());
        assert!(samples_centred_within::<Tick>(&[], 0, 9).is_empty());
    }
}
