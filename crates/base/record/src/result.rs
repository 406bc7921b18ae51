//! Analysis result of a run. Reproducible from the other files of the run.

use crate::{Chart, HeldIn, PacketCounts, QueryCount, Role, Server, Workload};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `result.json`, and what `toll report --format json` prints for one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct RunResult {
    pub format: u32,
    pub toll_version: String,
    pub scenario: String,
    pub question: String,
    /// One or two sentences, drawn from the numbers.
    pub answer: String,
    pub profile: String,
    pub command: Vec<String>,
    pub seed: u64,
    pub baseline: String,
    pub primary: String,
    /// What the outcomes of arms mean, in the order of reports.
    pub definitions: Vec<crate::Definition>,
    /// Names of the outcomes that a table shows, in the order of its columns.
    pub columns: Vec<String>,
    /// Names of the outcomes that the page draws, in this order.
    pub panels: Vec<String>,
    pub margin_pct: f64,
    pub alpha: f64,
    /// Those that fitted, of a run that was given a time.
    pub rounds_planned: u32,
    /// Rounds in which every available arm has a window.
    pub rounds_done: u32,
    pub window_s: f64,
    /// The longer windows, which alone tell the outcomes that need them; absent where there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long: Option<LongWindows>,
    pub started_wall_us: u64,
    pub duration_s: f64,
    /// False for a run that was cut short; `warnings` says where.
    pub complete: bool,
    pub host: crate::Host,
    /// The server that the baseline was measured on; absent where none was in sight.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// What held each treatment's processes; absent in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_in: Option<HeldIn>,
    pub workload: Workload,
    /// In the order of the plan.
    pub arms: Vec<ArmResult>,
    pub aa: Option<AaCheck>,
    pub controls: Vec<ControlCheck>,
    /// Arms whose truth is known, one line for each kind of dose.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doses: Vec<DoseLine>,
    pub mde: Option<Mde>,
    /// In the order of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contrasts: Vec<ContrastResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pareto: Option<ParetoResult>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<crate::LimitResult>,
    pub stalls: Vec<StallSpan>,
    /// Stretches of a second or more in which a command that ends by itself wrote nothing, in the order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<Pause>,
    pub self_cost: SelfCost,
    pub warnings: Vec<Warning>,
    pub advice: Vec<String>,
    /// Scenario-specific figures; whoever draws needs to know nothing of the scenario.
    pub charts: Vec<Chart>,
    /// The parts of a run that was spread over hours, taken together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Pooled>,
}

/// Rounds of longer windows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct LongWindows {
    pub window_s: f64,
    /// In which every available arm has a window.
    pub rounds_done: u32,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ArmResult {
    pub name: String,
    pub title: String,
    pub role: Role,
    pub command: String,
    /// The arm that this one is compared with; absent for a baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The outcome that verdicts on this arm are drawn from; absent: the run's primary one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged_by: Option<String>,
    pub unavailable: Option<String>,
    /// Windows that entered the analysis.
    pub windows: u32,
    /// By outcome name: `qps`, `latency_us_p99`, `cpu_us_per_query`, ...
    pub outcomes: BTreeMap<String, Outcome>,
    pub artefact: Option<ArtefactResult>,
    /// Packets from the sender to the file; absent where there is no link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<crate::Ledger>,
    /// Statements executed in all of the arm's windows (ground truth from the driver).
    pub executed: u64,
    /// Queries in the artefact over statements executed in the same windows, 0..=1.
    pub captured_ratio: Option<f64>,
    pub stalls: StallTotals,
    /// Percentile curve of event latency over all windows: (quantile, latency_us).
    pub latency_curve: Vec<(f64, f64)>,
    pub notes: Vec<String>,
}

/// Pooled result of several runs, or of several parts of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Pooled {
    /// How many there are, in words: `3 runs`, `6 parts of this run`.
    pub over: String,
    /// In the order of the plan.
    pub arms: Vec<PooledArm>,
}

/// One arm over several runs, in the outcome that it is judged by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct PooledArm {
    pub name: String,
    pub outcome: String,
    /// Effect in each run, in their order; absent if the run has none.
    pub tolls_pct: Vec<Option<f64>>,
    pub toll_pct: f64,
    /// Of the mean over all such runs, the spread between them included.
    pub ci95_pct: [f64; 2],
    /// Standard deviation of the overhead between runs beyond their own errors.
    pub between_pct: f64,
}

/// One outcome of one arm, and its overhead against the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Outcome {
    pub unit: String,
    /// More is better (throughput) or less is better (latency, CPU).
    pub higher_is_better: bool,
    pub mean: f64,
    pub sd: f64,
    /// One value for each window, in the order of rounds; of a quantile whose windows have too few events, one for
    /// each block of rounds.
    pub values: Vec<f64>,
    /// Of a log ratio: 100 (e^mean(d) - 1), d = ln arm - ln baseline in the same round; absent for the baseline.
    pub toll_pct: Option<f64>,
    /// Around `toll_pct`, and what the verdict rests on; absent with fewer rounds than an interval needs.
    pub ci95_pct: Option<[f64; 2]>,
    /// Of a difference: mean of arm - baseline in the same round; of what is not compared: the mean itself.
    /// In `unit`; absent for log ratios.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
    /// Around `effect`, in `unit`; absent with fewer rounds than an interval needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Of the mean of d, on the log scale for ratios, else in `unit`; absent without two differences.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standard_error: Option<f64>,
    /// `sign-flip`, `sign-flip, 16 arms together, drift taken out`, `confidence-sequence`, `bootstrap-bca of 12 blocks
    /// of 4 to 5 rounds`, or why there is none.
    pub method: String,
    pub p: Option<f64>,
    /// Of the outcome that verdicts are drawn from, adjusted for all treatments judged together.
    pub p_adjusted: Option<f64>,
    /// Of a `confidence-sequence` whose run went to the end of its plan: the sign flips' interval there, for one look. No verdict
    /// rests on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planned_ci95_pct: Option<[f64; 2]>,
    pub verdict: Verdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Baseline,
    /// Worse than the baseline; where verdicts are drawn from this outcome, by an interval that all treatments share.
    Costly,
    /// Better than the baseline.
    Cheaper,
    /// The interval lies inside ±margin.
    NoEffect,
    /// The interval holds zero and reaches beyond the margin: more rounds are needed.
    Unclear,
    /// Too few rounds for an interval.
    NoInterval,
    /// Shown by itself: there is nothing that it is compared with.
    NotCompared,
}

/// Means over the arm's trials; counts are sums.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ArtefactResult {
    pub kind: crate::ArtefactKind,
    /// Written inside windows, all trials together.
    pub bytes: u64,
    pub bytes_per_s: f64,
    /// Link that would carry it: bytes_per_s in Mb/s.
    pub link_mbit_per_s: f64,
    pub packets: Option<u64>,
    pub received: Option<u64>,
    pub dropped: Option<u64>,
    pub packet_counts: Option<PacketCounts>,
    /// Queries found that completed inside windows, all trials together.
    pub queries: Option<u64>,
    pub counted_by: Option<String>,
    pub pt_query_digest: Option<QueryCount>,
    /// Its session was under TLS: the share of the queries is unknown.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub encrypted: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct StallTotals {
    pub count: u32,
    pub total_s: f64,
    pub longest_s: f64,
}

/// A stretch in which the host did (nearly) nothing for its clients.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct StallSpan {
    pub arm: String,
    pub trial: u32,
    /// `throughput`, `latency` or `harness`.
    pub kind: String,
    pub begin_mono_us: u64,
    pub end_mono_us: u64,
    /// Highest seen beside it.
    pub dirty_bytes: Option<u64>,
    pub writeback_bytes: Option<u64>,
    pub psi_cpu_pct: Option<f64>,
    pub psi_io_pct: Option<f64>,
    pub psi_memory_pct: Option<f64>,
    pub disk_write_await_ms: Option<f64>,
}

/// A stretch in which a process of a treatment wrote nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Pause {
    pub arm: String,
    pub trial: u32,
    pub round: u32,
    pub process: String,
    pub begin_mono_us: u64,
    pub end_mono_us: u64,
    /// Of its begin, from the window's.
    pub begin_s: f64,
    /// What host and server did then and not else, the most striking first.
    pub beside: Vec<Beside>,
}

/// A column of the samples, as it was in a pause and as it was in the rest of the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Beside {
    /// Of a `host`, `pressure` or `server` sample.
    pub name: String,
    /// Means.
    pub during: f64,
    pub otherwise: f64,
}

/// Result of a contrast of the plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ContrastResult {
    pub name: String,
    pub title: String,
    pub outcome: String,
    pub of: String,
    pub over: String,
    pub factor: f64,
    /// The arm beyond which both are counted; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beyond: Option<String>,
    /// Rounds in which both arms have the outcome.
    pub pairs: u32,
    /// Geometric mean of the rounds' ratios, or the ratio of both overheads. Absent if no round has one, or if the
    /// overhead in the denominator may be zero.
    pub ratio: Option<f64>,
    pub ci95: Option<[f64; 2]>,
    /// As an outcome's.
    pub method: String,
}

/// Pareto-optimal arms, and the recommended one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ParetoResult {
    /// As the plan has them.
    pub outcomes: Vec<String>,
    /// Those that have all of them, in the order of the plan.
    pub arms: Vec<ParetoArm>,
    /// Absent where no arm keeps the limits.
    pub advised: Option<String>,
    /// The same in a sentence, with the figures that it rests on.
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ParetoArm {
    pub name: String,
    /// An arm that is better in one of the outcomes, beyond its interval, and worse in none; absent: there is none.
    pub beaten_by: Option<String>,
    /// Mean of each outcome, in their order, with its interval; absent with too few windows.
    pub values: Vec<f64>,
    pub ci95: Vec<Option<[f64; 2]>>,
}

/// The baseline against itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct AaCheck {
    pub arm: String,
    pub toll_pct: Option<f64>,
    pub ci95_pct: Option<[f64; 2]>,
    /// Where the primary outcome is compared as a difference, in its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Passed or failed; null if not conclusive: too few rounds, or an interval wider than ±margin.
    pub ok: Option<bool>,
}

/// A control whose answer is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct ControlCheck {
    pub arm: String,
    pub outcome: String,
    pub expected_pct: f64,
    pub toll_pct: Option<f64>,
    pub ci95_pct: Option<[f64; 2]>,
    /// Where that outcome is compared as a difference, in its unit; none is expected then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci95: Option<[f64; 2]>,
    /// Passed or failed; null if not conclusive: too few rounds, or an interval that holds zero beside the known effect.
    pub ok: Option<bool>,
    pub text: String,
}

/// Kind of a known cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
#[serde(rename_all = "kebab-case")]
pub enum DoseKind {
    /// A process burns a share of the host's CPU time.
    Cpu,
    /// The driver holds replies back for a share of their response time.
    Delay,
}

/// Doses of one kind: applied and measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct DoseLine {
    pub kind: DoseKind,
    /// The outcome that they must be found in.
    pub outcome: String,
    /// From the smallest to the largest.
    pub doses: Vec<Dose>,
    /// Found over given, the mean of the rounds: 1 is right.
    pub slope: Option<f64>,
    /// Around `slope`; absent with fewer rounds than an interval needs.
    pub ci95: Option<[f64; 2]>,
    /// True if 1 lies inside `ci95`.
    pub ok: Option<bool>,
    /// The smallest applied change of the outcome that, like all larger ones, was distinguished from zero,
    /// percent.
    pub resolution_pct: Option<f64>,
}

/// An arm whose truth is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Dose {
    pub arm: String,
    /// Percent of the host's CPU time, or of the response time, that it was set to take.
    pub told_pct: Option<f64>,
    /// What it took of that, where that can be seen.
    pub took_pct: Option<f64>,
    /// By how much the outcome must change by what it took, percent.
    pub given_pct: f64,
    pub found_pct: Option<f64>,
    pub ci95_pct: Option<[f64; 2]>,
}

/// Minimal detectable effect on the primary outcome, at 80% power.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Mde {
    /// From the pilot, before the run.
    pub planned_pct: Option<f64>,
    /// From the run's own A/A or pairs.
    pub achieved_pct: Option<f64>,
    /// The same where that outcome is compared as a difference, in its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub achieved: Option<f64>,
    /// Rounds that would make an effect as large as the margin detectable.
    pub rounds_for_margin: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct SelfCost {
    pub cpu_s: f64,
    /// Share of one CPU, inside windows.
    pub cpu_pct_of_one_core: f64,
    pub memory_peak_bytes: u64,
    pub written_bytes: u64,
    /// Absent: nobody but toll used the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub while_off: Option<WhileOff>,
}

/// What toll takes of a server that serves users, in windows without a method.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct WhileOff {
    /// Of all CPUs of its host: toll itself, its guard, and its tap on the server's sockets. What the tap's probes take inside the
    /// server is in none of them.
    pub toll_cpu_pct: f64,
    pub guard_cpu_pct: f64,
    pub tap_cpu_pct: f64,
    pub queries_per_s: f64,
    /// Of all queries of the server; absent where their number is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queries_pct: Option<f64>,
    pub connections: u64,
}

/// Warning with a code, and advice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(ts_rs::TS))]
pub struct Warning {
    /// `carry-over`, `dependence`, `aa-failed`, `too-few-rounds`, ...
    pub code: String,
    pub arm: Option<String>,
    pub text: String,
    /// What to do next.
    pub advice: String,
}
