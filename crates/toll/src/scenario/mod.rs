//! What does a scenario file say? As written: nothing is resolved, looked up or started here.

mod check;
mod check_arm;
mod check_findings;
mod duration;
mod each;
#[cfg(test)]
mod page;
mod percent;
mod preset;
mod size;
mod stands;

pub use check::{LONGEST_S, MOST_ROUNDS, check_load, check_rate};
pub use duration::Seconds;
pub use percent::Percent;
pub use preset::{PRESETS, Preset};
pub use size::Bytes;

use crate::artefacts::{self, Writer};
use crate::catalogue::{self, CATALOGUE};
use anyhow::{Context, bail};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use toll_record::{Contrast, Definition, Meter, Pareto, RowUpdate, Signal};

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
    /// What arms trade against each other.
    pub pareto: Option<Pareto>,
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
    crate::stage::data::DEFAULT.to_owned()
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

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    pub name: String,
    pub title: String,
    #[serde(default = "default_role")]
    pub role: toll_record::Role,
    /// One command: words as in a shell, with quotes, without a shell.
    pub command: Option<String>,
    /// Commands joined by pipes.
    pub stages: Option<Vec<String>>,
    /// File that takes the last command's standard output.
    pub stdout: Option<String>,
    /// Text on standard error that says that the first command is on.
    pub ready: Option<String>,
    /// The signal that ends the first command.
    pub stop: Option<Signal>,
    /// A signal that makes the tool print its counters without ending.
    pub probe: Option<Signal>,
    /// Several processes at once, in the place of `command` or `stages`.
    #[serde(default)]
    pub process: Vec<Member>,
    /// A listener on the rig's far end: its port. Gives `{remote_ip}`.
    pub remote_port: Option<u16>,
    /// The command runs at the rig's far end.
    #[serde(default)]
    pub far: bool,
    /// Rate of the link to it while the arm is on, where that is not the rig's.
    pub far_rate: Option<String>,
    /// Global variables while the arm is on, in this order; put back afterwards.
    #[serde(default)]
    pub set: Settings,
    /// The same, where the server knows the variable.
    #[serde(default)]
    pub set_if_known: Settings,
    /// Rows of tables while the arm is on; put back afterwards.
    #[serde(default)]
    pub update: Vec<RowUpdate>,
    /// Statements when the arm goes on, and off.
    #[serde(default)]
    pub on: Vec<String>,
    #[serde(default)]
    pub off: Vec<String>,
    /// A query whose one number counts what was caught so far (`artefact = "server"`).
    pub count: Option<String>,
    /// Sessions copy some variables when they connect: reconnect the load once the arm is on.
    #[serde(default)]
    pub fresh_sessions: bool,
    pub artefact: Option<toll_record::ArtefactKind>,
    /// Programs needed beyond those of the commands, and files (with a slash).
    #[serde(default)]
    pub requires: Vec<String>,
    #[serde(default)]
    pub requires_root: bool,
    /// Variables that the server must know.
    #[serde(default)]
    pub requires_variable: Vec<String>,
    /// In the place of commands: a process that burns this share of the host's CPU time.
    pub burn: Option<Percent>,
    /// What it means when the commands end by themselves.
    #[serde(default)]
    pub ends: Ends,
    /// The window ends when the meter has counted so much.
    pub until: Option<Until>,
    /// Longest window of an arm whose window ends by something else than time; absent: the profile's.
    pub at_most: Option<Seconds>,
    /// The least time from being on to its window, where the arm needs longer than others.
    pub settle: Option<Seconds>,
    /// What says how much work was done; absent: the load's driver, or nothing where there is no load.
    pub meter: Option<Meter>,
    /// Environment variables that the processes are given, by name; of all others only harmless ones.
    #[serde(default)]
    pub env: Vec<String>,
    /// The arm that this one is compared with, where that is not the scenario's baseline.
    pub against: Option<String>,
    /// The outcome that verdicts on this arm are drawn from, where that is not the scenario's primary one.
    pub judged_by: Option<String>,
    #[serde(default)]
    pub workload: Workload,
    /// Options of a sandbox that this arm has for itself, beyond the scenario's.
    #[serde(default)]
    pub server: ServerWish,
    /// Many arms that differ in a word or two; resolved when the file is read.
    #[serde(default)]
    pub each: each::Each,
    /// The arm that this one is at another rate; never in a file, a sweep says so.
    #[serde(skip)]
    pub curve: Option<String>,
}

/// A process of a set, or several joined by pipes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// Absent: its first command's.
    pub name: Option<String>,
    pub command: Option<String>,
    pub stages: Option<Vec<String>>,
    pub stdout: Option<String>,
    pub ready: Option<String>,
    pub stop: Option<Signal>,
    pub probe: Option<Signal>,
    /// So many of it at once; `{copy}` counts them from 1.
    pub copies: Option<u32>,
    /// Started this long after the arm is switched on.
    #[serde(default)]
    pub after: Seconds,
    /// Each copy starts so long after the one before.
    #[serde(default)]
    pub stagger: Seconds,
    /// Runs for as long as the others take.
    #[serde(default)]
    pub background: bool,
    /// Runs at the rig's far end.
    #[serde(default)]
    pub far: bool,
}

impl Arm {
    /// How it is carried out, in a word.
    pub fn how(&self) -> &'static str {
        match (self.members().as_slice(), self.artefact.map(artefacts::of)) {
            ([], Some(row)) if row.writer == Writer::Server => "log",
            ([], _) if !self.has_statements() => "none",
            ([], _) => "settings",
            ([one], _) if one.copies.is_none() && one.stages.is_none() => "command",
            ([one], _) if one.copies.is_none() => "pipeline",
            _ => "processes",
        }
    }

    /// Whether a meter of its own counts, in the place of a driver.
    pub fn counts_statements(&self) -> bool {
        matches!(self.meter, Some(Meter::Server | Meter::Link(_)))
    }

    /// Whether anything is asked of a server.
    pub fn has_statements(&self) -> bool {
        let settings = self.set.0.is_empty() && self.set_if_known.0.is_empty() && self.update.is_empty();
        !(settings && self.on.is_empty() && self.off.is_empty())
    }

    /// Whatever may hold placeholders.
    pub fn texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for member in self.members() {
            texts.extend(member.commands().cloned());
            texts.extend(member.stdout);
        }
        texts.extend(self.set.0.iter().chain(&self.set_if_known.0).map(|(_, value)| value.clone()));
        texts
    }

    /// All processes as written, whichever way that was.
    pub fn members(&self) -> Vec<Member> {
        if let Some(Percent(percent)) = self.burn {
            return vec![Member { command: Some(format!("{{toll}} burn {percent}%")), ..Member::default() }];
        }
        if self.command.is_none() && self.stages.is_none() {
            return self.process.clone();
        }
        vec![Member {
            command: self.command.clone(),
            stages: self.stages.clone(),
            stdout: self.stdout.clone(),
            ready: self.ready.clone(),
            stop: self.stop,
            probe: self.probe,
            far: self.far,
            ..Member::default()
        }]
    }
}

impl Member {
    /// Its commands in the order of the pipe.
    pub fn commands(&self) -> impl Iterator<Item = &String> {
        self.command.iter().chain(self.stages.iter().flatten())
    }
}

/// What it means when the commands of an arm end by themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ends {
    /// They have failed.
    #[default]
    Never,
    /// The window, which began when they were started, is over.
    ClosesWindow,
    /// They are run again until the window is over.
    Again,
    /// One rehearsal before the first trial tells: `ClosesWindow` if they end in time, else `Never`.
    Rehearse,
}

/// How much a meter is to count before the window ends: one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Until {
    Statements(u64),
    Events(u64),
    Packets(u64),
}

/// `name = "value"`, in the order of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Settings(pub Vec<(String, String)>);

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InOrder;
        impl<'de> Visitor<'de> for InOrder {
            type Value = Settings;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names of variables with their values as text")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Settings, A::Error> {
                let mut settings = Vec::new();
                while let Some(setting) = map.next_entry()? {
                    settings.push(setting);
                }
                Ok(Settings(settings))
            }
        }
        deserializer.deserialize_map(InOrder)
    }
}

fn default_margin_pct() -> f64 {
    5.0
}

fn default_alpha() -> f64 {
    0.05
}

fn default_role() -> toll_record::Role {
    toll_record::Role::Treatment
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
