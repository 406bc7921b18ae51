//! Catalogue of outcomes for all scenarios, and validation of outcome definitions.
//!
//! `scenarios/outcomes.toml` defines the outcomes. Their names have no meaning in code. Never measures.

use crate::{
    Aggregate, Compare, Definition, HostSample, LoadColumn, PressureSample, Source, TrialColumn, Zeros,
};
use anyhow::{Context, bail, ensure};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::sync::LazyLock;

/// The catalogue's file, one to one.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    pub columns: Vec<String>,
    pub panels: Vec<String>,
    #[serde(rename = "outcome", deserialize_with = "definitions")]
    pub outcomes: Vec<Definition>,
}

/// Catalogue built into the binary.
pub static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
    toml::from_str(include_str!("../../../../scenarios/outcomes.toml"))
        .expect("a test has read the catalogue")
});

/// The outcome of that name.
pub fn find_definition<'a>(outcomes: &'a [Definition], name: &str) -> Option<&'a Definition> {
    outcomes.iter().find(|outcome| outcome.name == name)
}

/// All names, for error messages.
pub fn list_names(outcomes: &[Definition]) -> String {
    outcomes.iter().map(|outcome| outcome.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// True for the duration of a trial whose window lasts until its work is done.
pub fn is_duration(outcome: &Definition) -> bool {
    outcome.source == Source::Trial { column: TrialColumn::Seconds }
}

/// Definitions as someone wrote them: what is no key of one is refused, where a run's reader passes over it.
pub fn definitions<'de, D: Deserializer<'de>>(toml: D) -> Result<Vec<Definition>, D::Error> {
    let written = Vec::<toml::Table>::deserialize(toml)?;
    written
        .into_iter()
        .map(|table| parse_definition(table).map_err(|e| D::Error::custom(format!("{e:#}"))))
        .collect()
}

fn parse_definition(written: toml::Table) -> anyhow::Result<Definition> {
    let name = written.get("name").and_then(toml::Value::as_str).unwrap_or("without a name").to_owned();
    let place = || format!("outcome `{name}`");
    let definition: Definition = written.clone().try_into().with_context(place)?;
    let read = toml::Table::try_from(&definition).with_context(place)?;
    if let Some(key) = find_unknown_key(&written, &read) {
        bail!("{}: `{key}` is not a key of an outcome with this `from`", place());
    }
    check_definition(&definition).with_context(place)?;
    Ok(definition)
}

/// The first key that was written and not read.
fn find_unknown_key(written: &toml::Table, read: &toml::Table) -> Option<String> {
    written.iter().find_map(|(key, value)| match (value, read.get(key)) {
        (toml::Value::Table(written), Some(toml::Value::Table(read))) => find_unknown_key(written, read),
        // Left out when it says what is so anyway.
        (toml::Value::Boolean(false), None) if key == "by_rate" || key == "long_windows" => None,
        (_, None) => Some(key.clone()),
        _ => None,
    })
}

/// Checks that the outcome can be computed from a window.
fn check_definition(outcome: &Definition) -> anyhow::Result<()> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    ensure!(
        !outcome.name.is_empty() && outcome.name.chars().all(is_name),
        "use small letters, digits and `_`, with the unit last: such as `disk_reads_per_s`"
    );
    ensure!(!outcome.unit.is_empty(), "its `unit` is empty: write one, such as `s`, `bytes/s`, `%`");
    check_column(&outcome.source)?;
    check_aggregate(outcome)?;
    if outcome.zeros == Zeros::FewerThanOne {
        let counted = matches!(outcome.source, Source::Load { .. })
            && matches!(outcome.aggregate, Aggregate::Rate | Aggregate::Sum);
        ensure!(
            counted && outcome.compare == Compare::LogRatio,
            "zeros = \"fewer-than-one\" goes with the rate or sum of what a load completes, as a log-ratio"
        );
    }
    if let Some(margin) = outcome.margin {
        ensure!(
            outcome.compare == Compare::Difference && margin.is_finite() && margin > 0.0,
            "margin = {margin}: it goes with compare = \"difference\", in {}, and must be above 0; \
             that of ratios is the scenario's margin_pct",
            outcome.unit
        );
    }
    Ok(())
}

fn check_column(source: &Source) -> anyhow::Result<()> {
    let (known, column) = match source {
        Source::Host { column } => (HostSample::COLUMNS, column),
        Source::Pressure { column } => (PressureSample::COLUMNS, column),
        _ => return Ok(()),
    };
    ensure!(
        known.contains(&column.as_str()),
        "there is no column `{column}`: choose one of {}",
        known.join(", ")
    );
    Ok(())
}

fn check_aggregate(outcome: &Definition) -> anyhow::Result<()> {
    use Aggregate::{Above, Mean, Peak, PerQuery, Quantile, Rate, Recovery, Sum};
    if let Quantile(q) = outcome.aggregate {
        ensure!(q > 0.0 && q < 1.0, "quantile = {q} must lie above 0 and below 1");
    }
    if let Above(limit) = outcome.aggregate {
        ensure!(limit >= 0.0 && limit.is_finite(), "above = {limit} must be 0 or more");
    }
    let (fits, says) = match &outcome.source {
        Source::Host { .. } | Source::Pressure { .. } | Source::Server { .. } => (true, ""),
        _ if outcome.aggregate == Recovery => {
            (false, "what recovers is a column of \"host\", \"pressure\" or \"server\"")
        }
        Source::Latency => (
            matches!(outcome.aggregate, Mean | Peak | Quantile(_) | Above(_)),
            "latencies have \"mean\", \"peak\", { quantile = 0.99 } and { above = 100000 }",
        ),
        Source::Cpu { .. } => (
            matches!(outcome.aggregate, Sum | Rate | PerQuery),
            "CPU time is read at the ends of a window: use \"sum\", \"rate\" or \"per-query\"",
        ),
        Source::ByClass { .. } => {
            (outcome.aggregate == Mean, "response times at a fixed mix have a \"mean\"")
        }
        Source::Artefact { .. } | Source::Trial { .. } | Source::Stages { .. } => (
            !matches!(outcome.aggregate, Quantile(_) | Above(_)),
            "there is one such number in a window, and no quantile or share of it",
        ),
        Source::Load { column: LoadColumn::Statements } => {
            (outcome.aggregate != PerQuery, "the number of statements per query is always 1")
        }
        _ => (true, ""),
    };
    ensure!(fits, "its aggregate does not fit its source: {says}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_catalogue_is_whole() {
        let names: BTreeSet<&str> = CATALOGUE.outcomes.iter().map(|outcome| outcome.name.as_str()).collect();
        assert_eq!(names.len(), CATALOGUE.outcomes.len(), "a name occurs twice");
        for name in CATALOGUE.columns.iter().chain(&CATALOGUE.panels) {
            assert!(names.contains(name.as_str()), "{name} is shown and not defined");
        }
        assert_eq!(CATALOGUE.outcomes.iter().filter(|outcome| is_duration(outcome)).count(), 1);
    }

    #[test]
    fn what_cannot_be_measured_is_refused_with_what_can() {
        let whole = "name = \"x_s\"\ntitle = \"x\"\nunit = \"s\"\nhigher_is_better = false\n\
            source = { from = \"host\", column = \"load_1\" }\naggregate = \"mean\"\ncompare = \"difference\"\n";
        let read =
            |text: String| parse_definition(toml::from_str(&text).unwrap()).map_err(|e| format!("{e:#}"));
        read(whole.to_owned()).unwrap();
        for (old, new, says) in [
            ("x_s", "X-s", "use small letters, digits and `_`"),
            ("unit = \"s\"", "unit = \"\"", "its `unit` is empty"),
            ("load_1", "load_2", "no column `load_2`: choose one of cpu_user_pct"),
            ("\"host\"", "\"gpu\"", "unknown variant `gpu`"),
            ("aggregate = \"mean\"", "aggregate = { quantile = 1.0 }", "quantile = 1 must lie"),
            (
                "from = \"host\", column = \"load_1\"",
                "from = \"latency\", column = \"x\"",
                "`column` is not a key",
            ),
            ("from = \"host\", column = \"load_1\"", "from = \"cpu\", of = \"host\"", "\"sum\", \"rate\" or"),
            ("compare = \"difference\"", "compare = \"difference\"\nmarginn = 2.0", "`marginn` is not a key"),
            (
                "compare = \"difference\"",
                "compare = \"log-ratio\"\nmargin = 2.0",
                "the scenario's margin_pct",
            ),
            (
                "compare = \"difference\"",
                "compare = \"log-ratio\"\nzeros = \"fewer-than-one\"",
                "rate or sum",
            ),
        ] {
            assert!(whole.contains(old), "{old}");
            let said = read(whole.replace(old, new)).expect_err(&format!("{new} was accepted"));
            assert!(said.contains("outcome `") && said.contains(says), "{new}: {said}");
        }
    }
}
