//! What a plan is on a clock that counts instructions: lengths, outcomes and their units.
//!
//! There a second is 10^9 instructions. Nothing on that clock waits for a disk, a cache or another CPU, so what is made of
//! waiting is left out.

use super::{RunOverrides, TimeSettings};
use anyhow::bail;
use toll_record::catalogue::find_definition;
use toll_record::{Aggregate, ArtefactColumn, Compare, Definition, Plan, ProcessColumn, Source, TrialColumn};

/// Ten bins of whole transactions, 160 of the read-only mix: windows agree within 0.1%. At the rate of an emulated CPU captures
/// work in batches by time: 0.2 s (`RETIRE_MS` of the packet tap), 0.5 s (chunks of `toll capture`), 1 s (tcpdump). Of
/// other lengths some windows hold one batch more, and short ones no write at all.
const WINDOW_S: f64 = 1.0;
/// sysbench reports once a second.
const SYSBENCH_WINDOW_S: f64 = 3.0;
/// The trial loop waits until two bins agree.
const SETTLE_S: f64 = 0.0;
/// A run ends sooner once its intervals are as narrow as was asked for.
const MOST_ROUNDS: u32 = 12;
/// With this as its primary outcome a scenario asks here for that. All share one CPU, so a response waits for all work there
/// is, that of another host too; and a window begins and ends within transactions, but hardly within statements.
const IN_TIME: &str = "latency_us_mean";
const IN_WORK: &str = "cpu_us_per_query";
/// An overhead within this is "no effect", percent.
const MARGIN_PCT: f64 = 0.5;

impl TimeSettings {
    /// Lengths of a counted run: those of the profile are made for the real clock.
    pub(super) fn counted(overrides: &RunOverrides) -> Self {
        Self {
            time_s: None,
            time_is_explicit: false,
            find_pct: None,
            rounds: overrides.rounds.or(Some(MOST_ROUNDS)),
            window_s: Some(overrides.window.map_or(WINDOW_S, |window| window.0)),
            settle_s: overrides.settle.map_or(SETTLE_S, |settle| settle.0),
            // An arm's own settling is made for the real clock, too.
            settle_is_explicit: true,
            gap_s: overrides.gap.map_or(0.0, |gap| gap.0),
            pilot_s: 0.0,
        }
    }

    /// Longer windows where a driver reports so seldom.
    pub(super) fn lengthen_for_sysbench(&mut self) {
        self.window_s = self.window_s.map(|window_s| window_s.max(SYSBENCH_WINDOW_S));
    }
}

/// Makes the plan one of instructions: leaves out what that clock does not know, and names units after it.
///
/// # Errors
/// The scenario asks for something that is left out.
pub(super) fn convert(plan: &mut Plan) -> anyhow::Result<()> {
    let asked = plan.arms.iter().filter_map(|arm| arm.judged_by.as_ref());
    for name in [&plan.primary].into_iter().chain(asked) {
        if find_definition(&plan.outcomes, name).is_some_and(|outcome| !is_known(outcome)) {
            bail!(
                "{} asks for {name}, which is made of waiting: a clock that counts instructions knows no disks, stalls or \
                 packets per second; run it without --exact",
                plan.scenario
            );
        }
    }
    if plan.primary == IN_TIME && find_definition(&plan.outcomes, IN_WORK).is_some() {
        plan.primary = IN_WORK.to_owned();
        // What the run judges by comes first, as it does elsewhere.
        plan.columns.retain(|name| ![IN_TIME, IN_WORK].contains(&name.as_str()));
        plan.columns.insert(0, IN_WORK.to_owned());
    }
    plan.outcomes.retain(is_known);
    plan.outcomes.iter_mut().for_each(relabel);
    let outcomes = plan.outcomes.clone();
    let is_left = |name: &String| find_definition(&outcomes, name).is_some();
    plan.columns.retain(is_left);
    plan.panels.retain(is_left);
    plan.contrasts.retain(|contrast| is_left(&contrast.outcome));
    plan.limits.retain(|limit| is_left(&limit.outcome) && limit.reached.as_ref().is_none_or(is_left));
    plan.charts.retain(|chart| chart.outcomes.iter().all(is_left));
    plan.pareto = plan.pareto.take().filter(|pareto| pareto.outcomes.iter().all(is_left));
    plan.margin_pct = plan.margin_pct.min(MARGIN_PCT);
    plan.jitter = 0.0;
    Ok(())
}

/// Whether the counted clock can say it.
fn is_known(outcome: &Definition) -> bool {
    match &outcome.source {
        // Nobody collects them there: that would be a part of every window.
        Source::Host { .. } | Source::Pressure { .. } | Source::Server { .. } => false,
        Source::Stages { .. } | Source::ByClass { .. } => false,
        Source::Artefact { column } => *column != ArtefactColumn::Mbps,
        Source::Trial { column } => *column == TrialColumn::Seconds,
        Source::Processes { column, .. } => !matches!(
            column,
            ProcessColumn::FirstOutputS
                | ProcessColumn::LongestPauseS
                | ProcessColumn::PausedS
                | ProcessColumn::SentMbps
        ),
        // How responses are spread is made by the edges at which the load rests.
        Source::Latency => outcome.aggregate == Aggregate::Mean,
        Source::Load { .. } | Source::Cpu { .. } => true,
    }
}

/// Units of time become instructions, in units, titles and heads.
fn relabel(outcome: &mut Definition) {
    let unit = match outcome.unit.as_str() {
        "us" => "k instructions".to_owned(),
        "ms" => "M instructions".to_owned(),
        "s" => "G instructions".to_owned(),
        unit => match unit.strip_suffix("/s") {
            Some(counted) => format!("{counted}/G instructions"),
            None => return,
        },
    };
    if !outcome.unit.ends_with("/s") {
        outcome.title = in_instructions(&outcome.title);
        outcome.head = outcome.head.as_deref().map(in_instructions);
    }
    outcome.unit = unit;
    if outcome.compare == Compare::Difference {
        // A margin of the real clock.
        outcome.margin = None;
    }
}

fn in_instructions(title: &str) -> String {
    for time in ["CPU time", "CPU"] {
        if title.contains(time) {
            return title.replacen(time, "instructions", 1);
        }
    }
    format!("{title}, in instructions")
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_record::catalogue::CATALOGUE;

    #[test]
    fn no_outcome_that_is_left_is_counted_in_seconds() {
        let mut left: Vec<Definition> = CATALOGUE.outcomes.iter().filter(|o| is_known(o)).cloned().collect();
        left.iter_mut().for_each(relabel);
        for outcome in &left {
            assert!(!matches!(outcome.unit.as_str(), "us" | "ms" | "s"), "{}", outcome.name);
            assert!(!outcome.unit.ends_with("/s"), "{}", outcome.name);
        }
        let title = |name: &str| find_definition(&left, name).map(|outcome| outcome.title.as_str());
        assert_eq!(title("cpu_us_per_query"), Some("instructions per query, whole host"));
        assert_eq!(title("latency_us_mean"), Some("mean response time, in instructions"));
        assert_eq!(title("qps"), Some("throughput"));
        assert_eq!(title("latency_us_p99"), None);
        assert_eq!(title("stall_s").or(title("disk_queue")), None);
        let units = ["qps", "latency_us_mean", "elapsed_s"]
            .map(|name| find_definition(&left, name).map(|outcome| outcome.unit.as_str()));
        assert_eq!(
            units,
            [Some("statements/G instructions"), Some("k instructions"), Some("G instructions")]
        );
    }
}
