//! `--dry-run` of `toll run` and `toll cost`: prints what a run would start, change and load.
//!
//! # Invariants
//! Never starts, changes or loads anything.

use crate::load;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use toll_execution::run::{self, RunPreview, RunRequest, RunSource};
use toll_execution::testbed::ServerChoice;
use toll_record::{Arm, Clock, Meter, Role};
use toll_sys::count_format::format_count;
use toll_sys::number_format::{format_duration_s, format_megabytes};

/// The preview of a run. `precision_pct`: it counts instructions until its intervals are so narrow. `is_agreed`: a load at
/// full speed needs no question.
///
/// # Errors
/// The run would be refused before it connects to a server.
pub fn render(mut asked: RunRequest, precision_pct: Option<f64>, is_agreed: bool) -> anyhow::Result<String> {
    if let (Some(_), RunSource::Scenario(_, overrides)) = (precision_pct, &mut asked.source) {
        overrides.clock = Clock::Counted;
    }
    let preview = run::preview(&asked, None)?;
    let needs_consent = !is_agreed && load::check_is_needed(&asked.source, &asked.server)?;
    Ok(Text { asked: &asked, precision_pct, preview: &preview, needs_consent }.render()?)
}

struct Text<'a> {
    asked: &'a RunRequest,
    precision_pct: Option<f64>,
    preview: &'a RunPreview,
    needs_consent: bool,
}

impl Text<'_> {
    fn render(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::from("Dry run: nothing was started, changed or loaded.\n\n");
        let RunPreview { scenario, question, profile, arms, .. } = self.preview;
        writeln!(out, "Scenario   {scenario}, profile {profile}: {question}")?;
        writeln!(out, "Server     {}", self.server())?;
        if let Some((what, bytes)) = &self.preview.data {
            writeln!(out, "Data       {what}, about {} MB", format_megabytes(*bytes as f64))?;
        }
        write_lines(&mut out, "Load", &self.loads())?;
        writeln!(out, "Time       {}", self.time())?;
        write_lines(&mut out, "Output", &self.output())?;
        write_lines(&mut out, "Needs", &self.needs())?;
        write_lines(&mut out, "Undone", &self.undone())?;
        writeln!(out, "\nVariants ({})", arms.len())?;
        let width = arms.iter().map(|arm| arm.name.chars().count()).max().unwrap_or(0);
        for arm in arms {
            writeln!(out, "  {:<width$}  {:<9}  {}", arm.name, role_name(arm.role), describe_action(arm))?;
            if let Some(why) = &arm.unavailable {
                writeln!(out, "  {:<width$}  cannot run here: {why}", "")?;
            }
        }
        Ok(out)
    }

    fn server(&self) -> String {
        match (&self.asked.server, &self.preview.setup.sandbox) {
            (_, Some(sandbox)) => {
                let servers = format_count(sandbox.servers.len() as u64, "sandbox server");
                let place = if self.precision_pct.is_some() { ", in virtual machines" } else { "" };
                format!("{servers} of {}{place}, with data directories of their own", sandbox.program)
            }
            (ServerChoice::External { target, agreed, .. }, None) => {
                let tables = match &agreed.schema {
                    None => "no table is created or read".to_owned(),
                    Some(schema) if agreed.may_create_schema && self.preview.data.is_some() => {
                        format!("the schema {schema} is created, filled and dropped")
                    }
                    Some(schema) => format!("the tables of {schema} are used as they are"),
                };
                format!("the existing server at {}, as {}; {tables}", target.address, target.user)
            }
            _ => "none".to_owned(),
        }
    }

    /// Each kind of load once.
    fn loads(&self) -> Vec<String> {
        let mut loads: BTreeMap<String, u64> = BTreeMap::new();
        for arm in &self.preview.arms {
            let load = match (arm.workload.driver.as_str(), &arm.meter) {
                ("none", Meter::Server) => "none: the server's own traffic".to_owned(),
                ("none", _) => "none".to_owned(),
                (driver, _) => format!("{}, by {driver}", load::describe(&arm.workload)),
            };
            *loads.entry(load).or_default() += 1;
        }
        let is_one = loads.len() == 1;
        let line = |(load, count): (String, u64)| match is_one {
            true => load,
            false => format!("{}: {load}", format_count(count, "variant")),
        };
        let capacity = "rates are shares of the capacity, which is measured first, at full speed";
        let capacity = self.preview.measures_capacity.then(|| capacity.to_owned());
        loads.into_iter().map(line).chain(capacity).collect()
    }

    fn time(&self) -> String {
        if let Some(pct) = self.precision_pct {
            return format!("until the intervals are as narrow as {pct}%, by counted instructions");
        }
        let prepares = self.preview.data.is_some();
        let before = if prepares { ", after the data is prepared" } else { "" };
        match (self.preview.expected_s, self.preview.rounds) {
            (Some(s), Some(rounds)) => {
                format!("about {} for {}{before}", format_duration_s(s), format_count(rounds.into(), "round"))
            }
            (Some(s), None) => {
                format!("{}{before}; a pilot chooses windows and rounds", format_duration_s(s))
            }
            (None, _) => format!("as long as the effect to be found needs{before}; a pilot says how long"),
        }
    }

    fn output(&self) -> Vec<String> {
        let mut lines = vec![format!("the directory {}", self.preview.dir.display())];
        let writers = self.preview.arms.iter().filter(|arm| arm.artefact.is_some()).count();
        if writers > 0 {
            let fate = if self.asked.keep_artefacts { "kept in it" } else { "removed after each trial" };
            let variants = format_count(writers as u64, "variant");
            lines
                .push(format!("captures, logs or dumps of {variants}, of a size that the run shows; {fate}"));
        }
        lines
    }

    fn needs(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let mut need = |what: &str, is_needed: &dyn Fn(&Arm) -> bool| {
            let arms: Vec<&str> =
                self.preview.arms.iter().filter(|arm| is_needed(arm)).map(|arm| arm.name.as_str()).collect();
            if !arms.is_empty() {
                lines.push(format!("{what}: {}", arms.join(", ")));
            }
        };
        if self.precision_pct.is_none() {
            need("root", &|arm| arm.needs.root);
        }
        if let ServerChoice::External { .. } = self.asked.server {
            let changes = "SUPER or SYSTEM_VARIABLES_ADMIN on the server";
            need(changes, &|arm| arm.treatment.has_statements());
        }
        if self.needs_consent {
            lines.push(
                "--yes, or an answer at the terminal: the load is at full speed (or set --rate)".to_owned(),
            );
        }
        if lines.is_empty() {
            lines.push("no special rights".to_owned());
        }
        lines
    }

    fn undone(&self) -> Vec<String> {
        let any = |is: &dyn Fn(&Arm) -> bool| self.preview.arms.iter().any(is);
        let rig: Vec<&str> = self.preview.setup.rig.iter().map(|step| step.kind.as_str()).collect();
        let mut lines = Vec::new();
        if any(&|arm| arm.treatment.has_statements()) {
            lines.push("settings of the server get their old values".to_owned());
        }
        if any(&|arm| !arm.treatment.sysctl.is_empty()) {
            lines.push("settings of the kernel get their old values".to_owned());
        }
        if any(&|arm| !arm.treatment.processes.is_empty()) {
            lines.push("processes of the variants are ended".to_owned());
        }
        if !rig.is_empty() {
            lines.push(format!("the test network is removed: {}", rig.join(", ")));
        }
        if self.preview.setup.sandbox.is_some() {
            lines.push("sandboxes are ended, and their data directories removed".to_owned());
        }
        if let ServerChoice::External { agreed, .. } = &self.asked.server
            && let (true, Some(schema), Some(_)) =
                (agreed.may_create_schema, &agreed.schema, &self.preview.data)
        {
            lines.push(format!("the schema {schema} is dropped"));
        }
        lines.push("all of it after an error or Ctrl-C, too; after SIGKILL by `toll clean`".to_owned());
        lines
    }
}

/// The first line behind a heading, the others below it.
fn write_lines(out: &mut String, heading: &str, lines: &[String]) -> std::fmt::Result {
    for (at, line) in lines.iter().enumerate() {
        let heading = if at == 0 { heading } else { "" };
        writeln!(out, "{heading:<9}  {line}")?;
    }
    Ok(())
}

/// What the variant changes and starts, in a line.
fn describe_action(arm: &Arm) -> String {
    let updates = arm.treatment.updates.iter().map(|update| {
        let values: Vec<String> = update.set.iter().map(|(name, value)| format!("{name}={value}")).collect();
        format!("UPDATE {} SET {}", update.table, values.join(", "))
    });
    let options = arm.server_options.iter().map(|(name, value)| format!("a sandbox with {name}={value}"));
    let command = Some(&arm.command).filter(|command| !command.is_empty()).cloned();
    let parts: Vec<String> = options.chain(updates).chain(command).collect();
    if parts.is_empty() { "nothing".to_owned() } else { parts.join("; ") }
}

/// The role of a variant, in a word.
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Baseline => "baseline",
        Role::Aa => "A/A",
        Role::Placebo => "placebo",
        Role::PositiveControl => "control",
        Role::Treatment => "treatment",
    }
}
