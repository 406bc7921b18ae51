//! Resolved plan of a run: every variant, every default, the order and the seed.

use crate::{Design, Long, Pilot, QueryClass, Setup, Spread};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `plan.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Plan {
    pub format: u32,
    pub toll_version: String,
    /// The command line that repeats this run (secrets are never on it).
    pub command: Vec<String>,
    pub scenario: String,
    /// The question that the scenario asks, one sentence.
    pub question: String,
    pub profile: String,
    /// What seconds of this run are; absent: real ones.
    #[serde(default, skip_serializing_if = "Clock::is_real")]
    pub clock: Clock,
    pub seed: u64,
    /// Name of the arm that all others are compared with.
    pub baseline: String,
    /// Name of the one outcome that verdicts are drawn from.
    pub primary: String,
    /// Outcomes measured in each window, in the order of reports.
    pub outcomes: Vec<crate::Definition>,
    /// Names of the outcomes that a table shows, in the order of its columns.
    pub columns: Vec<String>,
    /// Names of the outcomes that the page draws, in this order.
    pub panels: Vec<String>,
    /// Outcomes of one arm over multiples of another's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contrasts: Vec<crate::Contrast>,
    /// Ladders of arms.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<crate::Limit>,
    /// What arms trade against each other; absent: nothing is advised of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pareto: Option<crate::Pareto>,
    /// Outcomes that are drawn over what arms were varied by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charts: Vec<crate::Charted>,
    /// An effect whose interval lies inside ±margin is called "no effect".
    pub margin_pct: f64,
    /// 0.05 gives 95% intervals.
    pub alpha: f64,
    /// At most so many: fewer where `time_s` says so.
    pub rounds: u32,
    /// Time that the trials are given, from the first one's begin: a round that would not fit any more is not
    /// begun. Absent: all rounds are carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
    /// Length of windows that last for a time.
    pub window_s: f64,
    /// Rounds whose windows are longer; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<Long>,
    /// Of arms that say nothing of their own.
    pub settle_s: f64,
    /// Pause between trials, load still running, treatment off.
    pub gap_s: f64,
    /// Length of the pilot before the first trial, the baseline's load alone.
    pub pilot_s: f64,
    /// Stop once the confidence sequence excludes zero or lies inside the margin for every arm.
    pub early_stop: bool,
    /// The server that the baseline is measured on; absent where none is in sight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// Test setup of the trials; empty in runs of 2026-11-21, which did not record it.
    pub setup: Setup,
    pub arms: Vec<Arm>,
    /// How rounds are laid out; absent: each arm once a round.
    #[serde(default, skip_serializing_if = "Design::is_rounds")]
    pub design: Design,
    /// Classes of the users' queries and their weights, from a pilot under their own traffic; empty: none were seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<QueryClass>,
    /// Arm names of each round, in the order that was drawn.
    pub order: Vec<Vec<String>>,
    /// Fraction of the window by which each window's start is jittered, drawn from the seed.
    pub jitter: f64,
    pub started_wall_us: u64,
    /// How a treatment's processes are held together; absent in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_in: Option<HeldIn>,
    /// Minimum detectable effect on the primary outcome (80% power), all treatments together,
    /// predicted from the pilot's noise; absent where that is not known (yet).
    pub planned_mde_pct: Option<f64>,
    /// Split of the rounds into parts apart in time; absent: they follow each other at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Result of the pilot; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<Pilot>,
}

/// Clock of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Clock {
    /// The host's own.
    #[default]
    Real,
    /// That of a virtual machine, in which each instruction takes one nanosecond.
    Counted,
}

impl Clock {
    pub fn is_real(&self) -> bool {
        *self == Self::Real
    }

    /// What a duration on it is given in.
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Real => "s",
            Self::Counted => "G instr",
        }
    }
}

/// An arm with nothing left open: this is what is carried out.
///
/// In texts, `{name}` stands for what is known once the server and the trial are there (`{port}`,
/// `{artefact}`), and `{{name}}` for those characters themselves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Arm {
    pub name: String,
    /// Short description.
    pub title: String,
    pub role: Role,
    /// What the scenario's `each` put into it: key and value, in its order; empty: it was written by itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub varied: Vec<(String, String)>,
    /// What is run, in one line for a reader.
    pub command: String,
    pub workload: Workload,
    /// Meter of the work done in a window.
    pub meter: Meter,
    /// When a window ends.
    pub window: Window,
    /// From being on to the earliest begin of its window.
    pub settle_s: f64,
    /// The arm that this one is compared with; absent: the plan's baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The outcome that verdicts on this arm are drawn from; absent: the plan's primary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_by: Option<String>,
    /// The load-latency curve that this arm is a point of: the name of the arm that was swept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub curve: Option<String>,
    #[serde(default, skip_serializing_if = "Treatment::is_nothing")]
    pub treatment: Treatment,
    pub artefact: Option<ArtefactKind>,
    /// Command that reads the artefact and prints how many queries are in it; empty: its kind says how they are counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub count_with: Vec<String>,
    /// The artefact lies in memory, where no disk is in its way.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_memory: bool,
    /// Its capture's filter leaves packets out: how many come to it nobody counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub selects: bool,
    #[serde(default, skip_serializing_if = "Needs::is_nothing")]
    pub needs: Needs,
    /// Why this arm cannot run here; such an arm is in no round's order.
    pub unavailable: Option<String>,
    /// CPU load of a positive control, in CPUs (0.25 = a quarter of one CPU).
    pub burn_share: Option<f64>,
    /// Options of the server that this arm is measured on, beyond those of the plan's other servers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub server_options: BTreeMap<String, String>,
}

/// Actions of an arm: settings first, in their order, then processes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(default)]
pub struct Treatment {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<Setting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub updates: Vec<RowUpdate>,
    /// Statements when the arm goes on, and off.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub off: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
    /// Processes that end by themselves are started again until the window is over.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub again: bool,
    /// A query that returns the number of queries captured so far.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<String>,
    /// The load reconnects once the arm is on: sessions copy some variables when they connect.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fresh_sessions: bool,
    /// Port of the listener on the far end of a link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_port: Option<u16>,
    /// Of the link to the far end, as `tc` writes rates; absent: as the rig says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub far_rate: Option<String>,
    /// Settings of the kernel while the arm is on, in this order: names as `sysctl` has them, and values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sysctl: Vec<(String, String)>,
}

impl Treatment {
    /// True if the arm has no actions.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// True if the arm runs statements on the server.
    pub fn has_statements(&self) -> bool {
        !(self.settings.is_empty() && self.updates.is_empty() && self.on.is_empty())
    }
}

/// A global variable while the arm is on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Setting {
    pub name: String,
    pub value: String,
    /// Left out where the server does not know the variable; else that is a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub if_known: bool,
}

/// Rows that are changed while the arm is on, such as those of performance_schema's setup tables.
/// toll reads them first, and puts back what differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(deny_unknown_fields)]
pub struct RowUpdate {
    /// With its schema: `performance_schema.setup_consumers`.
    pub table: String,
    /// The columns that tell its rows apart.
    pub key: Vec<String>,
    /// Which rows, as SQL; all of them where it is absent.
    #[serde(rename = "where", default, skip_serializing_if = "Option::is_none")]
    pub which: Option<String>,
    /// Values by column.
    pub set: BTreeMap<String, String>,
}

/// A process of a treatment, or several joined by pipes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Process {
    /// Unlike any other's in the arm.
    pub name: String,
    /// Words of each command; one's output is the next one's input.
    pub stages: Vec<Vec<String>>,
    /// File that takes the last one's standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Text on standard error, or at the head of standard output, that says that it is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
    /// Ends the first command.
    pub stop: Signal,
    /// Makes the tool print its counters without ending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Signal>,
    /// Started this long after the treatment.
    pub after_s: f64,
    /// Environment variables that it is given, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Runs beside the others for as long as they take: its own end is waited for by nobody, and a failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub background: bool,
    /// Runs at the rig's far end: what it uses would not be used on this host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub far: bool,
    /// Before it is ended, it is left alone until it has written nothing for so long.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub drain_s: f64,
    /// Its standard output is kept beside its errors, and read for what it says of packets.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_stdout: bool,
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    Int,
    #[default]
    Term,
    Kill,
    Usr1,
}

/// Meter of the work done.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Meter {
    /// The load's driver, with the response time of each event.
    Driver,
    /// The server's own count of statements: no response times.
    Server,
    /// Packets that a network device received.
    Link(String),
    /// Nothing: the window's length and what was spent in it are all there is.
    None,
}

impl Meter {
    /// True if it counts the work of others: it knows of no transactions, errors or response times.
    pub fn is_counter(&self) -> bool {
        matches!(self, Self::Server | Self::Link(_))
    }
}

/// When a window ends. It begins once the treatment is on and has settled; `Done`: with it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(tag = "until", rename_all = "kebab-case")]
pub enum Window {
    /// After a time.
    Time { s: f64 },
    /// When all processes of the treatment have ended by themselves.
    Done { at_most_s: f64 },
    /// When the meter has counted so much.
    Count { of: Counted, count: u64, at_most_s: f64 },
}

impl Window {
    /// The longest that it can be, seconds.
    pub fn at_most_s(&self) -> f64 {
        match *self {
            Self::Time { s } => s,
            Self::Done { at_most_s } | Self::Count { at_most_s, .. } => at_most_s,
        }
    }

    /// True if the window ends when the treatment ends.
    pub fn is_until_done(&self) -> bool {
        matches!(self, Self::Done { .. })
    }
}

/// Unit that a meter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Counted {
    Statements,
    Events,
    Packets,
}

/// Without what an arm cannot run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(default)]
pub struct Needs {
    /// Programs beyond those of its commands, and files (with a slash).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub root: bool,
    /// Variables that the server must know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// Steps of the rig, by kind.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rig: Vec<String>,
    /// Command that must succeed; it prints the reason if it does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub check: Vec<String>,
}

impl Needs {
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The arm that the others are compared with.
    Baseline,
    /// The arm whose overhead is measured.
    Treatment,
    /// The baseline again, under another name (A/A): any effect of it is false.
    Aa,
    /// A process that does nothing.
    Placebo,
    /// A process with a known cost: a test setup that does not detect it is not sensitive enough.
    PositiveControl,
}

/// Kind of a treatment's artifact; determines how it is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum ArtefactKind {
    Pcap,
    TcpdumpText,
    /// Query events, decoded as they were captured.
    Queries,
    SlowLog,
    GeneralLog,
    AuditLog,
    /// One line for each query.
    Lines,
    /// Counted by the server itself (performance_schema).
    Server,
    /// Only its size is of interest.
    Bytes,
    /// A directory of files of which only the size is of interest.
    Directory,
    /// Written by a newer toll: only its size is known.
    #[serde(other)]
    Unknown,
}

/// Load on the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
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
    /// Events after which a connection is made anew; 0: never. Three runs of 2026-11-21 lack it.
    #[serde(default)]
    pub reconnect_every: u64,
    /// Threads of toll's own driver that share its connections; absent: as the driver chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Each reply is held back for this share of its response time, percent: a positive control.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_pct: Option<f64>,
    /// Intended events a second; absent: closed loop.
    pub rate_per_s: Option<f64>,
}

/// Container of a treatment's processes, with their resource usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum HeldIn {
    /// A control group (cgroup v2): children that ended, or went their own way, are counted and found.
    ControlGroup,
    ProcessGroup,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Server {
    /// `sandbox` or `external`.
    pub kind: String,
    /// `mariadb`, `mysql` or `percona`.
    pub flavour: String,
    pub version: String,
    /// host:port or socket path; never a user or password.
    pub address: String,
    /// Settings that toll chose for a sandbox, `name=value`.
    pub config: Vec<String>,
}
