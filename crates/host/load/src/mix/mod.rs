//! Workload mix: the statements of each event, their values, and the weight of each event.
//!
//! Knows nothing of connections or time: it encodes requests from a random stream.

mod distribution;
mod encode;
mod profile;
mod recorded;
mod toml_file;

pub use distribution::{Distribution, write_digits};
pub use encode::Statement;
pub(crate) use encode::{write_decimal, write_plain_query};
pub use profile::{Profile, TableSet};
pub use recorded::{RecordedWorkload, from_digest, from_events};
use toll_stats::random::Rng;

/// A value of a statement's placeholder.
#[derive(Debug, Clone, PartialEq)]
pub enum Param {
    /// An id of a table of this many rows; kept for [`Param::Kept`].
    Id {
        rows: u64,
        distribution: Distribution,
    },
    /// Drawn the same way, but not kept.
    Number {
        rows: u64,
        distribution: Distribution,
    },
    /// The id kept last within the event, plus this.
    Kept {
        plus: i64,
    },
    Uniform {
        low: i64,
        high: i64,
    },
    /// Dashed groups of 11 random digits.
    Digits {
        groups: usize,
    },
    /// One of these texts, each as likely.
    Choice(Vec<String>),
}

/// One statement of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Always this statement.
    Fixed(usize),
    /// The statement of a table: those of table 1, 2, ... stand side by side from `first` on.
    /// `fresh` draws a table, otherwise the event stays with the one it drew last.
    PerTable { first: usize, fresh: bool },
}

/// An event: statements in order. Several statements, or a transaction, are one event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub name: String,
    pub weight: f64,
    pub steps: Vec<Step>,
    /// True if an error inside it leaves a transaction to roll back.
    pub transaction: bool,
}

/// Statements and events, with the weight of each event.
#[derive(Debug, Clone)]
pub struct Mix {
    pub statements: Vec<Statement>,
    pub events: Vec<Event>,
    pub tables: u32,
    /// Where the order of events is given (a recorded workload): indices into `events`.
    pub sequence: Option<Vec<u32>>,
    /// Running sums of the weights, the last being 1.
    shares: Vec<f64>,
}

#[derive(Debug, thiserror::Error)]
pub enum MixError {
    #[error("{0}")]
    Invalid(String),
    #[error("cannot read {path}: {cause}")]
    Io { path: String, cause: std::io::Error },
}

impl Mix {
    /// True if a text may be of several statements: it has a `;` before its end, be it in a quoted text.
    pub fn may_hold_several(&self) -> bool {
        let has_inner = |sql: &str| sql.trim_end().trim_end_matches(';').contains(';');
        self.statements.iter().any(|statement| has_inner(&statement.sql))
    }

    /// Fails where there is no event, or an event without a statement or with a weight below zero.
    pub fn new(statements: Vec<Statement>, events: Vec<Event>, tables: u32) -> Result<Self, MixError> {
        let invalid = |text: String| Err(MixError::Invalid(text));
        for event in &events {
            if event.steps.is_empty() {
                return invalid(format!("the event {:?} has no statement", event.name));
            }
            if !event.weight.is_finite() || event.weight < 0.0 {
                return invalid(format!(
                    "the event {:?} has the weight {}: give 0 or more",
                    event.name, event.weight
                ));
            }
        }
        let total: f64 = events.iter().map(|e| e.weight).sum();
        if total <= 0.0 {
            return invalid("there is no event with a weight above 0".into());
        }
        let mut sum = 0.0;
        let shares = events
            .iter()
            .map(|e| {
                sum += e.weight / total;
                sum
            })
            .collect();
        Ok(Self { statements, events, tables, sequence: None, shares })
    }

    /// Index of the event to begin: by weight, or the one recorded under this number.
    #[inline]
    pub fn pick_event(&self, number: u64, rng: &mut Rng) -> usize {
        if self.events.len() == 1 {
            return 0;
        }
        if let Some(sequence) = self.sequence.as_deref()
            && !sequence.is_empty()
        {
            return sequence[(number % sequence.len() as u64) as usize] as usize;
        }
        let at = rng.unit();
        self.shares.partition_point(|share| *share < at).min(self.events.len() - 1)
    }
}
