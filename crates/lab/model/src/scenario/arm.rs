//! One arm of a scenario, as written.

use super::ordered_map::OrderedMap;
use super::{ServerOptions, Workload};
use crate::artefacts::{self, Writer};
use serde::Deserialize;
use toll_record::{Meter, RowUpdate, Signal};
use toll_sys::units::{Percent, Seconds};

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arm {
    /// The name that is recorded and printed.
    pub name: String,
    /// Other names by which files and users may refer to it: one, or a list.
    #[serde(default, deserialize_with = "super::names::parse_aliases")]
    pub alias: Vec<String>,
    pub title: String,
    #[serde(default = "default_role")]
    pub role: toll_record::Role,
    /// One command: words as in a shell, with quotes, without a shell.
    pub command: Option<String>,
    /// Commands joined by pipes.
    pub stages: Option<Vec<String>>,
    /// File for the last command's standard output.
    pub stdout: Option<String>,
    /// Text on standard error that reports the first command as ready.
    pub ready: Option<String>,
    /// The signal that ends the first command.
    pub stop: Option<Signal>,
    /// A signal that makes the tool print its counters without ending.
    pub probe: Option<Signal>,
    /// Several processes at once, in place of `command` or `stages`.
    #[serde(default)]
    pub process: Vec<ProcessSpec>,
    /// Port of a listener on the rig's far end. Defines `{remote_ip}`.
    pub remote_port: Option<u16>,
    /// The command runs at the rig's far end.
    #[serde(default)]
    pub far: bool,
    /// Rate of the link to it while the arm is on, if it differs from the rig's.
    pub far_rate: Option<String>,
    /// Global variables while the arm is on, set in this order; restored afterwards.
    #[serde(default)]
    pub set: OrderedMap<String>,
    /// As `set`, but only variables that the server knows.
    #[serde(default)]
    pub set_if_known: OrderedMap<String>,
    /// Rows of tables while the arm is on; restored afterwards.
    #[serde(default)]
    pub update: Vec<RowUpdate>,
    /// Kernel settings while the arm is on, by their `sysctl` names; restored afterwards.
    #[serde(default)]
    pub sysctl: OrderedMap<String>,
    /// Statements that switch the arm on. `off` switches it off.
    #[serde(default)]
    pub on: Vec<String>,
    #[serde(default)]
    pub off: Vec<String>,
    /// A query that returns one number: the events captured so far (`artefact = "server"`).
    pub count: Option<String>,
    /// Reconnects the load once the arm is on. Sessions copy some variables when they connect.
    #[serde(default)]
    pub fresh_sessions: bool,
    pub artefact: Option<toll_record::ArtefactKind>,
    /// A command that reads the window's part of the artefact and prints the number of queries in it.
    pub count_with: Option<String>,
    /// The artefact is in memory, so that no disk slows it down.
    #[serde(default)]
    pub in_memory: bool,
    /// The filter of its capture leaves packets out.
    #[serde(default)]
    pub selects: bool,
    /// Programs needed beyond those of the commands, and files (with a slash).
    #[serde(default)]
    pub requires: Vec<String>,
    #[serde(default)]
    pub requires_root: bool,
    /// Variables that the server must know.
    #[serde(default)]
    pub requires_variable: Vec<String>,
    /// A command that must succeed. If it fails, its last line is the reason why the arm cannot run.
    pub check: Option<String>,
    /// In place of commands: a process that burns this share of the host's CPU time.
    pub burn: Option<Percent>,
    /// Meaning of commands that end by themselves.
    #[serde(default)]
    pub ends: OnExit,
    /// The window ends when the meter has counted this much.
    pub until: Option<CountLimit>,
    /// Longest window of an arm that something other than time ends; absent: the profile's.
    pub at_most: Option<Seconds>,
    /// Shortest settling time before its window, if the arm needs longer than others.
    pub settle: Option<Seconds>,
    /// Source of the work done; absent: the load's driver, or none if there is no load.
    pub meter: Option<Meter>,
    /// Names of environment variables that the processes inherit. Of all others only harmless ones are passed
    /// on.
    #[serde(default)]
    pub env: Vec<String>,
    /// The arm that this one is compared with, if not the scenario's baseline.
    pub against: Option<String>,
    /// The outcome of this arm's verdicts, if not the scenario's primary one.
    pub judged_by: Option<String>,
    #[serde(default)]
    pub workload: Workload,
    /// Sandbox options of this arm alone, in addition to the scenario's.
    #[serde(default)]
    pub server: ServerOptions,
    /// Matrix of values: many arms that differ in a word or two. Expanded when the file is read.
    #[serde(default)]
    pub each: OrderedMap<Vec<String>>,
    /// Values of the matrix in this arm. Never in a file.
    #[serde(skip)]
    pub varied: Vec<(String, String)>,
    /// The arm whose copy at another rate this is. Never in a file; a sweep sets it.
    #[serde(skip)]
    pub curve: Option<String>,
}

/// A process of a set, or several joined by pipes.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessSpec {
    /// Absent: its first command's name.
    pub name: Option<String>,
    pub command: Option<String>,
    pub stages: Option<Vec<String>>,
    pub stdout: Option<String>,
    pub ready: Option<String>,
    pub stop: Option<Signal>,
    pub probe: Option<Signal>,
    /// Number of simultaneous copies; `{copy}` counts them from 1.
    pub copies: Option<u32>,
    /// Delay of its start after the arm is switched on.
    #[serde(default)]
    pub after: Seconds,
    /// Delay of each copy's start after the previous one.
    #[serde(default)]
    pub stagger: Seconds,
    /// Runs as long as the other processes of the set.
    #[serde(default)]
    pub background: bool,
    /// Runs at the rig's far end.
    #[serde(default)]
    pub far: bool,
    /// Time without output that toll waits for before it ends the process.
    #[serde(default)]
    pub drain: Seconds,
    /// Stores its standard output beside its errors, and parses it for packet counters.
    #[serde(default)]
    pub keep_stdout: bool,
}

impl Arm {
    /// True if something other than time may end its windows: a count, or its commands.
    pub fn sets_window_end(&self) -> bool {
        self.until.is_some() || matches!(self.ends, OnExit::ClosesWindow | OnExit::Rehearse)
    }

    /// The form of the treatment, in a word.
    pub fn treatment_kind(&self) -> &'static str {
        match (self.process_specs().as_slice(), self.artefact.map(artefacts::spec_of)) {
            ([], Some(row)) if row.writer == Writer::Server => "log",
            ([], _) if !self.has_statements() && self.sysctl.0.is_empty() => "none",
            ([], _) => "settings",
            ([one], _) if one.copies.is_none() && one.stages.is_none() => "command",
            ([one], _) if one.copies.is_none() => "pipeline",
            _ => "processes",
        }
    }

    /// True if a meter of its own counts, in place of a driver.
    pub fn counts_statements(&self) -> bool {
        self.meter.as_ref().is_some_and(Meter::is_counter)
    }

    /// True if the arm has statements or settings for a server.
    pub fn has_statements(&self) -> bool {
        let settings = self.set.0.is_empty() && self.set_if_known.0.is_empty() && self.update.is_empty();
        !(settings && self.on.is_empty() && self.off.is_empty())
    }

    /// All texts that may hold placeholders.
    pub fn template_texts(&self) -> Vec<String> {
        let mut texts = Vec::new();
        for member in self.process_specs() {
            texts.extend(member.commands().cloned());
            texts.extend(member.stdout);
        }
        texts.extend(self.count_with.iter().chain(&self.check).cloned());
        texts.extend(self.set.0.iter().chain(&self.set_if_known.0).map(|(_, value)| value.clone()));
        texts
    }

    /// All processes, from `command`, `stages` or `process`.
    pub fn process_specs(&self) -> Vec<ProcessSpec> {
        if let Some(Percent(percent)) = self.burn {
            return vec![ProcessSpec {
                command: Some(format!("{{toll}} burn {percent}%")),
                ..ProcessSpec::default()
            }];
        }
        if self.command.is_none() && self.stages.is_none() {
            return self.process.clone();
        }
        vec![ProcessSpec {
            command: self.command.clone(),
            stages: self.stages.clone(),
            stdout: self.stdout.clone(),
            ready: self.ready.clone(),
            stop: self.stop,
            probe: self.probe,
            far: self.far,
            ..ProcessSpec::default()
        }]
    }
}

impl ProcessSpec {
    /// Its commands in the order of the pipe.
    pub fn commands(&self) -> impl Iterator<Item = &String> {
        self.command.iter().chain(self.stages.iter().flatten())
    }
}

/// Meaning of an arm's commands that end by themselves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnExit {
    /// They have failed.
    #[default]
    Never,
    /// The window, which began when they were started, is over.
    ClosesWindow,
    /// They are restarted until the window is over.
    Again,
    /// A dry run before the first trial decides: `ClosesWindow` if they end in time, else `Never`.
    Rehearse,
}

/// Count at which a meter ends the window: one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CountLimit {
    Statements(u64),
    Events(u64),
    Packets(u64),
}

fn default_role() -> toll_record::Role {
    toll_record::Role::Treatment
}
