//! What does a scenario say of one arm?

use super::in_order::InOrder;
use super::{ServerWish, Workload};
use crate::artefacts::{self, Writer};
use serde::Deserialize;
use toll_record::{Meter, RowUpdate, Signal};
use toll_sys::units::{Percent, Seconds};

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
    pub set: InOrder<String>,
    /// The same, where the server knows the variable.
    #[serde(default)]
    pub set_if_known: InOrder<String>,
    /// Rows of tables while the arm is on; put back afterwards.
    #[serde(default)]
    pub update: Vec<RowUpdate>,
    /// Settings of the kernel while the arm is on, by their names as `sysctl` has them; put back afterwards.
    #[serde(default)]
    pub sysctl: InOrder<String>,
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
    /// The artefact lies in memory, where no disk is in its way.
    #[serde(default)]
    pub in_memory: bool,
    /// Its capture's filter leaves packets out.
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
    pub each: InOrder<Vec<String>>,
    /// What that put into this one of them; never in a file.
    #[serde(skip)]
    pub varied: Vec<(String, String)>,
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
    /// Before it is ended, it is left alone until it has written nothing for so long.
    #[serde(default)]
    pub drain: Seconds,
    /// Its standard output is kept beside its errors, and read for what it says of packets.
    #[serde(default)]
    pub keep_stdout: bool,
}

impl Arm {
    /// How it is carried out, in a word.
    pub fn how(&self) -> &'static str {
        match (self.members().as_slice(), self.artefact.map(artefacts::of)) {
            ([], Some(row)) if row.writer == Writer::Server => "log",
            ([], _) if !self.has_statements() && self.sysctl.0.is_empty() => "none",
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

fn default_role() -> toll_record::Role {
    toll_record::Role::Treatment
}
