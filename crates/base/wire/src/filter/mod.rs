//! Filter language for events: comparisons only. A filter cannot run programs or access anything else.
//!
//! ```text
//! query_time > 0.1 && (db == "shop" || user =~ "app") && !tainted
//! ```
//!
//! An attribute that an event does not have compares false, whatever the comparison.

mod field;
mod lex;
mod parse;

use crate::event::Event;
use field::{Field, Value};

/// A filter that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Filter {
    root: Expression,
}

/// Error in a filter, with its position in bytes from the start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at character {}: {what}", .at + 1)]
pub struct FilterError {
    pub at: usize,
    pub what: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Expression {
    Any(Vec<Expression>),
    All(Vec<Expression>),
    Not(Box<Expression>),
    Is(Field),
    Compare(Field, Comparison, Literal),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Contains,
}

#[derive(Debug, Clone, PartialEq)]
enum Literal {
    /// As written: seconds for times, else counts and bytes.
    Number(f64),
    Text(Vec<u8>),
}

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// Where, and what was expected instead.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        Ok(Self { root: parse::parse(text)? })
    }

    pub fn matches(&self, event: &Event<'_>) -> bool {
        evaluate(&self.root, event)
    }

    /// True if the filter tests the schema, which may be named long before the entry.
    pub fn needs_db(&self) -> bool {
        fn any(expression: &Expression) -> bool {
            match expression {
                Expression::Any(parts) | Expression::All(parts) => parts.iter().any(any),
                Expression::Not(part) => any(part),
                Expression::Is(field) | Expression::Compare(field, ..) => *field == Field::Db,
            }
        }
        any(&self.root)
    }
}

/// Depth is bounded by the parser.
fn evaluate(expression: &Expression, event: &Event<'_>) -> bool {
    match expression {
        Expression::Any(parts) => parts.iter().any(|part| evaluate(part, event)),
        Expression::All(parts) => parts.iter().all(|part| evaluate(part, event)),
        Expression::Not(part) => !evaluate(part, event),
        Expression::Is(field) => matches!(field.value_in(event), Some(Value::Flag(true))),
        Expression::Compare(field, comparison, literal) => match (field.value_in(event), literal) {
            (Some(Value::Number(number)), Literal::Number(with)) => {
                compare_numbers(number, *comparison, *with)
            }
            (Some(Value::Text(text)), Literal::Text(with)) => compare_texts(text, *comparison, with),
            _ => false,
        },
    }
}

fn compare_numbers(number: f64, comparison: Comparison, with: f64) -> bool {
    match comparison {
        Comparison::Equal => number == with,
        Comparison::NotEqual => number != with,
        Comparison::Less => number < with,
        Comparison::LessOrEqual => number <= with,
        Comparison::Greater => number > with,
        Comparison::GreaterOrEqual => number >= with,
        Comparison::Contains => false,
    }
}

fn compare_texts(text: &[u8], comparison: Comparison, with: &[u8]) -> bool {
    match comparison {
        Comparison::Equal => text == with,
        Comparison::NotEqual => text != with,
        Comparison::Less => text < with,
        Comparison::LessOrEqual => text <= with,
        Comparison::Greater => text > with,
        Comparison::GreaterOrEqual => text >= with,
        Comparison::Contains => {
            with.is_empty() || text.windows(with.len()).any(|part| part.eq_ignore_ascii_case(with))
        }
    }
}

#[cfg(test)]
mod tests;
