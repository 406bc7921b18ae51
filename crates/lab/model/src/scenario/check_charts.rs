//! Validation of the charts of a scenario.

use super::{Arm, Scenario};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeSet;
use toll_record::Charted;
use toll_record::catalogue::{find_definition, list_names};

impl Scenario {
    pub(super) fn check_charts(&self) -> anyhow::Result<()> {
        let mut seen = BTreeSet::new();
        for chart in &self.charts {
            let place = || format!("chart `{}`", chart.name);
            ensure!(seen.insert(&chart.name), "two charts are named `{}`: names must differ", chart.name);
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
            ensure!(
                !chart.name.is_empty() && chart.name.chars().all(is_plain),
                "chart name {:?}: use letters, digits, `-` and `_`",
                chart.name
            );
            self.check_outcomes_of(chart).with_context(place)?;
            self.check_keys_of(chart).with_context(place)?;
        }
        Ok(())
    }

    /// All outcomes of the chart exist, and have one axis.
    fn check_outcomes_of(&self, chart: &Charted) -> anyhow::Result<()> {
        let all = self.definitions();
        let mut units = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for name in &chart.outcomes {
            let Some(outcome) = find_definition(&all, name) else {
                bail!("{name:?} is no outcome: choose one of {}", list_names(&all));
            };
            ensure!(seen.insert(name), "`outcomes` names {name} twice");
            units.insert(outcome.unit.clone());
        }
        ensure!(!units.is_empty(), "`outcomes` is empty: name what is drawn");
        ensure!(
            units.len() == 1,
            "its outcomes are in {}: they share an axis, so choose those of one unit",
            units.into_iter().collect::<Vec<_>>().join(" and ")
        );
        Ok(())
    }

    /// The chart's keys are keys of `each`, and no two arms share one position.
    fn check_keys_of(&self, chart: &Charted) -> anyhow::Result<()> {
        let keys: Vec<&String> = chart.keys().collect();
        let distinct: BTreeSet<&String> = keys.iter().copied().collect();
        ensure!(distinct.len() == keys.len(), "`x`, `lines` and `panels` name a key twice");
        let mut taken: Vec<(Vec<&str>, &Arm)> = Vec::new();
        for arm in &self.arms {
            let Some(place) = chart.key_values(&arm.varied) else { continue };
            if let Some((_, other)) = taken.iter().find(|(known, _)| *known == place) {
                bail!(
                    "arms {} and {} have the same position in it: add a key that differs",
                    other.name,
                    arm.name
                );
            }
            taken.push((place, arm));
        }
        if taken.is_empty() {
            let keys: Vec<&str> = keys.iter().map(|key| key.as_str()).collect();
            bail!(
                "no arm has an `each` of exactly {}: name all keys of one in `x`, `lines`, `panels`",
                keys.join(", ")
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(chart: &str, each: &str) -> Result<Scenario, String> {
        let text = format!(
            "name = \"x\"\nquestion = \"?\"\nbaseline = \"one\"\nprimary = \"elapsed_s\"\nsubject = \"host\"\n\
             [profile.a]\nrounds = 1\nwindow = \"1s\"\nsettle = \"0s\"\n\
             [[chart]]\nname = \"by-size\"\ntitle = \"t\"\n{chart}\n\
             [[arm]]\nname = \"one\"\ntitle = \"one\"\nrole = \"baseline\"\ncommand = \"true\"\nends = \"closes-window\"\n\
             [[arm]]\ntitle = \"t\"\ncommand = \"true\"\nends = \"closes-window\"\n{each}\n"
        );
        Scenario::parse(&text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_chart_names_outcomes_of_one_unit_and_all_keys_of_its_arms() {
        let each = "name = \"{tool}-{size}\"\neach = { tool = [\"cat\", \"tac\"], size = [\"1\", \"2\"] }";
        let good = "outcomes = [\"elapsed_s\"]\nx = \"size\"\nlines = [\"tool\"]";
        assert_eq!(scenario(good, each).unwrap().charts[0].x, "size");
        for (chart, expected) in [
            ("outcomes = [\"elapsed\"]\nx = \"size\"\nlines = [\"tool\"]", "\"elapsed\" is no outcome"),
            ("outcomes = []\nx = \"size\"\nlines = [\"tool\"]", "`outcomes` is empty"),
            (
                "outcomes = [\"elapsed_s\", \"dropped_pct\"]\nx = \"size\"\nlines = [\"tool\"]",
                "its outcomes are in % and s",
            ),
            ("outcomes = [\"elapsed_s\"]\nx = \"size\"", "no arm has an `each` of exactly size"),
            ("outcomes = [\"elapsed_s\"]\nx = \"size\"\nlines = [\"size\"]", "name a key twice"),
            (&format!("{good}\ncolour = 1"), "unknown field `colour`"),
        ] {
            let said = scenario(chart, each).expect_err(chart);
            assert!(said.contains(expected), "{chart}: {said}");
        }
    }

    #[test]
    fn two_arms_at_one_place_of_a_chart_are_refused() {
        let table = |suffix: &str| format!("name = \"{{size}}{suffix}\"\neach = {{ size = [\"1\"] }}");
        let second = format!(
            "{}\n[[arm]]\ntitle = \"t\"\ncommand = \"true\"\nends = \"closes-window\"\n{}",
            table("a"),
            table("b")
        );
        let said = scenario("outcomes = [\"elapsed_s\"]\nx = \"size\"", &second).unwrap_err();
        assert!(said.contains("arms 1a and 1b have the same position"), "{said}");
    }
}
