//! Scenario file, as written. Never resolves, looks up or starts anything.

mod arm;
mod check;
mod check_arm;
mod check_charts;
mod check_findings;
mod matrix;
mod names;
mod ordered_map;
mod own_traffic;
#[cfg(test)]
mod page;
mod preset;
mod remote_sender;
mod requirements;

pub use arm::{Arm, CountLimit, OnExit, ProcessSpec};
pub use check::{MAX_ROUNDS, check_load, check_rate};
pub use names::{find_arm, other_names};
pub use own_traffic::Judged;
pub use preset::{PRESETS, Preset};

use anyhow::Context;
use serde::Deserialize;
use std::collections::BTreeMap;
use toll_record::catalogue::{self, CATALOGUE};
use toll_record::{Charted, Contrast, Definition, Limit, Pareto};
use toll_sys::units::{Bytes, Percent, Seconds};

/// A scenario, one to one with its TOML.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
    /// The subject in a few words, for lists; absent: the question.
    pub title: Option<String>,
    /// The group of a list that it belongs to.
    pub group: Option<Group>,
    pub question: String,
    pub baseline: String,
    /// The outcome that verdicts are drawn from.
    pub primary: String,
    #[serde(default)]
    pub subject: Subject,
    #[serde(default = "default_margin_pct")]
    pub margin_pct: f64,
    #[serde(default = "default_alpha")]
    pub alpha: f64,
    /// Outcomes of its own. They override the catalogue's of the same name.
    #[serde(default, rename = "outcome", deserialize_with = "catalogue::definitions")]
    pub outcomes: Vec<Definition>,
    /// Outcomes in the report's table; absent: the catalogue's choice. `page` likewise.
    pub columns: Option<Vec<String>>,
    pub panels: Option<Vec<String>>,
    /// Outcomes of one arm over multiples of another's.
    #[serde(default, rename = "contrast")]
    pub contrasts: Vec<Contrast>,
    /// Limits over arms that differ in a number, as rungs of a ladder.
    #[serde(default, rename = "limit")]
    pub limits: Vec<Limit>,
    /// Outcomes that arms trade against each other.
    pub pareto: Option<Pareto>,
    /// Charts of outcomes over the values of `each`.
    #[serde(default, rename = "chart")]
    pub charts: Vec<Charted>,
    #[serde(default)]
    pub workload: Workload,
    #[serde(default)]
    pub server: ServerOptions,
    /// Absent: the tables of the loads, if there are any.
    pub data: Option<Data>,
    /// Steps of the test rig, in this order.
    #[serde(default)]
    pub rig: Vec<toll_record::RigStep>,
    /// `quick`, `standard`, `faithful`.
    pub profile: BTreeMap<String, Profile>,
    /// The default profile; absent: the first by name.
    pub default_profile: Option<String>,
    /// Text for `{name}` in commands. A table is chosen by the server's flavour.
    #[serde(default)]
    pub define: BTreeMap<String, Define>,
    /// Repeats every arm at rates from low to high.
    pub sweep: Option<Sweep>,
    #[serde(rename = "arm", alias = "variant")]
    pub arms: Vec<Arm>,
}

/// Group of scenarios in a list, in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    Capture,
    Loss,
    /// Transports and settings of a server.
    Server,
    Backup,
    /// Checks of toll's own figures.
    SelfTest,
}

impl Group {
    /// The name in scenario files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Capture => "capture",
            Self::Loss => "loss",
            Self::Server => "server",
            Self::Backup => "backup",
            Self::SelfTest => "self-test",
        }
    }
}

/// Subject of the measurement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    #[default]
    Server,
    /// The host alone, or what the rig adds to it.
    Host,
}

/// Recipe, seed and scale of the data.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    #[serde(default = "default_recipe")]
    pub recipe: String,
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Share of the recipe's full size.
    pub scale: Option<f64>,
}

impl Default for Data {
    fn default() -> Self {
        Self { recipe: default_recipe(), seed: default_seed(), scale: None }
    }
}

fn default_recipe() -> String {
    crate::data::DEFAULT_RECIPE.to_owned()
}

/// The same seed for every run, so that data is generated once and cloned.
fn default_seed() -> u64 {
    1
}

/// Rates of a load-latency sweep.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The arm whose closed loop defines capacity; absent: the baseline.
    pub of: Option<String>,
    /// Percents of that capacity.
    #[serde(default = "sweep_percents")]
    pub percents: Vec<u32>,
}

/// Default percents, from a tenth of capacity to beyond it.
pub fn sweep_percents() -> Vec<u32> {
    (1..=11).map(|tenth| tenth * 10).collect()
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Define {
    Text(String),
    ByFlavour(BTreeMap<String, String>),
}

/// The load. Each field of an arm's own `workload` replaces the scenario's.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    pub driver: Option<String>,
    pub profile: Option<String>,
    pub transport: Option<String>,
    pub threads: Option<u32>,
    pub tables: Option<u32>,
    pub rows: Option<u64>,
    pub prepared: Option<bool>,
    /// Events after which a connection is replaced by a new one; 0: never.
    pub reconnect: Option<u64>,
    /// Threads of toll's driver that share the connections; absent: one for each connection, if these are
    /// few.
    pub workers: Option<u32>,
    /// Delay added to each reply, as a share of its response time.
    pub delay: Option<Percent>,
    pub rate: Option<Rate>,
}

impl Workload {
    /// These keys, with those of another in the place of its own.
    pub fn overlaid(self, over: &Self) -> Self {
        let over = over.clone();
        Self {
            driver: over.driver.or(self.driver),
            profile: over.profile.or(self.profile),
            transport: over.transport.or(self.transport),
            threads: over.threads.or(self.threads),
            tables: over.tables.or(self.tables),
            rows: over.rows.or(self.rows),
            prepared: over.prepared.or(self.prepared),
            reconnect: over.reconnect.or(self.reconnect),
            workers: over.workers.or(self.workers),
            delay: over.delay.or(self.delay),
            rate: over.rate.or(self.rate),
        }
    }
}

/// Rate of an open loop, events a second.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Rate {
    PerSecond(f64),
    /// `{ share = 0.4, of = "tcp-64" }`: a share of the capacity of that arm's closed loop, measured first.
    Share {
        share: f64,
        of: String,
    },
}

/// Requirements on a sandbox server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerOptions {
    /// Options of the sandbox, `name = "value"`, by flavour; `any` for all.
    #[serde(default)]
    pub options: BTreeMap<String, BTreeMap<String, String>>,
}

impl ServerOptions {
    /// The required options of a server of this flavour.
    pub fn options_for(&self, flavour: &str) -> BTreeMap<String, String> {
        let tables = ["any", flavour].into_iter().filter_map(|key| self.options.get(key)).flatten();
        tables.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// Length and number of windows, and the size of the setup.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Duration of the whole run: windows and rounds are chosen for it.
    #[serde(default)]
    pub time: Option<Seconds>,
    #[serde(default)]
    pub rounds: Option<u32>,
    #[serde(default)]
    pub window: Option<Seconds>,
    #[serde(default)]
    pub settle: Option<Seconds>,
    #[serde(default)]
    pub gap: Seconds,
    #[serde(default)]
    pub rows: Option<u64>,
    /// Rows of the tables, if more than the load uses.
    #[serde(default)]
    pub table_rows: Option<u64>,
    /// Share of the recipe's full data size.
    #[serde(default)]
    pub scale: Option<f64>,
    /// Buffer pool of a sandbox if memory allows; absent: as large as the data.
    #[serde(default)]
    pub buffer_pool: Option<Bytes>,
    /// Share of the host for servers and treatments; absent: all of it.
    #[serde(default)]
    pub limits: Option<Limits>,
    /// The arms of this profile; absent: all.
    #[serde(default, alias = "variants")]
    pub arms: Option<Vec<String>>,
    /// Those of them that a run on both clocks measures in time, too; absent: all.
    #[serde(default)]
    pub timed: Option<Vec<String>>,
    /// Keys of the load that differ in this profile.
    #[serde(default)]
    pub workload: Workload,
    /// Length of the baseline's pilot, which predicts the minimum detectable effect. Not valid with a `time`.
    #[serde(default)]
    pub pilot: Seconds,
}

/// Limits that make the host smaller.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    pub cpus: Option<f64>,
    pub memory: Option<Bytes>,
}

fn default_margin_pct() -> f64 {
    5.0
}

fn default_alpha() -> f64 {
    0.05
}

impl Scenario {
    /// Every outcome that this scenario can refer to.
    pub fn definitions(&self) -> Vec<Definition> {
        let mut all = CATALOGUE.outcomes.clone();
        for own in &self.outcomes {
            match all.iter_mut().find(|known| known.name == own.name) {
                Some(known) => known.clone_from(own),
                None => all.push(own.clone()),
            }
        }
        all
    }

    /// Parses and validates a scenario.
    ///
    /// # Errors
    /// Names the line and what was expected there.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut scenario: Scenario = toml::from_str(text).context("not a scenario")?;
        let arms =
            scenario.arms.into_iter().map(matrix::expand_matrix).collect::<anyhow::Result<Vec<_>>>()?;
        scenario.arms = arms.into_iter().flatten().collect();
        scenario.check_names()?;
        scenario.resolve_aliases();
        scenario.check()?;
        Ok(scenario)
    }
}
