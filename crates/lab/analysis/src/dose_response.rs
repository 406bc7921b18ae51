//! Dose-response check: arms of known size, the size found, and the smallest size detected.
//!
//! A dose is an arm with a known effect: a CPU burner, by the time it used, or a driver that delays replies.
//! A miss has one of three reasons: the burner was starved, the host's own work changed, or the measurement is
//! blind.

use super::arms::Arms;
use super::compare::{ArmWindows, Comparison};
use super::control_checks::check_control;
use super::run_data::RunData;
use super::window_outcomes::WindowOutcomes;
use std::collections::BTreeMap;
use toll_record::{
    Aggregate, Arm, Axis, Chart, ChartKind, ChartSeries, Compare, ControlCheck, Definition, Dose, DoseKind,
    DoseLine, Outcome, Party, Plan, Role, Source,
};
use toll_stats::{Interval, log_ratio_to_pct};

/// Share of the set CPU time below which a burner counts as starved. Below the second it is no control any
/// more.
const STARVED_SHARE: f64 = 0.95;
const INVALID_CONTROL_SHARE: f64 = 0.5;
/// Largest difference in CPU time per query that does not cast doubt on the count of queries, percent.
///
/// Server and driver were measured to use 12% less per query beside a burner, because threads that wait for a
/// CPU are not woken.
const MAX_PARTY_CHANGE_PCT: f64 = 100.0 / 3.0;
/// Share of busy CPUs beyond which none are free: there, a delayed reply makes way for the others.
const SATURATED_SHARE: f64 = 0.9;

/// One arm with a known effect, and the effect found.
#[derive(Debug)]
pub struct MeasuredDose<'a> {
    kind: DoseKind,
    arm: &'a Arm,
    outcome: &'a Definition,
    found: &'a Outcome,
    /// Percent of the host's CPU time, or of the response time, as set.
    set_pct: Option<f64>,
    used_pct: Option<f64>,
    /// By round, ln of the ratio that the outcome must show, and of the one that it shows.
    rounds: BTreeMap<usize, (f64, f64)>,
    /// By round, ln of the CPU time per query of server and driver against the baseline, and its effect on
    /// the outcome.
    party_changes: Vec<(f64, f64)>,
    /// Share of the host's CPUs that were busy while it was on.
    busy: Option<f64>,
}

/// All measured doses of the plan, in its order.
pub fn measure_doses<'a>(
    recorded: &'a RunData,
    arms: &Arms,
    compared: &'a [BTreeMap<&str, Comparison>],
) -> Vec<MeasuredDose<'a>> {
    let plan = &recorded.plan;
    let cpus = recorded.host.as_ref().map(|host| f64::from(host.cpus)).filter(|cpus| *cpus > 0.0);
    let of_arm = |(i, arm): (usize, &'a Arm)| {
        let kind = dose_kind(arm)?;
        let outcome = plan.outcomes.iter().find(|outcome| shows_dose(kind, outcome))?;
        let found = &compared[i].get(outcome.name.as_str())?.outcome;
        let against = arms.reference_name(plan, i)?;
        let baseline = plan.arms.iter().position(|other| other.name == against)?;
        let mut given = MeasuredDose {
            kind,
            arm,
            outcome,
            found,
            set_pct: match kind {
                DoseKind::Cpu => arm.burn_share.zip(cpus).map(|(burnt, cpus)| 100.0 * burnt / cpus),
                DoseKind::Delay => arm.workload.delay_pct,
            },
            used_pct: None,
            rounds: BTreeMap::new(),
            party_changes: Vec::new(),
            busy: None,
        };
        given.read_rounds(&arms.windows[i], &arms.windows[baseline], cpus);
        (!given.rounds.is_empty()).then_some(given)
    };
    plan.arms
        .iter()
        .enumerate()
        .filter(|(_, arm)| arm.role == Role::PositiveControl)
        .filter_map(of_arm)
        .collect()
}

fn dose_kind(arm: &Arm) -> Option<DoseKind> {
    match (arm.burn_share, arm.workload.delay_pct) {
        (Some(_), _) => Some(DoseKind::Cpu),
        (None, Some(_)) => Some(DoseKind::Delay),
        (None, None) => None,
    }
}

/// True if such a dose shows in this outcome, as a ratio: host CPU time per query, or mean response time.
fn shows_dose(kind: DoseKind, outcome: &Definition) -> bool {
    let (source, aggregate) = match kind {
        DoseKind::Cpu => (Source::Cpu { of: Party::Host }, Aggregate::PerQuery),
        DoseKind::Delay => (Source::Latency, Aggregate::Mean),
    };
    outcome.source == source && outcome.aggregate == aggregate && outcome.compare == Compare::LogRatio
}

impl MeasuredDose<'_> {
    fn read_rounds(&mut self, arm: &ArmWindows, baseline: &ArmWindows, cpus: Option<f64>) {
        let (mut burnt, mut busy) = (Vec::new(), Vec::new());
        for (round, (arm, baseline)) in arm.by_round.iter().zip(&baseline.by_round).enumerate() {
            let (Some(arm), Some(baseline)) = (arm, baseline) else { continue };
            let values = arm.get(&self.outcome.name).zip(baseline.get(&self.outcome.name));
            let found = values.map(|(arm, baseline)| (arm / baseline).ln()).filter(|d| d.is_finite());
            let (Some(given), Some(found)) = (self.expected_ln_ratio(arm), found) else { continue };
            self.rounds.insert(round, (given, found));
            self.party_changes.extend(party_ln_changes(arm, baseline));
            burnt.extend(arm.busy_cpus(Party::Treatment));
            busy.extend(arm.busy_cpus(Party::Host));
        }
        let share =
            |used: &[f64]| cpus.filter(|_| !used.is_empty()).map(|cpus| toll_stats::mean(used) / cpus);
        self.busy = share(&busy);
        if self.kind == DoseKind::Cpu {
            self.used_pct = share(&burnt).map(|share| 100.0 * share);
        }
    }

    /// ln of the ratio that the outcome must show in a round.
    fn expected_ln_ratio(&self, arm: &WindowOutcomes) -> Option<f64> {
        match self.kind {
            // Where b CPUs are busy, s of them with the burner, every query costs s / (b - s) more of the host.
            DoseKind::Cpu => {
                let (host, burnt) = (arm.busy_cpus(Party::Host)?, arm.busy_cpus(Party::Treatment)?);
                (burnt < host).then(|| (burnt / (host - burnt)).ln_1p())
            }
            DoseKind::Delay => self.arm.workload.delay_pct.map(|percent| (percent / 100.0).ln_1p()),
        }
    }

    fn effective_pct(&self) -> f64 {
        log_ratio_to_pct(mean_of(self.rounds.values(), |round| round.0))
    }

    /// The control's line in the trust section.
    pub fn check(&self, plan: &Plan) -> ControlCheck {
        let told =
            self.set_pct.map_or_else(|| "a share".to_owned(), |pct| format!("{}%", format_percent(pct)));
        let deed = match (self.kind, self.used_pct) {
            (DoseKind::Cpu, Some(took)) if self.used_less_than(STARVED_SHARE) => {
                format!("got {took:.1}% of the host's CPU time of the {told} that it was set to burn")
            }
            (DoseKind::Cpu, _) => format!("burns {told} of the host's CPU time"),
            (DoseKind::Delay, _) => format!("delays replies by {told} of their response time"),
        };
        let excuse = self.explain_miss(plan);
        let mut check =
            check_control(&self.outcome.name, self.arm, self.found, self.effective_pct(), &deed, excuse);
        if self.used_less_than(INVALID_CONTROL_SHARE) {
            check.ok = check.ci95_pct.map(|_| false);
            check.text += "; the host left it too little to be a control";
        }
        check
    }

    fn used_less_than(&self, share: f64) -> bool {
        self.set_pct.zip(self.used_pct).is_some_and(|(told, took)| took < share * told)
    }

    /// The reason for a wrong size, if the host's own work explains it and not the measurement.
    fn explain_miss(&self, plan: &Plan) -> Option<String> {
        if self.kind == DoseKind::Delay {
            let busy = self.busy.filter(|busy| *busy > SATURATED_SHARE)?;
            return Some(format!(
                "the host was {:.0}% busy, where a delayed reply frees CPU for the others: the delay control is not \
                 valid there",
                100.0 * busy
            ));
        }
        let used: Vec<f64> = self.party_changes.iter().map(|round| round.0).collect();
        let used = toll_stats::sign_flip(&used, plan.alpha, plan.seed).interval.ok()?;
        // The parties moved, and with what they moved by all is as it should be.
        let with_parties = log_ratio_to_pct(
            mean_of(self.rounds.values(), |round| round.0)
                + mean_of(self.party_changes.iter(), |round| round.1),
        );
        let [low, high] = self.found.ci95_pct?;
        let change = log_ratio_to_pct(mean_of(self.party_changes.iter(), |round| round.0));
        let is_all = (Interval { low, high }).contains(with_parties);
        if used.contains(0.0) || !is_all || change.abs() > MAX_PARTY_CHANGE_PCT {
            return None;
        }
        let (word, why) = if change < 0.0 {
            ("less", "the host's own work uses less CPU under contention")
        } else {
            ("more", "the host's own work uses more CPU under contention")
        };
        Some(format!(
            "server and driver used {:.1}% {word} for a query beside it: {why}, and the measurement contains both",
            change.abs()
        ))
    }

    fn to_dose(&self) -> Dose {
        Dose {
            arm: self.arm.name.clone(),
            told_pct: self.set_pct,
            took_pct: self.used_pct,
            given_pct: self.effective_pct(),
            found_pct: self.found.toll_pct,
            ci95_pct: self.found.ci95_pct,
        }
    }
}

/// ln of the CPU time per query of server and driver against the baseline, and ln of the whole host's.
///
/// `None` if one of them is unknown.
fn party_ln_changes(arm: &WindowOutcomes, baseline: &WindowOutcomes) -> Option<(f64, f64)> {
    let used = |window: &WindowOutcomes| {
        Some(window.cpu_us_per_query(Party::Server)? + window.cpu_us_per_query(Party::Driver)?)
    };
    let (now, usual, host) = (used(arm)?, used(baseline)?, baseline.cpu_us_per_query(Party::Host)?);
    let (ratio, moved) = ((now / usual).ln(), ((now - usual) / host).ln_1p());
    (ratio.is_finite() && moved.is_finite()).then_some((ratio, moved))
}

/// Doses by kind: the slope of found over given, and the smallest dose that differs from zero.
pub fn fit_dose_lines(plan: &Plan, given: &[MeasuredDose]) -> Vec<DoseLine> {
    [DoseKind::Cpu, DoseKind::Delay].into_iter().filter_map(|kind| fit_dose_line(plan, kind, given)).collect()
}

fn fit_dose_line(plan: &Plan, kind: DoseKind, given: &[MeasuredDose]) -> Option<DoseLine> {
    let mut of_kind: Vec<&MeasuredDose> = given.iter().filter(|dose| dose.kind == kind).collect();
    of_kind.sort_by(|a, b| a.effective_pct().total_cmp(&b.effective_pct()));
    let outcome = of_kind.first()?.outcome.name.clone();
    let doses: Vec<Dose> = of_kind.iter().map(|dose| dose.to_dose()).collect();
    let slopes = round_slopes(&of_kind);
    let test = toll_stats::sign_flip(&slopes, plan.alpha, plan.seed);
    let interval: Option<Interval> = test.interval.ok();
    let is_told = |dose: &&&Dose| dose.ci95_pct.is_some_and(|[low, _]| low > 0.0);
    Some(DoseLine {
        kind,
        outcome,
        resolution_pct: doses
            .iter()
            .rev()
            .take_while(|dose| is_told(&dose))
            .last()
            .map(|dose| dose.given_pct),
        doses,
        slope: test.mean.is_finite().then_some(test.mean),
        ci95: interval.map(|interval| [interval.low, interval.high]),
        ok: interval.map(|interval| interval.contains(1.0)),
    })
}

/// Slope of each round through the origin. The round is the unit of the statistics.
fn round_slopes(doses: &[&MeasuredDose]) -> Vec<f64> {
    // A round in which an arm is missing weighs the doses otherwise: it is left out.
    let slope = |round: &usize| {
        let pairs: Option<Vec<(f64, f64)>> =
            doses.iter().map(|dose| dose.rounds.get(round).copied()).collect();
        let (mut square, mut product) = (0.0, 0.0);
        for (given, found) in pairs? {
            square += given * given;
            product += given * found;
        }
        (square > 0.0).then(|| product / square)
    };
    doses.first().into_iter().flat_map(|dose| dose.rounds.keys()).filter_map(slope).collect()
}

/// Summary of all kinds with several doses. Empty if there are none.
pub fn summarise_doses(lines: &[DoseLine]) -> String {
    let several = lines.iter().filter(|line| line.doses.len() > 1);
    let told = several.map(|line| format!("Doses of {}: {}", line.outcome, summarise_dose_line(line)));
    told.collect::<Vec<_>>().join(" ")
}

/// Charts of found over given, with the line of equal values.
pub fn charts(lines: &[DoseLine]) -> Vec<Chart> {
    let several = lines.iter().filter(|line| line.doses.len() > 1);
    several.map(chart).collect()
}

fn chart(line: &DoseLine) -> Chart {
    let (id, of) = match line.kind {
        DoseKind::Cpu => ("doses-cpu", "a burner of CPU"),
        DoseKind::Delay => ("doses-delay", "replies held back"),
    };
    let points = line.doses.iter().filter_map(|dose| {
        let [low, high] = dose.ci95_pct.map_or([None, None], |ends| ends.map(Some));
        Some((dose.given_pct, dose.found_pct?, low, high))
    });
    let largest = line.doses.iter().map(|dose| dose.given_pct).fold(0.0, f64::max);
    let axis = |label: String| Axis { label, unit: "%".into(), ..Axis::default() };
    Chart {
        id: id.into(),
        title: format!("Doses: measured against expected, {of}"),
        kind: ChartKind::Line,
        x: axis(format!("expected change of {}", line.outcome)),
        y: axis("measured".into()),
        series: vec![
            ChartSeries { name: "measured".into(), points: points.collect() },
            ChartSeries {
                name: "as expected".into(),
                points: vec![(0.0, 0.0, None, None), (largest, largest, None, None)],
            },
        ],
        note: summarise_dose_line(line),
    }
}

/// Slope and resolution in one or two sentences.
pub fn summarise_dose_line(line: &DoseLine) -> String {
    let slope = match (line.slope, line.ci95, line.ok) {
        (Some(slope), Some([low, high]), ok) => {
            let word = if ok == Some(true) { "contains 1" } else { "does not contain 1" };
            format!("Measured is {slope:.2} [{low:.2}, {high:.2}] times expected: the interval {word}.")
        }
        (Some(slope), None, _) => {
            format!("Measured is {slope:.2} times expected; too few rounds for an interval.")
        }
        (None, ..) => "No dose was measured.".to_owned(),
    };
    let told = match line.resolution_pct {
        Some(pct) => format!("Smallest change detected: {pct:.1}% of {}.", line.outcome),
        None => "No change was detected.".to_owned(),
    };
    format!("{slope} {told}")
}

fn mean_of<'a>(rounds: impl Iterator<Item = &'a (f64, f64)>, part: impl Fn(&(f64, f64)) -> f64) -> f64 {
    toll_stats::mean(&rounds.map(part).collect::<Vec<_>>())
}

/// A percentage, without decimals if they are zero.
fn format_percent(percent: f64) -> String {
    let rounded = format!("{percent:.1}");
    rounded.strip_suffix(".0").map_or_else(|| rounded.clone(), str::to_owned)
}
