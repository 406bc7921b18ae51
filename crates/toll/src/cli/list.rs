//! Command `toll list`: prints scenarios, arms, workloads and outcomes.

use super::scenario_file;
use clap::{Args, ValueEnum};
use std::fmt::Write as _;
use std::process::ExitCode;
use toll_model::scenario::{PRESETS, Preset, Profile, Scenario};
use toll_record::catalogue::CATALOGUE;
use toll_record::{Compare, Definition};

#[derive(Debug, Args)]
pub struct List {
    /// Only one kind of thing
    #[arg(value_enum)]
    what: Option<ListKind>,
    /// A scenario's variants only, by its name or file
    #[arg(long, value_name = "SCENARIO|FILE.toml")]
    scenario: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ListKind {
    Scenarios,
    Arms,
    Workloads,
    Outcomes,
}

pub fn run(arguments: List) -> anyhow::Result<ExitCode> {
    let mut out = String::new();
    let wanted = |what| arguments.what.is_none_or(|w| w == what);
    let scenarios: Vec<Scenario> = match &arguments.scenario {
        Some(name) => vec![scenario_file::load(name)?.0],
        None => PRESETS.iter().map(Preset::scenario).collect::<anyhow::Result<_>>()?,
    };
    if wanted(ListKind::Scenarios) {
        writeln!(out, "Scenarios (toll run NAME)")?;
        for scenario in &scenarios {
            let profiles: Vec<_> =
                scenario.profile.iter().map(|(name, profile)| describe_profile(name, profile)).collect();
            writeln!(out, "  {:<18} {} [{}]", scenario.name, scenario.question, profiles.join(", "))?;
        }
    }
    if wanted(ListKind::Arms) {
        for scenario in &scenarios {
            writeln!(out, "\nArms of {} (--arms A,B)", scenario.name)?;
            for arm in &scenario.arms {
                writeln!(out, "  {:<12} {:<9} {}", arm.name, arm.treatment_kind(), arm.title)?;
            }
        }
    }
    if wanted(ListKind::Workloads) {
        writeln!(out, "\nWorkloads (the same tables and statements as sysbench's oltp_*)")?;
        for profile in toll_load::mix::Profile::ALL {
            writeln!(out, "  {:<18} {}", profile.name(), profile.sysbench_name())?;
        }
    }
    if wanted(ListKind::Outcomes) {
        writeln!(
            out,
            "\nOutcomes (--fail-if 'ARM.OUTCOME>N%'; >N in the unit where it is compared as a difference)"
        )?;
        let outcomes = match (&arguments.scenario, &scenarios[..]) {
            (Some(_), [scenario]) => scenario.definitions(),
            _ => CATALOGUE.outcomes.clone(),
        };
        for Definition { name, unit, compare, title, .. } in outcomes {
            let how = match compare {
                Compare::LogRatio => "ratio",
                Compare::Difference => "difference",
                Compare::Absolute => "not compared",
                Compare::Median => "median",
            };
            writeln!(out, "  {name:<27} {unit:<13} {how:<13} {title}")?;
        }
    }
    super::report::print_report(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// A profile with its time, if it sets one.
fn describe_profile(name: &str, profile: &Profile) -> String {
    match profile.time {
        Some(time) if time.0 >= 60.0 => format!("{name} {:.0} min", time.0 / 60.0),
        Some(time) => format!("{name} {:.0} s", time.0),
        None => name.to_owned(),
    }
}
