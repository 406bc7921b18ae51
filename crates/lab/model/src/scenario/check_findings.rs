//! Validation of findings over several arms: contrasts, limits, trade-offs.

use super::Scenario;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeSet;
use toll_record::catalogue::{find_definition, list_names};
use toll_record::{Compare, Contrast, Definition, Limit, Pareto};

impl Scenario {
    pub(super) fn check_findings(&self) -> anyhow::Result<()> {
        let outcomes = self.definitions();
        let mut seen = BTreeSet::new();
        for contrast in &self.contrasts {
            let place = || format!("contrast `{}`", contrast.name);
            ensure!(
                seen.insert(&contrast.name),
                "two contrasts are named `{}`: names must differ",
                contrast.name
            );
            check_contrast(contrast, &outcomes).with_context(place)?;
            for arm in [&contrast.of, &contrast.over].into_iter().chain(&contrast.beyond) {
                ensure!(self.arms.iter().any(|a| a.name == *arm), "{}: there is no arm `{arm}`", place());
            }
        }
        let mut named = BTreeSet::new();
        for limit in &self.limits {
            let place = || format!("limit `{}`", limit.name);
            ensure!(named.insert(&limit.name), "two limits are named `{}`: names must differ", limit.name);
            self.check_limit(limit, &outcomes).with_context(place)?;
        }
        self.pareto.as_ref().map_or(Ok(()), |pareto| check_pareto(pareto, &outcomes).context("in [pareto]"))
    }
}

impl Scenario {
    fn check_limit(&self, limit: &Limit, outcomes: &[Definition]) -> anyhow::Result<()> {
        for name in [&limit.outcome].into_iter().chain(&limit.reached) {
            find_outcome(name, outcomes)?;
        }
        ensure!(limit.at_most.is_finite(), "at_most = {}: write a number", limit.at_most);
        let rungs = self.arms.iter().flat_map(|arm| &arm.varied).filter(|(key, _)| *key == limit.over);
        ensure!(
            rungs.filter(|(_, value)| value.parse::<f64>().is_ok_and(f64::is_finite)).count() > 1,
            "over = {:?} is no ladder: no `each` puts two numbers or more in the place of {{{}}}",
            limit.over,
            limit.over
        );
        Ok(())
    }
}

fn find_outcome<'a>(name: &str, outcomes: &'a [Definition]) -> anyhow::Result<&'a Definition> {
    let Some(outcome) = find_definition(outcomes, name) else {
        bail!("{name:?} is no outcome: choose one of {}", list_names(outcomes));
    };
    Ok(outcome)
}

fn check_contrast(contrast: &Contrast, outcomes: &[Definition]) -> anyhow::Result<()> {
    let outcome = find_outcome(&contrast.outcome, outcomes)?;
    ensure!(
        outcome.compare == Compare::LogRatio,
        "{} is not compared as a ratio, and a contrast is one: choose another outcome",
        outcome.name
    );
    ensure!(contrast.of != contrast.over, "`of` and `over` are the same arm: name two");
    ensure!(
        contrast.beyond.as_ref().is_none_or(|beyond| *beyond != contrast.of && *beyond != contrast.over),
        "`beyond` is a third arm, that both are compared with"
    );
    ensure!(
        contrast.factor.is_finite() && contrast.factor > 0.0,
        "factor = {}: it must be above 0",
        contrast.factor
    );
    Ok(())
}

fn check_pareto(pareto: &Pareto, outcomes: &[Definition]) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    for name in &pareto.outcomes {
        find_outcome(name, outcomes)?;
        ensure!(seen.insert(name), "`outcomes` names {name} twice");
    }
    ensure!(seen.len() > 1, "`outcomes` names what is traded against what: two of them at least");
    ensure!(
        seen.contains(&pareto.prefer),
        "prefer = {:?} is none of the `outcomes`: choose one of {}",
        pareto.prefer,
        pareto.outcomes.join(", ")
    );
    for (name, limit) in &pareto.limit {
        ensure!(
            !find_outcome(name, outcomes)?.compare.needs_no_baseline(),
            "limit: {name} is compared with nothing: it has no overhead to limit"
        );
        ensure!(limit.is_finite() && *limit >= 0.0, "limit: {name} = {limit} must be 0 or above");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(tables: &str) -> Result<Scenario, String> {
        let text = format!(
            "name = \"x\"\nquestion = \"?\"\nbaseline = \"one\"\nprimary = \"elapsed_s\"\nsubject = \"host\"\n\
             [profile.a]\nrounds = 1\nwindow = \"1s\"\nsettle = \"0s\"\n{tables}\n\
             [[arm]]\nname = \"one\"\ntitle = \"one\"\nrole = \"baseline\"\ncommand = \"true\"\nends = \"closes-window\"\n\
             [[arm]]\nname = \"five\"\ntitle = \"five\"\ncommand = \"true\"\nends = \"closes-window\"\n"
        );
        Scenario::parse(&text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_contrast_is_a_ratio_of_two_arms_that_there_are() {
        let with =
            |keys: &str| scenario(&format!("[[contrast]]\nname = \"penalty\"\ntitle = \"penalty\"\n{keys}"));
        let good = "outcome = \"elapsed_s\"\nof = \"five\"\nover = \"one\"";
        assert_eq!(with(good).unwrap().contrasts[0].factor, 1.0);
        for (keys, expected) in [
            ("outcome = \"elapsed_s\"\nof = \"six\"\nover = \"one\"", "there is no arm `six`"),
            ("outcome = \"elapsed_s\"\nof = \"one\"\nover = \"one\"", "the same arm"),
            ("outcome = \"p99\"\nof = \"five\"\nover = \"one\"", "\"p99\" is no outcome"),
            ("outcome = \"load_1\"\nof = \"five\"\nover = \"one\"", "is not compared as a ratio"),
            (&format!("{good}\nfactor = 0.0"), "factor = 0: it must be above 0"),
            (&format!("{good}\nbeyond = \"one\""), "`beyond` is a third arm"),
            (&format!("{good}\nbeyond = \"six\""), "there is no arm `six`"),
            (&format!("{good}\ncolour = 1"), "unknown field `colour`"),
        ] {
            let said = with(keys).expect_err(keys);
            assert!(said.contains(expected), "{keys}: {said}");
        }
    }

    #[test]
    fn a_limit_is_of_an_outcome_over_numbers_that_arms_are_told_apart_by() {
        let with = |keys: &str| {
            scenario(&format!(
                "[[limit]]\nname = \"most\"\ntitle = \"most\"\nunit = \"s\"\n{keys}\n[[arm]]\nname = \"nap-{{s}}\"\ntitle = \"nap\"\n\
                 each = {{ s = [\"1\", \"2\", \"forever\"] }}\ncommand = \"sleep {{s}}\"\nends = \"closes-window\""
            ))
        };
        assert_eq!(with("outcome = \"elapsed_s\"\nover = \"s\"").unwrap().limits[0].at_most, 0.0);
        for (keys, expected) in [
            ("outcome = \"p99\"\nover = \"s\"", "\"p99\" is no outcome"),
            ("outcome = \"elapsed_s\"\nover = \"s\"\nreached = \"p99\"", "\"p99\" is no outcome"),
            ("outcome = \"elapsed_s\"\nover = \"mbps\"", "over = \"mbps\" is no ladder"),
            ("outcome = \"elapsed_s\"\nover = \"s\"\nat_most = nan", "at_most = NaN: write a number"),
        ] {
            let said = with(keys).expect_err(keys);
            assert!(said.contains(expected), "{keys}: {said}");
        }
    }

    #[test]
    fn what_is_traded_are_two_outcomes_or_more_and_one_is_preferred() {
        let with = |keys: &str| scenario(&format!("[pareto]\n{keys}"));
        assert!(
            with("outcomes = [\"elapsed_s\", \"load_1\"]\nprefer = \"elapsed_s\"\nlimit = { load_1 = 0.5 }")
                .is_ok()
        );
        for (keys, expected) in [
            ("outcomes = [\"elapsed_s\"]\nprefer = \"elapsed_s\"", "two of them at least"),
            ("outcomes = [\"elapsed_s\", \"load_1\"]\nprefer = \"load_5\"", "is none of the `outcomes`"),
            ("outcomes = [\"elapsed_s\", \"elapsed_s\"]\nprefer = \"elapsed_s\"", "names elapsed_s twice"),
            (
                "outcomes = [\"elapsed_s\", \"load_1\"]\nprefer = \"elapsed_s\"\nlimit = { caught_pct = 1.0 }",
                "compared with nothing",
            ),
        ] {
            let said = with(keys).expect_err(keys);
            assert!(said.contains(expected), "{keys}: {said}");
        }
    }
}
