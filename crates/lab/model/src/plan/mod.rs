//! Resolution of a scenario into a plan with every choice made.
//!
//! Flags and the profile are resolved before a server exists. All that depends on the server follows: which arms can run.
//!
//! Where a time or an effect is given, a pilot measures the host. `noise` makes two numbers of the baseline's bins,
//! `sizing` finds windows and rounds by them, and `apply_sizing` puts these into the plan. All three are pure.
//!
//! # Invariants
//! All randomness comes from the seed.

mod apply_sizing;
mod arm;
mod arm_selection;
mod availability;
mod blocks;
mod counted;
pub mod noise;
mod overrides;
mod preview;
mod redaction;
mod repro_command;
pub mod sizing;
mod spread;
mod sweep;
mod times;
mod workload;

pub use apply_sizing::{
    apply_sizing, difference_sd, expected_round_s, expected_s, likely_rounds, long_window_titles,
    noise_outcome, pilot_durations_s, set_settle_times, sizing_input,
};
pub use arm::is_written_by_server;
pub use availability::{
    HostFacts, NO_SYSBENCH_RATE, NO_SYSBENCH_TLS, Required, ServerFacts, TestbedFacts, required,
    unavailable_reason, unavailable_reason_on, unrunnable_reason,
};
pub use overrides::RunOverrides;
pub use redaction::{check_unredacted, redact_plan};
pub use repro_command::build_repro_command;
pub use spread::spread_rounds;
pub use times::{MAX_CHOSEN_TIME_S, TimeSettings};

use crate::placeholders::{Definitions, PlaceholderValues};
use crate::rig::RigRequirements;
use crate::scenario::{Arm, OnExit, Profile, Rate, Scenario, Subject, Sweep, check_load, check_rate};
use anyhow::{Context, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use toll_record::catalogue::CATALOGUE;
use toll_record::{Clock, Contrast, Design, FORMAT, Plan, Workload};

/// A scenario with every choice made that needs no server.
#[derive(Debug, Clone)]
pub struct ResolvedScenario {
    pub scenario: Scenario,
    pub profile_name: String,
    pub profile: Profile,
    pub times: TimeSettings,
    pub workload: Workload,
    pub arms: Vec<Arm>,
    pub seed: Option<u64>,
    pub early_stop: bool,
    pub design: Design,
    pub clock: Clock,
}

/// Largest random delay of a window's begin, as a fraction of its length (statistics notes: U(0, 0.2 W)).
///
/// It prevents windows from falling in step with periodic work on the host.
const JITTER: f64 = 0.2;

impl ResolvedScenario {
    pub fn new(mut scenario: Scenario, overrides: &RunOverrides) -> anyhow::Result<Self> {
        let chosen = overrides.arms.as_ref().map(|names| scenario.resolve_names(names));
        if let Some(device) = &overrides.receive_on {
            scenario.restrict_to_receiver(device, chosen.as_deref())?;
        }
        let profile_name = overrides.profile.clone().unwrap_or_else(|| default_profile(&scenario));
        let mut profile = scenario.profile.get(&profile_name).cloned().with_context(|| {
            let known: Vec<_> = scenario.profile.keys().map(String::as_str).collect();
            format!("{} has no profile `{profile_name}`: it has {}", scenario.name, known.join(", "))
        })?;
        scenario.workload = std::mem::take(&mut scenario.workload).overlaid(&profile.workload);
        let mut times = match overrides.clock {
            Clock::Real => TimeSettings::resolve(&profile, overrides),
            Clock::Counted => TimeSettings::counted(overrides),
        };
        profile.time = overrides.time.or(profile.time);
        profile.rounds = overrides.rounds.or(profile.rounds);
        profile.window = overrides.window.or(profile.window);
        profile.settle = overrides.settle.or(profile.settle);
        profile.gap = overrides.gap.unwrap_or(profile.gap);
        profile.table_rows = overrides.table_rows.or(profile.table_rows);
        profile.scale = overrides.scale.or(profile.scale);
        profile.check().with_context(|| format!("profile `{profile_name}` with the given options"))?;
        for rate in &overrides.rates {
            check_rate(*rate)?;
        }
        if let Some((over, time_s)) = overrides.spread.zip(times.time_s) {
            spread::check_spread(over.0, time_s)?;
        }
        if scenario.subject == Subject::Host
            && (overrides.driver.is_some() || overrides.sweep.is_some() || overrides.rate.is_some())
        {
            bail!(
                "{} is about the host alone, and a load needs a server: leave out --driver, --sweep and --rate",
                scenario.name
            );
        }
        if let Some(rate) = overrides.rate {
            check_rate(rate)?;
            ensure!(
                resolve_sweep(&scenario, overrides).is_none(),
                "a sweep sets the rates of {} by itself: leave out --rate",
                scenario.name
            );
            scenario.workload.rate = Some(Rate::PerSecond(rate));
        }
        let rows = overrides.rows.or(profile.rows);
        let workload = workload::resolve(&scenario, overrides, rows);
        let any_sysbench =
            scenario.arms.iter().any(|arm| workload::overlay(&workload, &arm.workload).driver == "sysbench");
        if any_sysbench && overrides.clock == Clock::Counted && overrides.window.is_none() {
            times.lengthen_for_sysbench();
        }
        check_load(&workload.profile)?;
        ensure!(
            workload.threads > 0 && workload.tables > 0 && workload.rows > 0,
            "{} threads, {} tables and {} rows make no load: one of each is the least",
            workload.threads,
            workload.tables,
            workload.rows
        );
        let mut arms = arm_selection::select_arms(&scenario, chosen.as_ref().or(profile.arms.as_ref()))?;
        for arm in &mut arms {
            workload::inherit_rate(arm, &scenario.workload);
        }
        if let Some(sweep) = resolve_sweep(&scenario, overrides) {
            arms = sweep::expand_sweep(arms, &sweep, &scenario.baseline);
        }
        workload::check_sysbench(&arms, &workload, times.window_s)?;
        Ok(Self {
            scenario,
            profile_name,
            profile,
            times,
            workload,
            arms,
            seed: overrides.seed,
            early_stop: overrides.early_stop,
            design: overrides.design.clone(),
            clock: overrides.clock,
        })
    }

    /// Kinds of rig step that an arm requires.
    pub fn required_rig_steps(&self, arm: &Arm) -> impl Iterator<Item = &'static str> {
        let load = self.arm_workload(arm);
        let need = RigRequirements { arm, transport: &load.transport, define: &self.scenario.define };
        need.required_kinds().map(|kind| kind.name).collect::<Vec<_>>().into_iter()
    }

    /// The scenario's load, overridden by this arm's own.
    pub fn arm_workload(&self, arm: &Arm) -> Workload {
        workload::overlay(&self.workload, &arm.workload)
    }

    /// Arms whose capacity is required to compute rates, each once.
    pub fn arms_needing_capacity(&self) -> Vec<String> {
        let mut wanted: Vec<String> = Vec::new();
        for arm in &self.arms {
            if let Some(Rate::Share { of, .. }) = &arm.workload.rate
                && !wanted.contains(of)
            {
                wanted.push(of.clone());
            }
        }
        wanted
    }

    /// Replaces shares of capacity by rates in events a second.
    ///
    /// `rates` from the user replace the shares in rising order.
    pub fn resolve_rates(&mut self, capacities: &BTreeMap<String, f64>, rates: &[f64]) -> anyhow::Result<()> {
        let share_of = |arm: &Arm| match &arm.workload.rate {
            Some(Rate::Share { share, of }) => Some((*share, of.clone())),
            _ => None,
        };
        let mut shares: Vec<f64> = self.arms.iter().filter_map(|a| Some(share_of(a)?.0)).collect();
        shares.sort_by(f64::total_cmp);
        shares.dedup();
        if !rates.is_empty() && rates.len() != shares.len() {
            bail!("--rates takes {} rates for this scenario, in rising order", shares.len());
        }
        for arm in &mut self.arms {
            let Some((share, of)) = share_of(arm) else { continue };
            let rate = match shares.iter().position(|s| *s == share).and_then(|i| rates.get(i)) {
                Some(rate) => *rate,
                None => share * capacities.get(&of).context("a capacity was not measured")?,
            };
            arm.workload.rate = Some(Rate::PerSecond(rate.round().max(1.0)));
        }
        Ok(())
    }

    /// Contrasts of which all arms are in this run.
    fn contrasts(&self, arms: &[toll_record::Arm]) -> Vec<Contrast> {
        let runs = |name: &String| arms.iter().any(|arm| arm.name == *name && arm.unavailable.is_none());
        let all = |contrast: &&Contrast| {
            runs(&contrast.of) && runs(&contrast.over) && contrast.beyond.as_ref().is_none_or(runs)
        };
        self.scenario.contrasts.iter().filter(all).cloned().collect()
    }

    /// Meaning of an arm whose commands end by themselves.
    pub fn on_exit(&self, name: &str) -> OnExit {
        self.arms.iter().find(|arm| arm.name == name).map_or(OnExit::Never, |arm| arm.ends)
    }

    /// An arm of the scenario, resolved. It need not be part of this run.
    pub fn resolve_arm_named(&self, name: &str, facts: &TestbedFacts) -> anyhow::Result<toll_record::Arm> {
        let written = self.scenario.arms.iter().find(|arm| arm.name == name).context("no such arm")?;
        Ok(self.resolve_arm(written, facts))
    }

    fn resolve_arm(&self, written: &Arm, facts: &TestbedFacts) -> toll_record::Arm {
        let flavour = facts.baseline_server().map_or("", |server| server.server.flavour.as_str());
        self.resolve_arm_for(written, flavour, facts.host.cpus)
    }

    /// The arm for a server of this flavour, on a host with so many CPUs.
    fn resolve_arm_for(&self, written: &Arm, flavour: &str, cpus: f64) -> toll_record::Arm {
        let definitions = Definitions::new(&self.scenario.define, flavour);
        let mut arm = arm::resolve_arm(written, self.arm_workload(written), &self.times, &definitions, cpus);
        arm.needs.rig = self.required_rig_steps(written).map(str::to_owned).collect();
        arm.server_options = written.server.options_for(flavour);
        arm
    }

    /// What the arms require of the host by name. `fill_of` gives an arm's placeholders.
    pub fn required(
        &self,
        facts: &TestbedFacts,
        fill_of: &dyn Fn(&str) -> PlaceholderValues,
    ) -> BTreeSet<Required> {
        let of = |written: &Arm| required(&self.resolve_arm(written, facts), &fill_of(&written.name));
        self.arms.iter().flat_map(of).collect()
    }

    /// The plan for a known server. `fill_of` gives an arm's placeholders.
    pub fn plan(
        &self,
        facts: &TestbedFacts,
        fill_of: &dyn Fn(&str) -> PlaceholderValues,
        command: Vec<String>,
    ) -> anyhow::Result<Plan> {
        let mut arms: Vec<toll_record::Arm> = Vec::with_capacity(self.arms.len());
        for written in &self.arms {
            let placeholders = &fill_of(&written.name);
            let mut arm = self.resolve_arm(written, facts);
            arm.command = arm::format_treatment(&arm, placeholders);
            arm.unavailable = arm
                .unavailable
                .take()
                .or_else(|| unavailable_reason(&arm, facts))
                .or_else(|| unrunnable_reason(&arm, placeholders, &facts.host));
            arms.push(arm);
        }
        mark_missing_reference(&mut arms);
        let baseline = arms.iter().find(|arm| arm.name == self.scenario.baseline);
        if let Some(why) = baseline.and_then(|arm| arm.unavailable.as_ref()) {
            bail!("the baseline `{}` cannot run here: {why}", self.scenario.baseline);
        }
        // The seed of a run that names none is the time: written down, so that it can be repeated.
        let seed = self.seed.unwrap_or(facts.host.wall_us % 1_000_000_007);
        let mut plan = Plan {
            format: FORMAT,
            toll_version: env!("CARGO_PKG_VERSION").to_owned(),
            command: build_repro_command(&command, seed),
            scenario: self.scenario.name.clone(),
            question: self.scenario.question.clone(),
            profile: self.profile_name.clone(),
            clock: self.clock,
            seed,
            baseline: self.scenario.baseline.clone(),
            primary: self.scenario.primary.clone(),
            outcomes: self.scenario.definitions(),
            columns: self.scenario.columns.clone().unwrap_or_else(|| CATALOGUE.columns.clone()),
            panels: self.scenario.panels.clone().unwrap_or_else(|| CATALOGUE.panels.clone()),
            contrasts: self.contrasts(&arms),
            limits: self.scenario.limits.clone(),
            pareto: self.scenario.pareto.clone(),
            charts: self.scenario.charts.clone(),
            margin_pct: self.scenario.margin_pct,
            alpha: self.scenario.alpha,
            rounds: self.times.rounds.unwrap_or(1),
            time_s: None,
            window_s: self.times.draft_window_s(),
            long: None,
            settle_s: self.times.settle_s,
            gap_s: self.times.gap_s,
            pilot_s: self.times.pilot_s,
            early_stop: self.early_stop,
            server: facts.baseline_server().map(|server| server.server.clone()),
            setup: facts.setup.clone(),
            arms,
            design: self.design.clone(),
            classes: Vec::new(),
            order: Vec::new(),
            jitter: JITTER,
            started_wall_us: facts.host.wall_us,
            held_in: Some(facts.host.held_in),
            planned_mde_pct: None,
            spread: None,
            pilot: None,
        };
        if self.clock == Clock::Counted {
            counted::convert(&mut plan)?;
        }
        plan.order = draw_order(&plan, plan.rounds);
        Ok(plan)
    }
}

/// The first `rounds` rounds of the arms that can run, drawn from the plan's seed.
///
/// A longer order begins with the shorter one.
fn draw_order(plan: &Plan, rounds: u32) -> Vec<Vec<String>> {
    if let Design::Blocks { .. } = plan.design {
        return blocks::draw_blocks(plan, rounds);
    }
    let runnable: Vec<&String> =
        plan.arms.iter().filter(|a| a.unavailable.is_none()).map(|a| &a.name).collect();
    toll_stats::draw_orders(plan.seed, runnable.len(), rounds as usize)
        .into_iter()
        .map(|round| round.into_iter().map(|i| runnable[i].clone()).collect())
        .collect()
}

/// The profile that the scenario names as default, else the first by name.
fn default_profile(scenario: &Scenario) -> String {
    let first = || scenario.profile.keys().next().cloned().unwrap_or_default();
    scenario.default_profile.clone().unwrap_or_else(first)
}

/// The scenario's sweep, at the user's percents if given.
fn resolve_sweep(scenario: &Scenario, overrides: &RunOverrides) -> Option<Sweep> {
    let Some(percents) = &overrides.sweep else { return scenario.sweep.clone() };
    let percents = percents.iter().copied().collect::<BTreeSet<u32>>().into_iter().collect();
    Some(Sweep { of: scenario.sweep.as_ref().and_then(|sweep| sweep.of.clone()), percents })
}

/// Marks an arm unavailable if the arm that it is compared with cannot run here.
fn mark_missing_reference(arms: &mut [toll_record::Arm]) {
    loop {
        let gone: Vec<String> =
            arms.iter().filter(|arm| arm.unavailable.is_some()).map(|arm| arm.name.clone()).collect();
        let mut orphans = arms.iter_mut().filter(|arm| {
            arm.unavailable.is_none() && arm.against.as_ref().is_some_and(|other| gone.contains(other))
        });
        let Some(arm) = orphans.next() else { return };
        let other = arm.against.clone().unwrap_or_default();
        arm.unavailable = Some(format!("it is compared with {other}, which cannot run here"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Preset;
    use toll_sys::units::Seconds;

    fn scenario() -> Scenario {
        Preset::named("tcpdump-impact").unwrap().scenario().unwrap()
    }

    #[test]
    fn flags_win_over_the_profile_and_the_profile_over_the_scenario() {
        let overrides =
            RunOverrides { profile: Some("quick".into()), rounds: Some(3), ..RunOverrides::default() };
        let resolved = ResolvedScenario::new(scenario(), &overrides).unwrap();
        assert_eq!((resolved.times.rounds, resolved.workload.rows), (Some(3), 10_000));
        let overrides =
            RunOverrides { profile: Some("quick".into()), rows: Some(77), ..RunOverrides::default() };
        assert_eq!(ResolvedScenario::new(scenario(), &overrides).unwrap().workload.rows, 77);
    }

    #[test]
    fn the_baseline_comes_with_whatever_arms_are_chosen() {
        let overrides = RunOverrides { arms: Some(vec!["tcpdump-file".into()]), ..RunOverrides::default() };
        let names: Vec<_> =
            ResolvedScenario::new(scenario(), &overrides).unwrap().arms.into_iter().map(|a| a.name).collect();
        assert_eq!(names, ["baseline", "tcpdump-file"]);
    }

    #[test]
    fn a_run_is_spread_over_more_than_it_takes() {
        let overrides = |over_s| RunOverrides {
            time: Some(Seconds(600.0)),
            spread: Some(Seconds(over_s)),
            ..RunOverrides::default()
        };
        let said = ResolvedScenario::new(scenario(), &overrides(600.0)).unwrap_err().to_string();
        assert!(said.contains("--spread over 10 min 00 s leaves no pause"), "{said}");
        assert!(ResolvedScenario::new(scenario(), &overrides(7_200.0)).is_ok());
    }

    #[test]
    fn a_length_or_a_load_from_the_command_line_is_checked_like_one_from_the_file() {
        for (wishes, expected) in [
            (RunOverrides { rounds: Some(0), ..RunOverrides::default() }, "rounds = 0"),
            (RunOverrides { window: Some(Seconds(0.0)), ..RunOverrides::default() }, "window = 0 s"),
            (RunOverrides { threads: Some(0), ..RunOverrides::default() }, "0 threads"),
            (RunOverrides { rates: vec![f64::NAN], ..RunOverrides::default() }, "a rate of NaN"),
            (RunOverrides { rate: Some(0.0), ..RunOverrides::default() }, "a rate of 0"),
            (
                RunOverrides { rate: Some(9.0), sweep: Some(vec![50]), ..RunOverrides::default() },
                "leave out --rate",
            ),
        ] {
            let said = format!("{:#}", ResolvedScenario::new(scenario(), &wishes).unwrap_err());
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn a_rate_from_the_command_line_is_that_of_every_arm_without_its_own() {
        let text = "name = \"x\"\nquestion = \"?\"\nbaseline = \"none\"\nprimary = \"latency_us_mean\"\n\
                    [profile.quick]\nrounds = 1\nwindow = \"1s\"\nsettle = \"1s\"\n\
                    [[arm]]\nname = \"none\"\ntitle = \"t\"\nrole = \"baseline\"\n\
                    [[arm]]\nname = \"slow\"\ntitle = \"t\"\nworkload = { rate = 5.0 }\n";
        let scenario = Scenario::parse(text).unwrap();
        let resolved =
            ResolvedScenario::new(scenario, &RunOverrides { rate: Some(70.0), ..RunOverrides::default() })
                .unwrap();
        let rates: Vec<_> = resolved.arms.iter().map(|arm| resolved.arm_workload(arm).rate_per_s).collect();
        assert_eq!(rates, [Some(70.0), Some(5.0)]);
    }

    #[test]
    fn an_arm_whose_counterpart_cannot_run_cannot_run_either() {
        let scenario = Preset::named("socket-vs-tcp").unwrap().scenario().unwrap();
        let resolved = ResolvedScenario::new(scenario, &RunOverrides::default()).unwrap();
        let mut arms: Vec<toll_record::Arm> =
            resolved.arms.iter().map(|arm| resolve_arm(resolved.scenario.clone(), &arm.name)).collect();
        arms.iter_mut().find(|arm| arm.name == "tcp-64").unwrap().unavailable = Some("no TCP".into());
        mark_missing_reference(&mut arms);
        let why = |name: &str| arms.iter().find(|arm| arm.name == name).unwrap().unavailable.clone();
        assert_eq!(why("ssh-tcp-64").as_deref(), Some("it is compared with tcp-64, which cannot run here"));
        assert_eq!(
            why("ssh-unix-64").as_deref(),
            Some("it is compared with ssh-tcp-64, which cannot run here")
        );
        assert_eq!(why("text-64"), None);
    }

    fn resolve_arm(scenario: Scenario, name: &str) -> toll_record::Arm {
        let resolved = ResolvedScenario::new(scenario, &RunOverrides::default()).unwrap();
        let definitions = Definitions::new(&resolved.scenario.define, "mariadb");
        let written = resolved.scenario.arms.iter().find(|arm| arm.name == name).unwrap();
        arm::resolve_arm(written, resolved.arm_workload(written), &resolved.times, &definitions, 4.0)
    }

    #[test]
    fn a_shown_command_has_its_definitions_and_no_secret() {
        let mut placeholders = PlaceholderValues::default();
        placeholders.set("port", "33002".into());
        assert_eq!(
            arm::format_treatment(&resolve_arm(scenario(), "tcpdump-file"), &placeholders),
            "tcpdump -s 65535 -x -nn -q -tttt -i any -G DURATION_S -W 1 -Z root -w ARTEFACT 'port 33002'"
        );
        let mut with_secret = scenario();
        let arm = with_secret.arms.iter_mut().find(|arm| arm.name == "tcpdump-file").unwrap();
        arm.command = Some("sh -c 'mysqldump -phunter2 | gzip'".into());
        let arm = resolve_arm(with_secret, "tcpdump-file");
        assert_eq!(arm::format_treatment(&arm, &placeholders), "sh -c 'mysqldump -p*** | gzip'");
    }

    #[test]
    fn a_rate_of_the_scenario_is_that_of_every_arm_with_a_load() {
        let scenario = Preset::named("backup-users").unwrap().scenario().unwrap();
        let mut resolved = ResolvedScenario::new(scenario, &RunOverrides::default()).unwrap();
        assert_eq!(resolved.arms_needing_capacity(), ["all-out"]);
        resolved.resolve_rates(&BTreeMap::from([("all-out".to_owned(), 900.0)]), &[]).unwrap();
        for arm in &resolved.arms {
            assert_eq!(resolved.arm_workload(arm).rate_per_s, Some(450.0), "{}", arm.name);
        }
    }

    #[test]
    fn what_does_not_exist_is_named_with_what_does() {
        let overrides = RunOverrides { arms: Some(vec!["Z".into()]), ..RunOverrides::default() };
        let error = ResolvedScenario::new(scenario(), &overrides).unwrap_err().to_string();
        assert!(error.contains("no arm `Z`") && error.contains("cpu-control"), "{error}");
        let overrides = RunOverrides { profile: Some("slow".into()), ..RunOverrides::default() };
        assert!(ResolvedScenario::new(scenario(), &overrides).unwrap_err().to_string().contains("faithful"));
    }
}
