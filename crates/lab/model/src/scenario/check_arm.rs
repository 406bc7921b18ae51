//! Validation of a single arm, as far as possible without a server.

use super::check::FLAVOURS;
use super::{Arm, CountLimit, Define, OnExit};
use crate::artefacts::{self, Shape, Writer};
use crate::placeholders::{BUILT_IN_PLACEHOLDERS, Definitions, PER_TRIAL_PLACEHOLDERS};
use crate::rig::parse_link_rate;
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use toll_record::{ArtefactKind, Meter, Role, RowUpdate};
use toll_sys::units::{MAX_DURATION_S, Percent};

/// Most copies of a process: each is a process, with only a small share of the host.
const MAX_COPIES: u32 = 1_000;

impl Arm {
    pub(super) fn check(&self, define: &BTreeMap<String, Define>) -> anyhow::Result<()> {
        self.check_treatment()?;
        self.check_window()?;
        self.workload.check()?;
        if let Some(Percent(percent)) = self.burn {
            ensure!(
                percent > 0.0 && percent <= 100.0,
                "burn = \"{percent}%\" lies above 0% and is at most 100% of the host's CPU time"
            );
            ensure!(
                self.command.is_none() && self.stages.is_none() && self.process.is_empty(),
                "`burn` is the process of the arm: leave `command`, `stages` and `process` out"
            );
        }
        ensure!(self.remote_port != Some(0), "remote_port = 0: a listener needs a port of 1 to 65535");
        if let Some(rate) = &self.far_rate {
            parse_link_rate(rate).with_context(|| format!("far_rate = {rate:?}"))?;
        }
        for (name, value) in &self.sysctl.0 {
            ensure!(
                !value.contains(['{', '}']),
                "sysctl = {{ {name:?} = {value:?} }}: only placeholders of `each` are allowed there"
            );
            ensure!(
                toll_sys::sysctl::path(name).is_some(),
                "sysctl = {name:?} is not a valid sysctl name: write it as sysctl does, vm.dirty_bytes"
            );
        }
        for name in &self.env {
            let is_name = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            ensure!(
                is_name && !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit()),
                "env = {name:?} is no name of an environment variable: give names without values"
            );
        }
        for flavour in FLAVOURS {
            self.check_placeholders(define, flavour)?;
        }
        Ok(())
    }

    fn check_treatment(&self) -> anyhow::Result<()> {
        let single = self.command.is_some() || self.stages.is_some();
        ensure!(
            self.process.is_empty() || !single,
            "`process` lists all processes of the arm: leave `command` and `stages` out, or `process`"
        );
        let of_single = [
            ("stdout", self.stdout.is_some()),
            ("ready", self.ready.is_some()),
            ("stop", self.stop.is_some()),
            ("probe", self.probe.is_some()),
            ("far", self.far),
        ];
        for (key, given) in of_single {
            ensure!(
                single || !given,
                "`{key}` is about a command: give it beside `command`, or in each `process` that it is about"
            );
        }
        ensure!(
            self.process.is_empty() || self.process.iter().any(|member| !member.background),
            "all processes are in the background: at least one must not be"
        );
        for member in self.process_specs() {
            match (&member.command, &member.stages) {
                (Some(_), None) => {}
                (None, Some(stages)) if stages.is_empty() => bail!("`stages` is empty"),
                (None, Some(_)) => {}
                _ => bail!("[[arm.process]]: give either `command` or `stages`, not both"),
            }
            ensure!(
                member.copies.is_none_or(|copies| (1..=MAX_COPIES).contains(&copies)),
                "copies = {}: use 1 to {MAX_COPIES}",
                member.copies.unwrap_or_default()
            );
            ensure!(
                !(member.keep_stdout && member.stdout.is_some()),
                "`stdout` and `keep_stdout` conflict: remove one"
            );
            for (name, length) in
                [("after", member.after), ("stagger", member.stagger), ("drain", member.drain)]
            {
                ensure!(
                    (0.0..=MAX_DURATION_S).contains(&length.0),
                    "{name} = {} s: it must be a day at most",
                    length.0
                );
            }
        }
        self.update.iter().try_for_each(check_update)?;
        ensure!(
            self.artefact != Some(ArtefactKind::Unknown),
            "there is no such `artefact`: use {}",
            artefacts::list_kind_names()
        );
        ensure!(
            (self.artefact == Some(ArtefactKind::Server)) == self.count.is_some(),
            "`artefact = \"server\"` and `count` go together"
        );
        if self.artefact.is_some_and(|kind| artefacts::spec_of(kind).writer == Writer::Server) {
            ensure!(
                !self.set.0.is_empty() || !self.on.is_empty(),
                "the server writes this kind of artefact: enable it with `set` or `on`"
            );
        }
        ensure!(
            !self.in_memory
                || self
                    .artefact
                    .is_some_and(|kind| artefacts::spec_of(kind).writer == Writer::Tool && self.writes_file()),
            "`in_memory` is where the file of a tool lies: give its kind as `artefact`"
        );
        ensure!(
            !(self.in_memory && self.artefact == Some(ArtefactKind::Directory)),
            "`in_memory` is for files: a directory stays where it is"
        );
        ensure!(
            self.count_with.is_none()
                || self.artefact.is_some_and(|kind| artefacts::spec_of(kind).shape == Shape::Files),
            "`count_with` reads the file that an arm writes: give its kind as `artefact`"
        );
        ensure!(
            !self.selects || self.artefact == Some(ArtefactKind::Pcap),
            "`selects` is about a capture: it goes with `artefact = \"pcap\"`"
        );
        ensure!(
            self.remote_port.is_none() || self.writes_file(),
            "`remote_port` takes `artefact`, the kind of file that arrives at the far end"
        );
        ensure!(
            (self.role == Role::PositiveControl) == (self.burn.is_some() || self.workload.delay.is_some()),
            "a positive control has a dose that is to be found, and nothing else has: `burn`, or `delay` in its workload"
        );
        Ok(())
    }

    fn check_window(&self) -> anyhow::Result<()> {
        let members = self.process_specs();
        if let Some(at_most) = self.at_most {
            ensure!(
                at_most.0 > 0.0 && at_most.0 <= MAX_DURATION_S,
                "at_most = {} s must be above 0, and a day at most",
                at_most.0
            );
            ensure!(
                self.ends == OnExit::ClosesWindow || self.until.is_some(),
                "`at_most` bounds a window that something else ends: give `until` or ends = \"closes-window\""
            );
        }
        if let Some(until) = self.until {
            ensure!(
                !matches!(self.ends, OnExit::ClosesWindow | OnExit::Rehearse),
                "`until` and `ends` conflict: both set the window's end, remove one"
            );
            let (CountLimit::Statements(count) | CountLimit::Events(count) | CountLimit::Packets(count)) =
                until;
            ensure!(count > 0, "`until` counts to 0: one is the least");
            let counts_packets = matches!(self.meter, Some(Meter::Link(_)));
            ensure!(
                counts_packets == matches!(until, CountLimit::Packets(_)),
                "`until` packets goes with meter = {{ link = \"DEVICE\" }}, and nothing else does"
            );
        }
        let has_own_load = self.workload.driver.as_deref().is_some_and(|driver| driver != "none");
        ensure!(
            !(has_own_load && self.counts_statements()),
            "`meter` counts where no load of toll's runs: leave it out, or say workload = {{ driver = \"none\" }}"
        );
        if self.ends == OnExit::Never {
            return Ok(());
        }
        ensure!(
            !members.is_empty(),
            "`ends` is about commands that end by themselves: give `command`, `stages` or `process`"
        );
        ensure!(
            members.iter().filter(|member| !member.background).all(|member| member.ready.is_none()),
            "`ready` waits for a command that lasts, and `ends` says that it does not: leave one out"
        );
        Ok(())
    }

    fn writes_file(&self) -> bool {
        self.artefact.is_some_and(|kind| artefacts::spec_of(kind).shape != Shape::None)
    }

    /// Quotes close, and every placeholder is known by the time that it is filled in.
    fn check_placeholders(&self, define: &BTreeMap<String, Define>, flavour: &str) -> anyhow::Result<()> {
        let mut definitions = Definitions::new(define, flavour);
        for (name, _) in BUILT_IN_PLACEHOLDERS {
            let unknown = match name {
                "artefact" => !self.writes_file(),
                "remote_ip" | "remote_port" => self.remote_port.is_none(),
                "copy" => self.process.is_empty(),
                _ => false,
            };
            if unknown {
                definitions.remove_value(name);
            }
        }
        // One that is defined for other servers only makes the arm unavailable on this one.
        for (name, value) in define {
            if matches!(value, Define::ByFlavour(by) if !by.contains_key(flavour)) {
                definitions.define(name, "x".into());
            }
        }
        for member in self.process_specs() {
            for command in member.commands() {
                definitions.split_command(command)?;
            }
            if let Some(stdout) = &member.stdout {
                definitions.expand(stdout)?;
            }
        }
        for (_, value) in self.set.0.iter().chain(&self.set_if_known.0) {
            definitions.expand(value)?;
        }
        // Neither is part of a trial.
        for name in PER_TRIAL_PLACEHOLDERS {
            definitions.remove_value(name);
        }
        for command in self.count_with.iter().chain(&self.check) {
            definitions.split_command(command)?;
        }
        Ok(())
    }
}

fn check_update(update: &RowUpdate) -> anyhow::Result<()> {
    if update.table.split('.').count() != 2 || update.table.split('.').any(str::is_empty) {
        bail!(
            "`update` of the table `{}`: name it with its schema, as in performance_schema.setup_consumers",
            update.table
        );
    }
    if update.key.is_empty() || update.set.is_empty() {
        bail!("`update` of {}: give `key` (the columns that identify a row) and `set`", update.table);
    }
    if let Some(column) = update.key.iter().find(|column| update.set.contains_key(*column)) {
        bail!("`update` of {}: `{column}` is a key, which cannot be set", update.table);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::scenario::Scenario;

    fn scenario(arm: &str) -> Result<Scenario, String> {
        let text = format!(
            "name = \"x\"\nquestion = \"?\"\nbaseline = \"it\"\nprimary = \"elapsed_s\"\nsubject = \"host\"\n\
             [profile.a]\nrounds = 1\nwindow = \"1s\"\nsettle = \"0s\"\n\
             [[arm]]\nname = \"it\"\ntitle = \"it\"\nrole = \"baseline\"\nends = \"closes-window\"\n{arm}\n"
        );
        Scenario::parse(&text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn what_keeps_another_company_may_say_that_it_is_ready_and_what_is_waited_for_may_not() {
        let beside = |ready: &str, background: &str| {
            scenario(&format!(
                "process = [{{ command = \"cat\"{ready}{background} }}, {{ command = \"tac\" }}]"
            ))
        };
        assert!(beside(", ready = \"on\"", ", background = true").is_ok());
        let said = beside(", ready = \"on\"", "").unwrap_err();
        assert!(said.contains("`ready` waits for a command that lasts"), "{said}");
    }

    #[test]
    fn where_a_file_lies_and_what_is_drained_have_their_bounds() {
        for (arm, expected) in [
            ("command = \"cat\"\nin_memory = true", "`in_memory` is where the file of a tool lies"),
            (
                "process = [{ command = \"cat\", stdout = \"/tmp/x\", keep_stdout = true }]",
                "`stdout` and `keep_stdout` conflict",
            ),
            ("process = [{ command = \"cat\", drain = 1e6 }]", "drain = 1000000 s"),
            ("command = \"cat\"\nsysctl = { \"../x\" = \"1\" }", "is not a valid sysctl name"),
            ("command = \"cat\"\nselects = true", "`selects` is about a capture"),
            ("command = \"cat\"\ncount_with = \"wc -l\"", "`count_with` reads the file that an arm writes"),
            (
                "command = \"cat {artefact}\"\nartefact = \"bytes\"\ncount_with = \"wc {artefact}\"",
                "unknown placeholder {artefact}",
            ),
            ("command = \"cat\"\ncheck = \"test 'x\"", "a quote is not closed"),
            ("command = \"cat\"\ncheck = \"true {pid}\"", "{pid} is a server's"),
        ] {
            let said = scenario(arm).unwrap_err();
            assert!(said.contains(expected), "{arm}: {said}");
        }
        let file = "command = \"cat {artefact}\"\nartefact = \"bytes\"";
        assert!(scenario(&format!("{file}\nin_memory = true")).is_ok());
        assert!(scenario(&format!("{file}\ncount_with = \"wc -l\"\ncheck = \"true\"")).is_ok());
    }
}
