//! Names of variants: one that is recorded and printed, and aliases that files and users may write.

use super::{Arm, Preset, Rate, Scenario};
use anyhow::{bail, ensure};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use toll_record::Plan;

/// A name, or a list of them.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a name or a list of names")]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

pub(super) fn parse_aliases<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::One(name) => vec![name],
        OneOrMany::Many(names) => names,
    })
}

impl Arm {
    /// Its name and its aliases.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.name).chain(&self.alias)
    }
}

/// The arm with this name, or else with this alias.
pub fn find_arm<'a>(arms: &'a [Arm], name: &str) -> Option<&'a Arm> {
    let by_alias = || arms.iter().find(|arm| arm.alias.iter().any(|alias| alias == name));
    arms.iter().find(|arm| arm.name == name).or_else(by_alias)
}

/// Other names of a run's arms, each with the name that the run has for it.
///
/// They are the aliases of the run's own scenario, and of the built-in scenario of that name. A run that was stored under
/// other names is found by the present ones, too.
pub fn other_names(plan: &Plan, scenario_text: &str) -> BTreeMap<String, String> {
    let own = Scenario::parse(scenario_text).ok();
    let built_in = Preset::named(&plan.scenario).and_then(|preset| preset.scenario().ok());
    let known: Vec<Arm> = [own, built_in].into_iter().flatten().flat_map(|scenario| scenario.arms).collect();
    let mut others = BTreeMap::new();
    for arm in &plan.arms {
        let swept = arm.curve.as_ref().unwrap_or(&arm.name);
        let rate = arm.name.strip_prefix(swept.as_str()).unwrap_or_default();
        for same in known.iter().filter(|known| known.names().any(|name| name == swept)) {
            for name in same.names() {
                others.entry(format!("{name}{rate}")).or_insert_with(|| arm.name.clone());
            }
        }
    }
    others.retain(|name, _| !plan.arms.iter().any(|arm| arm.name == *name));
    others
}

impl Scenario {
    /// Names with aliases replaced. A name that no arm has stays as it is.
    pub fn resolve_names(&self, names: &[String]) -> Vec<String> {
        names.iter().map(|name| find_arm(&self.arms, name).map_or(name, |arm| &arm.name).clone()).collect()
    }

    /// Every name and alias is well-formed, and belongs to one arm.
    pub(super) fn check_names(&self) -> anyhow::Result<()> {
        let mut taken: BTreeMap<&str, &str> = BTreeMap::new();
        for Arm { name, .. } in &self.arms {
            check_form(name)?;
            ensure!(taken.insert(name, name).is_none(), "two arms are named `{name}`: names must differ");
        }
        for arm in &self.arms {
            for alias in &arm.alias {
                check_form(alias)?;
                if let Some(other) = taken.insert(alias, &arm.name) {
                    bail!(
                        "the alias `{alias}` of arm `{}` already is a name of arm `{other}`: names must differ",
                        arm.name
                    );
                }
            }
        }
        Ok(())
    }

    /// Replaces aliases by names wherever the scenario refers to an arm.
    pub(super) fn resolve_aliases(&mut self) {
        let pairs =
            |arm: &Arm| arm.alias.iter().map(|alias| (alias.clone(), arm.name.clone())).collect::<Vec<_>>();
        let names: BTreeMap<String, String> = self.arms.iter().flat_map(pairs).collect();
        let put = |name: &mut String| {
            if let Some(own) = names.get(name.as_str()) {
                name.clone_from(own);
            }
        };
        put(&mut self.baseline);
        self.sweep.iter_mut().filter_map(|sweep| sweep.of.as_mut()).for_each(put);
        for profile in self.profile.values_mut() {
            profile.arms.iter_mut().chain(&mut profile.timed).flatten().for_each(put);
        }
        for contrast in &mut self.contrasts {
            [&mut contrast.of, &mut contrast.over].into_iter().chain(&mut contrast.beyond).for_each(put);
        }
        let loads = self.arms.iter_mut().map(|arm| {
            arm.against.iter_mut().for_each(put);
            &mut arm.workload
        });
        for load in loads.chain([&mut self.workload]) {
            if let Some(Rate::Share { of, .. }) = &mut load.rate {
                put(of);
            }
        }
    }
}

fn check_form(name: &str) -> anyhow::Result<()> {
    ensure!(
        !name.is_empty() && !name.contains([',', '#', '.', '/', ' ']),
        "arm name `{name}`: use letters, digits, `-` and `_`"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{ResolvedScenario, RunOverrides};
    use crate::scenario::PRESETS;
    use toll_record::Role;

    /// Longest name: the report's table has 100 columns.
    const LONGEST: usize = 22;

    /// Three variants, the third with these lines of its own, and these lines of the profile.
    fn scenario(profile: &str, third: &str) -> Result<Scenario, String> {
        let text = format!(
            "name = \"x\"\nquestion = \"?\"\nbaseline = \"none\"\nprimary = \"qps\"\n\
             [workload]\nrate = {{ share = 0.5, of = \"first\" }}\n[sweep]\nof = \"first\"\npercents = [50]\n\
             [profile.a]\nrounds = 1\nwindow = \"2s\"\nsettle = \"0s\"\n{profile}\n\
             [[contrast]]\nname = \"c\"\ntitle = \"c\"\noutcome = \"qps\"\nof = \"first\"\nover = \"2nd\"\nbeyond = \"none\"\n\
             [[variant]]\nname = \"baseline\"\nalias = \"none\"\ntitle = \"b\"\nrole = \"baseline\"\n\
             [[variant]]\nname = \"one\"\nalias = [\"first\", \"1st\"]\ntitle = \"1\"\ncommand = \"cat\"\n\
             [[variant]]\nname = \"two\"\ntitle = \"2\"\ncommand = \"cat\"\n{third}\n"
        );
        Scenario::parse(&text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn whatever_refers_to_an_arm_may_name_an_alias() {
        let lists = "variants = [\"none\", \"2nd\"]\ntimed = [\"1st\"]";
        let scenario = scenario(lists, "alias = \"2nd\"\nagainst = \"1st\"").unwrap();
        assert_eq!(scenario.baseline, "baseline");
        assert_eq!(scenario.sweep.as_ref().unwrap().of.as_deref(), Some("one"));
        assert_eq!(scenario.workload.rate, Some(Rate::Share { share: 0.5, of: "one".into() }));
        let profile = &scenario.profile["a"];
        assert_eq!(profile.arms.as_deref(), Some(&["baseline".to_owned(), "two".into()][..]));
        assert_eq!(profile.timed.as_deref(), Some(&["one".to_owned()][..]));
        let contrast = &scenario.contrasts[0];
        assert_eq!([&contrast.of, &contrast.over], ["one", "two"]);
        assert_eq!(contrast.beyond.as_deref(), Some("baseline"));
        assert_eq!(scenario.arms[2].against.as_deref(), Some("one"));
    }

    #[test]
    fn an_alias_that_is_somebody_elses_name_is_refused() {
        for (third, expected) in [
            ("alias = \"one\"", "the alias `one` of arm `two` already is a name of arm `one`"),
            ("alias = [\"2nd\", \"1st\"]", "the alias `1st` of arm `two` already is a name of arm `one`"),
            ("alias = \"two\"", "the alias `two` of arm `two` already is a name of arm `two`"),
            ("alias = \"a.b\"", "arm name `a.b`: use letters"),
            ("alias = 2", "expected a name or a list of names"),
            ("[[variant]]\nname = \"two\"\ntitle = \"2\"", "two arms are named `two`"),
            ("[[arm]]\nname = \"four\"\ntitle = \"4\"", "duplicate field"),
        ] {
            let said = scenario("", third).unwrap_err();
            assert!(said.contains(expected), "{third}: {said}");
        }
    }

    #[test]
    fn each_arm_of_a_matrix_has_an_alias_of_its_own() {
        let more = "alias = \"2nd\"\n[[variant]]\nname = \"nap-{n}\"\nalias = \"n{n}\"\ntitle = \"t\"\ncommand = \"sleep {n}\"\n\
                    each = { n = [\"1\", \"2\"] }";
        let arms = scenario("", more).unwrap().arms;
        assert_eq!(find_arm(&arms, "n2").map(|arm| arm.name.as_str()), Some("nap-2"));
        let same = more.replace("n{n}", "n");
        assert!(scenario("", &same).unwrap_err().contains("the alias `n` of arm `nap-2`"));
    }

    #[test]
    fn a_plan_has_the_names_and_never_the_aliases() {
        let scenario = Preset::named("tcpdump-impact").unwrap().scenario().unwrap();
        let overrides = RunOverrides {
            arms: Some(["none2", "B", "tcpdump-file", "pfs"].map(str::to_owned).into()),
            ..RunOverrides::default()
        };
        let names: Vec<String> =
            ResolvedScenario::new(scenario, &overrides).unwrap().arms.into_iter().map(|a| a.name).collect();
        assert_eq!(names, ["baseline", "baseline-again", "tcpdump-file", "perf-schema"]);
    }

    /// A plan of `scenario` with these arms: their names, and the swept arm of each.
    fn plan(scenario: &str, arms: &[(&str, Option<&str>)]) -> Plan {
        let arm = |(name, curve): &(&str, Option<&str>)| {
            serde_json::json!({
                "name": name, "title": name, "role": "treatment", "command": "", "meter": "driver", "curve": curve,
                "window": { "until": "time", "s": 1.0 }, "settle_s": 0.0, "treatment": {},
                "workload": { "driver": "toll", "profile": "x", "transport": "tcp", "threads": 1, "tables": 1, "rows": 1,
                              "prepared": true },
            })
        };
        let plan = serde_json::json!({
            "format": toll_record::FORMAT, "toll_version": "0", "command": [], "scenario": scenario, "question": "?",
            "profile": "quick", "seed": 1, "baseline": "none", "primary": "qps", "outcomes": [], "columns": [],
            "panels": [], "margin_pct": 5.0, "alpha": 0.05, "rounds": 1, "window_s": 1.0, "settle_s": 0.0, "gap_s": 0.0,
            "pilot_s": 0.0, "early_stop": false, "server": null, "setup": {}, "order": [], "jitter": 0.0,
            "started_wall_us": 0, "planned_mde_pct": null, "arms": arms.iter().map(arm).collect::<Vec<_>>(),
        });
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn a_run_is_found_by_the_names_of_today_and_by_those_it_was_stored_under() {
        let name = |plan: &Plan, name: &str| other_names(plan, "").get(name).cloned();
        let stored = plan("tcpdump-impact", &[("none", None), ("B", None)]);
        assert_eq!(name(&stored, "tcpdump-file").as_deref(), Some("B"));
        assert_eq!(name(&stored, "baseline").as_deref(), Some("none"));
        assert_eq!(name(&stored, "B"), None, "its own name needs no other");
        assert_eq!(name(&stored, "tcpdump-text"), None, "not in this run");
        let swept =
            plan("tcpdump-impact", &[("tcpdump-file", None), ("tcpdump-file-50", Some("tcpdump-file"))]);
        assert_eq!(name(&swept, "B").as_deref(), Some("tcpdump-file"));
        assert_eq!(name(&swept, "B-50").as_deref(), Some("tcpdump-file-50"));
        let own = "name = \"mine\"\nquestion = \"?\"\nbaseline = \"one\"\nprimary = \"qps\"\n[profile.a]\nrounds = 1\n\
             window = \"2s\"\nsettle = \"0s\"\n[[arm]]\nname = \"one\"\nalias = \"1\"\ntitle = \"1\"\nrole = \"baseline\"\n";
        let mine = plan("mine", &[("one", None)]);
        assert_eq!(other_names(&mine, own), BTreeMap::from([("1".to_owned(), "one".to_owned())]));
        assert_eq!(other_names(&mine, "no scenario"), BTreeMap::new());
    }

    #[test]
    fn the_names_of_every_preset_speak_and_fit_into_the_report() {
        for preset in PRESETS {
            let scenario = preset.scenario().unwrap();
            for Arm { name, role, .. } in &scenario.arms {
                let place = format!("{} of {}", name, preset.name);
                assert!((3..=LONGEST).contains(&name.len()), "{place}");
                assert!(name.split('-').any(|word| word.len() > 2), "{place} has words");
                assert!(name.split('-').all(|word| !word.chars().all(char::is_uppercase)), "{place}");
                let is_repeated = name.strip_suffix("-again").is_some_and(|first| {
                    find_arm(&scenario.arms, first).is_some_and(|arm| arm.role == Role::Baseline)
                });
                assert_eq!(*role == Role::Aa, is_repeated, "{place}");
            }
        }
    }
}
