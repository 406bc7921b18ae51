//! Warnings about a run, each with its advice.
//!
//! Every warning is a variant. Its text states the observation, its advice the remedy. Never corrects
//! anything.

use std::collections::BTreeMap;
use toll_record::{Design, Warning};
use toll_sys::count_format::{format_count, format_error_codes};

/// A warning about a run. Shares are 0..=1; percentages are named as such.
#[derive(Debug, Clone, PartialEq)]
pub enum RunWarning {
    NoBaseline {
        arm: String,
    },
    Incomplete {
        done: u32,
        planned: u32,
        /// Why it could not go on, where that is recorded.
        why: Option<String>,
        missing: String,
        files: Vec<&'static str>,
        cut: Vec<&'static str>,
    },
    ServerRestarted {
        at: String,
        into_s: u64,
        windows: AffectedTrials,
        failed: AffectedTrials,
    },
    SamplesMissing {
        windows: AffectedTrials,
    },
    LatencyMissing {
        windows: usize,
        of: usize,
    },
    TrialFailed {
        arm: String,
        times: usize,
        tried: usize,
        begun: usize,
        reason: String,
    },
    TreatmentKilled {
        arm: String,
        note: String,
    },
    TooFewRounds {
        have: usize,
        need: usize,
    },
    AaFailed {
        arm: String,
        outcome: String,
        found: String,
    },
    ControlMissed {
        arm: String,
        text: String,
    },
    CarryOver {
        arm: String,
        differs: String,
        p: f64,
    },
    Dependence {
        arm: String,
        lag_1: f64,
        bound: f64,
    },
    SlowSettling {
        arm: String,
        pct: f64,
    },
    WindowOnSlope {
        arm: String,
        slope: Slope,
    },
    Noisy {
        cv_pct: f64,
        finds: Option<String>,
    },
    LowPower {
        finds: String,
        asked: String,
        rounds: Option<u32>,
    },
    HostSteal {
        pct: f64,
    },
    /// Windows left out, of all windows; the arm that lost most; and the arms that keep theirs because most
    /// would go.
    StealExcluded {
        windows: usize,
        of: usize,
        above_pct: f64,
        most: Option<ArmSteal>,
        stay: Vec<ArmSteal>,
    },
    DriverShare {
        pct: f64,
    },
    LoadErrors {
        arm: String,
        errors: u64,
        statements: u64,
        codes: BTreeMap<u16, u64>,
    },
    NothingCompleted {
        arm: String,
        windows: usize,
    },
    HarnessStalls {
        count: usize,
        longest_s: f64,
    },
    StallsNotJudged {
        why: String,
    },
    PacketsDropped {
        arm: String,
        dropped: u64,
        captured: u64,
    },
    AccountingGap {
        arm: String,
        trials: usize,
        of: usize,
        gaps: String,
    },
    TooManyCaptured {
        arm: String,
        ratio: f64,
    },
    QueriesNotCounted {
        arm: String,
        windows: usize,
        of: usize,
        why: Option<String>,
    },
    Unavailable {
        arms: Vec<(String, String)>,
    },
    SelfCostHigh {
        pct: f64,
    },
    NoSelfCost,
    UnknownSamples {
        lines: usize,
    },
}

/// Change from an arm's short windows to a later stretch. Seconds count from when it was switched on.
#[derive(Debug, Clone, PartialEq)]
pub struct Slope {
    /// The outcome.
    pub what: String,
    pub pct: f64,
    pub ends_pct: [f64; 2],
    /// Begin and end.
    pub short_s: [f64; 2],
    pub late_s: [f64; 2],
}

/// Several trials or windows, by arm and round.
#[derive(Debug, Clone, PartialEq)]
pub struct AffectedTrials {
    pub count: usize,
    pub names: String,
}

/// Largest captured share. A window's edges add a query or two; a larger share has another cause.
pub const MAX_CAPTURED_RATIO: f64 = 1.02;
/// CPU time of one core, percent, beyond which toll is part of its own measurement.
pub const SELF_COST_PCT: f64 = 1.0;
/// CPU time taken by other guests, percent of all CPU time in the windows.
pub const STEAL_PCT: f64 = 2.0;
/// Share of the host's busy CPU time that the driver may use, percent.
pub const DRIVER_SHARE_PCT: f64 = 40.0;
/// Coefficient of variation of the baseline's own windows, percent.
pub const NOISY_CV_PCT: f64 = 15.0;

/// Windows of an arm in which CPU was withheld, of all its windows.
#[derive(Debug, Clone, PartialEq)]
pub struct ArmSteal {
    pub arm: String,
    pub stolen_windows: usize,
    pub windows: usize,
}

impl std::fmt::Display for ArmSteal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {} of {}", self.arm, self.stolen_windows, self.windows)
    }
}

impl RunWarning {
    /// The stable name for documents and filters.
    pub fn code(&self) -> &'static str {
        match self {
            RunWarning::NoBaseline { .. } => "no-baseline",
            RunWarning::Incomplete { .. } => "incomplete",
            RunWarning::ServerRestarted { .. } => "server-restarted",
            RunWarning::SamplesMissing { .. } => "samples-missing",
            RunWarning::LatencyMissing { .. } => "latency-missing",
            RunWarning::TrialFailed { .. } => "trial-failed",
            RunWarning::TreatmentKilled { .. } => "treatment-killed",
            RunWarning::TooFewRounds { .. } => "too-few-rounds",
            RunWarning::AaFailed { .. } => "aa-failed",
            RunWarning::ControlMissed { .. } => "control-missed",
            RunWarning::CarryOver { .. } => "carry-over",
            RunWarning::Dependence { .. } => "dependence",
            RunWarning::SlowSettling { .. } => "slow-settle",
            RunWarning::WindowOnSlope { .. } => "window-on-slope",
            RunWarning::Noisy { .. } => "noisy",
            RunWarning::LowPower { .. } => "low-power",
            RunWarning::HostSteal { .. } => "host-steal",
            RunWarning::StealExcluded { .. } => "cpu-withheld",
            RunWarning::DriverShare { .. } => "driver-share",
            RunWarning::LoadErrors { .. } => "load-errors",
            RunWarning::NothingCompleted { .. } => "nothing-completed",
            RunWarning::HarnessStalls { .. } => "harness-stalls",
            RunWarning::StallsNotJudged { .. } => "stalls-not-judged",
            RunWarning::PacketsDropped { .. } => "packets-dropped",
            RunWarning::AccountingGap { .. } => "ledger-gap",
            RunWarning::TooManyCaptured { .. } => "caught-too-many",
            RunWarning::QueriesNotCounted { .. } => "artefact-not-counted",
            RunWarning::Unavailable { .. } => "unavailable-arms",
            RunWarning::SelfCostHigh { .. } => "self-cost-high",
            RunWarning::NoSelfCost => "self-cost-unknown",
            RunWarning::UnknownSamples { .. } => "unknown-samples",
        }
    }

    fn arm(&self) -> Option<&String> {
        match self {
            RunWarning::NoBaseline { arm }
            | RunWarning::TrialFailed { arm, .. }
            | RunWarning::TreatmentKilled { arm, .. }
            | RunWarning::AaFailed { arm, .. }
            | RunWarning::ControlMissed { arm, .. }
            | RunWarning::CarryOver { arm, .. }
            | RunWarning::Dependence { arm, .. }
            | RunWarning::SlowSettling { arm, .. }
            | RunWarning::WindowOnSlope { arm, .. }
            | RunWarning::LoadErrors { arm, .. }
            | RunWarning::NothingCompleted { arm, .. }
            | RunWarning::PacketsDropped { arm, .. }
            | RunWarning::AccountingGap { arm, .. }
            | RunWarning::TooManyCaptured { arm, .. }
            | RunWarning::QueriesNotCounted { arm, .. } => Some(arm),
            _ => None,
        }
    }

    fn text(&self) -> String {
        match self {
            RunWarning::NoBaseline { arm } => {
                format!("the baseline {arm} has no window: nothing can be compared with it")
            }
            RunWarning::Incomplete { done, planned, why, missing, files, cut } => {
                let mut text = format!("{done} of {planned} rounds are complete");
                if let Some(why) = why {
                    text += &format!("; the run ended early: {why}");
                }
                if !missing.is_empty() {
                    text += &format!("; missing: {missing}");
                }
                if !files.is_empty() {
                    text += &format!("; the run has no {}", files.join(", no "));
                }
                if !cut.is_empty() {
                    text += &format!("; cut short inside a line: {}", cut.join(", "));
                }
                text
            }
            RunWarning::ServerRestarted { at, into_s, windows, failed } => {
                let mut text = format!("the server restarted at {at} ({into_s} s into the run)");
                text += &match windows.count {
                    0 => ": no window is lost to it".to_owned(),
                    1 => format!(": the window of {} is left out", windows.names),
                    _ => format!(": the windows of {} are left out", windows.names),
                };
                match failed.count {
                    0 => {}
                    1 => text += &format!("; the trial of {} failed in it", failed.names),
                    _ => text += &format!("; the trials of {} failed in it", failed.names),
                }
                text
            }
            RunWarning::SamplesMissing { windows } => {
                let count = format_count(windows.count as u64, "window");
                format!("samples are missing in {count}: {}", windows.names)
            }
            RunWarning::LatencyMissing { windows, of } if windows == of => {
                format!("latency.hlog lacks all {of} windows: there are no percentiles")
            }
            RunWarning::LatencyMissing { windows, of } => format!(
                "latency.hlog lacks {windows} of {of} windows: percentiles rest on the other {}",
                of - windows
            ),
            RunWarning::TrialFailed { arm, times, tried, begun, reason } if tried < begun => format!(
                "{arm} failed in {times} of the {tried} rounds in which it was tried; not tried in the other {}: {reason}",
                begun - tried
            ),
            RunWarning::TrialFailed { arm, times, begun, reason, .. } => {
                format!("{arm} failed in {times} of {begun} rounds: {reason}")
            }
            RunWarning::TreatmentKilled { arm, note } => format!("{arm} did not stop on its signal: {note}"),
            RunWarning::TooFewRounds { have, need } => {
                format!("{have} paired rounds allow no interval: at least {need} are needed")
            }
            RunWarning::AaFailed { arm, outcome, found } => {
                format!("{arm} is the baseline under another name, and yet its {outcome} differs by {found}")
            }
            RunWarning::ControlMissed { text, .. } => text.clone(),
            RunWarning::CarryOver { arm, differs, p } => {
                format!("whatever is measured after {arm} differs by {differs} (p = {p:.3})")
            }
            RunWarning::Dependence { arm, lag_1, bound } => format!(
                "differences of {arm} follow each other from round to round (lag-1 {lag_1:+.2}, chance stays within ±{bound:.2})"
            ),
            RunWarning::SlowSettling { arm, pct } => {
                format!("windows of {arm} begin {pct:+.1}% away from where they end up")
            }
            RunWarning::WindowOnSlope {
                arm,
                slope: Slope { what, pct, ends_pct: [low, high], short_s, late_s },
            } => {
                format!(
                    "{what} of {arm} is {pct:+.1}% [{low:+.1}, {high:+.1}] higher {:.1} to {:.1} s after it is switched on \
                 than in its short windows, {:.1} to {:.1} s after",
                    late_s[0], late_s[1], short_s[0], short_s[1]
                )
            }
            RunWarning::Noisy { cv_pct, finds } => {
                let mut text = format!("the baseline's own windows vary by {cv_pct:.0}%");
                if let Some(finds) = finds {
                    text += &format!(", so that effects below {finds} are not detectable");
                }
                text
            }
            RunWarning::LowPower { finds, asked, .. } => {
                format!("minimum detectable effect is {finds}; requested: {asked}")
            }
            RunWarning::HostSteal { pct } => {
                format!("other guests took {pct:.1}% of this host's CPU time inside windows")
            }
            RunWarning::StealExcluded { windows, of, above_pct, most, stay } => {
                let most = most
                    .as_ref()
                    .map(|most| format!("{windows} of {of} windows, which are left out (most of {most})"));
                let stay: Vec<_> = stay.iter().map(ArmSteal::to_string).collect();
                let stay = (!stay.is_empty())
                    .then(|| format!("too many windows to leave out of {}", stay.join(", ")));
                let which: Vec<_> = most.into_iter().chain(stay).collect();
                format!(
                    "other guests took more than {above_pct:.0}% of this host's CPU time in {}",
                    which.join("; in ")
                )
            }
            RunWarning::DriverShare { pct } => {
                format!("the load driver takes {pct:.0}% of the CPU that is busy on this host")
            }
            RunWarning::LoadErrors { arm, errors, statements, codes } => {
                let codes =
                    if codes.is_empty() { String::new() } else { format!(": {}", format_error_codes(codes)) };
                format!("the load met {errors} errors beside {statements} statements under {arm}{codes}")
            }
            RunWarning::NothingCompleted { arm, windows } => {
                format!(
                    "nothing completed in {windows} windows of {arm}: their throughput is below one a window, and is counted as that"
                )
            }
            RunWarning::HarnessStalls { count, longest_s } => format!(
                "toll was descheduled {} during windows, {longest_s:.2} s at the longest",
                if *count == 1 { "once".to_owned() } else { format!("{count} times") }
            ),
            RunWarning::StallsNotJudged { why } => why.clone(),
            RunWarning::PacketsDropped { arm, dropped, captured } => format!(
                "the kernel dropped {dropped} packets that {arm} should have seen ({:.2}% of them)",
                100.0 * *dropped as f64 / (*dropped + *captured).max(1) as f64
            ),
            RunWarning::AccountingGap { arm, trials, of, gaps } => format!(
                "packets of {arm} are missing without a drop counter in {trials} of {of} trials: {gaps}"
            ),
            RunWarning::TooManyCaptured { arm, ratio } => format!(
                "the artefact of {arm} holds {:.1}% of the queries that were executed: more than all",
                100.0 * ratio
            ),
            RunWarning::QueriesNotCounted { arm, windows, of, why } => {
                let why = why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
                format!("queries in the artefact of {arm} are not counted in {windows} of {of} windows{why}")
            }
            RunWarning::Unavailable { arms } => {
                let arms: Vec<String> = arms.iter().map(|(arm, why)| format!("{arm} ({why})")).collect();
                format!("not measured here: {}", arms.join("; "))
            }
            RunWarning::SelfCostHigh { pct } => {
                format!("toll's own processes took {pct:.1}% of one core inside windows")
            }
            RunWarning::NoSelfCost => "the run does not say what toll's own processes took".to_owned(),
            RunWarning::UnknownSamples { lines } => {
                format!(
                    "{} of samples.ndjson are of a kind that this toll does not know",
                    format_count(*lines as u64, "line")
                )
            }
        }
    }

    /// Names options of the command that makes runs of this design.
    fn advice(&self, design: &Design) -> String {
        let settle = if design.is_rounds() { "--settle" } else { "--guard-interval" };
        match self {
            RunWarning::NoBaseline { .. } => "run again with the baseline among --variants".into(),
            RunWarning::Incomplete { .. } => "the figures rest on the rounds that are there; run again for the rest".into(),
            RunWarning::ServerRestarted { .. } => {
                "the server's error log says why (a crash, memory, somebody's hand); windows right after it ran with cold caches: run again if they stand out".into()
            }
            RunWarning::SamplesMissing { .. } => {
                "samples.ndjson is damaged, or the run was cut: these windows are left out; copy it again from an undamaged source, or run again".into()
            }
            RunWarning::LatencyMissing { .. } => {
                "copy latency.hlog again from an undamaged source; throughput, means and CPU rest on all windows".into()
            }
            RunWarning::TrialFailed { .. } => {
                "try its command by hand: `toll doctor` names missing tools; its overhead is based on the other rounds".into()
            }
            RunWarning::TreatmentKilled { .. } => {
                "its artefact may lack the end; give the variant a stop signal that it obeys".into()
            }
            RunWarning::TooFewRounds { .. } | RunWarning::LowPower { .. } if !design.is_rounds() => {
                "give the run more time (--time)".into()
            }
            RunWarning::TooFewRounds { need, .. } => format!("run with --rounds {need} or more"),
            RunWarning::AaFailed { .. } => {
                "one run in twenty does this by chance: run again with another --seed; if it fails again, trust no verdict of this host before its noise is found".into()
            }
            RunWarning::ControlMissed { .. } => {
                "one control in twenty misses by chance: run again with another --seed; if it misses again, stop other load on the host, and look for another bottleneck than CPU".into()
            }
            RunWarning::CarryOver { .. } => {
                format!("lengthen {settle} until it goes, and read variants that follow it with care")
            }
            RunWarning::Dependence { .. } => "lengthen --window; until then intervals are too narrow".into(),
            RunWarning::SlowSettling { .. } => {
                format!("lengthen {settle}: the window should begin on the plateau")
            }
            RunWarning::WindowOnSlope { slope, .. } => format!(
                "its steady overhead is the later one: let it settle, `settle = \"{:.0}s\"` in the variant, or --settle",
                slope.late_s[0]
            ),
            RunWarning::Noisy { .. } => "stop other load on the host, or give the run more time (--time): more rounds, rather than longer windows".into(),
            RunWarning::LowPower { rounds: Some(rounds), .. } => {
                format!("run with --rounds {rounds} to detect effects as small as that, or let --find choose")
            }
            RunWarning::LowPower { .. } => {
                "no sensible number of rounds detects that here: stop other load on the host".into()
            }
            RunWarning::HostSteal { .. } => "use a host of your own, or more rounds: neighbours are part of the noise".into(),
            RunWarning::StealExcluded { .. } => {
                "neighbours on the same machine were at work. If one variant loses many more windows than the others, the variant itself may cause the steal: measure it again".into()
            }
            RunWarning::DriverShare { .. } => {
                "its share hides part of every overhead on this host: use prepared statements, a lighter driver, or drive from another host".into()
            }
            RunWarning::LoadErrors { .. } => "look at the server's error log; windows with errors measure something else".into(),
            RunWarning::NothingCompleted { .. } => "look at its stalls; its overhead is at least what is shown".into(),
            RunWarning::HarnessStalls { .. } => {
                "stalls at those moments may be the host's, not the server's: stop other load on the host".into()
            }
            RunWarning::StallsNotJudged { .. } => "do not read the absence of stalls as proof of none".into(),
            RunWarning::PacketsDropped { .. } => "the artefact is incomplete: give the tool a larger buffer or a shorter snap length".into(),
            RunWarning::AccountingGap { .. } => {
                "look for what takes or adds packets there: a filter of the capture or of tc, another sender on the link, a full disk".into()
            }
            RunWarning::TooManyCaptured { .. } => {
                "it counts other clients' queries, or some twice: do not take its share for a measure".into()
            }
            RunWarning::QueriesNotCounted { .. } => "the captured share is based on the other windows; keep artefacts with --keep-artefacts and count them".into(),
            RunWarning::Unavailable { .. } => "`toll doctor` says how to install what is missing".into(),
            RunWarning::SelfCostHigh { .. } => "use longer windows; all variants have this cost, so that overheads stay comparable".into(),
            RunWarning::NoSelfCost => "run with a toll that records it".into(),
            RunWarning::UnknownSamples { .. } => "report with the toll that wrote the run, or a newer one".into(),
        }
    }

    /// The warning as stored in a result.
    pub fn to_warning(&self, design: &Design) -> Warning {
        Warning {
            code: self.code().to_owned(),
            arm: self.arm().cloned(),
            text: self.text(),
            advice: self.advice(design),
        }
    }
}
