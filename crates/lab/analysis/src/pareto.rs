//! Pareto front of the arms, and the advised choice.
//!
//! An arm is dominated by another that is better in one of the scenario's traded outcomes and worse in none. Better
//! means beyond the interval of their paired difference.
//!
//! Never weighs outcomes against each other: that is up to the scenario's limits, and to the reader.

use super::compare::{ArmWindows, Comparison};
use crate::estimate_format::describe_estimate;
use std::collections::BTreeMap;
use toll_record::catalogue::find_definition;
use toll_record::{Compare, Definition, Pareto, ParetoArm, ParetoResult, Plan, Role, Verdict};
use toll_stats::{Interval, ZeroHandling};
use toll_sys::number_format::format_value;

/// `None` if the plan trades nothing, or fewer than two arms have all traded outcomes.
pub fn find_pareto_front(
    plan: &Plan,
    windows: &[ArmWindows],
    compared: &[BTreeMap<&str, Comparison>],
) -> Option<ParetoResult> {
    let pareto = plan.pareto.as_ref()?;
    let outcomes: Vec<&Definition> =
        pareto.outcomes.iter().filter_map(|name| find_definition(&plan.outcomes, name)).collect();
    let does_something = |i: usize| {
        let arm = &plan.arms[i];
        matches!(arm.role, Role::Treatment | Role::Baseline) && !arm.treatment.is_nothing()
    };
    let has_all = |i: usize| outcomes.iter().all(|o| windows[i].values(&o.name).iter().any(Option::is_some));
    let choices: Vec<usize> = (0..plan.arms.len()).filter(|&i| does_something(i) && has_all(i)).collect();
    if choices.len() < 2 {
        return None;
    }
    let field = TradeOff { plan, outcomes, windows };
    let arms: Vec<ParetoArm> = choices.iter().map(|&i| field.arm(i, &choices)).collect();
    let advice = ChoiceAdvice { plan, pareto, field: &field, compared, choices: &choices, arms: &arms };
    let (advised, text) = advice.advise();
    Some(ParetoResult { outcomes: pareto.outcomes.clone(), arms, advised, text })
}

struct TradeOff<'a> {
    plan: &'a Plan,
    outcomes: Vec<&'a Definition>,
    windows: &'a [ArmWindows<'a>],
}

/// Relation of two arms in one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Better,
    /// No difference was found.
    Equivalent,
    Worse,
}

impl TradeOff<'_> {
    fn arm(&self, i: usize, choices: &[usize]) -> ParetoArm {
        let beaten_by = choices.iter().find(|&&other| other != i && self.dominates(other, i));
        let present = |outcome: &&Definition| -> Vec<f64> {
            self.windows[i].values(&outcome.name).into_iter().flatten().collect()
        };
        let ci95 = |values: Vec<f64>| {
            let interval = toll_stats::sign_flip(&values, self.plan.alpha, self.plan.seed).interval;
            interval.ok().map(|interval| [interval.low, interval.high])
        };
        ParetoArm {
            name: self.plan.arms[i].name.clone(),
            beaten_by: beaten_by.map(|&other| self.plan.arms[other].name.clone()),
            values: self.outcomes.iter().map(|outcome| toll_stats::mean(&present(outcome))).collect(),
            ci95: self.outcomes.iter().map(|outcome| ci95(present(outcome))).collect(),
        }
    }

    fn dominates(&self, one: usize, other: usize) -> bool {
        let standings: Vec<Relation> =
            self.outcomes.iter().map(|o| self.compare_arms(o, one, other)).collect();
        standings.contains(&Relation::Better) && !standings.contains(&Relation::Worse)
    }

    /// Compares two arms. A difference beyond the margin counts as worse even without an interval.
    ///
    /// Too few rounds must not hide it.
    fn compare_arms(&self, outcome: &Definition, one: usize, other: usize) -> Relation {
        let [one, other] = [one, other].map(|i| self.windows[i].values(&outcome.name));
        let pairs = match outcome.compare {
            Compare::LogRatio => toll_stats::log_ratios(&one, &other, ZeroHandling::Refuse),
            Compare::Difference | Compare::Absolute | Compare::Median => {
                toll_stats::differences(&one, &other)
            }
        };
        let Ok(pairs) = pairs else { return Relation::Worse };
        let sign = if outcome.higher_is_better { -1.0 } else { 1.0 };
        let harm: Vec<f64> = pairs.d.iter().map(|d| sign * d).collect();
        if harm.is_empty() {
            return Relation::Worse;
        }
        let margin = match outcome.compare {
            Compare::LogRatio => toll_stats::pct_to_log_ratio(self.plan.margin_pct),
            Compare::Difference | Compare::Absolute | Compare::Median => {
                outcome.margin.unwrap_or(f64::INFINITY)
            }
        };
        match toll_stats::sign_flip(&harm, self.plan.alpha, self.plan.seed).interval {
            Ok(Interval { high, .. }) if high < 0.0 => Relation::Better,
            Ok(Interval { low, .. }) if low > 0.0 => Relation::Worse,
            _ if toll_stats::mean(&harm) > margin => Relation::Worse,
            _ => Relation::Equivalent,
        }
    }
}

/// Input of the advice.
struct ChoiceAdvice<'a> {
    plan: &'a Plan,
    pareto: &'a Pareto,
    field: &'a TradeOff<'a>,
    compared: &'a [BTreeMap<&'a str, Comparison>],
    /// Positions in the plan, and the findings on each.
    choices: &'a [usize],
    arms: &'a [ParetoArm],
}

impl ChoiceAdvice<'_> {
    /// The arm, and the sentence.
    fn advise(&self) -> (Option<String>, String) {
        if self.arms.iter().all(|arm| arm.ci95.iter().all(Option::is_none)) {
            let need = toll_stats::rounds_for_interval(self.plan.alpha);
            return (
                None,
                format!("Nothing is recommended of these variants: an interval needs {need} rounds or more."),
            );
        }
        let beaten = self.arms.iter().filter(|arm| arm.beaten_by.is_some()).count();
        let keeps = |at: &usize| self.pareto.limit.keys().all(|name| self.limit_excess(*at, name) <= 0.0);
        let prefer = |at: &usize| self.preferred_value(*at);
        // One that breaks a limit is no choice, and beats nobody who keeps it. Where each beats another, all are left:
        // arms without a significant difference need not have one order.
        let keeping: Vec<usize> = (0..self.arms.len()).filter(keeps).collect();
        let is_beaten = |at: usize| {
            let beats = |other: &usize| self.field.dominates(self.choices[*other], self.choices[at]);
            keeping.iter().any(|other| *other != at && beats(other))
        };
        let unbeaten: Vec<usize> = keeping.iter().copied().filter(|at| !is_beaten(*at)).collect();
        let left = if unbeaten.is_empty() { keeping } else { unbeaten };
        let best = left.iter().min_by(|a, b| prefer(a).total_cmp(&prefer(b)));
        let Some(&best) = best else {
            let least = |at: &usize| {
                self.pareto.limit.keys().map(|name| self.limit_excess(*at, name)).fold(0.0, f64::max)
            };
            let nearest = (0..self.arms.len()).min_by(|a, b| least(a).total_cmp(&least(b)));
            let nearest = nearest.map_or_else(String::new, |at| {
                let tolls = self
                    .pareto
                    .limit
                    .keys()
                    .map(|name| self.describe_outcome(at, name))
                    .collect::<Vec<_>>()
                    .join(", ");
                format!(" The nearest is {}: {tolls}.", self.arm_title(at))
            });
            return (
                None,
                format!(
                    "Nothing is advised: none of {} keeps {}, by its interval.{nearest}",
                    self.arms.len(),
                    self.describe_limits()
                ),
            );
        };
        let (outcome, value, ci95) = self.preferred_estimate(best);
        let interval = ci95.map_or_else(
            || " (no interval)".to_owned(),
            |[low, high]| {
                format!(" [{}, {}]", format_value(low, &outcome.unit), format_value(high, &outcome.unit))
            },
        );
        let mut text = format!(
            "Advised: {}, {} {}{interval}",
            self.arm_title(best),
            outcome.title,
            format_value(value, &outcome.unit)
        );
        if !self.pareto.limit.is_empty() {
            let tolls = self
                .pareto
                .limit
                .keys()
                .map(|name| self.describe_outcome(best, name))
                .collect::<Vec<_>>()
                .join(", ");
            text += &format!(", the least of those that keep {}; {tolls}", self.describe_limits());
        } else if left.len() > 1 {
            text += &format!(", the least of the {} that no other beats", left.len());
        }
        if beaten > 0 {
            text += &format!(" ({beaten} of {} are beaten in all that counts)", self.arms.len());
        }
        (Some(self.arms[best].name.clone()), text + ".")
    }

    fn arm_title(&self, at: usize) -> String {
        let arm = &self.plan.arms[self.choices[at]];
        format!("{} ({})", arm.title, arm.name)
    }

    /// The preferred outcome, with less being better.
    fn preferred_value(&self, at: usize) -> f64 {
        let (outcome, value, _) = self.preferred_estimate(at);
        if outcome.higher_is_better { -value } else { value }
    }

    fn preferred_estimate(&self, at: usize) -> (&Definition, f64, Option<[f64; 2]>) {
        let position = self.field.outcomes.iter().position(|o| o.name == self.pareto.prefer).unwrap_or(0);
        (self.field.outcomes[position], self.arms[at].values[position], self.arms[at].ci95[position])
    }

    /// Excess of the interval's harmful end over the limit.
    ///
    /// An arm without an interval fails the limit. An arm without a baseline is the reference and passes.
    fn limit_excess(&self, at: usize, name: &str) -> f64 {
        let limit = self.pareto.limit.get(name).copied().unwrap_or(0.0);
        let Some(compared) = self.compared[self.choices[at]].get(name) else { return f64::INFINITY };
        let outcome = &compared.outcome;
        if outcome.verdict == Verdict::Baseline {
            return 0.0;
        }
        match outcome.ci95_pct.or(outcome.ci95) {
            Some([low, _]) if outcome.higher_is_better => -low - limit,
            Some([_, high]) => high - limit,
            None => f64::INFINITY,
        }
    }

    fn describe_outcome(&self, at: usize, name: &str) -> String {
        let title = find_definition(&self.plan.outcomes, name).map_or(name, |outcome| &outcome.title);
        let of = self.compared[self.choices[at]].get(name).map(|compared| &compared.outcome);
        match of {
            Some(outcome) if outcome.verdict == Verdict::Baseline => format!("{title} is the baseline's own"),
            Some(outcome) => format!("{title} {}", describe_estimate(outcome)),
            None => format!("{title} not known"),
        }
    }

    /// `p99 response time within +10%`
    fn describe_limits(&self) -> String {
        let limit = |(name, limit): (&String, &f64)| {
            let outcome = find_definition(&self.plan.outcomes, name);
            let title = outcome.map_or(name.as_str(), |outcome| &outcome.title);
            match outcome.map(|outcome| (outcome.compare, &outcome.unit)) {
                Some((Compare::Difference, unit)) => format!("{title} within {}", format_value(*limit, unit)),
                _ => format!("{title} within {limit}%"),
            }
        };
        self.pareto.limit.iter().map(limit).collect::<Vec<_>>().join(" and ")
    }
}
