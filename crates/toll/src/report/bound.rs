//! Does a run break a bound that someone set, `B.latency_us_p99>20%`?
//!
//! A bound is broken when the arm's toll lies beyond it *and* its interval excludes zero on the harmful
//! side: a toll that this run cannot tell from nothing fails nobody. With too few rounds for an
//! interval the toll alone decides, and the judgement says so. Never rounds.

use crate::analyse::{self, UNTIL_DONE};
use crate::scenario;
use std::str::FromStr;
use toll_record::{ArmResult, Outcome, Role, RunResult};

/// `ARM.OUTCOME>N%`, or `<` for outcomes of which more is better: `B.qps<-10%`.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    arm: String,
    outcome: String,
    limit_pct: f64,
    beyond: Beyond,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beyond {
    Above,
    Below,
}

#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum BoundError {
    #[error("{0:?} is not a bound: write ARM.OUTCOME>N%, such as 'B.latency_us_p99>20%' or 'B.qps<-10%'")]
    Form(String),
    #[error("there is no outcome {name:?} in {bound:?}: choose one of {known}")]
    Outcome { bound: String, name: String, known: String },
    #[error("{0}: write it as a fall, such as '{1}<-10%': more of it is better")]
    NotAFall(String, String),
    #[error("{0}: write it as a rise, such as '{1}>10%': less of it is better")]
    NotARise(String, String),
    #[error("the run has no arm {arm:?}: it has {known}")]
    Arm { arm: String, known: String },
    #[error("{arm} is what the others are compared with: a bound needs another arm")]
    Baseline { arm: String },
    #[error("{0}: only arms with `until_done` have the outcome {UNTIL_DONE}, and they have no response time")]
    NotOf(String),
    #[error("{arm} has no toll on {outcome}: {why}")]
    NoToll { arm: String, outcome: String, why: String },
}

/// What came of one bound.
#[derive(Debug, Clone, PartialEq)]
pub struct Judgement {
    pub broken: bool,
    /// One line, with the figures.
    pub text: String,
}

impl FromStr for Bound {
    type Err = BoundError;

    fn from_str(text: &str) -> Result<Self, BoundError> {
        let form = || BoundError::Form(text.to_owned());
        let at = text.find(['>', '<']).ok_or_else(form)?;
        let (subject, rest) = text.split_at(at);
        let beyond = if rest.starts_with('>') { Beyond::Above } else { Beyond::Below };
        let (arm, outcome) = subject.trim().rsplit_once('.').ok_or_else(form)?;
        let limit = rest[1..].trim().strip_suffix('%').ok_or_else(form)?;
        let limit_pct: f64 = limit.trim().parse().ok().filter(|v: &f64| v.is_finite()).ok_or_else(form)?;
        if arm.is_empty() {
            return Err(form());
        }
        let Some(known) = analyse::definition(outcome) else {
            let names: Vec<&str> = analyse::OUTCOMES.iter().map(|o| o.name).collect();
            return Err(BoundError::Outcome {
                bound: text.to_owned(),
                name: outcome.to_owned(),
                known: names.join(", "),
            });
        };
        match beyond {
            Beyond::Above if known.higher_is_better => {
                Err(BoundError::NotAFall(text.to_owned(), subject.trim().to_owned()))
            }
            Beyond::Below if !known.higher_is_better => {
                Err(BoundError::NotARise(text.to_owned(), subject.trim().to_owned()))
            }
            _ => Ok(Bound { arm: arm.to_owned(), outcome: outcome.to_owned(), limit_pct, beyond }),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sign = if self.beyond == Beyond::Above { '>' } else { '<' };
        write!(f, "{}.{}{sign}{}%", self.arm, self.outcome, self.limit_pct)
    }
}

impl Bound {
    /// Whether a run of these arms can be judged by this bound at all, told before it begins.
    ///
    /// # Errors
    /// No such arm, one that is compared with nothing, or one that cannot have this outcome.
    pub fn check(&self, arms: &[scenario::Arm], baseline: &str) -> Result<(), BoundError> {
        let arm = arms.iter().find(|arm| arm.name == self.arm).ok_or_else(|| BoundError::Arm {
            arm: self.arm.clone(),
            known: arms.iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        if arm.name == baseline || arm.role == Role::Baseline {
            return Err(BoundError::Baseline { arm: arm.name.clone() });
        }
        let of_a_load =
            ["qps", "tps", "stall_s"].contains(&self.outcome.as_str()) || self.outcome.contains("latency");
        if (self.outcome == UNTIL_DONE && arm.workload.driver.as_deref() != Some("none"))
            || (of_a_load && (arm.workload.driver.as_deref() == Some("none")))
        {
            return Err(BoundError::NotOf(self.to_string()));
        }
        Ok(())
    }

    /// Judges one run.
    ///
    /// # Errors
    /// The run has no such arm, or no toll of it on this outcome: neither broken nor kept.
    pub fn judge(&self, run: &RunResult) -> Result<Judgement, BoundError> {
        let arm = run.arms.iter().find(|arm| arm.name == self.arm).ok_or_else(|| BoundError::Arm {
            arm: self.arm.clone(),
            known: run.arms.iter().map(|a| a.name.as_str()).collect::<Vec<_>>().join(", "),
        })?;
        if arm.name == run.baseline {
            return Err(BoundError::Baseline { arm: arm.name.clone() });
        }
        let outcome = arm.outcomes.get(&self.outcome);
        let Some((outcome, toll)) = outcome.and_then(|o| Some((o, o.toll_pct?))) else {
            return Err(BoundError::NoToll {
                arm: arm.name.clone(),
                outcome: self.outcome.clone(),
                why: why_no_toll(arm, outcome, &self.outcome),
            });
        };
        let beyond = match self.beyond {
            Beyond::Above => toll > self.limit_pct,
            Beyond::Below => toll < self.limit_pct,
        };
        let (harmful, interval) = match outcome.ci95_pct {
            Some([low, high]) => {
                let harmful = if outcome.higher_is_better { high < 0.0 } else { low > 0.0 };
                (harmful, format!("[{low:+.1}, {high:+.1}]"))
            }
            None => (true, "(no interval: too few rounds, the toll alone decides)".to_owned()),
        };
        let word = match (beyond, harmful) {
            (true, true) => "broken",
            (true, false) => "kept: beyond it, but not told from zero",
            (false, _) => "kept",
        };
        Ok(Judgement {
            broken: beyond && harmful,
            text: format!("bound {self} {word}: {toll:+.1}% {interval}"),
        })
    }
}

fn why_no_toll(arm: &ArmResult, outcome: Option<&Outcome>, name: &str) -> String {
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
        for text in ["B.latency_us_p99>20%", "B.qps<-10%", "ssh-5.cpu_us_per_query>0.5%", "v1.2.stall_s>5%"] {
            assert_eq!(text.parse::<Bound>().unwrap().to_string(), text);
        }
        assert_eq!("B.qps < -10 %".parse::<Bound>().unwrap().to_string(), "B.qps<-10%");
    }

    #[test]
    fn a_bound_that_no_run_can_be_judged_by_is_told_before_the_run() {
        let (scenario, _) = scenario::Scenario::load("socket-vs-tcp").unwrap();
        for (text, expected) in [
            ("tcp-64.qps<-5%", ""),
            ("dump-tcp.elapsed_s>5%", ""),
            ("Q.qps<-5%", "no arm \"Q\": it has unix-64, unix-64b, tcp-64"),
            ("unix-64.qps<-5%", "another arm"),
            ("unix-1.qps<-5%", "another arm"),
            ("tcp-64.elapsed_s>5%", "only arms with `until_done`"),
            ("dump-tcp.latency_us_p99>5%", "only arms with `until_done`"),
        ] {
            let said = text.parse::<Bound>().unwrap().check(&scenario.arms, &scenario.baseline);
            let said = said.map_or_else(|error| error.to_string(), |()| String::new());
            assert!(said.contains(expected) && said.is_empty() == expected.is_empty(), "{text}: {said}");
        }
    }

    #[test]
    fn what_is_no_bound_is_refused_with_what_to_write() {
        for (text, hint) in [
            ("B.latency_us_p99", "write ARM.OUTCOME>N%"),
            ("B.latency_us_p99>20", "write ARM.OUTCOME>N%"),
            ("latency_us_p99>20%", "write ARM.OUTCOME>N%"),
            (".qps<-10%", "write ARM.OUTCOME>N%"),
            ("B.qps<NaN%", "write ARM.OUTCOME>N%"),
            ("B.p99>20%", "choose one of qps"),
            ("B.qps>10%", "'B.qps<-10%'"),
            ("B.latency_us_p99<10%", "'B.latency_us_p99>10%'"),
        ] {
            let error = text.parse::<Bound>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
