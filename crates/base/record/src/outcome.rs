//! Outcome definitions: source readings, aggregation and comparison of two variants.
//!
//! Data only. Scenarios and the catalogue define outcomes, plans and results carry them, the analysis applies
//! them.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One outcome of a window: a number with a name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Definition {
    /// In scenarios, bounds and JSON; the unit is part of it: `latency_us_p99`.
    pub name: String,
    pub unit: String,
    /// In words, for a sentence: `p99 response time`.
    pub title: String,
    /// In fewer words, for the head of a table's column; absent: the title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// More is better (throughput) or less is better (latency, CPU).
    pub higher_is_better: bool,
    pub source: Source,
    pub aggregate: Aggregate,
    pub compare: Compare,
    #[serde(default)]
    pub zeros: Zeros,
    /// In the outcome's own unit: a difference whose interval lies inside ±margin is called "no effect".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub margin: Option<f64>,
    /// True if it is drawn over the rate where arms ran at several rates.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_rate: bool,
    /// True if it needs longer windows than steady outcomes do: if a run has some, only those count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub long_windows: bool,
}

/// Source readings of an outcome within a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "from", rename_all = "kebab-case")]
pub enum Source {
    /// Completions of the load, bin by bin.
    Load { column: LoadColumn },
    /// Latency of the load's events, microseconds.
    Latency,
    /// CPU time of one party, microseconds.
    Cpu { of: Party },
    /// A column of the host's samples.
    Host { column: String },
    /// A column of the pressure samples.
    Pressure { column: String },
    /// A counter of the server's samples, by the name that stands there.
    Server { column: String },
    /// The treatment's processes, one reading for each: of those that are waited for, or of the one of that name.
    Processes {
        column: ProcessColumn,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// Artifact of the treatment.
    Artefact { column: ArtefactColumn },
    /// Packets on their way from the rig's sender to the file.
    Stages { column: StagesColumn },
    /// The trial itself.
    Trial { column: TrialColumn },
    /// Response times of the server's own users at a fixed mix of classes, or of toll's probe queries, microseconds.
    ByClass { of: Asker },
}

/// Who sends the queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Asker {
    Users,
    Probe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum LoadColumn {
    Statements,
    Events,
    Errors,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Party {
    /// All of this host, without what stands in for the far end of a network.
    Host,
    Server,
    /// Not a use of the CPU: the wait of the server's threads for one.
    ServerWait,
    Driver,
    Treatment,
    Remote,
    Toll,
    /// Interrupts and softirqs, where the kernel counts them apart.
    Irq,
    /// Of the host, what no other party has: the kernel's own threads.
    Rest,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "snake_case")]
pub enum ProcessColumn {
    /// From its start to its end.
    Seconds,
    CpuUs,
    MemoryPeakBytes,
    ReadBytes,
    WrittenBytes,
    /// Bytes written by the last command of a pipeline, to any file descriptor.
    OutputBytes,
    /// From its start until it first wrote anything.
    FirstOutputS,
    /// The longest stretch in which it wrote nothing, and all such of a second or more.
    LongestPauseS,
    PausedS,
    /// Send rate that it reports, megabits a second.
    SentMbps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum ArtefactColumn {
    /// Written inside the window.
    Bytes,
    /// Packets captured inside the window, as the tool reports.
    Packets,
    /// Queries found over statements executed, percent.
    QueriesShare,
    /// Packets dropped over those received by the filter, percent.
    DroppedShare,
    /// Megabits a second from the first packet of a capture to its last.
    Mbps,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum StagesColumn {
    /// Packets sent that are not in the file, percent; absent where what was captured is not all that was sent.
    LostShare,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum TrialColumn {
    /// Length of a window that lasts until something is done; absent where the plan says how long it is.
    Seconds,
    /// Time without service; of a window that ended early, what it would be in a whole one.
    StalledS,
    /// After the window, until clients are served as usual; absent where the next trial follows at once.
    RecoveryS,
}

/// Aggregation of a window's readings to one number.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Aggregate {
    Mean,
    Peak,
    Sum,
    /// Per second of the window.
    Rate,
    /// Per statement that the load executed.
    PerQuery,
    /// Above 0 and below 1; `{ quantile = 0.99 }`.
    Quantile(f64),
    /// Share of the readings above this, percent; `{ above = 100000 }`.
    Above(f64),
    /// Seconds from the window's end until the readings are as nearly all are under the arm that this one is compared
    /// with; absent where the next trial follows at once.
    Recovery,
}

/// One arm's outcome over a multiple of another's, of the same round.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Contrast {
    pub name: String,
    /// In words, for a sentence.
    pub title: String,
    pub outcome: String,
    /// The arm above the line, and the one below it.
    pub of: String,
    pub over: String,
    /// So many times `over`.
    #[serde(default = "one")]
    pub factor: f64,
    /// The arm beyond which both are counted: the ratio is one of overheads. Absent: of the outcomes themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<String>,
}

fn one() -> f64 {
    1.0
}

/// Trade-off between outcomes, and the criterion for the recommended arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct Pareto {
    /// Outcomes that span the choice.
    pub outcomes: Vec<String>,
    /// The one of them that is to be best.
    pub prefer: String,
    /// By outcome: the most by which it may be worse than what the arm is compared with, in the unit of its overhead
    /// (percent of a log-ratio, else in its unit).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limit: BTreeMap<String, f64>,
}

/// Comparison of an arm's windows with the baseline's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Compare {
    /// As a ratio in each round, reported in percent.
    LogRatio,
    /// As a difference in each round, in the outcome's own unit; for what is often zero.
    Difference,
    /// Not at all: the arm's own mean, with an interval over its windows.
    Absolute,
    /// Not at all: the arm's own median, with an interval that holds whatever its windows' distribution.
    Median,
}

impl Compare {
    /// True if it needs no baseline.
    pub fn needs_no_baseline(self) -> bool {
        matches!(self, Compare::Absolute | Compare::Median)
    }
}

/// Treatment of zero values in a ratio.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Zeros {
    /// There is no ratio.
    #[default]
    Refuse,
    /// Of something that is counted: less than one in the window.
    FewerThanOne,
}

impl Definition {
    /// True if the outcome is available with a load, or with only a meter that counts statements.
    pub fn is_available(&self, has_load: bool, is_metered: bool) -> bool {
        let of_load = matches!(self.source, Source::Load { .. } | Source::Latency);
        let needs_load = of_load || self.aggregate == Aggregate::PerQuery;
        let is_counted = match self.source {
            Source::Load { column } => column == LoadColumn::Statements,
            Source::Latency => false,
            _ => self.aggregate == Aggregate::PerQuery,
        };
        !needs_load || has_load || (is_metered && is_counted)
    }

    /// For the head of a table's column.
    pub fn column_title(&self) -> &str {
        self.head.as_deref().unwrap_or(&self.title)
    }
}
