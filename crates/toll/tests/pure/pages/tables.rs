//! Generated tables of the reference: exit codes, metrics, built-in scenarios; and the completeness of hand-written ones.

use super::{assert_current, escape, heading};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use toll::cli::exit_code;
use toll_model::scenario::PRESETS;
use toll_record::Compare;
use toll_record::catalogue::CATALOGUE;
use toll_testkit::pages::repository;

#[test]
fn the_page_of_exit_codes_is_current() {
    let mut page = heading("Exit codes") + "\nThe same for every command:\n\n| code | meaning |\n|---|---|\n";
    for (code, meaning) in exit_code::MEANINGS {
        writeln!(page, "| {code} | {} |", escape(meaning)).unwrap();
    }
    page += "\nBeyond that, for some commands:\n\n| command | code | meaning |\n|---|---|---|\n";
    for (command, code, meaning) in exit_code::BY_COMMAND {
        writeln!(page, "| `toll {command}` | {code} | {} |", escape(meaning)).unwrap();
    }
    assert_current("reference/exit-codes.md", &page);
}

#[test]
fn the_page_of_metrics_is_current() {
    let mut page = heading("Metrics")
        + "\n## Outcomes of a run\n\nThese are the names in scenarios, in `--fail-if` and in JSON. Scenarios can define \
           more ([Scenario files](scenarios.md)).\n\nA *ratio* is compared in percent of the baseline, a *difference* in \
           its unit. The others are compared with nothing.\n\n| name | unit | compared as | better | meaning |\n|---|---|---|---|---|\n";
    for outcome in &CATALOGUE.outcomes {
        let compared = match outcome.compare {
            Compare::LogRatio => "ratio",
            Compare::Difference => "difference",
            Compare::Absolute => "-",
            Compare::Median => "- (median)",
        };
        let better = if outcome.higher_is_better { "more" } else { "less" };
        let (name, unit, title) = (&outcome.name, &outcome.unit, escape(&outcome.title));
        writeln!(page, "| `{name}` | {unit} | {compared} | {better} | {title} |").unwrap();
    }
    page += "\n## Prometheus\n\n`toll capture --metrics` and `toll live --metrics` serve these at `/metrics`.\n\n\
             | name | type | meaning |\n|---|---|---|\n";
    for (name, kind, help) in
        toll_agent::capture::metrics::METRICS.into_iter().chain(toll_guard::metrics::METRICS)
    {
        writeln!(page, "| `{name}` | {kind} | {} |", escape(help)).unwrap();
    }
    page += "\n## OpenTelemetry\n\n`toll capture --otlp` sends these ([OpenTelemetry](otlp.md)).\n\n\
             | name | type | unit | meaning |\n|---|---|---|---|\n";
    for (name, kind, unit, help) in toll_agent::capture::otlp::OTLP_METRICS {
        writeln!(page, "| `{name}` | {kind} | `{unit}` | {} |", escape(help)).unwrap();
    }
    assert_current("reference/metrics.md", &page);
}

#[test]
fn the_page_of_scenarios_is_current() {
    let mut page = heading("Built-in scenarios")
        + "\n`toll run NAME` runs one, `--profile` chooses its length, and `--variants` some of its variants, by name or \
           alias.\n";
    for preset in PRESETS {
        let scenario = preset.scenario().unwrap();
        write!(page, "\n## {}\n\n{}\n\n", scenario.name, escape(&scenario.question)).unwrap();
        let profiles = scenario.profile.iter().map(|(name, profile)| match profile.time {
            Some(time) => format!("`{name}` ({:.0} minutes)", time.0 / 60.0),
            None => format!("`{name}`"),
        });
        write!(page, "Profiles: {}.\n\n", profiles.collect::<Vec<_>>().join(", ")).unwrap();
        page += "| variant | alias | kind | meaning |\n|---|---|---|---|\n";
        for arm in &scenario.arms {
            let aliases: Vec<String> = arm.alias.iter().map(|alias| format!("`{alias}`")).collect();
            let (name, kind, title) = (&arm.name, arm.treatment_kind(), escape(&arm.title));
            writeln!(page, "| `{name}` | {} | {kind} | {title} |", aliases.join(", ")).unwrap();
        }
    }
    assert_current("reference/built-in.md", &page);
}

/// Names of environment variables in the program's sources, outside of tests.
fn variables() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut directories = vec![repository().join("crates")];
    while let Some(directory) = directories.pop() {
        for path in std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && !["tests", "testkit", "target"].contains(&name.as_str()) {
                directories.push(path);
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                // Unit tests stand at the end of a file.
                let text = text.split("#[cfg(test)]").next().unwrap();
                for start in ["env::var(\"", "env::var_os(\""] {
                    let named = text.split(start).skip(1).filter_map(|rest| rest.split('"').next());
                    found.extend(named.map(str::to_owned));
                }
            }
        }
    }
    // Of builds and of the tests themselves.
    found
        .retain(|name| !name.starts_with("CARGO_") && !name.starts_with("TOLL_TEST") && name != "TOLL_RENEW");
    found
}

#[test]
fn every_environment_variable_is_on_the_page() {
    let page = std::fs::read_to_string(repository().join("docs/reference/files.md")).unwrap();
    let mut variables = variables();
    variables.extend(toll_agent::capture::otlp::VARIABLES.map(str::to_owned));
    assert!(variables.contains("TOLL_DSN") && variables.len() > 5, "the sources are read: {variables:?}");
    variables.retain(|name| !page.contains(&format!("`{name}`")));
    assert_eq!(variables, BTreeSet::new(), "not in docs/reference/files.md");
}
