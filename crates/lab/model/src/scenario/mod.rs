//! What does a scenario file say? As written: nothing is resolved, looked up or started here.

mod arm;
mod check;
mod check_arm;
mod check_charts;
mod check_findings;
mod each;
mod elsewhere;
mod in_order;
#[cfg(test)]
mod page;
mod preset;
mod stands;

pub use arm::{Arm, Ends, Member, Until};
pub use check::{MOST_ROUNDS, check_load, check_rate};
pub use preset::{PRESETS, Preset};

use anyhow::{Context, bail};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use toll_record::catalogue::{self, CATALOGUE};
use toll_record::{Charted, Contrast, Definition, Limit, Pareto};
use toll_sys::units::{Bytes, Percent, Seconds};

/// A scenario, one to one with its TOML.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    pub name: String,
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
    /// Outcomes of its own, and in the place of the catalogue's.
    #[serde(default, rename = "outcome", deserialize_with = "catalogue::definitions")]
    pub outcomes: Vec<Definition>,
    /// Outcomes that the report's table shows; absent: the catalogue's choice. The page's, likewise.
    pub columns: Option<Vec<String>>,
    pub panels: Option<Vec<String>>,
    /// Outcomes of one arm over multiples of another's.
    #[serde(default, rename = "contrast")]
    pub contrasts: Vec<Contrast>,
    /// Arms that differ in a number, as rungs of a ladder.
    #[serde(default, rename = "limit")]
    pub limits: Vec<Limit>,
    /// What arms trade against each other.
    pub pareto: Option<Pareto>,
    /// Outcomes that are drawn over what `each` puts into arms.
    #[serde(default, rename = "chart")]
    pub charts: Vec<Charted>,
    #[serde(default)]
    pub workload: Workload,
    #[serde(default)]
    pub server: ServerWish,
    /// Absent: the tables of the loads, where there are any.
    pub data: Option<Data>,
    /// What stands around the subject, in this order.
    #[serde(default)]
    pub rig: Vec<toll_record::RigStep>,
    /// `quick`, `standard`, `faithful`.
    pub profile: BTreeMap<String, Profile>,
    /// The profile of a run that asks for none; absent: the first by name.
    pub default_profile: Option<String>,
    /// Text that stands for `{name}` in commands; a table is chosen by the server's flavour.
    #[serde(default)]
    pub define: BTreeMap<String, Define>,
    /// Every arm again at rates from low to high.
    pub sweep: Option<Sweep>,
    #[serde(rename = "arm")]
    pub arms: Vec<Arm>,
}

/// What arms are priced on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    #[default]
    Server,
    /// The host alone, or what the rig makes on it.
    Host,
}

/// Which data there is, and from which seed.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Data {
    #[serde(default = "default_recipe")]
    pub recipe: String,
    #[serde(default = "default_seed")]
    pub seed: u64,
    /// Of the recipe's full size.
    pub scale: Option<f64>,
}

impl Default for Data {
    fn default() -> Self {
        Self { recipe: default_recipe(), seed: default_seed(), scale: None }
    }
}

fn default_recipe() -> String {
    crate::data::DEFAULT.to_owned()
}

/// The same for every run, so that data is made once and cloned.
fn default_seed() -> u64 {
    1
}

/// Rates of a load-latency sweep.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sweep {
    /// The arm whose closed loop says what capacity is; absent: the baseline.
    pub of: Option<String>,
    /// Percent of that capacity.
    #[serde(default = "sweep_percents")]
    pub percents: Vec<u32>,
}

/// From a tenth of capacity to beyond it.
pub fn sweep_percents() -> Vec<u32> {
    (1..=11).map(|tenth| tenth * 10).collect()
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Define {
    Text(String),
    ByFlavour(BTreeMap<String, String>),
}

/// The load; each field of an arm's own `workload` replaces the scenario's.
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
    /// Events after which a connection is made anew; 0: never.
    pub reconnect: Option<u64>,
    /// Threads of toll's driver that share the connections; absent: one each where they are few.
    pub workers: Option<u32>,
    /// Each reply is held back for this share of its response time.
    pub delay: Option<Percent>,
    pub rate: Option<Rate>,
}

/// Events a second of an open loop.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Rate {
    PerSecond(f64),
    /// `{ share = 0.4, of = "tcp-64" }`: of what that arm's closed loop attains here, found first.
    Share {
        share: f64,
        of: String,
    },
}

/// What a sandbox server must be able to do.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerWish {
    /// Options of the sandbox, `name = "value"`, by flavour; `any` for all.
    #[serde(default)]
    pub options: BTreeMap<String, BTreeMap<String, String>>,
}

impl ServerWish {
    /// The options that it asks of a server of this flavour.
    pub fn of(&self, flavour: &str) -> BTreeMap<String, String> {
        let tables = ["any", flavour].into_iter().filter_map(|key| self.options.get(key)).flatten();
        tables.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

/// How long and how often.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// All of the run: windows and rounds are chosen for it.
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
    /// Rows that tables hold, where that is more than the load touches.
    #[serde(default)]
    pub table_rows: Option<u64>,
    /// Of the size of the recipe's data.
    #[serde(default)]
    pub scale: Option<f64>,
    /// Buffer pool of a sandbox where memory allows; absent: as much as the data needs.
    #[serde(default)]
    pub buffer_pool: Option<Bytes>,
    /// What servers and treatments have of the host; absent: all of it.
    #[serde(default)]
    pub limits: Option<Limits>,
    /// The arms of this profile; absent: all.
    #[serde(default)]
    pub arms: Option<Vec<String>>,
    /// Length of the baseline's pilot, from which it is foretold what the run finds; not where a `time` is given.
    #[serde(default)]
    pub pilot: Seconds,
}

/// A smaller host.
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
    /// A preset by its name, or a file by its path.
    pub fn load(name_or_path: &str) -> anyhow::Result<(Self, String)> {
        if let Some(preset) = PRESETS.iter().find(|p| p.name == name_or_path) {
            return Ok((Self::parse(preset.text)?, preset.text.to_owned()));
        }
        let path = Path::new(name_or_path);
        if !path.exists() {
            let known: Vec<_> = PRESETS.iter().map(|p| p.name).collect();
            bail!("no scenario or file `{name_or_path}`: known scenarios are {}", known.join(", "));
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name_or_path}"))?;
        let scenario = Self::parse(&text).with_context(|| format!("in {name_or_path}"))?;
        Ok((scenario, text))
    }

    /// Every outcome that this scenario can speak of.
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

    /// Reads and validates; the error names the line and what was expected.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let mut scenario: Scenario = toml::from_str(text).context("not a scenario")?;
        let arms = scenario.arms.into_iter().map(each::expanded).collect::<anyhow::Result<Vec<_>>>()?;
        scenario.arms = arms.into_iter().flatten().collect();
        scenario.check()?;
        Ok(scenario)
    }
}
