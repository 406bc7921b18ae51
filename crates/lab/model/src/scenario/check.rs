//! Validation of a scenario, as far as possible without a server.
//!
//! Each error quotes the rejected value and lists what is allowed. Never inspects the host.

use super::{Define, Limits, Profile, Rate, Scenario, Subject, Sweep, Workload};
use crate::placeholders::{BUILT_IN_PLACEHOLDERS, is_placeholder_name};
use crate::rig;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeSet;
use toll_record::Definition;
use toll_record::catalogue::{find_definition, list_names};
use toll_sys::units::{MAX_DURATION_S, Percent, Seconds};

/// Server flavours for which definitions and options can differ.
pub(super) const FLAVOURS: [&str; 3] = ["mariadb", "mysql", "percona"];
/// Load drivers; `none` is no load.
const DRIVERS: [&str; 3] = ["toll", "sysbench", "none"];
/// Most rounds: more than a year of the shortest ones. A larger number is a typing error.
pub const MAX_ROUNDS: u32 = 10_000;
/// Longest delay of a reply, percent of its response time. A longer one is an effect that nobody can miss.
const MAX_DELAY_PCT: f64 = 100.0;
/// Largest data scale: a thousand times the full size fits on no disk.
const MAX_SCALE: f64 = 1_000.0;
/// Widest equivalence margin, percent. A wider one would call nearly everything equivalent.
const MAX_MARGIN_PCT: f64 = 1_000.0;

impl Scenario {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.name.is_empty() && !self.name.contains(['/', '\0', '\n']) && !self.name.starts_with('.'),
            "the name {:?} cannot name a run directory: use letters, digits, `-` and `_`",
            self.name
        );
        self.check_outcomes()?;
        self.check_findings()?;
        self.check_charts()?;
        ensure!(
            self.alpha > 0.0 && self.alpha < 0.5,
            "alpha = {} must lie above 0 and below 0.5: 0.05 gives 95% intervals",
            self.alpha
        );
        ensure!(
            self.margin_pct > 0.0 && self.margin_pct <= MAX_MARGIN_PCT,
            "margin_pct = {} must lie above 0 and be at most {MAX_MARGIN_PCT}: percent of the baseline",
            self.margin_pct
        );
        self.workload.check().context("in [workload]")?;
        ensure!(
            self.workload.delay.is_none(),
            "`delay` is an arm's own: without it, there is nothing to compare with"
        );
        self.check_definitions()?;
        self.check_requirements()?;
        let names: BTreeSet<&str> = self.arms.iter().map(|arm| arm.name.as_str()).collect();
        for arm in &self.arms {
            arm.check(&self.define).with_context(|| format!("arm `{}`", arm.name))?;
            let driver = arm.workload.driver.as_ref().or(self.workload.driver.as_ref());
            if let (Some(driver), Some(_)) = (driver.filter(|driver| *driver != "toll"), arm.workload.delay) {
                bail!("arm `{}`: {driver} cannot delay replies: `delay` needs driver = \"toll\"", arm.name);
            }
        }
        self.check_references(&names)?;
        if let Some(sweep) = &self.sweep {
            sweep.check(&names)?;
        }
        if self.profile.is_empty() {
            bail!(
                "no [profile.NAME] table: give at least one, with a time, or with rounds, window and settle"
            );
        }
        if let Some(name) = self.default_profile.as_ref().filter(|name| !self.profile.contains_key(*name)) {
            let known: Vec<_> = self.profile.keys().map(String::as_str).collect();
            bail!("default_profile = {name:?} is no profile: choose one of {}", known.join(", "));
        }
        for (name, profile) in &self.profile {
            profile.check().with_context(|| format!("profile `{name}`"))?;
            let workload = &profile.workload;
            workload.check().with_context(|| format!("profile `{name}`"))?;
            ensure!(
                workload.driver.is_none()
                    && workload.rows.is_none()
                    && workload.delay.is_none()
                    && workload.rate.is_none(),
                "profile `{name}`: its `workload` sets neither driver, rows, delay nor rate: give them in [workload]"
            );
            for arm in profile.arms.iter().chain(&profile.timed).flatten() {
                if !names.contains(arm.as_str()) {
                    bail!("profile `{name}` lists the arm `{arm}`, which does not exist");
                }
            }
        }
        Ok(())
    }

    /// Every named outcome exists, and verdicts can be drawn from the primary one.
    fn check_outcomes(&self) -> anyhow::Result<()> {
        let all = self.definitions();
        let judged = |key: &str, name: &str| -> anyhow::Result<&Definition> {
            let Some(outcome) = find_definition(&all, name) else {
                bail!("{key} = {name:?} is no outcome: choose one of {}", list_names(&all));
            };
            ensure!(
                !outcome.compare.needs_no_baseline(),
                "{key} = {name:?} is compared with nothing, and no verdict can be drawn from it: choose another"
            );
            Ok(outcome)
        };
        let primary = judged("primary", &self.primary)?;
        for arm in &self.arms {
            let place = || format!("arm `{}`", arm.name);
            let outcome = match &arm.judged_by {
                Some(name) => judged("judged_by", name).with_context(place)?,
                None => primary,
            };
            let driver = arm.workload.driver.as_ref().or(self.workload.driver.as_ref());
            let has_load = driver.is_none_or(|driver| driver != "none") && self.subject == Subject::Server;
            ensure!(
                outcome.is_available(has_load, arm.counts_statements()),
                "{}: no load runs beside it, and it has no {}: set `judged_by`",
                place(),
                arm.judged_by.as_ref().unwrap_or(&self.primary)
            );
        }
        for (key, shown) in [("columns", &self.columns), ("panels", &self.panels)] {
            for name in shown.iter().flatten() {
                ensure!(
                    find_definition(&all, name).is_some(),
                    "{key}: {name:?} is no outcome: choose of {}",
                    list_names(&all)
                );
            }
        }
        let mut own = BTreeSet::new();
        for outcome in &self.outcomes {
            ensure!(
                own.insert(&outcome.name),
                "two outcomes are named `{}`: names must differ",
                outcome.name
            );
        }
        Ok(())
    }

    fn check_definitions(&self) -> anyhow::Result<()> {
        for (name, value) in &self.define {
            ensure!(
                is_placeholder_name(name),
                "[define] `{name}` can never be used: write it in small letters, digits and `_`"
            );
            ensure!(
                !BUILT_IN_PLACEHOLDERS.iter().any(|(built_in, _)| built_in == name),
                "[define] `{name}` is a name that toll itself fills in: choose another"
            );
            if let Define::ByFlavour(by) = value {
                check_flavours(by.keys(), &format!("[define.{name}]"), &FLAVOURS)?;
            }
        }
        let any = [&["any"][..], &FLAVOURS[..]].concat();
        for arm in &self.arms {
            check_flavours(arm.server.options.keys(), &format!("`server` of arm {}", arm.name), &any)?;
        }
        check_flavours(self.server.options.keys(), "[server.options]", &any)
    }

    /// Every arm that an arm refers to exists, and no arm is compared with itself, even indirectly.
    fn check_references(&self, names: &BTreeSet<&str>) -> anyhow::Result<()> {
        ensure!(
            names.contains(self.baseline.as_str()),
            "the baseline `{}` is not among the arms: they are {}",
            self.baseline,
            names.iter().copied().collect::<Vec<_>>().join(", ")
        );
        for arm in &self.arms {
            let rate_of = match &arm.workload.rate {
                Some(Rate::Share { of, .. }) => Some(of),
                _ => None,
            };
            for other in arm.against.iter().chain(rate_of) {
                if !names.contains(other.as_str()) {
                    bail!("arm `{}` refers to the arm `{other}`, which does not exist", arm.name);
                }
            }
            let mut way = vec![arm.name.as_str()];
            let mut at = arm;
            while let Some(next) = at.against.as_deref() {
                if way.contains(&next) {
                    bail!(
                        "arm `{}` is compared with itself ({} -> {next}): let `against` name a baseline",
                        arm.name,
                        way.join(" -> ")
                    );
                }
                way.push(next);
                let Some(found) = self.arms.iter().find(|arm| arm.name == next) else { break };
                at = found;
            }
        }
        Ok(())
    }
}

fn check_flavours<'a>(
    keys: impl Iterator<Item = &'a String>,
    place: &str,
    known: &[&str],
) -> anyhow::Result<()> {
    for key in keys {
        ensure!(known.contains(&key.as_str()), "{place} knows no `{key}`: use {}", known.join(", "));
    }
    Ok(())
}

impl Workload {
    pub(super) fn check(&self) -> anyhow::Result<()> {
        if let Some(driver) = &self.driver {
            ensure!(
                DRIVERS.contains(&driver.as_str()),
                "driver = {driver:?} is no driver: use {}",
                DRIVERS.join(", ")
            );
        }
        if let Some(profile) = &self.profile {
            check_load(profile)?;
        }
        if let Some(transport) = &self.transport {
            let known = rig::list_transports();
            ensure!(
                known.contains(&transport.as_str()),
                "unknown transport = {transport:?}: use {}",
                known.join(", ")
            );
        }
        if let Some(Percent(percent)) = self.delay {
            ensure!(
                percent > 0.0 && percent <= MAX_DELAY_PCT,
                "delay = \"{percent}%\" lies above 0% and is at most {MAX_DELAY_PCT}% of the response time"
            );
        }
        let counts = [
            ("threads", self.threads.map(u64::from)),
            ("workers", self.workers.map(u64::from)),
            ("tables", self.tables.map(u64::from)),
            ("rows", self.rows),
        ];
        for (name, count) in counts {
            ensure!(count != Some(0), "{name} = 0: one is the least");
        }
        match &self.rate {
            Some(Rate::PerSecond(rate)) => check_rate(*rate)?,
            Some(Rate::Share { share, .. }) => ensure!(
                share.is_finite() && *share > 0.0,
                "share = {share} of an arm's capacity must be above 0, such as 0.4"
            ),
            None => {}
        }
        Ok(())
    }
}

/// Checks the name of a load: toll's or sysbench's.
pub fn check_load(profile: &str) -> anyhow::Result<()> {
    let known: Vec<_> = toll_load::mix::Profile::ALL.iter().map(|profile| profile.name()).collect();
    ensure!(
        toll_load::mix::Profile::from_name(profile).is_some(),
        "{profile:?} is no workload: choose one of {}",
        known.join(", ")
    );
    Ok(())
}

/// Checks a share of a recipe's full size.
pub(super) fn check_scale(scale: f64) -> anyhow::Result<()> {
    ensure!(
        scale > 0.0 && scale <= MAX_SCALE,
        "scale = {scale}: it is a share of the recipe's full size, above 0 and at most {MAX_SCALE}"
    );
    Ok(())
}

/// Checks a rate, events a second.
pub fn check_rate(rate: f64) -> anyhow::Result<()> {
    ensure!(rate.is_finite() && rate > 0.0, "a rate of {rate} events/s: it must be above 0");
    Ok(())
}

impl Profile {
    /// Checks that a run can be as long as this profile sets.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.time.is_some() || (self.rounds.is_some() && self.window.is_some() && self.settle.is_some()),
            "give the `time` that a run takes, or its `rounds`, `window` and `settle`"
        );
        if let Some(rounds) = self.rounds {
            ensure!(
                (1..=MAX_ROUNDS).contains(&rounds),
                "rounds = {rounds}: use 1 to {MAX_ROUNDS}; an interval at 95% needs at least 6"
            );
        }
        for (name, length, example) in [("time", self.time, "30m"), ("window", self.window, "5s")] {
            if let Some(Seconds(s)) = length {
                ensure!(s > 0.0, "{name} = {s} s: it must be above 0, such as {example}");
            }
        }
        let lengths: [(&str, Option<Seconds>); 5] = [
            ("time", self.time),
            ("window", self.window),
            ("settle", self.settle),
            ("gap", Some(self.gap)),
            ("pilot", Some(self.pilot)),
        ];
        for (name, length) in lengths.into_iter().filter_map(|(name, length)| Some((name, length?))) {
            ensure!(
                (0.0..=MAX_DURATION_S).contains(&length.0),
                "{name} = {} s: it must be a day at most",
                length.0
            );
        }
        for (name, count) in [("rows", self.rows), ("table_rows", self.table_rows)] {
            ensure!(count != Some(0), "{name} = 0: one is the least");
        }
        if let Some(Limits { cpus, memory }) = self.limits {
            ensure!(cpus.is_some() || memory.is_some(), "`limits` has neither `cpus` nor `memory`");
            ensure!(cpus.is_none_or(|cpus| cpus > 0.0 && cpus.is_finite()), "limits: cpus must be above 0");
        }
        self.scale.map_or(Ok(()), check_scale)
    }
}

impl Sweep {
    fn check(&self, arms: &BTreeSet<&str>) -> anyhow::Result<()> {
        if let Some(of) = &self.of
            && !arms.contains(of.as_str())
        {
            bail!("[sweep] is of the arm `{of}`, which does not exist");
        }
        let mut seen = BTreeSet::new();
        if self.percents.is_empty() || !self.percents.iter().all(|p| *p > 0 && seen.insert(p)) {
            bail!("the percents of a sweep must be above zero and differ");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Preset;

    /// A scenario with `head` before its tables, `load` in its workload and `arm` in its one treatment.
    fn scenario(head: &str, load: &str, arm: &str) -> Result<Scenario, String> {
        let with_default = |given: &str, key: &str, text: &str| {
            if given.contains(&format!("{key} =")) { String::new() } else { format!("{text}\n") }
        };
        let text = format!(
            "name = \"x\"\nquestion = \"?\"\n{}{}{head}\n[workload]\n{load}\n\
             [profile.a]\nrounds = 1\nwindow = \"1s\"\nsettle = \"0s\"\n\
             [[arm]]\nname = \"none\"\ntitle = \"load alone\"\nrole = \"baseline\"\n\
             [[arm]]\nname = \"it\"\ntitle = \"it\"\n{arm}\n",
            with_default(head, "baseline", "baseline = \"none\""),
            with_default(head, "primary", "primary = \"latency_us_mean\""),
        );
        Scenario::parse(&text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_was_written_and_what_is_allowed() {
        let runs = "command = \"sleep 9\"";
        for (head, load, arm, expected) in [
            ("alpha = 2", "", runs, "alpha = 2 must lie above 0 and below 0.5"),
            ("alpha = nan", "", runs, "alpha = NaN must lie"),
            ("margin_pct = nan", "", runs, "margin_pct = NaN must lie above 0"),
            ("margin_pct = -1", "", runs, "margin_pct = -1 must lie above 0"),
            ("primary = \"p99\"", "", runs, "\"p99\" is no outcome: choose one of qps"),
            ("default_profile = \"b\"", "", runs, "default_profile = \"b\" is no profile: choose one of a"),
            ("baseline = \"nix\"", "", runs, "`nix` is not among the arms: they are it, none"),
            ("define = { port = \"1\" }", "", runs, "`port` is a name that toll itself fills in"),
            ("define = { Port = \"1\" }", "", runs, "`Port` can never be used"),
            ("define = { x = { maria = \"1\" } }", "", runs, "[define.x] knows no `maria`: use mariadb"),
            ("server = { options = { maria = {} } }", "", runs, "[server.options] knows no `maria`"),
            ("", "driver = \"mysqlslap\"", runs, "\"mysqlslap\" is no driver: use toll, sysbench"),
            ("", "profile = \"oltp\"", runs, "\"oltp\" is no workload: choose one of read-only"),
            ("", "transport = \"udp\"", runs, "unknown transport = \"udp\": use tcp"),
            ("", "threads = 0", runs, "threads = 0: one is the least"),
            ("", "rate = 0.0", runs, "a rate of 0 events/s"),
            ("", "rate = inf", runs, "a rate of inf events/s"),
            ("", "rate = { share = -1.0, of = \"it\" }", runs, "share = -1 of an arm's capacity"),
            ("", "", "command = \"sleep 'open\"", "a quote is not closed in `sleep 'open`"),
            ("", "", "command = \"echo {nosuch}\"", "unknown placeholder {nosuch}: use client_def"),
            ("", "", "command = \"echo {artefact}\"", "unknown placeholder {artefact}"),
            ("", "", "command = \"echo {remote_ip}\"", "unknown placeholder {remote_ip}"),
            ("", "", "command = \"sleep 9\"\nstdout = \"{nosuch}\"", "unknown placeholder {nosuch}"),
            ("", "", "command = \" \"", "the command is empty"),
            ("", "", "command = \"sleep 9\"\nagainst = \"it\"", "compared with itself (it -> it)"),
            ("", "", "command = \"sleep 9\"\nagainst = \"nix\"", "`nix`, which does not exist"),
            ("", "", "role = \"positive-control\"\nburn = \"0%\"", "burn = \"0%\" lies above 0%"),
            ("", "", "role = \"positive-control\"\nburn = \"2\"", "\"2\" is not a percentage: write 2%"),
            ("", "", "role = \"positive-control\"\nburn = \"2%\"\ncommand = \"x\"", "`burn` is the process"),
            ("", "", "role = \"positive-control\"\ncommand = \"x\"", "a positive control has a dose"),
            ("", "", "burn = \"2%\"", "a positive control has a dose that is to be found, and nothing else"),
            ("", "delay = \"2%\"", runs, "`delay` is an arm's own"),
            (
                "",
                "driver = \"sysbench\"",
                "role = \"positive-control\"\nworkload = { delay = \"2%\" }",
                "sysbench cannot delay replies",
            ),
            ("", "workers = 0", runs, "workers = 0: one is the least"),
            (
                "",
                "",
                "command = \"sleep 9\"\nenv = [\"A=1\"]",
                "\"A=1\" is no name of an environment variable",
            ),
            ("", "", "command = \"sleep 9\"\nends = \"soon\"", "closes-window"),
            (
                "",
                "",
                "command = \"sleep 9\"\nends = \"again\"\nready = \"on\"",
                "`ready` waits for a command",
            ),
            ("", "", "on = [\"DO 1\"]\nends = \"again\"", "`ends` is about commands"),
            ("", "", "stages = []", "`stages` is empty"),
            ("", "", "stages = [\"cat\"]\ncommand = \"cat\"", "give either `command` or `stages`, not both"),
            ("", "", "command = \"cat\"\nprocess = [{ command = \"cat\" }]", "`process` lists all processes"),
            ("", "", "process = [{ command = \"cat\", copies = 0 }]", "copies = 0: use 1 to"),
            ("", "", "process = [{ command = \"cat\" }]\nready = \"on\"", "`ready` is about a command"),
            ("", "", "command = \"cat {copy}\"", "unknown placeholder {copy}"),
            (
                "",
                "",
                "command = \"cat\"\nat_most = \"5s\"",
                "`at_most` bounds a window that something else ends",
            ),
            ("", "", "command = \"cat\"\nuntil = { packets = 5 }", "`until` packets goes with meter"),
            ("", "", "command = \"cat\"\nuntil = { events = 0 }", "`until` counts to 0"),
            (
                "",
                "",
                "command = \"cat\"\nuntil = { events = 5 }\nends = \"closes-window\"",
                "`until` and `ends` conflict",
            ),
            ("", "", "artefact = \"slow-log\"", "the server writes this kind of artefact"),
            ("primary = \"caught_pct\"", "", runs, "compared with nothing"),
            ("columns = [\"p99\"]", "", runs, "columns: \"p99\" is no outcome: choose of qps"),
            ("panels = [\"p99\"]", "", runs, "panels: \"p99\" is no outcome"),
            ("outcome = [{ name = \"x_s\" }]", "", runs, "outcome `x_s`: missing field"),
            ("", "", "command = \"sleep 9\"\njudged_by = \"p99\"", "judged_by = \"p99\" is no outcome"),
            (
                "",
                "driver = \"none\"",
                runs,
                "no load runs beside it, and it has no latency_us_mean: set `judged_by`",
            ),
            ("", "", "command = \"sleep 9\"\nartefact = \"film\"", "there is no such `artefact`: use pcap"),
        ] {
            let said = scenario(head, load, arm).expect_err(&format!("{head} {load} {arm} was accepted"));
            assert!(said.contains(expected), "{head} {load} {arm}: {said}");
        }
        assert!(scenario("alpha = 0.1\nmargin_pct = 2", "threads = 1", runs).is_ok());
        assert!(scenario("", "", "command = \"awk '{{print}}' {socket}\"\nends = \"again\"").is_ok());
    }

    #[test]
    fn a_circle_of_comparisons_is_refused() {
        let arm = "command = \"sleep 9\"\nagainst = \"b\"\n\
            [[arm]]\nname = \"b\"\ntitle = \"b\"\nagainst = \"it\"";
        let said = scenario("", "", arm).unwrap_err();
        assert!(said.contains("it -> b -> it"), "{said}");
    }

    #[test]
    fn lengths_and_rounds_have_bounds() {
        let scenario = Preset::named("tcpdump-impact").unwrap().scenario().unwrap();
        let profile = scenario.profile["quick"].clone();
        for (changed, expected) in [
            (Profile { rounds: Some(0), ..profile.clone() }, "rounds = 0: use 1 to 10000"),
            (Profile { rounds: Some(u32::MAX), ..profile.clone() }, "rounds = 4294967295: use 1 to 10000"),
            (Profile { window: Some(Seconds(0.0)), ..profile.clone() }, "window = 0 s: it must be above 0"),
            (Profile { time: Some(Seconds(0.0)), ..profile.clone() }, "time = 0 s: it must be above 0"),
            (Profile { window: Some(Seconds(1e9)), ..profile.clone() }, "window = 1000000000 s"),
            (Profile { settle: Some(Seconds(f64::INFINITY)), ..profile.clone() }, "settle = inf s"),
            (
                Profile { time: None, rounds: Some(9), ..profile.clone() },
                "give the `time` that a run takes, or its `rounds`, `window` and `settle`",
            ),
            (Profile { rows: Some(0), ..profile.clone() }, "rows = 0"),
        ] {
            let said = changed.check().unwrap_err().to_string();
            assert!(said.contains(expected), "{said}");
        }
        assert!(profile.check().is_ok());
    }
}
