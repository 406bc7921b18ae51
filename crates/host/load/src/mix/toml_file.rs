//! Parser of custom workload mixes in TOML: weighted events of statements with parameters.
//!
//! ```toml
//! [[event]]
//! name = "lookup"
//! weight = 9
//! [[event.statement]]
//! sql = "SELECT c FROM sbtest1 WHERE id = ?"
//! params = [{ id = 10000 }]
//!
//! [[event]]
//! name = "move"
//! transaction = true   # BEGIN before, COMMIT after, ROLLBACK on an error
//! [[event.statement]]
//! sql = "UPDATE sbtest1 SET k = ? WHERE id = ?"
//! params = [{ uniform = [1, 100] }, { id = 10000, spread = "uniform" }]
//! [[event.statement]]
//! sql = "SELECT c FROM sbtest1 WHERE id BETWEEN ? AND ?"
//! params = [{ kept = 0 }, { kept = 99 }]
//! ```

use super::{Distribution, Event, Mix, MixError, Param, Statement, Step};
use serde::Deserialize;
use std::path::Path;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlMix {
    event: Vec<TomlEvent>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlEvent {
    name: String,
    #[serde(default = "one")]
    weight: f64,
    #[serde(default)]
    transaction: bool,
    statement: Vec<TomlStatement>,
}

fn one() -> f64 {
    1.0
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlStatement {
    sql: String,
    #[serde(default)]
    params: Vec<TomlParam>,
    /// Sent as text even where the run prepares its statements.
    #[serde(default)]
    text: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TomlSpread {
    #[default]
    Special,
    Uniform,
}

/// Exactly one of the keys, `spread` going with `id`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TomlParam {
    id: Option<u64>,
    #[serde(default)]
    spread: TomlSpread,
    kept: Option<i64>,
    uniform: Option<[i64; 2]>,
    digits: Option<usize>,
    choice: Option<Vec<String>>,
}

/// More groups of digits than any column holds.
const MAX_GROUPS: usize = 100_000;

impl Mix {
    /// Reads a mix from a TOML file; an error names the event and what is wrong with it.
    pub fn from_toml_file(path: &Path) -> Result<Self, MixError> {
        let name = path.display().to_string();
        let text =
            std::fs::read_to_string(path).map_err(|cause| MixError::Io { path: name.clone(), cause })?;
        Self::from_toml(&text).map_err(|error| match error {
            MixError::Invalid(reason) => MixError::Invalid(format!("{name}: {reason}")),
            other => other,
        })
    }

    fn from_toml(text: &str) -> Result<Self, MixError> {
        let file: TomlMix = toml::from_str(text).map_err(|e| MixError::Invalid(e.to_string()))?;
        let mut statements = Vec::new();
        let mut events = Vec::new();
        for written in file.event {
            let invalid = |reason: String| MixError::Invalid(format!("event {:?}: {reason}", written.name));
            let mut steps = Vec::new();
            let mut push = |statement: Statement| {
                steps.push(Step::Fixed(statements.len()));
                statements.push(statement);
            };
            let control = |sql: &str| Statement::new(sql, Vec::new()).map_err(invalid);
            if written.transaction {
                push(control("BEGIN")?);
            }
            for statement in written.statement {
                let params: Result<Vec<Param>, String> =
                    statement.params.into_iter().map(parse_param).collect();
                let read =
                    params.and_then(|params| Statement::new(statement.sql, params)).map_err(invalid)?;
                push(if statement.text { read.as_text() } else { read });
            }
            if written.transaction {
                push(control("COMMIT")?);
            }
            let (name, weight, transaction) = (written.name.clone(), written.weight, written.transaction);
            events.push(Event { name, weight, steps, transaction });
        }
        Self::new(statements, events, 1)
    }
}

fn parse_param(written: TomlParam) -> Result<Param, String> {
    let distribution = match written.spread {
        TomlSpread::Special => Distribution::Special,
        TomlSpread::Uniform => Distribution::Uniform,
    };
    match written {
        TomlParam { id: Some(rows), kept: None, uniform: None, digits: None, choice: None, .. }
            if rows > 0 =>
        {
            Ok(Param::Id { rows, distribution })
        }
        TomlParam { id: None, kept: Some(plus), uniform: None, digits: None, choice: None, .. } => {
            Ok(Param::Kept { plus })
        }
        TomlParam {
            id: None, kept: None, uniform: Some([low, high]), digits: None, choice: None, ..
        } if low <= high => Ok(Param::Uniform { low, high }),
        TomlParam { id: None, kept: None, uniform: None, digits: Some(groups), choice: None, .. }
            if (1..=MAX_GROUPS).contains(&groups) =>
        {
            Ok(Param::Digits { groups })
        }
        TomlParam { id: None, kept: None, uniform: None, digits: None, choice: Some(texts), .. }
            if !texts.is_empty() =>
        {
            Ok(Param::Choice(texts))
        }
        _ => Err("a parameter is one of { id = ROWS }, { kept = PLUS }, { uniform = [LOW, HIGH] }, \
                  { digits = GROUPS }, { choice = [TEXTS] }"
            .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toll_stats::random::Rng;

    const EXAMPLE: &str = r#"
        [[event]]
        name = "lookup"
        weight = 9
        [[event.statement]]
        sql = "SELECT c FROM sbtest1 WHERE id = ?"
        params = [{ id = 10000 }]
        [[event]]
        name = "move"
        transaction = true
        [[event.statement]]
        sql = "UPDATE sbtest1 SET k = ?, c = ? WHERE id = ?"
        params = [{ uniform = [1, 100] }, { choice = ["a", "b"] }, { id = 10, spread = "uniform" }]
        [[event.statement]]
        sql = "SELECT ?"
        params = [{ digits = 2 }]
        text = true
    "#;

    #[test]
    fn events_keep_their_weights_and_a_transaction_its_brackets() {
        let mix = Mix::from_toml(EXAMPLE).unwrap();
        let texts: Vec<&str> = mix.events[1]
            .steps
            .iter()
            .map(|step| match step {
                Step::Fixed(i) => mix.statements[*i].sql.as_str(),
                Step::PerTable { .. } => "",
            })
            .collect();
        assert_eq!(texts, ["BEGIN", "UPDATE sbtest1 SET k = ?, c = ? WHERE id = ?", "SELECT ?", "COMMIT"]);
        let mut rng = Rng::new(1, 1);
        let lookups = (0..10_000).filter(|_| mix.pick_event(0, &mut rng) == 0).count();
        assert!((8900..9100).contains(&lookups), "{lookups}");
    }

    #[test]
    fn a_mistake_is_named() {
        for (wrong, word) in [
            ("{ id = 10000 }", "SELECT c"),
            ("{ id = 0 }", "ROWS"),
            ("{ uniform = [2, 1] }", "LOW"),
            ("{ colour = 1 }", "colour"),
            ("{ id = 1, kept = 1 }", "one of"),
        ] {
            let text = if word == "SELECT c" {
                EXAMPLE.replace("[{ id = 10000 }]", "[]")
            } else {
                EXAMPLE.replace("{ id = 10000 }", wrong)
            };
            let error = Mix::from_toml(&text).unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
        assert!(Mix::from_toml("").is_err());
        assert!(Mix::from_toml(&EXAMPLE.replace("weight = 9", "weight = -1")).is_err());
    }
}
