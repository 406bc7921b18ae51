//! Scan of the record for warnings.
//!
//! Each function checks one part of the run and adds its findings. Never changes a figure.

use super::arms::Arms;
use super::artefacts::ArmArtefacts;
use super::compare::Comparison;
use super::coverage;
use super::run_data::RunData;
use super::warnings::{DRIVER_SHARE_PCT, MAX_CAPTURED_RATIO, NOISY_CV_PCT, RunWarning, STEAL_PCT};
use super::window_outcomes::sum_error_codes;
use super::windows::{CpuUsage, TrialNote, Trials, Window};
use std::collections::BTreeMap;
use toll_model::artefacts::{self, QueryCounter};
use toll_record::{Compare, Mde, Plan, Role, Step, Verdict, catalogue};
use toll_sys::number_format;

/// Failed trials, and treatments that had to be killed.
pub fn check_trials(plan: &Plan, trials: &Trials, warnings: &mut Vec<RunWarning>) {
    let unavailable: Vec<(String, String)> =
        plan.arms.iter().filter_map(|arm| Some((arm.name.clone(), arm.unavailable.clone()?))).collect();
    if !unavailable.is_empty() {
        warnings.push(RunWarning::Unavailable { arms: unavailable });
    }
    for (i, arm) in plan.arms.iter().enumerate() {
        let failed: Vec<&TrialNote> = trials.failed.iter().filter(|f| f.arm == i).collect();
        if let Some(first) = failed.first() {
            warnings.push(RunWarning::TrialFailed {
                arm: arm.name.clone(),
                times: failed.len(),
                tried: trials.tried[i] as usize,
                begun: trials.rounds_started as usize,
                reason: first.text.clone(),
            });
        }
        // A treatment that stops as asked leaves no remark.
        let killed: Vec<&TrialNote> = trials
            .notes
            .iter()
            .filter(|r| r.arm == i && r.step == Step::Stopped && !trials.restarted.contains(&r.trial))
            .collect();
        if let Some(first) = killed.first() {
            let times = if killed.len() > 1 { format!(" ({} times)", killed.len()) } else { String::new() };
            warnings.push(RunWarning::TreatmentKilled {
                arm: arm.name.clone(),
                note: format!("{}{times}", first.text),
            });
        }
    }
}

/// The trial loop's notes on an arm's trials, each once.
pub fn trial_notes(trials: &Trials, arm: usize) -> Vec<String> {
    let mut times: BTreeMap<&str, u32> = BTreeMap::new();
    for remark in trials.notes.iter().chain(&trials.failed).filter(|r| r.arm == arm) {
        *times.entry(&remark.text).or_default() += 1;
    }
    times
        .into_iter()
        .map(|(text, n)| if n > 1 { format!("{text} ({n} times)") } else { text.into() })
        .collect()
}

/// Too few rounds, or too noisy a host, for the question.
pub fn check_power(
    plan: &Plan,
    arms: &[(Role, &Comparison)],
    mde: Option<&Mde>,
    warnings: &mut Vec<RunWarning>,
) {
    let treatments: Vec<&Comparison> =
        arms.iter().filter(|(role, _)| *role == Role::Treatment).map(|(_, c)| *c).collect();
    let Some(have) =
        arms.iter().filter(|(role, _)| *role != Role::Baseline).map(|(_, c)| c.pairs.d.len()).max()
    else {
        if let Some(baseline) = plan.arms.iter().find(|arm| arm.name == plan.baseline)
            && !arms.iter().any(|(role, _)| *role == Role::Baseline)
        {
            warnings.push(RunWarning::NoBaseline { arm: baseline.name.clone() });
        }
        return;
    };
    if !arms.iter().any(|(role, _)| *role == Role::Baseline) {
        warnings.push(RunWarning::NoBaseline { arm: plan.baseline.clone() });
        return;
    }
    let need = match plan.clock.is_real() {
        true => toll_stats::rounds_for_interval(plan.alpha),
        false => toll_stats::MIN_COMMON_ROUNDS,
    };
    if have < need {
        warnings.push(RunWarning::TooFewRounds { have, need });
    }
    let primary = catalogue::find_definition(&plan.outcomes, &plan.primary);
    let is_ratio = primary.is_some_and(|outcome| outcome.compare == Compare::LogRatio);
    let unit = primary.map_or("", |outcome| outcome.unit.as_str());
    let write =
        |value: f64| if is_ratio { format!("{value:.1}%") } else { number_format::format_value(value, unit) };
    let achieved = mde.and_then(|m| m.achieved_pct.or(m.achieved));
    // What is often zero varies by any share of its mean.
    let cv_pct = arms
        .iter()
        .find(|(role, _)| *role == Role::Baseline)
        .map(|(_, c)| 100.0 * c.outcome.sd / c.outcome.mean)
        .filter(|cv| is_ratio && *cv > NOISY_CV_PCT);
    if let Some(cv_pct) = cv_pct {
        warnings.push(RunWarning::Noisy { cv_pct, finds: achieved.map(write) });
    }
    let undecided = treatments.iter().any(|c| c.outcome.verdict == Verdict::Unclear);
    let margin = if is_ratio { Some(plan.margin_pct) } else { primary.and_then(|outcome| outcome.margin) };
    if let Some((finds, asked)) = achieved.zip(margin).filter(|(finds, asked)| finds > asked && undecided) {
        let rounds = mde.and_then(|m| m.rounds_for_margin);
        warnings.push(RunWarning::LowPower { finds: write(finds), asked: write(asked), rounds });
    }
}

/// Effects of order and time on the windows: carry-over, dependence, slow settling.
pub fn check_order_effects(
    plan: &Plan,
    arms: &Arms,
    compared: &[BTreeMap<&str, Comparison>],
    warnings: &mut Vec<RunWarning>,
) {
    let present: Vec<usize> = (0..plan.arms.len()).filter(|&i| plan.arms[i].unavailable.is_none()).collect();
    check_carry_over(plan, arms, &present, warnings);
    // One false alarm in twenty runs, not in twenty arms.
    let family = present.len().max(1) as f64;
    for &i in &present {
        let name = &plan.arms[i].name;
        if let Some(primary) = compared[i].get(plan.primary.as_str())
            && let Some(dependence) = toll_stats::lag1_autocorrelation(&primary.pairs.d)
        {
            let z = toll_stats::normal_quantile(1.0 - plan.alpha / family / 2.0);
            let bound = z / (primary.pairs.d.len() as f64).sqrt();
            if dependence.lag1.abs() > bound {
                warnings.push(RunWarning::Dependence { arm: name.clone(), lag_1: dependence.lag1, bound });
            }
        }
        let starts: Vec<f64> = arms.windows[i].measured_windows().filter_map(|m| m.start_log_ratio).collect();
        let test = toll_stats::sign_flip(&starts, plan.alpha, plan.seed);
        let pct = toll_stats::log_ratio_to_pct(test.mean);
        if test.p <= plan.alpha / family && pct.abs() > plan.margin_pct {
            warnings.push(RunWarning::SlowSettling { arm: name.clone(), pct });
        }
    }
}

fn check_carry_over(plan: &Plan, arms: &Arms, present: &[usize], warnings: &mut Vec<RunWarning>) {
    let position = |name: &str| present.iter().position(|&i| plan.arms[i].name == name);
    let orders: Option<Vec<Vec<usize>>> =
        plan.order.iter().map(|round| round.iter().map(|name| position(name)).collect()).collect();
    let Some(orders) = orders else { return };
    let by_arm: Vec<Vec<Option<f64>>> =
        present.iter().map(|&i| arms.windows[i].values(&plan.primary)).collect();
    let primary = catalogue::find_definition(&plan.outcomes, &plan.primary);
    let differing = primary.filter(|outcome| outcome.compare != Compare::LogRatio);
    let scaled = |value: Option<f64>| match differing {
        Some(_) => value,
        None => value.filter(|v| *v > 0.0).map(f64::ln),
    };
    let values: Vec<Vec<Option<f64>>> =
        (0..orders.len()).map(|round| by_arm.iter().map(|of_arm| scaled(of_arm[round])).collect()).collect();
    if let Some(found) = toll_stats::carry_over(&values, &orders, plan.seed)
        && found.p <= plan.alpha
    {
        warnings.push(RunWarning::CarryOver {
            arm: plan.arms[present[found.after]].name.clone(),
            differs: match differing {
                Some(outcome) => number_format::format_signed(found.effect, &outcome.unit),
                None => format!("{:+.1}%", toll_stats::log_ratio_to_pct(found.effect)),
            },
            p: found.p,
        });
    }
}

/// Load, other guests and harness inside windows.
pub fn check_load(recorded: &RunData, windows: &[Window], arms: &Arms, warnings: &mut Vec<RunWarning>) {
    let plan = &recorded.plan;
    for (i, arm) in plan.arms.iter().enumerate() {
        let errors: u64 = arms.windows[i].measured_windows().map(|m| m.errors).sum();
        let statements: u64 = arms.windows[i].measured_windows().map(|m| m.statements).sum();
        let codes = sum_error_codes(arms.windows[i].measured_windows().map(|m| &m.errors_by_code));
        // Connections that broke between events are failures too.
        let errors = errors.max(codes.values().sum());
        if errors > 0 {
            warnings.push(RunWarning::LoadErrors { arm: arm.name.clone(), errors, statements, codes });
        }
        let empty =
            arms.windows[i].measured_windows().filter(|m| m.statements == 0 && m.covered_s > 0.0).count();
        if empty > 0 {
            warnings.push(RunWarning::NothingCompleted { arm: arm.name.clone(), windows: empty });
        }
    }
    let spent = |part: fn(&CpuUsage) -> u64, wanted: &dyn Fn(&Window) -> bool| -> f64 {
        windows.iter().filter(|w| wanted(w)).filter_map(|w| w.cpu.as_ref().map(part)).sum::<u64>() as f64
    };
    let seconds: f64 = windows.iter().filter(|w| w.cpu.is_some()).map(Window::seconds).sum();
    if let Some(host) = recorded.host.as_ref().filter(|host| host.cpus > 0 && seconds > 0.0) {
        let all_us = seconds * 1e6 * f64::from(host.cpus);
        let pct = 100.0 * spent(|cpu| cpu.host_steal_us, &|_| true) / all_us;
        if pct > STEAL_PCT {
            warnings.push(RunWarning::HostSteal { pct });
        }
    }
    let of_baseline = |window: &Window| window.arm == arms.baseline;
    let busy = spent(|cpu| cpu.host_busy_us, &of_baseline);
    let pct = 100.0 * spent(|cpu| cpu.driver_us, &of_baseline) / busy.max(1.0);
    if pct > DRIVER_SHARE_PCT {
        warnings.push(RunWarning::DriverShare { pct });
    }
    let harness = toll_stats::stall_totals(&arms.stalls.harness);
    if harness.count > 0 {
        warnings.push(RunWarning::HarnessStalls {
            count: harness.count,
            longest_s: harness.longest_us as f64 / 1e6,
        });
    }
    let is_counted = coverage::is_loaded(&recorded.plan, arms.baseline);
    if let Some(why) = arms.stalls.unruled.filter(|_| !windows.is_empty() && is_counted) {
        warnings.push(RunWarning::StallsNotJudged { why: why.to_string() });
    }
}

/// Captures that the kernel withheld packets from, the largest share first.
fn dropped_packets(plan: &Plan, artefacts: &BTreeMap<usize, ArmArtefacts>) -> Vec<RunWarning> {
    let share = |dropped: u64, captured: u64| dropped as f64 / (dropped + captured) as f64;
    let mut found: Vec<(f64, RunWarning)> = Vec::new();
    for (i, of_arm) in artefacts {
        let Some(packets) = of_arm.result.packet_counts.filter(|packets| packets.dropped > 0) else {
            continue;
        };
        let (dropped, captured) = (packets.dropped, packets.captured);
        let arm = plan.arms[*i].name.clone();
        found.push((share(dropped, captured), RunWarning::PacketsDropped { arm, dropped, captured }));
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    found.into_iter().map(|(_, warning)| warning).collect()
}

/// Artefacts with missing packets, or without a count.
pub fn check_artefacts(
    recorded: &RunData,
    arms: &Arms,
    artefacts: &BTreeMap<usize, ArmArtefacts>,
    warnings: &mut Vec<RunWarning>,
) {
    warnings.extend(dropped_packets(&recorded.plan, artefacts));
    for (i, arm) in recorded.plan.arms.iter().enumerate() {
        let rounds = arms.windows[i].by_round.iter().enumerate();
        let of =
            rounds.filter(|(round, m)| m.is_some() && recorded.plan.counts_queries(*round as u32)).count();
        let found = artefacts.get(&i);
        // Without a load there is nothing that the artefact should hold.
        let readable = coverage::is_loaded(&recorded.plan, i) && !found.is_some_and(|a| a.result.encrypted);
        let countable = readable
            && arm
                .artefact
                .is_some_and(|kind| artefacts::spec_of(kind).query_counter != QueryCounter::Uncounted);
        let counted = found.map_or(0, |a| a.counted);
        let ratio = found.and_then(|a| a.captured_ratio);
        if let Some(ratio) = ratio.filter(|&r| r > MAX_CAPTURED_RATIO) {
            warnings.push(RunWarning::TooManyCaptured { arm: arm.name.clone(), ratio });
        }
        // Where pt-query-digest counted a stretch instead, there is a share, and a note of whose it is.
        // On the counted clock those of a machine's first round are enough.
        let is_enough = counted > 0 && !recorded.plan.clock.is_real();
        if countable && counted < of && !is_enough && !(counted == 0 && ratio.is_some()) {
            let why = found.and_then(|a| a.remarks.first().cloned());
            warnings.push(RunWarning::QueriesNotCounted {
                arm: arm.name.clone(),
                windows: of - counted,
                of,
                why,
            });
        }
    }
}
