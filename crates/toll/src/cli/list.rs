//! Command `toll list`: prints scenarios in groups, one scenario in full, workloads and metrics.

use super::scenario_file;
use clap::Args;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::process::ExitCode;
use toll_consent::dry_run::role_name;
use toll_execution::host::tools::TOOLS;
use toll_model::plan::{ResolvedScenario, RunOverrides};
use toll_model::scenario::{PRESETS, Preset, Scenario};
use toll_record::catalogue::CATALOGUE;
use toll_record::{Compare, Definition};
use toll_sys::number_format::format_duration_s;
use toll_sys::program::find_program;

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    toll list\n  \
    toll list tcpdump-impact\n  \
    toll list metrics")]
pub struct List {
    /// A scenario or a TOML file, to show it in full; `workloads` or `metrics` [default: all scenarios]
    #[arg(value_name = "WHAT")]
    what: Option<String>,
}

pub fn run(arguments: List) -> anyhow::Result<ExitCode> {
    let out = match arguments.what.as_deref() {
        None | Some("scenarios") => list_scenarios()?,
        Some("workloads") => list_workloads()?,
        Some("metrics" | "outcomes") => list_metrics(&CATALOGUE.outcomes)?,
        Some(name) => show_scenario(name, &scenario_file::load(name)?.0)?,
    };
    super::report::print_report(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// A line for each scenario that is built in. All of them fit a screen.
fn list_scenarios() -> anyhow::Result<String> {
    let mut scenarios = PRESETS.iter().map(Preset::scenario).collect::<anyhow::Result<Vec<_>>>()?;
    scenarios.sort_by_key(|scenario| scenario.group);
    let mut out = format!("{:<10} {:<20}{:<48}DEFAULT\n", "GROUP", "SCENARIO", "SUBJECT");
    let mut last = None;
    for scenario in &scenarios {
        let group = if last == scenario.group { None } else { scenario.group };
        last = scenario.group;
        let resolved = ResolvedScenario::new(scenario.clone(), &RunOverrides::default())?;
        let group = group.map_or("", |group| group.name());
        let title = scenario.title.as_ref().unwrap_or(&scenario.question);
        let profile = describe_profile(&resolved);
        writeln!(out, "{group:<10} {:<20}{title:<48}{profile}", scenario.name)?;
    }
    out.push_str(
        "Next: toll list SCENARIO, toll run SCENARIO. Also: toll list workloads, toll list metrics\n",
    );
    Ok(out)
}

/// A scenario in full. `name`: as the user wrote it.
fn show_scenario(name: &str, scenario: &Scenario) -> anyhow::Result<String> {
    let resolved = ResolvedScenario::new(scenario.clone(), &RunOverrides::default())?;
    let mut out = format!("{}: {}\n\n", scenario.name, scenario.question);
    let mut profiles = Vec::new();
    for profile in scenario.profile.keys() {
        let overrides = RunOverrides { profile: Some(profile.clone()), ..RunOverrides::default() };
        let resolved_profile = ResolvedScenario::new(scenario.clone(), &overrides)?;
        let is_default = if *profile == resolved.profile_name { " (default)" } else { "" };
        profiles.push(describe_profile(&resolved_profile) + is_default);
    }
    writeln!(out, "Profiles   {}", profiles.join(", "))?;
    let needs = Needs::of(&resolved);
    writeln!(out, "Needs      {}", needs.describe(resolved.arms.len()))?;
    writeln!(out, "Judged by  {}, against {}", scenario.primary, scenario.baseline)?;
    let sudo = if needs.root > 0 { "sudo " } else { "" };
    writeln!(out, "Start      {sudo}toll run {name} --profile {}", resolved.profile_name)?;
    writeln!(out, "\nVariants ({}), to choose from with --variants", scenario.arms.len())?;
    let width = scenario.arms.iter().map(|arm| arm.name.chars().count()).max().unwrap_or(0);
    for arm in &scenario.arms {
        let (role, kind) = (role_name(arm.role), arm.treatment_kind());
        writeln!(out, "  {:<width$}  {role:<9}  {kind:<9}  {}", arm.name, arm.title)?;
    }
    if !scenario.outcomes.is_empty() {
        writeln!(out, "\n{}", list_metrics(&scenario.outcomes)?.trim_end())?;
    }
    Ok(out)
}

/// What the variants of a run need of the host.
struct Needs {
    /// Number of variants that need root.
    root: usize,
    tools: BTreeSet<String>,
}

impl Needs {
    fn of(resolved: &ResolvedScenario) -> Self {
        let arms = resolved.preview_arms("mariadb", 1.0);
        // A tool may be started by another program, such as `ip netns exec`.
        let words = arms.iter().flat_map(|arm| {
            let started = arm.treatment.processes.iter().flat_map(|process| process.stages.iter().flatten());
            started.chain(&arm.needs.programs)
        });
        // What every system has is no news.
        let tools = words.filter(|word| TOOLS.iter().any(|tool| tool.name == **word)).cloned();
        Self { root: arms.iter().filter(|arm| arm.needs.root).count(), tools: tools.collect() }
    }

    fn describe(&self, arms: usize) -> String {
        let mut parts = Vec::new();
        match self.root {
            0 => {}
            all if all == arms => parts.push("root".to_owned()),
            some => parts.push(format!("root for {some} of {arms} variants")),
        }
        let tools = self.tools.iter().map(|name| match find_program(name) {
            Some(_) => name.clone(),
            None => format!("{name} (not installed)"),
        });
        let tools = tools.collect::<Vec<_>>().join(", ");
        parts.extend(Some(tools).filter(|tools| !tools.is_empty()));
        if parts.is_empty() { "no root, no further tools".to_owned() } else { parts.join("; ") }
    }
}

/// A profile with its time, as far as it is known.
fn describe_profile(resolved: &ResolvedScenario) -> String {
    let name = &resolved.profile_name;
    match resolved.expected_s() {
        Some(s) if s < 3_600.0 => format!("{name} {:.0} min", (s / 60.0).max(1.0)),
        Some(s) => format!("{name} {}", format_duration_s(s)),
        None => name.clone(),
    }
}

fn list_workloads() -> Result<String, std::fmt::Error> {
    let mut out = String::from("Workloads (the same tables and statements as sysbench's oltp_*)\n");
    for profile in toll_load::mix::Profile::ALL {
        writeln!(out, "  {:<18} {}", profile.name(), profile.sysbench_name())?;
    }
    Ok(out)
}

fn list_metrics(metrics: &[Definition]) -> Result<String, std::fmt::Error> {
    let mut out = String::from("Metrics (--fail-if 'VARIANT.METRIC>N%'; >N in the unit of a difference)\n");
    for Definition { name, unit, compare, title, .. } in metrics {
        let how = match compare {
            Compare::LogRatio => "ratio",
            Compare::Difference => "difference",
            Compare::Absolute => "not compared",
            Compare::Median => "median",
        };
        writeln!(out, "  {name:<27} {unit:<13} {how:<13} {title}")?;
    }
    Ok(out)
}
