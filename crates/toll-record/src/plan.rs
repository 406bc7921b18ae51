//! What was resolved before the run began: every arm, every default, the order and the seed.

use serde::{Deserialize, Serialize};

/// `plan.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    pub format: u32,
    pub toll_version: String,
    /// The command line that repeats this run (secrets are never on it).
    pub command: Vec<String>,
    pub scenario: String,
    /// The question that the scenario asks, one sentence.
    pub question: String,
    pub profile: String,
    pub seed: u64,
    /// Name of the arm that all others are compared with.
    pub baseline: String,
    /// Name of the one outcome that verdicts are drawn from.
    pub primary: String,
    /// What is told of each window, in the order of reports. Empty in format 1: the catalogue's.
    #[serde(default)]
    pub outcomes: Vec<crate::Definition>,
    /// Names of the outcomes that a table shows, in the order of its columns.
    #[serde(default)]
    pub columns: Vec<String>,
    /// Names of the outcomes that the page draws, in this order.
    #[serde(default)]
    pub panels: Vec<String>,
    /// An effect whose interval lies inside ±margin is called "no effect".
    pub margin_pct: f64,
    /// 0.05 gives 95% intervals.
    pub alpha: f64,
    pub rounds: u32,
    /// Length of a window; the last resort where a window lasts until its treatment is done.
    pub window_s: f64,
    pub settle_s: f64,
    /// Pause between trials, load still running, treatment off.
    pub gap_s: f64,
    /// Stop once the confidence sequence excludes zero or lies inside the margin for every arm.
    pub early_stop: bool,
    pub server: Server,
    pub arms: Vec<Arm>,
    /// One permutation of arm names for each round.
    pub order: Vec<Vec<String>>,
    /// Fraction of the window by which each window's start is jittered, drawn from the seed.
    pub jitter: f64,
    pub started_wall_us: u64,
    /// Smallest toll on the primary outcome that this plan finds at 80% power, foretold from a pilot of
    /// the baseline; absent where there was no pilot (yet).
    #[serde(default)]
    pub planned_mde_pct: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    pub name: String,
    /// What it is, in a few words.
    pub title: String,
    pub role: Role,
    /// How it is carried out: `none`, `command`, `pipeline`, `sql`, `log`.
    pub kind: String,
    /// What is run, with placeholders filled in as far as they are known.
    #[serde(default)]
    pub command: String,
    pub workload: Workload,
    /// The arm that this one is compared with; absent: the plan's baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The outcome that verdicts on this arm are drawn from; absent: the plan's primary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_by: Option<String>,
    /// The load-latency curve that this arm is a point of: the name of the arm that was swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<String>,
    #[serde(default)]
    pub artefact: Option<ArtefactKind>,
    /// What its own end means; absent: it never ends by itself.
    #[serde(default, skip_serializing_if = "Ends::is_never")]
    pub ends: Ends,
    /// Why this arm cannot run here; such an arm is in no round's order.
    #[serde(default)]
    pub unavailable: Option<String>,
    /// Share of one CPU that a positive control is known to burn (0.25 = a quarter of one CPU).
    #[serde(default)]
    pub burn_share: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// What the others are compared with.
    Baseline,
    /// What is priced.
    Treatment,
    /// The baseline again, under another name: any "cost" of it is false.
    Aa,
    /// A process that does nothing.
    Placebo,
    /// A process whose cost is known: a bench that misses it is blind.
    PositiveControl,
}

/// What does it mean when a treatment ends by itself?
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ends {
    /// It has failed.
    #[default]
    Never,
    /// The window, which began when it was started, is over.
    ClosesWindow,
    /// It is run again until the window is over.
    Again,
    /// One rehearsal before the first trial tells: `ClosesWindow` if it ends in time, else `Never`.
    Rehearse,
}

impl Ends {
    /// Whether its own end is a failure.
    pub fn is_never(&self) -> bool {
        *self == Self::Never
    }
}

/// What kind of thing a treatment leaves behind; decides how it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArtefactKind {
    Pcap,
    TcpdumpText,
    SlowLog,
    GeneralLog,
    AuditLog,
    /// One line for each query.
    Lines,
    /// Counted by the server itself (performance_schema).
    Server,
    /// Only its size is of interest.
    Bytes,
    /// Written by a newer toll: all that can be told of it is its size.
    #[serde(other)]
    Unknown,
}

/// What keeps the server busy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// `toll`, `sysbench` or `none`: the program that makes the load.
    pub driver: String,
    /// `read-only`, `point-select`, `read-write`, ...
    pub profile: String,
    /// `tcp`, `unix`, `tls`, ...
    pub transport: String,
    pub threads: u32,
    pub tables: u32,
    pub rows: u64,
    /// Statements travel as prepared (binary) rather than text.
    pub prepared: bool,
    /// Events after which a connection is made anew; 0: never.
    #[serde(default)]
    pub reconnect_every: u64,
    /// Intended events a second; absent: closed loop.
    #[serde(default)]
    pub rate_per_s: Option<f64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Server {
    /// `sandbox` or `external`.
    pub kind: String,
    /// `mariadb`, `mysql` or `percona`.
    pub flavour: String,
    pub version: String,
    /// host:port or socket path; never a user or password.
    pub address: String,
    /// Settings that toll chose for a sandbox, `name=value`.
    #[serde(default)]
    pub config: Vec<String>,
}
