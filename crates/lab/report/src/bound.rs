//! Bounds for `--fail-if`, such as `agent.latency_us_p99>20%`, and their judgement.
//!
//! A bound on an overhead fails if the overhead is beyond it *and* its interval excludes zero on the harmful
//! side. An overhead that this run cannot distinguish from zero never fails. With too few rounds for an
//! interval the estimate alone decides, and the judgement says so. Never rounds.

use std::collections::BTreeMap;
use std::str::FromStr;
use toll_analysis::estimate_format;
use toll_model::scenario;
use toll_record::catalogue::{self, is_duration};
use toll_record::{ArmResult, Compare, Definition, Outcome, Role, RunResult, Verdict};

/// `ARM.OUTCOME>N%`, or `<` for outcomes of which more is better: `agent.qps<-10%`.
///
/// For outcomes that are compared as differences, or not at all, N is in the outcome's unit:
/// `agent.stall_s>0.5s`, `agent.caught_pct<98%`. An alias of the arm is as good as its name.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    arm: String,
    outcome: String,
    limit: f64,
    /// As written; empty if there is no unit.
    unit: String,
    beyond: Direction,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Above,
    Below,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BoundError {
    #[error(
        "{0:?} is not a bound: write ARM.OUTCOME>N%, such as 'agent.latency_us_p99>20%' or 'agent.qps<-10%'"
    )]
    Form(String),
    #[error("there is no outcome {name:?} in {bound:?}: choose one of {known}")]
    Outcome { bound: String, name: String, known: String },
    #[error("{bound}: {name} is compared {how}: write the bound in {unit}, such as '{bound_like}'")]
    Unit { bound: String, name: String, how: &'static str, unit: String, bound_like: String },
    #[error("{0}: write it as a fall, such as '{1}': more of it is better")]
    NotAFall(String, String),
    #[error("{0}: write it as a rise, such as '{1}': less of it is better")]
    NotARise(String, String),
    #[error("the run has no arm {arm:?}: it has {known}")]
    Arm { arm: String, known: String },
    #[error("{arm} is what the others are compared with: a bound needs another arm")]
    Baseline { arm: String },
    #[error("{0}: only arms whose window ends when something is done have the outcome {1}")]
    NotUntilDone(String, String),
    #[error("{0}: no load runs beside this arm, and it has no {1}")]
    NoLoad(String, String),
    #[error("{arm} has no overhead in {outcome}: {why}")]
    NoToll { arm: String, outcome: String, why: String },
}

/// Result of one bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub broken: bool,
    /// One line, with the figures.
    pub text: String,
}

impl FromStr for Bound {
    type Err = BoundError;

    /// Parses the form alone. The scenario or the run knows which outcomes exist.
    fn from_str(text: &str) -> Result<Self, BoundError> {
        let form = || BoundError::Form(text.to_owned());
        let at = text.find(['>', '<']).ok_or_else(form)?;
        let (subject, rest) = text.split_at(at);
        let beyond = if rest.starts_with('>') { Direction::Above } else { Direction::Below };
        let (arm, outcome) = subject.trim().rsplit_once('.').ok_or_else(form)?;
        let rest = rest[1..].trim();
        let in_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
        let (number, unit) = rest.split_at(rest.find(|c| !in_number(c)).unwrap_or(rest.len()));
        let limit: f64 = number.parse().map_err(|_| form())?;
        if arm.is_empty() || outcome.is_empty() {
            return Err(form());
        }
        let [arm, outcome, unit] = [arm, outcome, unit.trim()].map(str::to_owned);
        Ok(Bound { arm, outcome, limit, unit, beyond })
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.beyond == Direction::Above { '>' } else { '<' };
        write!(f, "{}.{}{sign}{}{}", self.arm, self.outcome, self.limit, self.unit)
    }
}

impl Bound {
    /// Checks before a run that its arms can be judged by this bound.
    ///
    /// # Errors
    /// The outcome or arm does not exist, the arm has no baseline, or it cannot have this outcome. The bound has
    /// the wrong direction or unit.
    pub fn check(
        &self,
        outcomes: &[Definition],
        arms: &[scenario::Arm],
        baseline: &str,
    ) -> Result<(), BoundError> {
        let outcome = self.find_definition(outcomes)?;
        let arm = scenario::find_arm(arms, &self.arm).ok_or_else(|| BoundError::Arm {
            arm: self.arm.clone(),
            known: arms.iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        if !outcome.compare.needs_no_baseline() && (arm.name == baseline || arm.role == Role::Baseline) {
            return Err(BoundError::Baseline { arm: arm.name.clone() });
        }
        if is_duration(outcome) && !arm.sets_window_end() {
            return Err(BoundError::NotUntilDone(self.to_string(), self.outcome.clone()));
        }
        let has_load = arm.workload.driver.as_deref() != Some("none");
        if !outcome.is_available(has_load, arm.counts_statements()) {
            return Err(BoundError::NoLoad(self.to_string(), outcome.title.clone()));
        }
        Ok(())
    }

    /// The bound's outcome, if the bound is valid for it.
    fn find_definition<'a>(&self, outcomes: &'a [Definition]) -> Result<&'a Definition, BoundError> {
        let outcome =
            catalogue::find_definition(outcomes, &self.outcome).ok_or_else(|| BoundError::Outcome {
                bound: self.to_string(),
                name: self.outcome.clone(),
                known: catalogue::list_names(outcomes),
            })?;
        let size = self.limit.abs();
        let fall = if outcome.compare.needs_no_baseline() { size } else { -size };
        match self.beyond {
            Direction::Above if outcome.higher_is_better => {
                let like = Bound { beyond: Direction::Below, limit: fall, ..self.clone() };
                return Err(BoundError::NotAFall(self.to_string(), like.to_string()));
            }
            Direction::Below if !outcome.higher_is_better => {
                let like = Bound { beyond: Direction::Above, limit: size, ..self.clone() };
                return Err(BoundError::NotARise(self.to_string(), like.to_string()));
            }
            _ => {}
        }
        let (how, unit, fits) = match outcome.compare {
            Compare::LogRatio => ("as a ratio", "%", self.unit == "%"),
            Compare::Difference => ("as a difference", outcome.unit.as_str(), self.unit == outcome.unit),
            Compare::Absolute | Compare::Median => {
                ("with nothing", outcome.unit.as_str(), self.unit == outcome.unit)
            }
        };
        if !fits && (outcome.compare == Compare::LogRatio || !self.unit.is_empty()) {
            return Err(BoundError::Unit {
                bound: self.to_string(),
                name: self.outcome.clone(),
                how,
                unit: unit.to_owned(),
                bound_like: Bound { unit: unit.to_owned(), ..self.clone() }.to_string(),
            });
        }
        Ok(outcome)
    }

    /// The bound with the run's own name of its arm. `other_names`: as of [`scenario::other_names`].
    #[must_use]
    pub fn resolve_name(&self, other_names: &BTreeMap<String, String>) -> Self {
        let arm = other_names.get(&self.arm).unwrap_or(&self.arm).clone();
        Self { arm, ..self.clone() }
    }

    /// Judges one run.
    ///
    /// # Errors
    /// The run has no such arm or outcome, or no overhead of the arm on it, so that the bound neither holds
    /// nor fails.
    pub fn judge(&self, run: &RunResult) -> Result<Judgement, BoundError> {
        let defined = self.find_definition(&run.definitions)?;
        let arm = run.arms.iter().find(|arm| arm.name == self.arm).ok_or_else(|| BoundError::Arm {
            arm: self.arm.clone(),
            known: run.arms.iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        if !defined.compare.needs_no_baseline() && arm.name == run.baseline {
            return Err(BoundError::Baseline { arm: arm.name.clone() });
        }
        let outcome = arm.outcomes.get(&self.outcome);
        let Some((outcome, found)) = outcome.and_then(|o| Some((o, o.toll_pct.or(o.effect)?))) else {
            return Err(BoundError::NoToll {
                arm: arm.name.clone(),
                outcome: self.outcome.clone(),
                why: missing_overhead_reason(arm, outcome, &self.outcome),
            });
        };
        let is_beyond = |value: f64| match self.beyond {
            Direction::Above => value > self.limit,
            Direction::Below => value < self.limit,
        };
        let interval = outcome.ci95_pct.or(outcome.ci95);
        // An overhead must differ from zero; an outcome without a comparison, or one that must be a gain, from the limit itself.
        let demands_gain = is_beyond(0.0);
        let (is_told, from) = match (interval, outcome.verdict) {
            (None, _) => (true, ""),
            (Some([low, high]), verdict) if verdict == Verdict::NotCompared || demands_gain => {
                (is_beyond(low) && is_beyond(high), "it")
            }
            (Some([_, high]), _) if outcome.higher_is_better => (high < 0.0, "zero"),
            (Some([low, _]), _) => (low > 0.0, "zero"),
        };
        let word = match (is_beyond(found), is_told) {
            (true, true) => "failed".to_owned(),
            (true, false) => format!("passed: beyond it, but not different from {from}"),
            (false, _) => "passed".to_owned(),
        };
        let said = match interval {
            Some(_) => estimate_format::describe_estimate(outcome),
            None => {
                let estimate = estimate_format::format_estimate(outcome).unwrap_or_default();
                format!("{estimate} (no interval: too few rounds; the estimate alone decides)")
            }
        };
        Ok(Judgement { broken: is_beyond(found) && is_told, text: format!("bound {self} {word}: {said}") })
    }
}

fn missing_overhead_reason(arm: &ArmResult, outcome: Option<&Outcome>, name: &str) -> String {
    if let Some(why) = &arm.unavailable {
        return format!("it was not measured ({why})");
    }
    if arm.windows == 0 {
        return "none of its windows was measured".to_owned();
    }
    if let Some(outcome) = outcome {
        return outcome.method.clone();
    }
    let note = arm.notes.iter().find(|note| note.starts_with(name));
    note.cloned().unwrap_or_else(|| "its windows do not have that outcome".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_read_as_written_and_written_as_read() {
        for text in [
            "B.latency_us_p99>20%",
            "B.qps<-10%",
            "ssh-5.cpu_us_per_query>0.5%",
            "v1.2.stall_s>0.5s",
            "B.stall_s>0.5",
            "B.disk_reads_per_s>10requests/s",
        ] {
            assert_eq!(text.parse::<Bound>().unwrap().to_string(), text);
        }
        assert_eq!("B.qps < -10 %".parse::<Bound>().unwrap().to_string(), "B.qps<-10%");
    }

    fn error_text(text: &str, scenario: &scenario::Scenario) -> String {
        let checked = text
            .parse::<Bound>()
            .and_then(|bound| bound.check(&scenario.definitions(), &scenario.arms, &scenario.baseline));
        checked.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_bound_that_no_run_can_be_judged_by_is_told_before_the_run() {
        let scenario = scenario::Preset::named("socket-vs-tcp").unwrap().scenario().unwrap();
        for (text, expected) in [
            ("tcp-64.qps<-5%", ""),
            ("unix-64b.qps<-5%", ""),
            ("tcp-64.stall_s>0.5s", ""),
            ("tcp-64.stall_s>0.5", ""),
            ("tcp-64.caught_pct<98%", ""),
            ("unix-64.caught_pct<98", ""),
            ("dump-tcp.elapsed_s>5%", ""),
            ("Q.qps<-5%", "no arm \"Q\": it has unix-64, unix-64-again, tcp-64"),
            ("unix-64.qps<-5%", "another arm"),
            ("unix-1.qps<-5%", "another arm"),
            ("tcp-64.elapsed_s>5%", "only arms whose window ends when"),
            ("dump-tcp.latency_us_p99>5%", "no load runs beside this arm"),
            (
                "tcp-64.stall_s>5%",
                "compared as a difference: write the bound in s, such as 'tcp-64.stall_s>5s'",
            ),
            (
                "tcp-64.latency_us_p99>5",
                "as a ratio: write the bound in %, such as 'tcp-64.latency_us_p99>5%'",
            ),
            ("tcp-64.caught_pct>98%", "such as 'tcp-64.caught_pct<98%'"),
        ] {
            let said = error_text(text, &scenario);
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{text}: {said}");
        }
    }

    #[test]
    fn a_bound_takes_the_name_that_the_run_has_for_its_arm() {
        let other_names = BTreeMap::from([("B".to_owned(), "tcpdump-file".to_owned())]);
        for (text, expected) in [("B.qps<-10%", "tcpdump-file.qps<-10%"), ("K.qps<-10%", "K.qps<-10%")] {
            assert_eq!(text.parse::<Bound>().unwrap().resolve_name(&other_names).to_string(), expected);
        }
    }

    #[test]
    fn what_is_no_bound_is_refused_with_what_to_write() {
        let scenario = scenario::Preset::named("tcpdump-impact").unwrap().scenario().unwrap();
        for (text, hint) in [
            ("B.latency_us_p99", "write ARM.OUTCOME>N%"),
            ("latency_us_p99>20%", "write ARM.OUTCOME>N%"),
            (".qps<-10%", "write ARM.OUTCOME>N%"),
            ("B.qps<NaN%", "write ARM.OUTCOME>N%"),
            ("B.qps<1-2%", "write ARM.OUTCOME>N%"),
            ("B.p99>20%", "choose one of qps"),
            ("B.qps>10%", "'B.qps<-10%'"),
            ("B.latency_us_p99<10%", "'B.latency_us_p99>10%'"),
        ] {
            let said = error_text(text, &scenario);
            assert!(said.contains(hint), "{text}: {said}");
        }
    }
}
